//! What the host of an entity decides, without I/O: which commands make a batch, what they are answered and when, and
//! what becomes of it all when a commit fails or the entity goes elsewhere.
//!
//! A `T` is the way back to whoever asked. It is given back with the answer, exactly once, or with what was lost; only
//! that of somebody who has gone is dropped.

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use skein_shared::entity::{Changes, Ctx, Effect, Entity, Signal};
use skein_shared::id::EntityKey;
use skein_shared::json::{self, Json};
use skein_shared::mutation::{self, Mutation};
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal, limits};
use tracing::warn;
use uuid::Uuid;

use super::batch::{self, Draft, Marks};
use super::clock::Time;
use super::line::{Outcome, UNDER_WAY};
use super::refusals::{failed, moving, panicked, restarting};
use super::replies::Replies;
use super::request::Request;
use crate::by_kind;
use crate::store::{Batch, CommitError, EventRecord, Fence, Loaded, Mark, TimerChange, Version};

/// Commands that one commit may carry. More would make the first of them wait for the last.
const BATCH: usize = 256;
/// So few are never divided among two batches.
const FEW: usize = 8;
/// A batch that is as heavy as this takes no further command, bytes.
const HEAVY: usize = 4 * 1024 * 1024;
/// What falls due within such a time of a tick is left to one more tick, so that they come in batches.
const NEXT_TICK: Duration = Duration::from_millis(10);
/// A tick that does nothing and leaves its timer due is a fault of the entity; it must not become a busy loop.
const AFTER_IDLE_TICK: Duration = Duration::from_secs(1);

/// A command that waits to be decided.
pub struct Pending<E: Entity, T> {
    pub request: Request,
    /// Set when the command is a delivery from another entity's outbox.
    pub mark: Option<Mark>,
    pub command: E::Command,
    pub ticket: T,
}

/// A decided command: its answer may be given now.
pub struct Settled<E: Entity, T> {
    pub outcome: Result<E::Reply, Refusal>,
    /// The sequences of the effects that it caused.
    pub effects: Range<u64>,
    pub ticket: T,
}

/// A batch under way and those who wait for it.
struct InFlight<E: Entity, T> {
    batch: Arc<Batch>,
    topics: Vec<String>,
    answers: Vec<Settled<E, T>>,
}

/// What became of the commands that waited.
pub enum Begun<E: Entity, T> {
    /// To be committed. The answers follow.
    Batch(Arc<Batch>),
    /// Nothing is to be committed: these may be answered, with the version that the entity stands at.
    Answers(Vec<Settled<E, T>>),
    /// The entity failed at a command. Nothing of this was written.
    Broken(Vec<Settled<E, T>>),
}

/// What a commit leads to.
pub struct Committed<E: Entity, T> {
    pub batch: Arc<Batch>,
    pub version: Version,
    /// Whom to wake.
    pub topics: Vec<String>,
    pub answers: Vec<Settled<E, T>>,
}

/// A commit that failed: the entity's memory is ahead of the store, and must not be used again.
pub struct Undone<E: Entity, T> {
    pub problem: CommitError,
    pub answers: Vec<Settled<E, T>>,
    /// What was decided after it has failed with it, and its callers are told nothing.
    pub lost: Vec<T>,
}

/// One entity in memory, with what waits for it and what is under way.
pub struct Desk<E: Entity, T> {
    key: EntityKey,
    fence: Fence,
    serving_since: Timestamp,
    /// When it decided last. It never decides at an earlier time: the clock of a former owner may have been ahead. Its
    /// own affair, for what other entities have would end early by somebody else's clock.
    decided: Timestamp,
    entity: E,
    version: Version,
    /// The last batch that was decided.
    last: Uuid,
    sequence: u64,
    replies: Replies,
    marks: Marks,
    timer: Option<Timestamp>,
    waiting: VecDeque<Pending<E, T>>,
    /// Oldest first.
    in_flight: VecDeque<InFlight<E, T>>,
    /// How many the last batch was for.
    company: usize,
    /// Its memory is not to be trusted any more. What is under way was decided before and is still answered.
    doomed: bool,
    /// It is another node's to decide now.
    leaving: bool,
}

