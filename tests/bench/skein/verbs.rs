//! What agents ask for most, as the tools call it: a swarm in this process whose members do one thing each,
//! one after the other.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use skein_coordinator::auth::{Principal, Rights, Role};
use skein_coordinator::service::Service;
use skein_coordinator::service::lists::Tasks;
use skein_coordinator::service::messages::Draft;
use skein_coordinator::service::swarm::Introduction;
use skein_coordinator::service::tasks::{Action, Wanted};
use skein_shared::channels::Read;
use skein_shared::id::{InstanceId, Name};
use skein_shared::pool::{Finish, Rules, Target, TaskSpec};
use uuid::Uuid;

use super::embedded::{Kernel, flushes, refused};
use crate::harness::meter::{Reading, ThreadTimes};
use crate::probes::sqlite::PAYLOAD;

/// Members of the swarm; each asks for each verb once.
const MEMBERS: usize = 200;
/// Rows of a list.
const SHOWN: usize = 20;
/// How long the read side may take to have all that was done: its work belongs to the verb.
const SETTLE: Duration = Duration::from_secs(60);

/// What one operation costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub cpu_us: f64,
    pub flushes: f64,
    pub bytes: f64,
    pub allocations: f64,
}

struct World {
    service: Service,
    lead: Principal,
    members: Vec<Principal>,
}

fn principal(name: &str, role: Role) -> Result<Principal> {
    let agent_name = Name::parse(name).map_err(refused)?;
    Ok(Principal {
        swarm: Name::parse("default").map_err(refused)?,
        agent: Uuid::new_v5(&Uuid::nil(), name.as_bytes()),
        instance: InstanceId(name.to_owned()),
        agent_name,
        managed: false,
        role,
        rights: Rights::ALL,
        view: None,
    })
}

impl World {
    async fn open(folder: &Path) -> Result<Self> {
        let service = Service::new(Kernel::open(folder)?.entities);
        let lead = principal("lead", Role::Lead)?;
        let members = (0..MEMBERS).map(|number| principal(&format!("worker-{number}"), Role::Worker));
        let world = Self { service, lead, members: members.collect::<Result<_>>()? };
        for who in world.members.iter().chain([&world.lead]) {
            let introduction = Introduction {
                name: who.agent_name.to_string(),
                lead: who.role == Role::Lead,
                ..Introduction::default()
            };
            world.service.join(who, Uuid::now_v7(), introduction).await.map_err(refused)?;
        }
        Ok(world)
    }

    /// Lets every member do the same, one after the other.
    async fn each(&self, mut verb: impl AsyncFnMut(usize, &Principal) -> Result<()>) -> Result<Cost> {
        self.settled().await;
        let (before, times, flushed) = (reading()?, ThreadTimes::take()?, flushes()?);
        for (number, member) in self.members.iter().enumerate() {
            verb(number, member).await?;
        }
        self.settled().await;
        let share = |value: f64| value / MEMBERS as f64;
        let used = reading()?.since(&before);
        Ok(Cost {
            cpu_us: share(times.used_us()?),
            flushes: share((flushes()? - flushed) as f64),
            bytes: share(used.bytes),
            allocations: share(used.allocations.unwrap_or_default()),
        })
    }

    async fn settled(&self) {
        self.service.entities().shared().projection.settled(SETTLE).await;
    }

    async fn send(&self, target: Target) -> Result<Uuid> {
        let wanted = Wanted { spec: TaskSpec::new(PAYLOAD), target, rules: Rules::Plain };
        let made = self.service.send_task(&self.lead, Uuid::now_v7(), wanted).await.map_err(refused)?;
        Ok(Uuid::try_parse(made.task["id"].as_str().context("a task has an id")?)?)
    }

    async fn complete(&self, who: &Principal, task: Uuid) -> Result<()> {
        let finish = Finish::Completed { output: Some("done".to_owned()) };
        let report = self.service.report(who, Uuid::now_v7(), task, None, Some((finish, None)));
        report.await.map(|_| ()).map_err(refused)
    }
}

fn reading() -> Result<Reading> {
    Reading::of(crate::harness::contender::Metered::Myself)
}

