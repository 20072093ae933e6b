//! The shell of `entity/directory.rs`, `entity/host.rs`, `entity/commits.rs` and `store/redis/writer.rs`.

use std::collections::VecDeque;
use std::sync::Arc;

use skein_coordinator::entity::line::{Input, Line, Outcome, Output};
use skein_coordinator::store::redis::shard::Shard;
use skein_coordinator::store::{Batch, CommitError, Fence, TimerChange, Version};
use skein_shared::entity::Signal;
use skein_shared::fence::Epoch;
use skein_shared::id::EntityKey;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::{Ask, Commit, In, Node, Out, Then};
use crate::sim::config::Broken;
use crate::sim::hosted::{Asked, Ended, Found, Hosted, Started, Told, Way};

/// Batches that one group may hold.
const GROUP: usize = 256;

/// An entity in memory, with its way to the store.
pub(super) struct Desked {
    pub(super) key: EntityKey,
    fence: Fence,
    host: Box<dyn Hosted>,
    /// The batch that it was loaded with, or that it decided last.
    base: Uuid,
    line: Line,
    /// What waits until the line is open.
    unsent: VecDeque<Arc<Batch>>,
    /// It is told when to begin.
    gathering: bool,
}

pub(super) fn moving() -> Refusal {
    Refusal::new(Code::NotOwner, "it is moving to another node")
}

impl Node {
    /// Puts commands into the mailbox of an entity, which is loaded if need be.
    pub(super) fn post(&mut self, key: &EntityKey, asked: Vec<Asked>) {
        let fence = self.fence(key);
        if let Some(&id) = self.by_key.get(key) {
            if self.desks.get(&id).is_some_and(|desk| desk.fence == fence) {
                return self.take_in(id, asked);
            }
            self.dismiss(id);
        }
        if fence == Fence::NONE {
            return self.turn_away(asked, &moving());
        }
        if let Some(waiting) = self.loads.get_mut(key) {
            return waiting.extend(asked);
        }
        self.loads.insert(key.clone(), asked);
        self.ask(Ask::Load(key.clone(), fence), Then::Load(key.clone(), fence));
    }

    fn turn_away(&mut self, asked: Vec<Asked>, refusal: &Refusal) {
        for asked in asked {
            self.tell(Told { way: asked.way, outcome: Err(refusal.clone()), version: Version(0) });
        }
    }

    pub(super) fn unloadable(&mut self, key: &EntityKey) {
        let waiting = self.loads.remove(key).unwrap_or_default();
        self.turn_away(waiting, &Refusal::new(Code::Unavailable, "it cannot be loaded"));
    }

    pub(super) fn loaded(&mut self, key: &EntityKey, fence: Fence, found: Box<dyn Found>, base: Uuid) {
        let waiting = self.loads.remove(key).unwrap_or_default();
        let late = |asked: &Asked| {
            let delivered = self.broken == Some(Broken::FormerLivesAreDelivered);
            !delivered && matches!(asked.way, Way::Delivery { run, .. } if run != self.run)
        };
        let (late, waiting): (Vec<_>, Vec<_>) = waiting.into_iter().partition(late);
        self.turn_away(late, &moving());
        let host = found.serve(fence, self.clock.now(self.now));
        let id = self.number();
        let line = Line::default();
        let desk =
            Desked { key: key.clone(), fence, host, base, line, unsent: VecDeque::new(), gathering: false };
        self.desks.insert(id, desk);
        self.by_key.insert(key.clone(), id);
        self.post(key, waiting);
    }

    fn take_in(&mut self, id: u64, asked: Vec<Asked>) {
        let Some(desk) = self.desks.get_mut(&id) else { return };
        let told = desk.host.take_in(asked);
        let begins = !std::mem::replace(&mut desk.gathering, true);
        self.tell_all(told);
        if begins {
            let delay = self.moment();
            self.after(delay, In::Begin { desk: id });
        }
    }

    pub(super) fn begin(&mut self, id: u64) {
        if let Some(desk) = self.desks.get_mut(&id) {
            desk.gathering = false;
        }
        self.step(id);
    }

