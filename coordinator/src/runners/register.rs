//! Tells the kernel what a runner is and what its agents are.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::stream::{self, FuturesUnordered, StreamExt};
use serde_json::json;
use skein_proto::convert::{command, definition};
use skein_proto::v1::{AgentDefinition, AgentName, AgentProblem, HeldInstance, Register};
use skein_shared::agent::{self, Agent, Class, Definition};
use skein_shared::fleet::{self, Fleet, Offer};
use skein_shared::id::{EntityKey, InstanceId, Kind, Name};
use skein_shared::schedules::{self, Schedules};
use skein_shared::triggers::{self, Filter, Triggers};
use skein_shared::{Code, Refusal, limits};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{info, warn};
use uuid::Uuid;

use super::sessions::Grants;
use crate::entity::{Entities, Request};
use crate::service::removal;

/// Agents that are defined or started at a time: one whose entity is slow holds up few others.
const AT_A_TIME: usize = 16;
/// How long all agents may take to be defined, and once more to be removed: a runner waits 20 s for its welcome. Those
/// that are late, since nobody owns them just now perhaps, are told of and said again.
const PATIENCE: Duration = Duration::from_secs(6);
/// How long to wait before agents are started that could not be asked for.
const PAUSE: Duration = Duration::from_secs(5);

/// A runner that was taken in.
pub(super) struct Registered {
    pub(super) fleet: EntityKey,
    /// The pools whose tasks its instances may hold.
    pub(super) pools: Vec<EntityKey>,
    pub(super) grants: Grants,
    /// Held instances that were given away meanwhile.
    pub(super) lost: Vec<String>,
    /// What of the agents could not be taken as it is.
    pub(super) problems: Vec<AgentProblem>,
}

impl Registered {
    fn note(&mut self, agent: AgentName, refusal: &Refusal) {
        warn!(swarm = agent.swarm, agent = agent.name, problem = %refusal.message, "an agent was not taken as it is");
        let (problem, again) = (refusal.message.clone(), passes(refusal.code));
        self.problems.push(AgentProblem { agent: Some(agent), problem, again });
    }
}

/// Defines the runner's agents and then registers it, so that no grant comes before its agent is known. An agent that
/// cannot be taken is told of and keeps no other from running. A runner that has another one's name changes no agent.
pub(super) async fn register(entities: &Entities, register: &Register) -> Result<Registered, Refusal> {
    let mut registered = described(register)?;
    let group = Name::parse(&register.group)?;
    may_have_its_name(entities, &registered.fleet, register).await?;
    let (agents, _) = definition::agents(register);
    let until = Instant::now() + PATIENCE;
    let each: Vec<_> =
        agents.iter().map(|agent| by(until, define(entities, &group, agent)).boxed()).collect();
    let defined: Vec<_> = stream::iter(each).buffered(AT_A_TIME).collect().await;
    for (agent, outcome) in agents.iter().zip(defined) {
        outcome.unwrap_or_else(|refusal| registered.note(named(agent), &refusal));
    }
    registered.lost = take_in(entities, &registered.fleet, register, &agents).await?;
    let until = Instant::now() + PATIENCE;
    for agent in &register.removed {
        let (swarm, name) = (Name::parse(&agent.swarm)?, Name::parse(&agent.name)?);
        let removed = by(until, remove(entities, &group, &swarm, &name)).await;
        removed.unwrap_or_else(|refusal| registered.note(agent.clone(), &refusal));
    }
    Ok(registered)
}

/// What an agent says, if it says it in time.
async fn by(until: Instant, said: impl Future<Output = Result<(), Refusal>>) -> Result<(), Refusal> {
    let late =
        || Refusal::new(Code::Unavailable, "its coordinator has not answered in time; it is asked again");
    timeout_at(until, said).await.unwrap_or_else(|_| Err(late()))
}

/// Takes in one more stream of a runner that is registered through another coordinator: what it has not heard it is
/// told again.
pub(super) async fn attach(entities: &Entities, register: &Register) -> Result<Registered, Refusal> {
    let registered = described(register)?;
    let held = register.held.iter().map(held).collect::<Result<_, _>>()?;
    let command = fleet::Command::Attach { runner: register.name.clone(), held };
    match entities.ask::<Fleet>(&registered.fleet, Request::read(), command).await {
        Ok(_) => Ok(registered),
        Err(refusal) if refusal.code == Code::NotFound => Err(given_up()),
        Err(refusal) => Err(refusal),
    }
}