/// Measures the twelve commonest verbs in a new store.
///
/// # Errors
/// The first refusal.
pub(crate) async fn measure(folder: PathBuf) -> Result<Vec<(&'static str, Cost)>> {
    // One agent after the other: all of it is one thread's work, and what it awaits is done by others.
    let handle = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || handle.block_on(in_turn(&folder))).await?
}

async fn in_turn(folder: &Path) -> Result<Vec<(&'static str, Cost)>> {
    let world = World::open(folder).await?;
    let mut costs = tasks(&world).await?;
    costs.extend(others(&world).await?);
    Ok(costs)
}

/// What agents do with tasks.
async fn tasks(world: &World) -> Result<Vec<(&'static str, Cost)>> {
    let service = &world.service;
    let mut sent = Vec::new();
    let send_task = world.each(async |_, who| {
        sent.push(world.send(Target::Assign { agent: Some(who.agent) }).await?);
        Ok(())
    });
    let send_task = send_task.await?;
    let poll_task = world.each(async |number, who| {
        let polled = service.poll_task(who, Uuid::now_v7(), Duration::ZERO).await.map_err(refused)?;
        let (task, _) = polled.task.context("nothing to do")?;
        anyhow::ensure!(task["id"] == sent[number].to_string().as_str(), "another's task");
        Ok(())
    });
    let poll_task = poll_task.await?;
    let progress = world.each(async |number, who| {
        let note = Some("half of it is done".to_owned());
        let report = service.report(who, Uuid::now_v7(), sent[number], note, None);
        report.await.map(|_| ()).map_err(refused)
    });
    let progress = progress.await?;
    let get_task = world
        .each(async |number, who| service.get_task(who, sent[number]).await.map(|_| ()).map_err(refused));
    let get_task = get_task.await?;
    let complete = world.each(async |number, who| world.complete(who, sent[number]).await).await?;

    let mut pooled = Vec::new();
    for _ in &world.members {
        pooled.push(world.send(Target::Pool).await?);
    }
    let list_tasks = world.each(async |_, who| {
        let wanted = Tasks { unassigned: true, limit: SHOWN, ..Tasks::default() };
        let found = service.list_tasks(who, wanted).await.map_err(refused)?;
        anyhow::ensure!(found.rows.len() == SHOWN, "the list has {} rows", found.rows.len());
        Ok(())
    });
    let list_tasks = list_tasks.await?;
    let claim = world.each(async |number, who| {
        service.act(who, Uuid::now_v7(), pooled[number], Action::Claim).await.map(|_| ()).map_err(refused)
    });
    let claim = claim.await?;
    Ok(vec![
        ("send_task", send_task),
        ("poll_task", poll_task),
        ("claim", claim),
        ("progress", progress),
        ("complete", complete),
        ("get_task", get_task),
        ("list_tasks", list_tasks),
    ])
}

/// Locks, messages, and who one is.
async fn others(world: &World) -> Result<Vec<(&'static str, Cost)>> {
    let service = &world.service;
    let resource = |who: &Principal| format!("file:///repo/{}", who.agent_name);
    let me = world.each(async |_, who| service.me(who).await.map(|_| ()).map_err(refused)).await?;
    let acquire = world.each(async |_, who| {
        service.acquire(who, Uuid::now_v7(), resource(who), None).await.map(|_| ()).map_err(refused)
    });
    let acquire = acquire.await?;
    let release = world.each(async |_, who| {
        service.release(who, Uuid::now_v7(), resource(who)).await.map(|_| ()).map_err(refused)
    });
    let release = release.await?;
    let post_message = world.each(async |_, who| {
        let draft = Draft { content: PAYLOAD.to_owned(), ..Draft::default() };
        service.post_message(who, Uuid::now_v7(), draft).await.map(|_| ()).map_err(refused)
    });
    let post_message = post_message.await?;
    let read_messages = world.each(async |_, who| {
        let found = service.read_messages(who, Uuid::now_v7(), Read::new(who.agent)).await;
        let found = found.map_err(refused)?;
        anyhow::ensure!(!found.messages.is_empty(), "there are messages");
        Ok(())
    });
    let read_messages = read_messages.await?;
    Ok(vec![
        ("me", me),
        ("acquire", acquire),
        ("release", release),
        ("post_message", post_message),
        ("read_messages", read_messages),
    ])
}
