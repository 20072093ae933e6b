//! The actor that hosts one entity: decides commands in order, commits them in one batch, and answers after
//! the commit.
//!
//! `handle` never awaits I/O. While commits are under way new commands wait, and become the next batch: group
//! commit without a timer. The entity's memory runs ahead of the store by at most the batches under way
//! ([`UNDER_WAY`]), and what is read from it is answered after the commit that it builds on. If a batch fails, or
//! the entity panics, the host takes itself out of the directory, answers all that wait, and dies; the next
//! command loads the entity afresh.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use skein_shared::entity::{Changes, Ctx, Entity, Signal};
use skein_shared::id::EntityKey;
use skein_shared::json::Json;
use skein_shared::mutation::{self, Mutation};
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{error, warn};
use uuid::Uuid;

use super::admission::Permit;
use super::batch::{self, Draft};
use super::commits::{Commits, Outcome, UNDER_WAY};
use super::directory::{Request, Shared};
use super::hub;
use super::load::{self, Unloadable};
use super::passivation::Vitals;
use super::replies::Replies;
use super::supervision::Ward;
use crate::store::{Batch, CommitError, Fence, Mark, TimerChange, Version};

/// Commands that one commit may carry. More would make the first of them wait for the last.
const BATCH: usize = 256;
/// A tick that leaves its timer due is a fault of the entity; it must not become a busy loop.
const MIN_REARM: Duration = Duration::from_secs(1);

pub(super) type Answer<E> = Result<(<E as Entity>::Reply, Version), Refusal>;

/// A command with everything that belongs to it.
pub struct Pending<E: Entity> {
    pub request: Request,
    /// Set when the command is a delivery from another entity's outbox.
    pub mark: Option<Mark>,
    pub command: E::Command,
    /// Taken on the way into the mailbox.
    pub permit: Option<Permit>,
    pub answer: oneshot::Sender<Answer<E>>,
}

pub enum Message<E: Entity> {
    Command(Pending<E>),
    /// What another entity's outbox sent, in its order: all of it reaches one host or none does, so that no
    /// mark overtakes an earlier one.
    Deliveries(Vec<Pending<E>>),
    /// A command waits: let others come along, then decide.
    Gather,
    /// Decide what waits. It goes to the end of the mailbox, so that what is there already comes along.
    Begin,
    Committed(Outcome),
    Observe(Signal),
    /// Asks for the version of the last commit.
    Version(oneshot::Sender<Version>),
    /// Leave memory. Sent when nothing is in work and nothing more can come.
    Passivate,
    /// The shard is no longer this node's: finish what is in flight and leave memory.
    Leave,
    /// The last message of a host that has to die: what came before it has been answered.
    Die,
}

/// Hosts one `E`.
pub struct EntityActor<E>(PhantomData<fn() -> E>);

pub struct Host<E: Entity> {
    key: EntityKey,
    shared: Arc<Shared>,
    fence: Fence,
    entity: E,
    version: Version,
    sequence: u64,
    replies: Replies,
    marks: batch::Marks,
    timer: Option<Timestamp>,
    vitals: Arc<Vitals>,
    ward: Arc<Ward>,
    waiting: VecDeque<Pending<E>>,
    /// Oldest first.
    in_flight: VecDeque<InFlight<E>>,
    commits: Option<Commits>,
    /// A [`Message::Gather`] or [`Message::Begin`] is in the mailbox.
    gathering: bool,
    /// Its memory is not to be trusted any more. What is under way was decided before and is still answered.
    doomed: bool,
    /// It is another node's to decide now.
    leaving: bool,
    /// It has left the directory.
    dying: bool,
    /// Tells that it is gone, with everything that was in flight.
    _gone: DropGuard,
}

/// A batch under way and those who wait for it.
struct InFlight<E: Entity> {
    batch: Arc<Batch>,
    topics: Vec<String>,
    answers: Vec<Settled<E>>,
}

/// A decided command: its answer is known and waits for the commit.
struct Settled<E: Entity> {
    outcome: Result<E::Reply, Refusal>,
    answer: oneshot::Sender<Answer<E>>,
    _permit: Option<Permit>,
}

/// What follows a message.
enum Step {
    GoOn,
    Leave,
    Die,
}

/// A host that has begun to serve.
pub(super) struct Started<E: Entity> {
    pub(super) actor: ActorRef<Message<E>>,
    pub(super) vitals: Arc<Vitals>,
    /// Under which it writes.
    pub(super) fence: Fence,
    /// Cancelled once it is gone.
    pub(super) gone: CancellationToken,
}