impl<E: Entity, T> Desk<E, T> {
    /// An entity as it was loaded, to be written under a fence that was taken before.
    pub fn new(
        key: EntityKey,
        fence: Fence,
        serving_since: Timestamp,
        (entity, loaded): (E, Loaded),
    ) -> Self {
        Self {
            key,
            fence,
            serving_since: serving_since.max(loaded.at),
            decided: loaded.at,
            entity,
            version: loaded.version,
            last: loaded.batch,
            sequence: loaded.sequence,
            replies: Replies::restore(loaded.replies),
            marks: Marks::restore(loaded.marks),
            timer: loaded.timer,
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            company: 0,
            doomed: false,
            leaving: false,
        }
    }

    /// The version of the last commit.
    pub fn version(&self) -> Version {
        self.version
    }

    pub fn entity(&self) -> &E {
        &self.entity
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Whether it takes nothing more and nobody waits for anything.
    pub fn is_over(&self) -> bool {
        self.doomed && self.in_flight.is_empty()
    }

    /// Whether somebody waits to be decided for.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether whoever asks now is likely alone, as the last one was: then there is nobody to wait for.
    pub fn is_quiet(&self) -> bool {
        self.in_flight.is_empty() && self.company <= 1
    }

    /// Notes a sign of life.
    pub fn observe(&mut self, signal: &Signal, now: Timestamp) {
        self.entity.observe(signal, self.decided.max(now));
    }

    /// Lets commands wait for the next batch. Whoever comes too late is turned away.
    pub fn take_in(&mut self, commands: impl IntoIterator<Item = Pending<E, T>>) -> Vec<Settled<E, T>> {
        self.waiting.extend(commands);
        if self.doomed { self.turn_away() } else { Vec::new() }
    }

    /// Lets go of what waits for nobody any more. Whoever gave up may have asked again, without a key perhaps, and
    /// would get the change twice. Deliveries stay: the mark of one stands for those before it too.
    pub fn sift(&mut self, has_gone: impl Fn(&T) -> bool) {
        self.waiting.retain(|pending| pending.mark.is_some() || !has_gone(&pending.ticket));
    }

    /// Whether what waits makes a batch now. A second one beside the batch under way must be at least half as large:
    /// small ones would take longer than one (measured: half is faster than as large). Where there are few it must be
    /// as large: it begins behind the first one all the same, and whoever comes after it waits for both.
    pub fn should_begin(&self) -> bool {
        if self.doomed || self.waiting.is_empty() {
            return false;
        }
        let Some(last) = self.in_flight.back() else { return true };
        let (under_way, waiting) = (last.answers.len(), self.waiting.len());
        let enough = if under_way + waiting < 2 * FEW { under_way } else { under_way.div_ceil(2) };
        self.in_flight.len() < UNDER_WAY && waiting >= enough
    }

    /// Decides what waits, up to one batch, which gets this id.
    pub fn begin(&mut self, time: Time, id: Uuid) -> Begun<E, T> {
        let now = self.decided.max(time.now);
        let time = Time { now, ..time };
        self.decided = now;
        self.replies.forget_before(now);
        let mut draft = Draft::default();
        let (most, mut answers) = (self.share(), Vec::new());
        while answers.len() < most
            && draft.weight < HEAVY
            && let Some(pending) = self.waiting.pop_front()
        {
            match self.settle(pending, time, &mut draft) {
                Ok(settled) => answers.push(settled),
                // What the others were to be told was never written.
                Err(fault) => {
                    let mut told = self.refuse(answers, &restarting(&self.key));
                    told.push(*fault);
                    told.extend(self.doom());
                    return Begun::Broken(told);
                }
            }
        }
        draft.timer = self.timer_change(time.for_timers_of(&self.key), &draft);
        if draft.is_empty() {
            return Begun::Answers(self.answer_behind(answers));
        }
        let mut topics = std::mem::take(&mut draft.topics);
        topics.sort_unstable();
        topics.dedup();
        let expected = Version(self.version.0 + self.in_flight.len() as u64);
        let after = std::mem::replace(&mut self.last, id);
        let batch = Arc::new(draft.finish(&self.key, (expected, after), now, id));
        self.company = answers.len();
        self.in_flight.push_back(InFlight { batch: Arc::clone(&batch), topics, answers });
        Begun::Batch(batch)
    }

    /// How many the next batch takes: half of all, so that two alike are under way. While the store has the one, the
    /// other is answered, decided and sent. A large one and a small one in turn, or one of all, would have either side
    /// wait for the other.
    fn share(&self) -> usize {
        let under_way: usize = self.in_flight.iter().map(|batch| batch.answers.len()).sum();
        let all = under_way + self.waiting.len();
        if under_way == 0 && all < 2 * FEW {
            return all;
        }
        all.div_ceil(2).clamp(FEW, BATCH)
    }

    /// What needs no commit of its own is answered as soon as what it was read from is committed.
    fn answer_behind(&mut self, answers: Vec<Settled<E, T>>) -> Vec<Settled<E, T>> {
        let Some(last) = self.in_flight.back_mut() else { return answers };
        last.answers.extend(answers);
        Vec::new()
    }

    /// Decides one command against the committed state plus the earlier decisions of its batch. An error if
    /// the entity panicked at it.
    fn settle(
        &mut self,
        pending: Pending<E, T>,
        time: Time,
        draft: &mut Draft,
    ) -> Result<Settled<E, T>, Box<Settled<E, T>>> {
        let Pending { request, mark, command, ticket } = pending;
        let first = self.sequence + 1;
        let outcome = match &mark {
            Some(mark) if self.marks.has(mark) => {
                Err(Refusal::new(Code::Duplicate, "this delivery was taken in before"))
            }
            _ => {
                let decided = AssertUnwindSafe(|| self.decide(request, mark.as_ref(), &command, time, draft));
                match catch_unwind(decided) {
                    Ok(outcome) => outcome,
                    Err(_) => {
                        let outcome = Err(panicked(&self.key));
                        return Err(Box::new(Settled { outcome, effects: 0..0, ticket }));
                    }
                }
            }
        };
        if let Some(mark) = mark
            && self.marks.note(&mark)
        {
            if let Err(refusal) = &outcome {
                self.hand_back(&mark, &command, refusal, draft);
            }
            if !mutation::is_on(Mutation::DropMarks) {
                draft.seen.push(mark);
            }
        }
        Ok(Settled { outcome, effects: first..self.sequence + 1, ticket })
    }

    fn decide(
        &mut self,
        request: Request,
        mark: Option<&Mark>,
        command: &E::Command,
        Time { now, wall }: Time,
        draft: &mut Draft,
    ) -> Result<E::Reply, Refusal> {
        let digest = match request.keep_reply {
            true => E::asked(command).map_or_else(|| batch::digest(command), |asked| batch::digest(&asked)),
            false => 0,
        };
        // A program before this one may have left out less.
        if request.keep_reply
            && let Some(stored) = self.replies.find(request.id, digest, || batch::digest(command))?
        {
            return stored.read().map_err(|error| {
                Refusal::new(Code::Internal, format!("the stored answer cannot be read: {error}"))
            });
        }
        draft.ticked |= is_tick::<E>(command);
        let mut ctx = Ctx::new(now, wall, self.serving_since, self.fence.epoch, request.id);
        let decision = self.entity.decide(command, &mut ctx)?;
        let records: Vec<EventRecord> = decision.events.iter().map(batch::record::<E>).collect();
        draft.weight += weigh(&records, &decision.effects)?;
        for (event, record) in decision.events.iter().zip(records) {
            draft.topics.extend(self.entity.topics(event));
            let mut changes = Changes::default();
            self.entity.apply(event, &mut changes);
            draft.event(record, changes);
        }
        for effect in decision.effects {
            self.sequence += 1;
            draft.effect(self.sequence, effect);
        }
        // An answer without events is found again by asking again; keeping it would cost a commit.
        if request.keep_reply && mark.is_none() && !decision.events.is_empty() {
            let reply = Json::of(&decision.reply);
            draft.replies.push(self.replies.keep(request.id, digest, now, reply));
        }
        Ok(decision.reply)
    }

    /// A refused delivery is delivered all the same; its source learns of the refusal by an effect.
    fn hand_back(&mut self, mark: &Mark, command: &E::Command, refusal: &Refusal, draft: &mut Draft) {
        warn!(entity = %self.key, source = %mark.source, code = refusal.code.as_str(), refusal = %refusal.message, "a delivery was refused");
        if let Some(effect) = refused(&mark.source, &self.key, command, refusal) {
            self.sequence += 1;
            draft.effect(self.sequence, effect);
        }
    }

    /// The stored timer may be earlier than needed, never later; so most commits leave it alone. `now` is the time by
    /// which it is due. Where one has fired its tick is on the way, and whatever comes before that must not push it
    /// back.
    fn timer_change(&mut self, now: Timestamp, draft: &Draft) -> TimerChange {
        let wake = self.entity.next_wake();
        let is_due = wake.is_some_and(|wake| wake <= now);
        let fired = self.timer.is_some_and(|due| due <= now) && (draft.ticked || !is_due);
        let change = match (wake, self.timer) {
            (Some(_), _) if fired && is_due && draft.is_empty() => TimerChange::Set(now + AFTER_IDLE_TICK),
            (Some(wake), _) if fired => TimerChange::Set(wake.max(now + NEXT_TICK)),
            (None, _) if fired => TimerChange::Clear,
            (Some(wake), Some(stored)) if wake < stored => TimerChange::Set(wake),
            (Some(wake), None) => TimerChange::Set(wake),
            _ => TimerChange::Keep,
        };
        match change {
            TimerChange::Set(due) => self.timer = Some(due),
            TimerChange::Clear => self.timer = None,
            TimerChange::Keep => {}
        }
        change
    }

    /// Takes note of what became of the oldest batch under way. `None` if there is none.
    ///
    /// # Errors
    /// When the batch failed, or may have: the entity takes in nothing more.
    pub fn committed(&mut self, outcome: Outcome) -> Option<Result<Committed<E, T>, Undone<E, T>>> {
        let InFlight { batch, topics, answers } = self.in_flight.pop_front()?;
        Some(match outcome {
            Ok(version) => {
                self.version = version;
                Ok(Committed { batch, version, topics, answers })
            }
            Err(problem) => {
                let later = self.in_flight.drain(..).flat_map(|batch| batch.answers);
                let lost = later.map(|settled| settled.ticket).collect();
                let mut answers = self.refuse(answers, &failed(&self.key, &problem));
                answers.extend(self.doom());
                Err(Undone { problem, answers, lost })
            }
        })
    }

    /// Takes in nothing more, and is over once what is under way is answered. Gives those who are turned away.
    pub fn doom(&mut self) -> Vec<Settled<E, T>> {
        self.doomed = true;
        self.turn_away()
    }

    /// The same, because another node is to decide.
    pub fn leave(&mut self) -> Vec<Settled<E, T>> {
        self.leaving = true;
        self.doom()
    }

    fn turn_away(&mut self) -> Vec<Settled<E, T>> {
        let why = if self.leaving { moving(&self.key) } else { restarting(&self.key) };
        let waiting = self.waiting.drain(..);
        let refuse = |pending: Pending<E, T>| Settled {
            outcome: Err(why.clone()),
            effects: 0..0,
            ticket: pending.ticket,
        };
        waiting.map(refuse).collect()
    }

    fn refuse(&self, answers: Vec<Settled<E, T>>, refusal: &Refusal) -> Vec<Settled<E, T>> {
        let refuse = |settled: Settled<E, T>| Settled { outcome: Err(refusal.clone()), ..settled };
        answers.into_iter().map(refuse).collect()
    }
}

/// Whether it is what decides all that is due: no entity has other commands of that variant.
fn is_tick<E: Entity>(command: &E::Command) -> bool {
    std::mem::discriminant(command) == std::mem::discriminant(&E::tick())
}

/// How long what was decided is, bytes.
///
/// # Errors
/// `too_large` when no store takes it in one commit. Nothing of it has happened then.
fn weigh(records: &[EventRecord], effects: &[Effect]) -> Result<usize, Refusal> {
    let records: usize = records.iter().map(|record| record.body.text().len()).sum();
    let effects: usize = effects.iter().map(json::length).sum();
    // Documents have what events say once more.
    if 2 * records + effects > limits::DECISION {
        let problem = format!(
            "what follows from it is {} MiB, which is more than is written at once ({} MiB); send less, or to fewer",
            (2 * records + effects) >> 20,
            limits::DECISION >> 20
        );
        return Err(Refusal::new(Code::TooLarge, problem));
    }
    Ok(records + effects)
}

/// A request id for a delivery, the same at each try.
pub fn delivery_id(mark: &Mark) -> Uuid {
    let name = format!("{} {} {}", mark.source, mark.epoch, mark.sequence);
    Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes())
}

/// Turns the refusal of a delivery into the effect that tells its source, if that kind of source wants to know.
fn refused(
    source: &EntityKey,
    target: &EntityKey,
    command: &impl serde::Serialize,
    refusal: &Refusal,
) -> Option<Effect> {
    let command = Json::of(command);
    by_kind!(source.kind, S => {
        let told = S::refused(target, &command, refusal)?;
        Some(Effect::entity::<S>(source.clone(), &told))
    })
}
