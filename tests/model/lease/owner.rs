//! A coordinator's side of the protocol.

use super::Variant;
use super::store::{Answer, Batch, Entry, Fence, Process, TTL};

/// Most times that one batch is sent.
pub(super) const SENDS: u8 = 2;

/// What came of asking for the lease, on its way back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LeaseAnswer {
    /// `None`: it is another's.
    pub(super) fence: Option<Fence>,
    pub(super) grant: u8,
    /// When it was asked for.
    pub(super) sent: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) fence: Fence,
    pub(super) grant: u8,
    /// The moment from which its length counts.
    pub(super) since: u8,
}

/// A batch whose outcome is not known yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pending {
    pub(super) batch: Batch,
    pub(super) sends: u8,
}

/// What the owner tells about a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Done,
    /// It did not happen and never will.
    Refused,
    /// It may have happened; the repeat of the request finds out.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    pub(super) process: Process,
    /// The run of the server that it last saw.
    pub(super) run: u8,
    /// Its monotonic clock runs slow, within what the margin of the lease allows.
    pub(super) slow: bool,
    pub(super) answer: Option<LeaseAnswer>,
    pub(super) lease: Option<Held>,
    /// The entity in memory, as the batches that it is made of; nothing before it is loaded.
    pub(super) memory: Option<Vec<Entry>>,
    /// Batches under way, each built on the one before it.
    pub(super) pending: Vec<Pending>,
}

impl Owner {
    pub(super) fn new(node: u8, slow: bool) -> Self {
        Self {
            process: Process { node, incarnation: 0 },
            run: 0,
            slow,
            answer: None,
            lease: None,
            memory: None,
            pending: Vec::new(),
        }
    }

    /// Whether it may read from memory and take new work. Its own clock says so, with a margin, from before the
    /// lease was asked for: the store's clock may have begun to count at any moment since.
    pub(super) fn serves(&self, now: u8, variant: Variant) -> bool {
        let Some(held) = &self.lease else { return false };
        let passed = (now - held.since).saturating_sub(u8::from(self.slow));
        let length = if variant == Variant::NoMargin { TTL } else { TTL - 1 };
        let valid = passed < length || variant == Variant::NoSelfFence;
        valid && self.memory.is_some()
    }

    pub(super) fn has_reply(&self, request: u8) -> bool {
        self.memory.iter().flatten().any(|entry| entry.request == request)
    }

    /// Decides a request on what is in memory and on what is under way.
    pub(super) fn decide(&mut self, id: u8, request: u8) -> Option<Batch> {
        let (held, memory) = self.lease.as_ref().zip(self.memory.as_ref())?;
        let under_way = self.pending.iter().map(|pending| pending.batch.id);
        let base = memory.iter().map(|entry| entry.batch).chain(under_way).collect();
        let batch = Batch { id, request, fence: held.fence, grant: held.grant, base };
        self.pending.push(Pending { batch: batch.clone(), sends: 1 });
        Some(batch)
    }

    /// Takes the answer about a batch that is under way, and says what is told about which.
    pub(super) fn hear(&mut self, id: u8, answer: Answer, variant: Variant) -> Vec<(Batch, Told)> {
        let Some(place) = self.pending.iter().position(|pending| pending.batch.id == id) else {
            return Vec::new();
        };
        match answer {
            Answer::Committed | Answer::Duplicate => self.done(place),
            // It was turned away because the one before it is not there yet; that one's answer decides.
            Answer::Fenced | Answer::Conflict if place > 0 => Vec::new(),
            Answer::Fenced | Answer::Conflict => self.turned_away(answer, variant),
        }
    }

    /// A batch builds on those before it: if it is there, so are they.
    fn done(&mut self, place: usize) -> Vec<(Batch, Told)> {
        let done: Vec<Batch> = self.pending.drain(..=place).map(|pending| pending.batch).collect();
        for batch in &done {
            if let Some(memory) = &mut self.memory {
                let version = u8::try_from(memory.len() + 1).unwrap();
                memory.push(Entry { batch: batch.id, request: batch.request, version });
            }
        }
        done.into_iter().map(|batch| (batch, Told::Done)).collect()
    }

    /// The first of those under way was turned away, and those behind it go with it.
    fn turned_away(&mut self, answer: Answer, variant: Variant) -> Vec<(Batch, Told)> {
        let mut gone = std::mem::take(&mut self.pending).into_iter();
        if answer == Answer::Fenced {
            self.resign();
        } else {
            self.memory = None;
        }
        // If it was sent once, this was its only copy. Of a repeat that is turned away nobody knows whether the
        // first copy was there before, or will be.
        let sure = |pending: &Pending| pending.sends == 1;
        // Without the batch's id a conflict is all that a repeat can be told, and it is taken at its word.
        let believed = answer == Answer::Conflict && variant == Variant::NoBatchId;
        let first = gone.next().map(|first| {
            let told = if sure(&first) || believed { Told::Refused } else { Told::Unknown };
            (first.batch, told)
        });
        first.into_iter().chain(gone.map(|pending| (pending.batch, Told::Unknown))).collect()
    }

    /// Has sent often enough: what is under way stays unknown, and the entity is loaded anew.
    pub(super) fn give_up(&mut self) {
        self.pending.clear();
        self.memory = None;
    }

    /// Whether a crash would make a difference.
    pub(super) fn has_something(&self) -> bool {
        self.lease.is_some() || self.answer.is_some()
    }

    /// Takes the answer about the lease, and loads what the store has if it was newly granted.
    pub(super) fn take_lease(&mut self, now: u8, log: &[Entry], variant: Variant) {
        let Some(answer) = self.answer.take() else { return };
        let Some(fence) = answer.fence else { return self.resign() };
        let since = if variant == Variant::CountFromAnswer { now } else { answer.sent };
        if self.lease.is_none() {
            self.memory = Some(log.to_vec());
        }
        self.lease = Some(Held { fence, grant: answer.grant, since });
    }

    /// Drops the shard with all that is in memory.
    pub(super) fn resign(&mut self) {
        self.lease = None;
        self.memory = None;
        self.pending.clear();
        self.answer = None;
    }

    /// Sees that the server is another one, or was started anew: memory may be ahead of what survived.
    pub(super) fn notice(&mut self, run: u8, variant: Variant) {
        self.run = run;
        if variant != Variant::IgnoreRunChange {
            self.resign();
        }
    }

    /// Ends, and starts anew as another process. One that stays down does what one does that is paused.
    pub(super) fn crash(&mut self, run: u8) {
        self.resign();
        self.run = run;
        self.process.incarnation += 1;
    }
}
