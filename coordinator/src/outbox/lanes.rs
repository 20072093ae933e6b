//! What is done about undelivered effects, without I/O: which are read, which are tried when, and which are over.
//!
//! Each pair of source and target is a lane, in which one effect is delivered after the other: the receiver can tell
//! repeats by one high-water mark for each source. Lanes know nothing of one another.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use skein_shared::entity::Effect;
use skein_shared::json;
use skein_shared::limits::EFFECT_EXPIRY;
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal};

use crate::store::{OutboxEntry, OutboxPlace, StoreError};

/// Effects read in one step.
pub const PAGE: usize = 512;
/// Effects of one lane that are tried together, and how long they may be, bytes, unless one alone is longer: what goes
/// to another node is one message.
const TOGETHER: usize = 64;
const TOGETHER_BYTES: usize = 4 << 20;
/// How soon an undelivered effect is tried again; the pause doubles with each try.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How soon the store is asked again after it refused.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// How long a node that has begun to deliver waits for what was away with it: runners, and nodes that have other
/// shards.
const TIME_TO_COME_BACK: Duration = Duration::from_secs(600);
/// How long what is over stays in the store, so that one write takes out much. If the node dies before, it is
/// delivered again, as after any crash.
const GATHER: Duration = Duration::from_millis(50);

/// The source's and the target's name.
pub type Name = (String, String);

/// What became of one try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Delivered,
    /// Its target is away; what comes after it has to wait behind it.
    Later,
    Dead(String),
}

impl Fate {
    /// Of an effect to which its target said this, once this node has delivered for so long.
    pub fn of(
        entry: &OutboxEntry,
        outcome: Result<(), Refusal>,
        now: Timestamp,
        delivering: Duration,
    ) -> Self {
        let Err(refusal) = outcome else { return Fate::Delivered };
        match refusal.code {
            code if code.is_passing() => Self::later(entry, now, delivering),
            // The target cannot be loaded: its effects wait until it is repaired.
            Code::Internal if refusal.retry_after_ms.is_some() => Self::later(entry, now, delivering),
            Code::Internal => Fate::Dead(refusal.message),
            // The receiver has committed the mark; its refusal goes back as an effect of its own.
            _ => Fate::Delivered,
        }
    }

    /// Of an effect whose target is away. If the node was away for as long, it is no sign that the target does not come
    /// back.
    pub fn later(entry: &OutboxEntry, now: Timestamp, delivering: Duration) -> Self {
        match entry.at + EFFECT_EXPIRY < now && delivering > TIME_TO_COME_BACK {
            true => Fate::Dead("nobody took it in for 7 days".to_owned()),
            false => Fate::Later,
        }
    }
}

/// Effects that are over and still in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    pub delivered: Vec<OutboxPlace>,
    /// With the reason.
    pub dead: Vec<(OutboxPlace, String)>,
}

impl Ended {
    pub fn is_empty(&self) -> bool {
        self.delivered.is_empty() && self.dead.is_empty()
    }
}

/// What happens.
#[derive(Debug)]
pub enum Input {
    /// Something was committed, or it is time to look again.
    Look,
    Read(Result<Vec<OutboxEntry>, StoreError>),
    /// What became of the first effects of a lane. Those that it says nothing of were not tried.
    Tried(Name, Vec<Fate>),
    /// The time to gather is over.
    Gathered,
    /// What was to be taken out of the store, save these.
    TakenOut(Ended),
}

/// What is to be done.
#[derive(Debug)]
pub enum Output {
    /// Read a page behind this position, after a pause.
    Read {
        after: u64,
        pause: Duration,
    },
    /// Deliver these, in their order. After a try in vain there is a pause, which ends early when a runner connects.
    Try {
        lane: Name,
        entries: Vec<Arc<OutboxEntry>>,
        pause: Duration,
    },
    /// Say when so much time has passed.
    Gather(Duration),
    TakeOut(Ended),
}

/// Everything undelivered that was read.
#[derive(Debug, Default)]
pub struct Lanes {
    lanes: BTreeMap<Name, Lane>,
    /// The last position that was read.
    read: u64,
    reading: bool,
    /// More was committed since the read under way began.
    more: bool,
    ended: Ended,
    /// It is said when the time to gather is over, or what is over is being taken out.
    settling: bool,
}

#[derive(Debug, Default)]
struct Lane {
    /// With the length of each.
    queue: VecDeque<(Arc<OutboxEntry>, usize)>,
    /// Tries of the first that came to nothing.
    tries: u32,
}

