//! A swarm that has been at work for a while: its store is written by the rules of the pool, in large commits, since
//! a million single ones would take longer than what is measured.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use skein_coordinator::store::sqlite::Sqlite;
use skein_coordinator::store::{Batch, EventRecord, Store, TimerChange, Version};
use skein_shared::entity::{Changes, Ctx, DocumentChange, Entity};
use skein_shared::id::{EntityKey, InstanceId, Kind, Name};
use skein_shared::json::Json;
use skein_shared::pool::{self, Pool};
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::embedded::refused;
use crate::probes::sqlite::PAYLOAD;

/// Documents in one commit: about as many as a busy pool commits at once.
const COMMIT: usize = 256;
/// How long it has been at work.
const SPAN: Duration = Duration::from_secs(3600);
/// Different tags, of which each task has one or two.
pub(crate) const TAGS: usize = 50;
/// Tasks that one agent may have at a time.
const CAPACITY: u32 = 20;

/// What is in the swarm.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    /// Members besides the one who works in the bench.
    pub members: usize,
    /// Tasks that anybody may claim.
    pub pending: usize,
    /// Tasks that members work on.
    pub leases: usize,
}

/// A random task: some priority, one or two tags, 256 bytes of text.
pub(crate) fn spec(random: &mut fastrand::Rng) -> pool::TaskSpec {
    let tags = (0..random.usize(1..=2)).map(|_| tag(random)).collect();
    pool::TaskSpec { tags, priority: random.u8(0..=100), ..pool::TaskSpec::new(PAYLOAD) }
}

pub(crate) fn tag(random: &mut fastrand::Rng) -> String {
    format!("tag-{}", random.usize(..TAGS))
}

/// The pool in memory and what it has changed since the last commit.
struct Filling {
    store: Arc<dyn Store>,
    key: EntityKey,
    pool: Pool,
    version: Version,
    /// The last batch.
    last: Uuid,
    /// When the first of `all` commands came; the last comes a [`SPAN`] later.
    start: Timestamp,
    now: Timestamp,
    all: usize,
    commands: u32,
    documents: Vec<DocumentChange>,
    events: Vec<EventRecord>,
}

/// Writes the store of an agent's swarm into a new file, as it is at a moment, and gives the pool.
///
/// # Errors
/// When the pool or the disk refuses.
pub(crate) async fn fill(file: &Path, at: Timestamp, agent: Uuid, contents: &Contents) -> Result<Pool> {
    fill_store(Arc::new(Sqlite::open(file, at - SPAN)?), at, agent, contents).await
}

/// Writes the same into a new store of any kind.
///
/// # Errors
/// When the pool or the store refuses.
pub(crate) async fn fill_store(
    store: Arc<dyn Store>,
    at: Timestamp,
    agent: Uuid,
    contents: &Contents,
) -> Result<Pool> {
    let start = at - SPAN;
    let members = contents.members.max(contents.leases.div_ceil(CAPACITY as usize));
    let key = EntityKey::of(Kind::Pool, &Name::parse("default").map_err(refused)?);
    let mut filling = Filling {
        store,
        pool: Pool::empty(&key),
        key,
        version: Version(0),
        last: Uuid::nil(),
        start,
        now: start,
        all: 1 + members + contents.pending + 2 * contents.leases,
        commands: 0,
        documents: Vec::new(),
        events: Vec::new(),
    };
    filling.run(join(agent, "bench"), 0).await?;
    let members: Vec<Uuid> = (1..=members as u128).map(Uuid::from_u128).collect();
    for &member in &members {
        filling.run(join(member, &format!("member-{}", member.as_u128())), 0).await?;
    }
    let mut random = fastrand::Rng::with_seed(7);
    for number in 0..contents.pending + contents.leases {
        // One of the members, not the one who works: a creator's young tasks are compared with each other.
        let by = members.get(number % members.len().max(1)).copied();
        let reply = filling.run(create(by, spec(&mut random)), COMMIT).await?;
        let pool::Reply::Created { task, .. } = reply else { continue };
        // The newest, for a lease of an hour ago has ended.
        if number >= contents.pending {
            let agent = members[number % members.len()];
            filling.run(claim(agent, task.id), COMMIT).await?;
        }
    }
    filling.commit(0).await?;
    Ok(filling.pool)
}

impl Filling {
    async fn run(&mut self, command: pool::Command, wait_for: usize) -> Result<pool::Reply> {
        self.commands += 1;
        self.now = self.start + SPAN.mul_f64(f64::from(self.commands) / self.all as f64);
        let fence = self.store.fence(&self.key);
        let request = Uuid::from_u128(self.commands.into());
        let mut ctx = Ctx::new(self.now, self.now, self.now, fence.epoch, request);
        let decision = self.pool.decide(&command, &mut ctx).map_err(refused)?;
        for event in &decision.events {
            let mut changes = Changes::default();
            self.pool.apply(event, &mut changes);
            self.documents.extend(changes.documents);
            self.events.push(EventRecord { subject: Pool::subject(event), body: Json::of(event) });
        }
        self.commit(wait_for).await?;
        Ok(decision.reply)
    }

    /// Commits once there is more than this to commit.
    async fn commit(&mut self, wait_for: usize) -> Result<()> {
        if self.documents.len() <= wait_for {
            return Ok(());
        }
        let batch = Batch {
            key: self.key.clone(),
            expected: self.version,
            after: self.last,
            id: Uuid::now_v7(),
            at: self.now,
            documents: std::mem::take(&mut self.documents),
            events: std::mem::take(&mut self.events),
            seen: Vec::new(),
            replies: Vec::new(),
            timer: self.pool.next_wake().map_or(TimerChange::Keep, TimerChange::Set),
            outbox: Vec::new(),
            blobs: Vec::new(),
        };
        self.last = batch.id;
        self.version = self.store.commit(self.store.fence(&self.key), Arc::new(batch)).await?;
        Ok(())
    }
}

fn join(agent: Uuid, name: &str) -> pool::Command {
    pool::Command::Join(pool::Join {
        agent,
        name: name.to_owned(),
        lead: false,
        role: None,
        capabilities: Vec::new(),
        description: None,
        max_tasks: Some(CAPACITY),
        managed: false,
        texts: None,
    })
}

fn create(by: Option<Uuid>, spec: pool::TaskSpec) -> pool::Command {
    let (target, rules) = (pool::Target::Pool, pool::Rules::Plain);
    pool::Command::Create(Box::new(pool::Create { by, spec, target, rules, facts: Vec::new() }))
}

fn claim(agent: Uuid, task: Uuid) -> pool::Command {
    let instance = InstanceId(format!("instance-{}", agent.as_u128()));
    pool::Command::Claim { agent, instance, managed: false, task }
}