    pub(super) fn observe(&mut self, key: &EntityKey, signal: &Signal) {
        let now = self.clock.now(self.now);
        if let Some(desk) = self.by_key.get(key).and_then(|id| self.desks.get_mut(id)) {
            desk.host.observe(signal, now);
        }
    }

    /// The entity is another node's: what is in flight is finished, and nothing else.
    pub(super) fn dismiss(&mut self, id: u64) {
        let Some(desk) = self.desks.get_mut(&id) else { return };
        let (key, told) = (desk.key.clone(), desk.host.leave());
        if self.by_key.get(&key) == Some(&id) {
            self.by_key.remove(&key);
        }
        self.tell_all(told);
        self.step(id);
    }

    /// Begins a batch if there is one, and lets go of an entity that is over.
    fn step(&mut self, id: u64) {
        let batch_id = self.uuid();
        let time = self.clock.time(self.now);
        let Some(desk) = self.desks.get_mut(&id) else { return };
        if desk.host.should_begin() {
            let started = desk.host.begin(time, batch_id);
            if let Err(invariant) = desk.host.check() {
                self.outs.push(Out::Unsound { key: desk.key.clone(), invariant });
            }
            match started {
                Started::Answers(told) => self.tell_all(told),
                Started::Batch(batch) => self.send(id, batch),
            }
        }
        let Some(desk) = self.desks.get(&id) else { return };
        if desk.host.is_over() {
            if self.by_key.get(&desk.key) == Some(&id) {
                let key = desk.key.clone();
                self.by_key.remove(&key);
            }
            self.desks.remove(&id);
            self.has_left();
        }
    }

    fn send(&mut self, id: u64, batch: Arc<Batch>) {
        let version = Version(batch.expected.0 + 1);
        let batch = self.break_batch(batch);
        if let Some(desk) = self.desks.get_mut(&id) {
            let on = std::mem::replace(&mut desk.base, batch.id);
            self.outs.push(Out::Decided { batch: batch.id, on });
            desk.unsent.push_back(batch);
        }
        if self.broken == Some(Broken::AnswerBeforeCommit) {
            self.committed(id, Ok(version));
        }
        self.send_on(id);
    }

    fn break_batch(&self, batch: Arc<Batch>) -> Arc<Batch> {
        let mut broken = Batch::clone(&batch);
        match self.broken {
            Some(Broken::MarksAreNotWritten) => broken.seen.clear(),
            Some(Broken::RepliesAreNotKept) => broken.replies.clear(),
            Some(Broken::TimersAreNotWritten) => broken.timer = TimerChange::Keep,
            _ => return batch,
        }
        Arc::new(broken)
    }

    fn send_on(&mut self, id: u64) {
        while let Some(desk) = self.desks.get_mut(&id)
            && desk.line.is_open()
            && let Some(batch) = desk.unsent.pop_front()
        {
            let outputs = desk.line.on(Input::Batch(batch));
            self.carry_out(id, outputs);
        }
        self.write();
    }

    fn line_on(&mut self, id: u64, input: Input) {
        let Some(desk) = self.desks.get_mut(&id) else { return };
        let outputs = desk.line.on(input);
        self.carry_out(id, outputs);
        self.send_on(id);
    }

    pub(super) fn rested(&mut self, id: u64) {
        self.line_on(id, Input::Rested);
    }

