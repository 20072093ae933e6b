//! The actor that hosts one entity: decides commands in order, commits them in one batch, and answers after
//! the commit. What it decides stands in [`desk`](super::desk); here it is carried out.
//!
//! `handle` never awaits I/O. While commits are under way new commands wait, and become the next batch: group commit
//! without a timer. The entity's memory runs ahead of the store by at most the batches under way
//! ([`UNDER_WAY`](super::line::UNDER_WAY)), and what is read from it is answered after the commit that it builds on. If
//! a batch fails, or the entity panics, the host takes itself out of the directory, answers all that wait, and dies;
//! the next command loads the entity afresh.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use skein_proto::trace::{self, TRACES};
use skein_shared::entity::{Entity, Signal};
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{Span, debug_span, error, warn};
use uuid::Uuid;

use super::admission::Permit;
use super::commits::{Commits, Event};
use super::desk::{self, Begun, Desk, Settled};
use super::directory::Shared;
use super::hub;
use super::line::Outcome;
use super::load::{self, Unloadable};
use super::notice::Notice;
use super::passivation::Vitals;
use super::refusals::{moving, panicked};
use super::supervision::Ward;
use crate::store::{Batch, Fence, TimerChange, Version};

pub(super) type Answer<E> = Result<(<E as Entity>::Reply, Version), Refusal>;

/// The way back to whoever asked.
pub struct Ticket<E: Entity> {
    /// Taken on the way into the mailbox, and held until the answer.
    pub permit: Option<Permit>,
    pub answer: oneshot::Sender<Answer<E>>,
    /// From the mailbox until the answer, for a trace.
    span: Span,
}

impl<E: Entity> Ticket<E> {
    /// The answer belongs to the trace of whoever asks.
    pub(super) fn new(key: &EntityKey) -> (Self, oneshot::Receiver<Answer<E>>) {
        Self::within(span(key))
    }

    /// For an effect of another entity: the answer belongs to its trace.
    pub(super) fn following(key: &EntityKey, traceparent: &str) -> (Self, oneshot::Receiver<Answer<E>>) {
        let span = span(key);
        trace::follow(&span, traceparent);
        Self::within(span)
    }

    fn within(span: Span) -> (Self, oneshot::Receiver<Answer<E>>) {
        let (answer, answered) = oneshot::channel();
        (Self { permit: None, answer, span }, answered)
    }
}

fn span(key: &EntityKey) -> Span {
    debug_span!(target: TRACES, "commit", entity = %key)
}

/// A command with everything that belongs to it.
pub type Pending<E> = desk::Pending<E, Ticket<E>>;