/// The runner was asked to end: it gets no new runs. Once it is `done` it is gone.
pub(super) async fn leaves(entities: &Entities, fleet: &EntityKey, runner: &str, done: bool) {
    let runner = runner.to_owned();
    let command = match done {
        true => fleet::Command::Leave { runner: runner.clone() },
        false => fleet::Command::Drain { runner: runner.clone() },
    };
    match entities.ask::<Fleet>(fleet, Request::read(), command).await {
        Ok(_) => info!(runner, done, "a runner leaves"),
        // It said so over another stream.
        Err(refusal) if refusal.code == Code::NotFound => {}
        Err(refusal) => warn!(runner, problem = %refusal.message, "a runner leaves unannounced"),
    }
}

/// Whether the fleet has a runner that it has not given up.
///
/// # Errors
/// `not_found` when it has not; others when it cannot be asked.
pub(super) async fn is_known(entities: &Entities, fleet: &EntityKey, runner: &str) -> Result<(), Refusal> {
    knows(entities, fleet, runner, "").await
}

async fn knows(entities: &Entities, fleet: &EntityKey, runner: &str, identity: &str) -> Result<(), Refusal> {
    let command = fleet::Command::Knows { runner: runner.to_owned(), identity: identity.to_owned() };
    entities.ask::<Fleet>(fleet, Request::read(), command).await.map(|_| ())
}

/// Whether a runner may be called as it is, as far as one fleet knows.
///
/// # Errors
/// `already_exists` while the fleet has another one of its name; others when it cannot be asked.
pub(super) async fn may_have_its_name(
    entities: &Entities,
    fleet: &EntityKey,
    register: &Register,
) -> Result<(), Refusal> {
    match knows(entities, fleet, &register.name, &register.identity).await {
        Err(refusal) if refusal.code == Code::NotFound => Ok(()),
        said => said,
    }
}

/// What a runner is told that goes on though others have its instances.
pub(super) fn given_up() -> Refusal {
    Refusal::new(Code::StaleToken, "the fleet has given this runner up; register again")
}

/// What a registration says, before anything is done about it.
fn described(register: &Register) -> Result<Registered, Refusal> {
    definition::check_registration(register)?;
    let mut grants = Grants::new();
    let mut swarms = names(&register.swarms)?;
    let (agents, wrong) = definition::agents(register);
    for agent in agents {
        grants.insert((agent.swarm.clone(), agent.name.clone()), agent.role.parse()?);
        swarms.insert(Name::parse(&agent.swarm)?);
    }
    for held in &register.held {
        swarms.insert(Name::parse(&held.swarm)?);
    }
    let pools = swarms.iter().map(|swarm| EntityKey::of(Kind::Pool, swarm)).collect();
    let fleet = EntityKey::fleet(&Name::parse(&register.group)?);
    let mut registered = Registered { fleet, pools, grants, lost: Vec::new(), problems: Vec::new() };
    wrong.iter().for_each(|(agent, refusal)| registered.note(named(agent), refusal));
    Ok(registered)
}

/// Starts one run of each agent that asks for it, once for each start of the runner's process. One that takes no work,
/// since somebody has disabled it, is not started; one that cannot be asked now is asked until it can, and keeps no
/// other waiting.
pub(super) fn autostart(entities: &Entities, register: &Register) -> impl Future<Output = ()> + use<> {
    let (agents, _) = definition::agents(register);
    let at_a_time = Arc::new(Semaphore::new(AT_A_TIME));
    let asking: FuturesUnordered<_> = agents
        .into_iter()
        .filter(|definition| definition.autostart)
        .map(|definition| {
            let name = format!("{} {}", register.name, register.incarnation);
            start_in_the_end(entities.clone(), name, definition.clone(), Arc::clone(&at_a_time))
        })
        .collect();
    asking.collect()
}

