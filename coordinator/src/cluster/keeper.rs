//! Carries out what [`steward`](super::steward) decides: says that this node lives, keeps its leases, takes shards that
//! are free, and hands over those that are to be another's.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Cluster;
use super::living::Living;
use super::member::Member;
use super::steward::{self, Input, Output, Question, Steward};
use super::twin::{Before, Twin, Twins};
use crate::alarms::Kind;
use crate::store::StoreError;
use crate::store::redis::lease::Lease;
use crate::store::redis::shard::Shard;

/// How often the leases are looked at when nobody says that one is free.
const LOOK: Duration = Duration::from_millis(250);

pub(super) struct Keeper {
    cluster: Arc<Cluster>,
    steward: Steward,
    living: Living,
    twins: Twins,
    /// The life of the store has ended, which is told once, however long the next one is waited for.
    is_orphaned: bool,
    /// This node ends: nobody asks it any more, and its next process goes on with what its read side has.
    is_ending: bool,
}

/// Why a round was broken off.
enum Broken {
    Store(StoreError),
    Twin(Twin),
}

impl From<StoreError> for Broken {
    fn from(problem: StoreError) -> Self {
        Self::Store(problem)
    }
}

impl Keeper {
    pub(super) fn new(cluster: Arc<Cluster>) -> Self {
        let now = cluster.store.held().now();
        let steward = Steward::new(cluster.settings.lease, cluster.settings.settle, now);
        let living = Living::new(steward::lives(cluster.settings.lease));
        Self { cluster, steward, living, twins: Twins::default(), is_orphaned: false, is_ending: false }
    }