impl<E: Entity> EntityActor<E> {
    /// Loads the entity and starts its actor.
    ///
    /// # Errors
    /// `unavailable` when the store cannot be read, `internal` when a document cannot.
    pub(super) async fn start(
        key: EntityKey,
        shared: Arc<Shared>,
        ward: Arc<Ward>,
    ) -> Result<Started<E>, Refusal> {
        let gone = CancellationToken::new();
        let host = Host::load(key.clone(), shared, ward, gone.clone().drop_guard()).await?;
        let (vitals, fence) = (Arc::clone(&host.vitals), host.fence);
        let (actor, _) = Actor::spawn(None, EntityActor::<E>(PhantomData), host)
            .await
            .map_err(|error| Refusal::new(Code::Internal, format!("{key} could not be started: {error}")))?;
        Ok(Started { actor, vitals, fence, gone })
    }
}

impl<E: Entity> Actor for EntityActor<E> {
    type Msg = Message<E>;
    type State = Host<E>;
    type Arguments = Host<E>;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        mut host: Host<E>,
    ) -> Result<Host<E>, ActorProcessingErr> {
        let tell = move |outcome| {
            let _ = myself.cast(Message::Committed(outcome));
        };
        let (store, projection) = (Arc::clone(&host.shared.store), host.shared.projection.clone());
        host.commits = Some(Commits::start(store, projection, host.fence, tell));
        Ok(host)
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        host: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        if matches!(message, Message::Gather) {
            // Those who were just answered often ask again at once: one batch for all of them costs one flush.
            tokio::task::yield_now().await;
        }
        // After a panic the host answers nothing from its memory any more, so a broken one is never seen.
        let step = catch_unwind(AssertUnwindSafe(|| host.take(&myself, message)));
        match step {
            Ok(Step::GoOn) => Ok(()),
            Ok(Step::Leave) => {
                myself.stop(None);
                Ok(())
            }
            Ok(Step::Die) => Err("its memory was not to be trusted any more".into()),
            Err(_) => {
                host.doom(&myself, Vec::new(), &panicked(&host.key));
                Ok(())
            }
        }
    }
}

impl<E: Entity> Host<E> {
    async fn load(
        key: EntityKey,
        shared: Arc<Shared>,
        ward: Arc<Ward>,
        gone: DropGuard,
    ) -> Result<Self, Refusal> {
        // Before loading, so that what a later owner wrote in between is not committed over.
        let fence = shared.store.fence(&key);
        if fence == Fence::NONE {
            return Err(moving(&key));
        }
        let loaded = load::load::<E>(&shared, &key).await;
        let (entity, loaded) = loaded.map_err(|problem| unloadable(&key, &problem))?;
        shared.clock.not_before(loaded.at);
        let serving_since = ward.back(shared.clock.now());
        let vitals = Vitals::new(key.kind, serving_since, entity.next_wake().is_some());
        Ok(Self {
            fence,
            entity,
            version: loaded.version,
            sequence: loaded.sequence,
            replies: Replies::restore(loaded.replies),
            marks: batch::Marks::restore(loaded.marks),
            timer: loaded.timer,
            vitals: Arc::new(vitals),
            ward,
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            commits: None,
            gathering: false,
            doomed: false,
            leaving: false,
            dying: false,
            _gone: gone,
            key,
            shared,
        })
    }

    fn take(&mut self, myself: &ActorRef<Message<E>>, message: Message<E>) -> Step {
        match message {
            Message::Command(pending) => return self.take_in(myself, [pending]),
            Message::Deliveries(all) => return self.take_in(myself, all),
            Message::Gather => {
                let _ = myself.cast(Message::Begin);
                return Step::GoOn;
            }
            Message::Begin => self.gathering = false,
            Message::Committed(outcome) => self.committed(myself, outcome),
            Message::Observe(signal) => {
                let now = self.shared.clock.now();
                self.entity.observe(&signal, now);
            }
            Message::Version(answer) => {
                let _ = answer.send(self.version);
            }
            Message::Passivate => return Step::Leave,
            Message::Leave => {
                (self.doomed, self.leaving) = (true, true);
                self.turn_away();
            }
            Message::Die => return Step::Die,
        }
        if self.doomed && self.in_flight.is_empty() {
            self.die(myself);
        } else if !self.doomed && self.should_begin() {
            self.begin(myself);
        }
        Step::GoOn
    }

    /// Lets commands wait for the next batch.
    fn take_in(
        &mut self,
        myself: &ActorRef<Message<E>>,
        commands: impl IntoIterator<Item = Pending<E>>,
    ) -> Step {
        self.waiting.extend(commands);
        if self.doomed {
            self.turn_away();
            if self.in_flight.is_empty() {
                self.die(myself);
            }
        } else if !self.gathering {
            self.gathering = true;
            let _ = myself.cast(Message::Gather);
        }
        Step::GoOn
    }

