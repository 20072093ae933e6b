//! The pump: reads each undelivered effect once, gives it to its lane, and takes what was delivered out of
//! the store.
//!
//! Lanes know nothing of one another: one whose target is slow or away holds up nobody else. What was read
//! stays in memory until it is delivered, so a lane that waits for a runner costs no reads.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use skein_shared::mutation::{self, Mutation};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::Runners;
use super::lane::{self, Report, World};
use crate::entity::Entities;
use crate::store::{CommitError, OutboxEntry, OutboxPlace, Store, StoreError};

/// Effects read in one step.
const PAGE: usize = 512;
/// How soon the store is asked again after it refused.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// How long what is over stays in the store, so that one write takes out much. If the node dies before, it is
/// delivered again, as after any crash.
const GATHER: Duration = Duration::from_millis(50);
/// Looks at the store at least this often.
const LONGEST: Duration = Duration::from_secs(30);

/// What the pump waits for.
enum Done {
    Read(Result<Vec<OutboxEntry>, StoreError>),
    Worked(Report),
    /// What could not be taken out comes back.
    Settled(Ended),
}

/// Effects that are over and still in the store.
#[derive(Default)]
struct Ended {
    delivered: Vec<OutboxPlace>,
    dead: Vec<(OutboxPlace, String)>,
}

impl Ended {
    fn is_empty(&self) -> bool {
        self.delivered.is_empty() && self.dead.is_empty()
    }

    fn add(&mut self, delivered: Vec<OutboxPlace>, dead: Vec<(OutboxPlace, String)>) {
        self.delivered.extend(delivered);
        self.dead.extend(dead);
    }
}

struct Pump {
    world: World,
    store: Arc<dyn Store>,
    work: FuturesUnordered<BoxFuture<'static, Done>>,
    /// What waits behind the work of its lane. A lane has an entry while it works.
    lanes: HashMap<lane::Name, VecDeque<OutboxEntry>>,
    /// The last position that was read.
    read: u64,
    reading: bool,
    /// More was committed since the read under way began.
    more: bool,
    ended: Ended,
    /// When what is over is taken out, once something is.
    settle_at: Option<Instant>,
    settling: bool,
}

/// Runs until `stop`. When shards come or go it begins anew: what was read may be another node's to deliver now, and of
/// what came some stands behind the place up to which was read.
pub async fn run(entities: Entities, runners: Arc<dyn Runners>, stop: CancellationToken) {
    let mut shards = entities.shared().shards.subscribe();
    while !stop.is_cancelled() {
        let end = stop.child_token();
        let pumping = pump(entities.clone(), Arc::clone(&runners), end.clone());
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

async fn pump(entities: Entities, runners: Arc<dyn Runners>, stop: CancellationToken) {
    let mut committed = entities.shared().outbox.subscribe();
    let connections = watch::Sender::new(0_u64);
    let store = Arc::clone(&entities.shared().store);
    let world = World { entities, runners: Arc::clone(&runners), connected: connections.subscribe() };
    let mut pump = Pump {
        world,
        store,
        work: FuturesUnordered::new(),
        lanes: HashMap::new(),
        read: 0,
        reading: false,
        more: false,
        ended: Ended::default(),
        settle_at: None,
        settling: false,
    };
    pump.begin_read();
    let mut connected = runners.connected();
    loop {
        let settle = until(pump.settle_at.filter(|_| !pump.settling));
        tokio::select! {
            () = stop.cancelled() => break,
            () = &mut connected => {
                connected = runners.connected();
                connections.send_modify(|count| *count += 1);
            }
            _ = committed.changed() => pump.begin_read(),
            Some(done) = pump.work.next() => pump.take(done),
            () = tokio::time::sleep(LONGEST) => pump.begin_read(),
            () = settle => pump.begin_settle(),
        }
    }
    pump.finish().await;
}

impl Pump {
    /// Reads on from where the last read ended, unless that is under way.
    fn begin_read(&mut self) {
        if self.reading {
            self.more = true;
            return;
        }
        self.reading = true;
        self.more = false;
        let (store, after) = (Arc::clone(&self.store), self.read);
        self.work.push(Box::pin(async move { Done::Read(store.outbox(after, PAGE).await) }));
    }

    fn take(&mut self, done: Done) {
        match done {
            Done::Read(Ok(page)) => {
                self.reading = false;
                let full = page.len() == PAGE;
                for entry in page {
                    self.read = entry.position;
                    self.hand_out(entry);
                }
                if full || self.more {
                    self.begin_read();
                }
            }
            Done::Read(Err(problem)) => {
                warn!(%problem, "the outbox cannot be read");
                let (store, after) = (Arc::clone(&self.store), self.read);
                self.work.push(Box::pin(async move {
                    tokio::time::sleep(AFTER_ERROR).await;
                    Done::Read(store.outbox(after, PAGE).await)
                }));
            }
            Done::Worked(report) => self.go_on(report),
            Done::Settled(left) => {
                self.settling = false;
                self.note_ended(left.delivered, left.dead);
            }
        }
    }

    fn hand_out(&mut self, entry: OutboxEntry) {
        let lane = lane::name(&entry);
        if let Some(waiting) = self.lanes.get_mut(&lane) {
            waiting.push_back(entry);
            return;
        }
        self.lanes.insert(lane.clone(), VecDeque::new());
        self.begin_work(self.world.clone(), lane, VecDeque::from([entry]), 0);
    }

    /// Lets a lane go on with what it has left and what has come meanwhile.
    fn go_on(&mut self, report: Report) {
        let Report { lane, world, delivered, dead, mut rest, tries } = report;
        self.note_ended(delivered, dead);
        let Some(waiting) = self.lanes.get_mut(&lane) else { return };
        if rest.is_empty() {
            rest = std::mem::take(waiting);
        }
        if rest.is_empty() {
            self.lanes.remove(&lane);
            return;
        }
        self.begin_work(world, lane, rest, tries);
    }

    fn note_ended(&mut self, delivered: Vec<OutboxPlace>, dead: Vec<(OutboxPlace, String)>) {
        self.ended.add(delivered, dead);
        if !self.ended.is_empty() {
            self.settle_at.get_or_insert_with(|| Instant::now() + GATHER);
        }
    }

    fn begin_work(&mut self, world: World, lane: lane::Name, queue: VecDeque<OutboxEntry>, tries: u32) {
        let work = lane::work(world, lane, queue, tries);
        self.work.push(Box::pin(async move { Done::Worked(work.await) }));
    }

    /// Takes out of the store what is over.
    fn begin_settle(&mut self) {
        self.settling = true;
        self.settle_at = None;
        let (ended, world) = (std::mem::take(&mut self.ended), self.world.clone());
        let store = Arc::clone(&self.store);
        self.work.push(Box::pin(async move {
            let left = settle(store.as_ref(), &world.entities, ended).await;
            if !left.is_empty() {
                tokio::time::sleep(AFTER_ERROR).await;
            }
            Done::Settled(left)
        }));
    }

    /// Takes out what was delivered last. What is lost here goes again and is told apart by its mark.
    async fn finish(mut self) {
        let ended = std::mem::take(&mut self.ended);
        if !ended.is_empty() {
            settle(self.store.as_ref(), &self.world.entities, ended).await;
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Gives back what the store did not take.
async fn settle(store: &dyn Store, entities: &Entities, ended: Ended) -> Ended {
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