pub enum Message<E: Entity> {
    Command(Pending<E>),
    /// What another entity's outbox sent, in its order: all of it reaches one host or none does, so that no
    /// mark overtakes an earlier one. With the life of the store in which it was decided.
    Deliveries(u64, Vec<Pending<E>>),
    /// A command waits: let others come along, then decide.
    Gather,
    /// Decide what waits. It goes to the end of the mailbox, so that what is there already comes along.
    Begin,
    /// From the way to the store.
    Commits(Event),
    Observe(Signal),
    /// Let go of what waits for nobody any more: others found no room.
    Sift,
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
    desk: Desk<E, Ticket<E>>,
    vitals: Arc<Vitals>,
    notice: Notice,
    ward: Arc<Ward>,
    commits: Option<Commits>,
    /// A [`Message::Gather`] or [`Message::Begin`] is in the mailbox.
    gathering: bool,
    /// It has left the directory.
    dying: bool,
    /// Tells that it is gone, with everything that was in flight.
    _gone: DropGuard,
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
        let report = move |event| {
            // What is under way when the host goes ends untold.
            let _ = myself.cast(Message::Commits(event));
        };
        let (store, projection) = (Arc::clone(&host.shared.store), host.shared.projection.clone());
        host.commits = Some(Commits::new(store, projection, host.fence, report));
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
                error!(entity = %host.key, problem = %panicked(&host.key).message, "an entity dies and loads afresh");
                let turned_away = host.desk.doom();
                host.answer(turned_away);
                host.end_if_over(&myself);
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
        let serving_since = ward.back(shared.clock.now().max(loaded.at));
        let vitals = Vitals::new(serving_since, &entity);
        let mut notice = Notice::new(shared.alarms.clone(), &key);
        notice.tell(entity.alarm());
        Ok(Self {
            fence,
            desk: Desk::new(key.clone(), fence, serving_since, (entity, loaded)),
            vitals: Arc::new(vitals),
            notice,
            ward,
            commits: None,
            gathering: false,
            dying: false,
            _gone: gone,
            key,
            shared,
        })
    }

    fn take(&mut self, myself: &ActorRef<Message<E>>, message: Message<E>) -> Step {
        match message {
            Message::Command(pending) => return self.take_in(myself, [pending]),
            Message::Deliveries(_, all) => return self.take_in(myself, all),
            Message::Gather => {
                let _ = myself.cast(Message::Begin);
                return Step::GoOn;
            }
            Message::Begin => self.gathering = false,
            Message::Commits(event) => self.sent(event),
            Message::Sift => self.sift(),
            Message::Observe(signal) => self.desk.observe(&signal, self.shared.clock.now()),
            Message::Version(answer) => {
                let _ = answer.send(self.desk.version());
            }
            Message::Passivate => return Step::Leave,
            Message::Leave => {
                let turned_away = self.desk.leave();
                self.answer(turned_away);
            }
            Message::Die => return Step::Die,
        }
        self.begin_all(myself);
        self.end_if_over(myself);
        Step::GoOn
    }

    /// Lets commands wait for the next batch, but for whoever asks alone.
    fn take_in(
        &mut self,
        myself: &ActorRef<Message<E>>,
        commands: impl IntoIterator<Item = Pending<E>>,
    ) -> Step {
        let turned_away = self.desk.take_in(commands);
        self.answer(turned_away);
        if !self.gathering && self.desk.is_quiet() {
            self.begin_all(myself);
        }
        self.end_if_over(myself);
        if self.desk.is_waiting() {
            self.gather(myself);
        }
        Step::GoOn
    }

    fn gather(&mut self, myself: &ActorRef<Message<E>>) {
        if !self.gathering {
            self.gathering = true;
            let _ = myself.cast(Message::Gather);
        }
    }

    /// Decides what waits, as far as there is room on the way to the store: one batch at a time, for the store shall
    /// have it before the next is decided.
    fn begin_all(&mut self, myself: &ActorRef<Message<E>>) {
        if self.desk.should_begin() {
            self.sift();
        }
        while self.desk.should_begin() {
            if self.begin() {
                if self.desk.should_begin() {
                    self.gather(myself);
                }
                return;
            }
        }
    }

    /// Gives back the permits of those who have gone, as an answer would.
    fn sift(&mut self) {
        self.desk.sift(|ticket| ticket.answer.is_closed());
    }

    /// Decides what waits, up to one batch, and sends it to the store. Whether there was anything to send.
    fn begin(&mut self) -> bool {
        let begun = self.desk.begin(self.shared.clock.time(), Uuid::now_v7());
        let sent = matches!(begun, Begun::Batch(_));
        match begun {
            Begun::Answers(answers) => self.answer(answers),
            Begun::Broken(answers) => {
                error!(entity = %self.key, "an entity failed at a request, dies and loads afresh");
                self.answer(answers);
            }
            // Before the entity is asked anything more: what was decided and never sent would be under way for ever.
            Begun::Batch(batch) => self.send(batch),
        }
        let alarm = self.desk.entity().alarm();
        self.vitals.note(self.desk.entity(), alarm.as_deref());
        self.notice.tell(alarm);
        sent
    }

    fn send(&mut self, batch: Arc<Batch>) {
        if cfg!(debug_assertions)
            && let Err(broken) = self.desk.entity().check()
        {
            error!(entity = %self.key, invariant = broken, "an invariant does not hold");
        }
        if let Some(commits) = &mut self.commits {
            commits.send(batch);
        }
    }

    /// Something has come of what was sent.
    fn sent(&mut self, event: Event) {
        let outcomes = self.commits.as_mut().map(|commits| commits.on(event)).unwrap_or_default();
        for outcome in outcomes {
            self.committed(outcome);
        }
    }

    fn committed(&mut self, outcome: Outcome) {
        let committed = match self.desk.committed(outcome) {
            None => return,
            Some(Ok(committed)) => committed,
            Some(Err(undone)) => {
                warn!(entity = %self.key, problem = %undone.problem, "a commit failed; the entity loads afresh");
                // It may have come to the store after all: somebody has to look for what it left there.
                self.shared.outbox.send_modify(|commits| *commits += 1);
                self.shared.timers.send_modify(|earliest| *earliest = Timestamp(0));
                return self.answer(undone.answers);
            }
        };
        let desk::Committed { batch, version, topics, answers } = committed;
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
        for settled in &answers {
            self.shared.traces.note(&self.key, settled.effects.clone(), &settled.ticket.span);
        }
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

    fn answer(&self, answers: Vec<Settled<E, Ticket<E>>>) {
        for Settled { outcome, ticket, .. } in answers {
            // A caller that went away does not need its answer.
            let _ = ticket.answer.send(outcome.map(|reply| (reply, self.desk.version())));
        }
    }

    /// Leaves the directory once nothing is under way, and dies after what is in the mailbox was told too.
    fn end_if_over(&mut self, myself: &ActorRef<Message<E>>) {
        if self.dying || !self.desk.is_over() {
            return;
        }
        self.dying = true;
        // What another node decides for meanwhile is served anew when it comes back.
        if !self.desk.is_leaving() {
            self.ward.died();
            if !self.vitals.watches() {
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