impl Lane {
    /// What is tried next, and after which pause.
    fn next(&self) -> (Vec<Arc<OutboxEntry>>, Duration) {
        let pause = match self.tries {
            0 => Duration::ZERO,
            tries => FIRST_PAUSE.saturating_mul(1 << (tries - 1).min(16)).min(LONGEST_PAUSE),
        };
        let mut bytes = 0;
        let fits = self.queue.iter().take(TOGETHER).take_while(|(_, length)| {
            bytes += length;
            bytes <= TOGETHER_BYTES
        });
        let count = fits.count().max(1);
        (self.queue.iter().take(count).map(|(entry, _)| Arc::clone(entry)).collect(), pause)
    }

    /// Takes out what is over.
    fn tried(&mut self, fates: Vec<Fate>, ended: &mut Ended) {
        let mut rest = VecDeque::new();
        let before = ended.delivered.len();
        let tried = fates.len().min(self.queue.len());
        for (tried, fate) in self.queue.drain(..tried).zip(fates) {
            match fate {
                Fate::Delivered => ended.delivered.push(tried.0.place()),
                Fate::Dead(reason) => ended.dead.push((tried.0.place(), reason)),
                Fate::Later => rest.push_back(tried),
            }
        }
        // Where nothing was tried, the source is about to be another node's.
        self.tries = match (rest.is_empty() && tried > 0, ended.delivered.len() == before) {
            (true, _) => 0,
            (false, true) => self.tries.saturating_add(1),
            (false, false) => 1,
        };
        rest.append(&mut self.queue);
        self.queue = rest;
    }
}

impl Lanes {
    /// Takes a step.
    pub fn on(&mut self, input: Input) -> Vec<Output> {
        let mut outputs = Vec::new();
        match input {
            Input::Look => self.look(&mut outputs),
            Input::Read(Ok(page)) => self.take_in(page, &mut outputs),
            Input::Read(Err(_)) => outputs.push(Output::Read { after: self.read, pause: AFTER_ERROR }),
            Input::Tried(name, fates) => self.tried(&name, fates, &mut outputs),
            Input::Gathered => outputs.push(Output::TakeOut(std::mem::take(&mut self.ended))),
            Input::TakenOut(left) => {
                self.settling = false;
                let pause = if left.is_empty() { GATHER } else { AFTER_ERROR };
                self.ended.delivered.extend(left.delivered);
                self.ended.dead.extend(left.dead);
                self.settle(pause, &mut outputs);
            }
        }
        outputs
    }

    /// What is over and was not taken out yet, when nothing more is to come.
    pub fn end(self) -> Ended {
        self.ended
    }

    /// Reads on from where the last read ended, unless that is under way.
    fn look(&mut self, outputs: &mut Vec<Output>) {
        if self.reading {
            self.more = true;
            return;
        }
        (self.reading, self.more) = (true, false);
        outputs.push(Output::Read { after: self.read, pause: Duration::ZERO });
    }

    fn take_in(&mut self, page: Vec<OutboxEntry>, outputs: &mut Vec<Output>) {
        self.reading = false;
        let full = page.len() == PAGE;
        let mut new = Vec::new();
        for entry in page {
            self.read = entry.position;
            let name = name(&entry);
            if !self.lanes.contains_key(&name) {
                new.push(name.clone());
            }
            let length = json::length(&entry.effect);
            self.lanes.entry(name).or_default().queue.push_back((Arc::new(entry), length));
        }
        for lane in new {
            self.go_on(lane, outputs);
        }
        if full || self.more {
            self.look(outputs);
        }
    }

    fn tried(&mut self, name: &Name, fates: Vec<Fate>, outputs: &mut Vec<Output>) {
        let Some(lane) = self.lanes.get_mut(name) else { return };
        lane.tried(fates, &mut self.ended);
        self.go_on(name.clone(), outputs);
        if !self.ended.is_empty() {
            self.settle(GATHER, outputs);
        }
    }

    /// Lets a lane go on with what it has left and what has come meanwhile.
    fn go_on(&mut self, name: Name, outputs: &mut Vec<Output>) {
        let Some(lane) = self.lanes.get(&name) else { return };
        let (entries, pause) = lane.next();
        if entries.is_empty() {
            self.lanes.remove(&name);
            return;
        }
        outputs.push(Output::Try { lane: name, entries, pause });
    }

    fn settle(&mut self, pause: Duration, outputs: &mut Vec<Output>) {
        if !self.settling && !self.ended.is_empty() {
            self.settling = true;
            outputs.push(Output::Gather(pause));
        }
    }
}

fn name(entry: &OutboxEntry) -> Name {
    let target = match &entry.effect {
        Effect::Entity { key, .. } => key.to_string(),
        Effect::Runner { runner, .. } => format!("runner:{runner}"),
        // What is told of one thread has an order; threads wait for nobody.
        Effect::Slack { note, .. } => format!("slack:{}:{}", note.channel, note.thread),
    };
    (entry.source.to_string(), target)
}