async fn start_in_the_end(
    entities: Entities,
    of: String,
    definition: AgentDefinition,
    at_a_time: Arc<Semaphore>,
) {
    let (swarm, agent) = (&definition.swarm, &definition.name);
    loop {
        let turn = at_a_time.acquire().await;
        let Err(refusal) = start(&entities, &of, &definition).await else { return };
        drop(turn);
        let again = passes(refusal.code);
        warn!(swarm, agent, again, problem = %refusal.message, "an agent was not started");
        if !again {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// An agent that is at work already needs no second run; that also covers a reconnection so late that the
/// stored answer of the first request is forgotten.
async fn start(entities: &Entities, of: &str, definition: &AgentDefinition) -> Result<(), Refusal> {
    let key = agent_key(definition)?;
    let overview = entities.ask::<Agent>(&key, Request::read(), agent::Command::List).await?;
    if let agent::Reply::Overview(overview) = overview
        && (!overview.queue.is_empty() || overview.instances.iter().any(|instance| !instance.external))
    {
        return Ok(());
    }
    let name = format!("autostart {of} {key}");
    let request = Request::once(Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()));
    let command = agent::Command::Enqueue {
        class: Class::Manual,
        source: "autostart".to_owned(),
        receipt: None,
        input: json!({"type": "manual", "source": "autostart"}),
    };
    entities.ask::<Agent>(&key, request, command).await.map(|_| ())
}

/// Tells the kernel what an agent is. What is refused of it leaves the rest as it was said, and as far as nothing else
/// was said before.
async fn define(entities: &Entities, group: &Name, wire: &AgentDefinition) -> Result<(), Refusal> {
    let swarm = &Name::parse(&wire.swarm)?;
    let definition = Definition {
        scale: wire.instances,
        timeout_ms: wire.timeout_ms,
        work_queue: size(wire.work_queue),
        max_waiting: size(wire.max_waiting),
        max_call_depth: wire.max_call_depth,
        wait_timeout_ms: wire.wait_timeout_ms,
        max_wait_timeout_ms: NonZeroU64::new(wire.max_wait_timeout_ms),
        grace_ms: wire.grace_ms,
        needs: labels(&wire.labels),
        max_reruns: wire.max_reruns.unwrap_or(limits::RERUNS),
        spill_after_ms: wire.spill_after_ms,
        cancel_children: wire.cancel_children,
        ..Definition::default()
    };
    let key = agent_key(wire)?;
    let command = agent::Command::Define { definition, group: group.clone() };
    entities.ask::<Agent>(&key, Request::read(), command).await?;
    let triggers = EntityKey::of(Kind::Triggers, swarm);
    let subscribed = match filters(wire) {
        Ok(filters) => {
            let command = triggers::Command::Subscribe { agent: Name::parse(&wire.name)?, filters };
            entities.ask::<Triggers>(&triggers, Request::read(), command).await.map(|_| ())
        }
        Err(refusal) => Err(refusal),
    };
    // After the definition: whoever pauses the swarm tells all agents that are defined by then.
    let asked = entities.ask::<Triggers>(&triggers, Request::read(), triggers::Command::AskPause).await?;
    if let triggers::Reply::Pause { paused, word } = asked {
        let command = agent::Command::SetSwarmPaused { paused, word };
        entities.ask::<Agent>(&key, Request::read(), command).await?;
    }
    let command = schedules::Command::Follow {
        agent: Name::parse(&wire.name)?,
        cron: (!wire.schedule.is_empty()).then(|| wire.schedule.clone()),
        zone: wire.zone.clone(),
    };
    let schedules = EntityKey::of(Kind::Schedules, swarm);
    let scheduled = entities.ask::<Schedules>(&schedules, Request::read(), command).await;
    subscribed.and(scheduled.map(|_| ()))
}

/// Whether a refusal says nothing of what was asked, so that the same may be taken a moment later.
fn passes(code: Code) -> bool {
    code.is_passing() || matches!(code, Code::Internal | Code::RateLimited)
}

fn named(definition: &AgentDefinition) -> AgentName {
    AgentName { swarm: definition.swarm.clone(), name: definition.name.clone() }
}

/// Undefines an agent that its runner has no more, unless another one has it: of the runner's group, or of the one to
/// which the agent has moved.
async fn remove(entities: &Entities, group: &Name, swarm: &Name, agent: &Name) -> Result<(), Refusal> {
    if is_offered(entities, group, swarm, agent).await? {
        return Ok(());
    }
    let key = EntityKey::agent(swarm, agent);
    let moved = match entities.ask::<Agent>(&key, Request::read(), agent::Command::List).await? {
        agent::Reply::Overview(overview) => overview.group.filter(|now| now != group),
        _ => None,
    };
    if let Some(moved) = &moved
        && is_offered(entities, moved, swarm, agent).await?
    {
        return Ok(());
    }
    removal::undefine(entities, swarm, agent).await
}

/// Whether any runner of a group has an agent.
async fn is_offered(entities: &Entities, group: &Name, swarm: &Name, agent: &Name) -> Result<bool, Refusal> {
    let command = fleet::Command::IsOffered { swarm: Some(swarm.clone()), agent: agent.clone() };
    let reply = entities.ask::<Fleet>(&EntityKey::fleet(group), Request::read(), command).await?;
    Ok(reply == fleet::Reply::Offered(true))
}

/// Registers with the fleet. Gives the held instances that went to others.
async fn take_in(
    entities: &Entities,
    fleet: &EntityKey,
    register: &Register,
    agents: &[&AgentDefinition],
) -> Result<Vec<String>, Refusal> {
    let registration = fleet::Registration {
        runner: register.name.clone(),
        identity: register.identity.clone(),
        slots: register.slots,
        labels: labels(&register.labels),
        engines: register.engines.iter().cloned().collect(),
        agents: agents.iter().map(|agent| offer(agent)).collect::<Result<_, _>>()?,
        swarms: names(&register.swarms)?,
        held: register.held.iter().map(held).collect::<Result<_, _>>()?,
    };
    let command = fleet::Command::Register(registration);
    match entities.ask::<Fleet>(fleet, Request::read(), command).await? {
        fleet::Reply::Registered { stopped, .. } => {
            let stopped: BTreeSet<String> = stopped.into_iter().map(|instance| instance.0).collect();
            let alive = register.held.iter().filter(|held| held.state != "ended");
            let lost = alive.map(|held| held.instance.clone()).filter(|instance| stopped.contains(instance));
            Ok(lost.collect())
        }
        _ => Err(Refusal::new(Code::Internal, "the fleet did not answer the registration; report this")),
    }
}

fn held(wire: &HeldInstance) -> Result<fleet::HeldInstance, Refusal> {
    Ok(fleet::HeldInstance {
        instance: InstanceId(wire.instance.clone()),
        swarm: Name::parse(&wire.swarm)?,
        agent: Name::parse(&wire.agent)?,
        state: wire.state.clone(),
        token: command::token(&wire.token)?,
    })
}

fn offer(wire: &AgentDefinition) -> Result<Offer, Refusal> {
    Ok(Offer::new(&Name::parse(&wire.swarm)?, &Name::parse(&wire.name)?))
}

fn agent_key(wire: &AgentDefinition) -> Result<EntityKey, Refusal> {
    Ok(EntityKey::agent(&Name::parse(&wire.swarm)?, &Name::parse(&wire.name)?))
}

fn filters(wire: &AgentDefinition) -> Result<Vec<Filter>, Refusal> {
    let read = |text: &String| {
        let fields = serde_json::from_str(text).map_err(|error| error.to_string());
        fields.and_then(|fields| triggers::subscription(&fields)).map_err(|problem| {
            let problem =
                format!("{}: subscriptions: {problem}; mend it in the agent's definition", wire.name);
            Refusal::new(Code::InvalidArgument, problem)
        })
    };
    wire.subscriptions.iter().map(read).collect()
}

fn names(texts: &[String]) -> Result<BTreeSet<Name>, Refusal> {
    texts.iter().map(|text| Name::parse(text)).collect()
}

/// Labels as the fleet compares them: `key=value`.
fn labels(labels: &BTreeMap<String, String>) -> BTreeSet<String> {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect()
}

fn size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
