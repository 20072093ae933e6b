//! The pump: reads each undelivered effect once, gives it to its lane, and takes what was delivered out of
//! the store, as [`lanes`](super::lanes) decide.
//!
//! A lane whose target is slow or away holds up nobody else. What was read stays in memory until it is delivered, so a
//! lane that waits for a runner costs no reads.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use skein_shared::mutation::{self, Mutation};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::Runners;
use super::lane::{self, Report, World};
use super::lanes::{Ended, Input, Lanes, Name, Output, PAGE};
use crate::entity::Entities;
use crate::slack::Workspaces;
use crate::store::{CommitError, OutboxEntry, Store, StoreError};

/// Looks at the store at least this often.
const LONGEST: Duration = Duration::from_secs(30);

/// What the pump waits for.
enum Done {
    Read(Result<Vec<OutboxEntry>, StoreError>),
    Worked(Report),
    Gathered,
    /// What could not be taken out comes back.
    TakenOut(Ended),
}

struct Pump {
    world: World,
    store: Arc<dyn Store>,
    work: FuturesUnordered<BoxFuture<'static, Done>>,
    lanes: Lanes,
    /// Since when the lanes that have tried something look out for runners.
    worlds: HashMap<Name, World>,
}

/// Runs until `stop`. When shards come or go it begins anew: what was read may be another node's to deliver now, and of
/// what came some stands behind the place up to which was read.
pub async fn run(entities: Entities, runners: Arc<dyn Runners>, slack: Workspaces, stop: CancellationToken) {
    let mut shards = entities.shared().shards.subscribe();
    while !stop.is_cancelled() {
        let end = stop.child_token();
        let pumping = pump(entities.clone(), Arc::clone(&runners), slack.clone(), end.clone());
        tokio::pin!(pumping);
        tokio::select! {
            () = &mut pumping => return,
            _ = shards.changed() => {
                end.cancel();
                pumping.await;
            }
        }
    }
}

async fn pump(entities: Entities, runners: Arc<dyn Runners>, slack: Workspaces, stop: CancellationToken) {
    let mut committed = entities.shared().outbox.subscribe();
    let connections = watch::Sender::new(0_u64);
    let store = Arc::clone(&entities.shared().store);
    let world = World {
        entities,
        runners: Arc::clone(&runners),
        slack,
        since: Instant::now(),
        connected: connections.subscribe(),
    };
    let mut pump =
        Pump { world, store, work: FuturesUnordered::new(), lanes: Lanes::default(), worlds: HashMap::new() };
    let mut connected = runners.connected();
    // A clock of its own: a lane that waits for a runner comes back every few seconds. The first look is due at once.
    let mut look = tokio::time::interval(LONGEST);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = &mut connected => {
                connected = runners.connected();
                connections.send_modify(|count| *count += 1);
            }
            _ = committed.changed() => pump.on(Input::Look),
            Some(done) = pump.work.next() => pump.take(done),
            _ = look.tick() => pump.on(Input::Look),
        }
    }
    pump.finish().await;
}

impl Pump {
    fn take(&mut self, done: Done) {
        match done {
            Done::Read(page) => {
                if let Err(problem) = &page {
                    warn!(%problem, "the outbox cannot be read");
                }
                self.on(Input::Read(page));
            }
            Done::Worked(Report { lane, world, fates }) => {
                self.worlds.insert(lane.clone(), world);
                self.on(Input::Tried(lane.clone(), fates));
                // If the lane has gone on, the work has it.
                self.worlds.remove(&lane);
            }
            Done::Gathered => self.on(Input::Gathered),
            Done::TakenOut(left) => self.on(Input::TakenOut(left)),
        }
    }

    fn on(&mut self, input: Input) {
        for output in self.lanes.on(input) {
            let work = self.carry_out(output);
            self.work.push(work);
        }
    }

    fn carry_out(&mut self, output: Output) -> BoxFuture<'static, Done> {
        let store = Arc::clone(&self.store);
        match output {
            Output::Read { after, pause } => Box::pin(async move {
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
                Done::Read(store.outbox(after, PAGE).await)
            }),
            Output::Try { lane, entries, pause } => {
                let world = self.worlds.remove(&lane).unwrap_or_else(|| self.world.clone());
                Box::pin(async move { Done::Worked(lane::work(world, lane, entries, pause).await) })
            }
            Output::Gather(pause) => Box::pin(async move {
                tokio::time::sleep(pause).await;
                Done::Gathered
            }),
            Output::TakeOut(ended) => {
                let entities = self.world.entities.clone();
                Box::pin(async move { Done::TakenOut(take_out(store.as_ref(), &entities, ended).await) })
            }
        }
    }

    /// Takes out what was delivered last. What is lost here goes again and is told apart by its mark.
    async fn finish(self) {
        let Self { world, store, work, lanes, .. } = self;
        // Nobody polls it any more, so it must not hold anything that others wait for.
        drop(work);
        let ended = lanes.end();
        if !ended.is_empty() {
            take_out(store.as_ref(), &world.entities, ended).await;
        }
    }
}

/// Takes out of the store what is over. Gives back what the store did not take.
async fn take_out(store: &dyn Store, entities: &Entities, ended: Ended) -> Ended {
    let mut left = Ended::default();
    let complain = |problem: CommitError| {
        warn!(%problem, "effects that are over could not be taken out of the outbox; they are tried again");
    };
    for (effect, reason) in ended.dead {
        let now = entities.clock().now();
        match store.bury(effect.clone(), reason.clone(), now).await {
            // The shard is another's by now, or ours anew: it goes again.
            Ok(()) | Err(CommitError::Fenced(_)) => {}
            Err(problem) => {
                complain(problem);
                left.dead.push((effect, reason));
            }
        }
    }
    if !ended.delivered.is_empty()
        && !mutation::is_on(Mutation::KeepOutbox)
        && let Err(problem) = store.delivered(ended.delivered.clone()).await
        && !matches!(problem, CommitError::Fenced(_))
    {
        complain(problem);
        left.delivered = ended.delivered;
    }
    left
}