    /// Whether what waits makes a batch now. A second one beside the batch under way must be at least half
    /// as large: small ones would take longer than one (measured: half is faster than as large).
    fn should_begin(&self) -> bool {
        match self.in_flight.back() {
            None => !self.waiting.is_empty(),
            Some(last) => self.in_flight.len() < UNDER_WAY && self.waiting.len() * 2 >= last.answers.len(),
        }
    }

    /// Decides what waits, up to one batch, and sends it to the store.
    fn begin(&mut self, myself: &ActorRef<Message<E>>) {
        let now = self.shared.clock.now();
        self.replies.forget_before(now);
        let mut draft = Draft::default();
        let mut answers = Vec::new();
        while answers.len() < BATCH
            && let Some(pending) = self.waiting.pop_front()
        {
            match self.settle(pending, now, &mut draft) {
                Some(settled) => answers.push(settled),
                // What the others were to be told was never written.
                None => return self.doom(myself, answers, &restarting(&self.key)),
            }
        }
        draft.timer = self.timer_change(now);
        self.vitals.note(self.entity.next_wake().is_some());
        if draft.is_empty() {
            return self.answer_behind(answers);
        }
        if cfg!(debug_assertions)
            && let Err(broken) = self.entity.check()
        {
            error!(entity = %self.key, invariant = broken, "an invariant does not hold");
        }
        let mut topics = std::mem::take(&mut draft.topics);
        topics.sort_unstable();
        topics.dedup();
        let expected = Version(self.version.0 + self.in_flight.len() as u64);
        let batch = Arc::new(draft.finish(&self.key, expected, now));
        if let Some(commits) = &self.commits {
            commits.send(Arc::clone(&batch));
        }
        self.in_flight.push_back(InFlight { batch, topics, answers });
    }

    /// Answers what needs no commit of its own, as soon as what it was read from is committed.
    fn answer_behind(&mut self, answers: Vec<Settled<E>>) {
        match self.in_flight.back_mut() {
            Some(last) => last.answers.extend(answers),
            None => self.answer(answers),
        }
    }