    pub(super) async fn run(mut self, stop: CancellationToken) -> Result<(), Twin> {
        let mut told = false;
        while !stop.is_cancelled() {
            // Never broken off: a lease that was taken has to be known.
            let round = self.carry_out(Input::Round).await;
            self.lapse();
            match round {
                Ok(()) => told = false,
                Err(Broken::Twin(twin)) => {
                    self.give_up().await;
                    return Err(twin);
                }
                Err(Broken::Store(problem)) if !told => {
                    warn!(%problem, "the cluster's state cannot be read or written; it is tried again");
                    told = true;
                    // Leases have lost the time in which one connection said nothing: the next one is to be made at
                    // once.
                    continue;
                }
                Err(Broken::Store(_)) => {}
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.cluster.nudge.notified() => {}
                () = self.cluster.told.notified() => self.steward.told(self.cluster.store.held().now()),
                () = self.cluster.store.doubted() => self.steward.doubt(self.cluster.store.held().now()),
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        self.give_up().await;
        if let Err(problem) = self.cluster.store.members().leave(&self.cluster.settings.id).await {
            warn!(%problem, "this node could not be taken off the list of those who live; it leaves that by itself");
        }
        Ok(())
    }

    /// Does what follows, and asks until there is nothing more to ask.
    async fn carry_out(&mut self, first: Input) -> Result<(), Broken> {
        let mut input = first;
        loop {
            self.catch_up();
            let held = self.cluster.store.held();
            let outputs = self.steward.on(input, &self.cluster.me(), &held.all(), held.now());
            let mut question = None;
            for output in outputs {
                match output {
                    Output::Ask(next) => question = Some(next),
                    done => self.note(done),
                }
            }
            let Some(question) = question else { return Ok(()) };
            input = self.ask(question).await?;
        }
    }

    fn note(&self, output: Output) {
        let (held, table) = (self.cluster.store.held(), &self.cluster.table);
        match output {
            Output::Ask(_) => {}
            Output::Take(shard, fence, until) => {
                held.take(shard, fence, Some(until));
                table.hint(shard, &self.cluster.settings.id, fence.epoch.0);
            }
            Output::Extend(shard, fence, until) => held.extend(shard, fence, until),
            Output::Close(shards) => held.close(&shards),
            Output::Taken(shards) => {
                warn!(
                    shards = shards.len(),
                    "shards of this node were taken by others, or their leases cannot be read"
                );
                self.lose(&shards);
            }
            Output::Lose(shards) => {
                self.lose(&shards);
                info!(shards = shards.len(), "gave up shards");
            }
            Output::Members(members) => drop(table.members_are(members)),
            Output::Leases(leases) => self.leases_are(leases),
            Output::Tell => self.cluster.leases_changed.send_modify(|count| *count += 1),
            Output::Nudge => self.cluster.nudge.notify_one(),
        }
    }

    fn leases_are(&self, leases: Vec<Lease>) {
        let before = self.cluster.sole_owner();
        self.cluster.table.leases_are(leases);
        if let Some(owner) = self.cluster.sole_owner().filter(|owner| before.as_ref() != Some(owner)) {
            warn!(owner, "`skein export` or `skein import` has the store for itself; its end is waited for");
        }
    }

    async fn ask(&mut self, question: Question) -> Result<Input, Broken> {
        let store = Arc::clone(&self.cluster.store);
        Ok(match question {
            Question::IsTheSame => Input::Same(store.is_the_same().await?),
            Question::BeginAnew => {
                if !std::mem::replace(&mut self.is_orphaned, true) {
                    warn!("Redis was restarted or replaced by a replica; everything is loaded anew");
                }
                self.forget();
                store.begin_anew((self.cluster.settings.wall)()).await?;
                self.twins.begin_anew();
                self.is_orphaned = false;
                info!("relies on Redis as it is now");
                Input::Anew
            }
            Question::Renew(held) => Input::Renewed(store.leases().renew(&held).await?),
            Question::Beat(me) => Input::Members(self.beat(&me).await?),
            Question::Leases => Input::Leases(store.leases().all().await?),
            Question::Acquire(shards) => {
                let answers = store.leases().acquire(&shards).await?;
                info!(shards = shards.len(), "asked for shards that are free");
                Input::Acquired(answers)
            }
            Question::Leave(shards, until) => {
                self.leave(&shards, until).await;
                Input::Left
            }
            Question::Release(held) => {
                store.leases().release(&held).await?;
                Input::Released
            }
        })
    }

    /// Before a shard is taken again: a version that was lost and one that is written after that have the same number.
    fn forget(&self) {
        let held: Vec<Shard> = self.cluster.store.held().all().into_iter().map(|(shard, _)| shard).collect();
        self.lose(&held);
    }

    /// Of each loss those are told at once who live there: a shard that came a moment ago may go again before they have
    /// looked what there is, and what they have taken in of it meanwhile would stay.
    fn lose(&self, shards: &[Shard]) {
        self.cluster.store.held().lose(shards);
        if !self.is_ending {
            self.tell_of_loss(shards);
        }
    }

    fn tell_of_loss(&self, shards: &[Shard]) {
        if let Some(tenants) = self.cluster.tenants.get() {
            tenants.forget(shards);
        }
    }

    async fn beat(&mut self, me: &Member) -> Result<Vec<Member>, Broken> {
        let record = serde_json::to_string(me).map_err(|error| StoreError(error.to_string()))?;
        let lives = steward::lives(self.cluster.settings.lease);
        let silent = self.living.silent(self.cluster.store.held().now());
        let heard = self.cluster.store.members().beat(&me.id, &record, lives, &silent).await?;
        // Where nobody can say it, those go on with one another who have heard.
        let Some(heard) = heard else { return Ok(self.cluster.members()) };
        let alarms = self.cluster.alarms();
        match self.twins.said(me, &heard.before) {
            Before::Nobody => alarms.clear(Kind::Twin, &me.id),
            Before::Later(problem) => alarms.raise(Kind::Twin, &me.id, &problem),
            Before::Earlier(twin) => {
                alarms.raise(Kind::Twin, &me.id, &twin.to_string());
                return Err(Broken::Twin(twin));
            }
        }
        Ok(self.living.hear(heard.said, heard.clock, self.cluster.store.held().now()))
    }

    /// Waits until what is in flight is done.
    async fn leave(&self, shards: &[Shard], until: Instant) {
        let limit = until.saturating_duration_since(self.cluster.store.held().now());
        if let Some(tenants) = self.cluster.tenants.get()
            && tokio::time::timeout(limit, tenants.leave()).await.is_err()
        {
            warn!(
                shards = shards.len(),
                "entities did not leave their shards in time; their writes are refused now"
            );
        }
    }

    /// Makes up for the time in which the machine has slept. What has lapsed by that goes first, and what is taken
    /// comes after it: an entity that sees its time leap would end whatever gave it no sign of life meanwhile. What is
    /// still decided in a shard that has gone is not written.
    fn catch_up(&self) {
        self.lapse();
        if let Some(tenants) = self.cluster.tenants.get() {
            tenants.catch_up();
        }
    }

    /// Drops what could not be renewed in time, before another node may take it.
    fn lapse(&self) {
        let lapsed = self.cluster.store.held().lapse();
        if lapsed.is_empty() {
            return;
        }
        self.tell_of_loss(&lapsed);
        warn!(
            shards = lapsed.len(),
            "leases could not be renewed in time, or the machine slept; their entities leave this node"
        );
    }

    async fn give_up(&mut self) {
        self.is_ending = true;
        if let Err(Broken::Store(problem)) = self.carry_out(Input::Resign).await {
            warn!(%problem, "the leases could not be given up; they end by themselves");
        }
    }
}