    fn carry_out(&mut self, id: u64, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Commit(batch) => {
                    if let Some(desk) = self.desks.get(&id) {
                        self.writer.queue.push_back((id, desk.fence, batch));
                    }
                }
                Output::Tell(_) if self.broken == Some(Broken::AnswerBeforeCommit) => {}
                Output::Tell(outcome) => self.committed(id, outcome),
                Output::Rest(delay) => self.after(delay, In::Rested { desk: id }),
                Output::End => {}
            }
        }
    }

    fn committed(&mut self, id: u64, outcome: Outcome) {
        let Some(desk) = self.desks.get_mut(&id) else { return };
        let key = desk.key.clone();
        let Some(Ended { done, told, lost }) = desk.host.committed(outcome) else { return };
        match done {
            Some((batch, _)) => self.follow_commit(&key, &batch, &told),
            None => {
                self.note(format!("{key} has a commit that failed"));
                if self.by_key.get(&key) == Some(&id) {
                    self.by_key.remove(&key);
                }
            }
        }
        self.tell_all(told);
        for way in lost {
            let outcome = Err(Refusal::new(Code::Unknown, "it restarted before it could answer"));
            self.tell(Told { way, outcome, version: Version(0) });
        }
        self.step(id);
    }

    fn follow_commit(&mut self, key: &EntityKey, batch: &Batch, told: &[Told]) {
        for told in told {
            let was_new = !matches!(&told.outcome, Err(refusal) if refusal.code == Code::Duplicate);
            if let (Way::Delivery { mark, .. }, true) = (&told.way, was_new) {
                let (target, mark) = (key.clone(), mark.clone());
                self.outs.push(Out::Applied { target, mark, batch: batch.id });
            }
        }
        if let TimerChange::Set(due) = batch.timer {
            self.timer_was_set(due);
        }
        if !batch.outbox.is_empty() {
            self.effects_came();
        }
    }

    /// Sends what has queued up, unless a group is under way.
    fn write(&mut self) {
        if self.writer.busy.is_some() || self.writer.queue.is_empty() {
            return;
        }
        let count = self.writer.queue.len().min(GROUP);
        self.writer.busy = Some(self.writer.queue.drain(..count).collect());
        match self.writer.link {
            Some(link) => self.send_group(link),
            None => self.ask(Ask::Connect { kill: self.writer.last_link }, Then::Connect),
        }
    }

    /// Sends what was decided under fences that this node still has.
    fn send_group(&mut self, link: u64) {
        let group = self.writer.busy.take().unwrap_or_default();
        let ours = |(_, fence, batch): &Commit| {
            let broken = self.broken == Some(Broken::FormerLivesAreWritten);
            broken || self.slots.has(Shard::of(&batch.key), *fence)
        };
        let (ours, lost): (Vec<_>, Vec<_>) = group.into_iter().partition(ours);
        let batches: Vec<_> = ours.iter().map(|(_, fence, batch)| (*fence, Arc::clone(batch))).collect();
        // Nothing is sent before all have their answers: a batch that is refused at once would have its own first.
        self.writer.busy = Some(ours);
        for (desk, ..) in lost {
            self.line_on(desk, Input::Answer(Err(CommitError::Fenced(Epoch(0)))));
        }
        if !batches.is_empty() {
            return self.ask(Ask::Commit { link, batches }, Then::Group);
        }
        self.writer.busy = None;
        self.write();
    }

    pub(super) fn connected_to(&mut self, run: u64, link: u64) {
        self.writer.last_link = Some(link);
        if run != self.run && self.broken != Some(Broken::MemoryOutlivesTheStore) {
            self.steward.doubt(self.now);
            self.nudge();
            return self.group_failed("Redis was replaced");
        }
        self.writer.link = Some(link);
        self.send_group(link);
    }

    /// It was not sent.
    pub(super) fn group_failed(&mut self, problem: &str) {
        self.tell_group(|_| Err(CommitError::Failed(problem.to_owned())));
    }

    /// Nobody knows what became of it, and the connection is not used again.
    pub(super) fn group_lost(&mut self) {
        self.writer.link = None;
        self.tell_group(|_| Err(CommitError::Unknown("the answer was lost".to_owned())));
    }

    pub(super) fn group_answered(&mut self, outcomes: Vec<Outcome>) {
        let unanswered = || Err(CommitError::Unknown("no answer".to_owned()));
        self.tell_group(|place| outcomes.get(place).cloned().unwrap_or_else(unanswered));
    }

    fn tell_group(&mut self, outcome: impl Fn(usize) -> Outcome) {
        // As above.
        let group = self.writer.busy.replace(Vec::new()).unwrap_or_default();
        for (place, (desk, ..)) in group.into_iter().enumerate() {
            self.line_on(desk, Input::Answer(outcome(place)));
        }
        self.writer.busy = None;
        self.write();
    }

    fn tell_all(&mut self, told: Vec<Told>) {
        for told in told {
            self.tell(told);
        }
    }
}