    /// Decides one command against the committed state plus the earlier decisions of its batch. `None` if
    /// the entity panicked at it.
    fn settle(&mut self, pending: Pending<E>, now: Timestamp, draft: &mut Draft) -> Option<Settled<E>> {
        let Pending { request, mark, command, permit, answer } = pending;
        let outcome = match &mark {
            Some(mark) if self.marks.has(mark) => {
                Err(Refusal::new(Code::Duplicate, "this delivery was taken in before"))
            }
            _ => {
                let decided = AssertUnwindSafe(|| self.decide(request, mark.as_ref(), &command, now, draft));
                let Ok(outcome) = catch_unwind(decided) else {
                    let _ = answer.send(Err(panicked(&self.key)));
                    return None;
                };
                outcome
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
        Some(Settled { outcome, answer, _permit: permit })
    }

    fn decide(
        &mut self,
        request: Request,
        mark: Option<&Mark>,
        command: &E::Command,
        now: Timestamp,
        draft: &mut Draft,
    ) -> Result<E::Reply, Refusal> {
        let digest = match request.keep_reply {
            true => E::asked(command).map_or_else(|| batch::digest(command), |asked| batch::digest(&asked)),
            false => 0,
        };
        if request.keep_reply
            && let Some(stored) = self.replies.find(request.id, digest)?
        {
            return stored.read().map_err(|error| {
                Refusal::new(Code::Internal, format!("the stored answer cannot be read: {error}"))
            });
        }
        let wall = self.shared.clock.wall();
        let mut ctx = Ctx::new(now, wall, self.vitals.serving_since, self.fence.epoch, request.id);
        let decision = self.entity.decide(command, &mut ctx)?;
        for event in &decision.events {
            draft.topics.extend(self.entity.topics(event));
            let mut changes = Changes::default();
            self.entity.apply(event, &mut changes);
            draft.event::<E>(event, changes);
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
        if refusal.code == Code::Duplicate {
            return;
        }
        warn!(entity = %self.key, source = %mark.source, code = refusal.code.as_str(), refusal = %refusal.message, "a delivery was refused");
        if let Some(effect) = super::directory::refused(&mark.source, &self.key, command, refusal) {
            self.sequence += 1;
            draft.effect(self.sequence, effect);
        }
    }

    /// The stored timer may be earlier than needed, never later; so most commits leave it alone.
    fn timer_change(&mut self, now: Timestamp) -> TimerChange {
        let fired = self.timer.is_some_and(|due| due <= now);
        let change = match (self.entity.next_wake(), self.timer) {
            (Some(wake), _) if fired => TimerChange::Set(wake.max(now + MIN_REARM)),
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

    fn committed(&mut self, myself: &ActorRef<Message<E>>, outcome: Outcome) {
        let Some(InFlight { batch, topics, answers }) = self.in_flight.pop_front() else { return };
        let version = match outcome {
            Ok(version) => version,
            Err(problem) => {
                // Whatever was decided after it has failed with it.
                self.in_flight.clear();
                return self.doom(myself, answers, &failed(&self.key, &problem));
            }
        };
        self.version = version;
        self.shared.clock.not_before(batch.at);
        if let TimerChange::Set(due) = batch.timer {
            self.shared.timers.send_if_modified(|earliest| {
                let sooner = due < *earliest;
                if sooner {
                    *earliest = due;
                }
                sooner
            });
        }
        let effects = !batch.outbox.is_empty();
        metrics::counter!("skein_entity_commits_total").increment(1);
        metrics::counter!("skein_entity_commands_total").increment(answers.len() as u64);
        self.shared.documents.committed(&batch.key, version, &batch.documents);
        self.shared.projection.committed(Arc::clone(&batch), version);
        if effects {
            self.shared.outbox.send_modify(|commits| *commits += 1);
        }
        self.answer(answers);
        self.shared.hub.publish(&self.key.to_string());
        if self.key.name.is_some() {
            self.shared.hub.publish(&hub::commits_of(self.key.kind, &self.key.swarm));
        }
        for topic in topics {
            self.shared.hub.publish(&topic);
        }
    }

    fn answer(&self, answers: Vec<Settled<E>>) {
        for settled in answers {
            // A caller that went away does not need its answer.
            let _ = settled.answer.send(settled.outcome.map(|reply| (reply, self.version)));
        }
    }

    /// Takes in nothing more, and dies once what is under way is answered.
    fn doom(&mut self, myself: &ActorRef<Message<E>>, answers: Vec<Settled<E>>, refusal: &Refusal) {
        error!(entity = %self.key, problem = %refusal.message, "an entity dies and loads afresh");
        self.doomed = true;
        for settled in answers {
            let _ = settled.answer.send(Err(refusal.clone()));
        }
        self.turn_away();
        if self.in_flight.is_empty() {
            self.die(myself);
        }
    }

    fn turn_away(&mut self) {
        for pending in self.waiting.drain(..) {
            let why = if self.leaving { moving(&self.key) } else { restarting(&self.key) };
            let _ = pending.answer.send(Err(why));
        }
    }

    /// Leaves the directory, and dies after what is in the mailbox was told too.
    fn die(&mut self, myself: &ActorRef<Message<E>>) {
        if self.dying {
            return;
        }
        self.dying = true;
        // What another node decides for meanwhile is served anew when it comes back.
        if !self.leaving {
            self.ward.died();
            if !self.vitals.watches_life() {
                self.ward.resumes(self.vitals.serving_since);
            }
        }
        self.shared.retire(&self.key, myself.get_id());
        let _ = myself.cast(Message::Die);
    }
}

fn unloadable(key: &EntityKey, problem: &Unloadable) -> Refusal {
    match problem {
        Unloadable::Store(error) => {
            Refusal::new(Code::Unavailable, format!("{key} cannot be loaded: {error}")).retry_after(1000)
        }
        Unloadable::Document(problem) => {
            error!(entity = %key, problem, "an entity cannot be restored");
            let problem = format!("{key} cannot be restored: {problem}; restore the store from a backup");
            // The retry time says that the fault is not the command's: an effect waits for the repair.
            Refusal::new(Code::Internal, problem).retry_after(5_000)
        }
    }
}

/// What callers are told whose command was certainly not executed.
fn restarting(key: &EntityKey) -> Refusal {
    let problem = format!("{key} is restarting and nothing was written; try again in a moment");
    Refusal::new(Code::Unavailable, problem).retry_after(200)
}

/// What callers are told while the entity goes to another node. Nothing was written.
pub(super) fn moving(key: &EntityKey) -> Refusal {
    let problem =
        format!("{key} is moving to another coordinator and nothing was written; try again in a moment");
    Refusal::new(Code::NotOwner, problem).retry_after(500)
}

fn panicked(key: &EntityKey) -> Refusal {
    let problem = format!("{key} failed at this request, of which nothing was written; report this");
    Refusal::new(Code::Internal, problem)
}

fn failed(key: &EntityKey, problem: &CommitError) -> Refusal {
    warn!(entity = %key, %problem, "a commit failed");
    match problem {
        CommitError::Unknown(_) => Refusal::new(
            Code::Unknown,
            "the store's answer was lost; repeat the request with the same idempotency key",
        ),
        CommitError::Fenced(_) => moving(key),
        _ => Refusal::new(Code::Unavailable, format!("nothing was written: {problem}; try again"))
            .retry_after(500),
    }
}

/// A request id for a delivery, the same at each try.
pub fn delivery_id(mark: &Mark) -> Uuid {
    let name = format!("{} {} {}", mark.source, mark.epoch, mark.sequence);
    Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes())
}
