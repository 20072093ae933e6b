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

/// Takes in one more stream of a runner that is registered through another coordinator: what it has not heard it is told
/// again.
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
    let command = fleet::Command::Knows { runner: runner.to_owned(), identity: String::new() };
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
    let (runner, identity) = (register.name.clone(), register.identity.clone());
    let command = fleet::Command::Knows { runner, identity };
    match entities.ask::<Fleet>(fleet, Request::read(), command).await {
        Ok(_) => Ok(()),
        Err(refusal) if refusal.code == Code::NotFound => Ok(()),
        Err(refusal) => Err(refusal),
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
/// since somebody has disabled it, is not started; one that cannot be asked now is asked until it can, and keeps no other
/// waiting.
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
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::entity::tests::{Node, node, poison};
    use crate::store::memory::{Fault, Gate};

    fn agent(name: &str) -> AgentDefinition {
        AgentDefinition {
            name: name.to_owned(),
            swarm: "default".to_owned(),
            instances: 1,
            timeout_ms: 60_000,
            wait_timeout_ms: 60_000,
            role: "worker".to_owned(),
            autostart: true,
            zone: "UTC".to_owned(),
            ..Default::default()
        }
    }

    fn registration(incarnation: u64, agents: Vec<AgentDefinition>) -> Register {
        let (name, group) = ("r1".to_owned(), "default".to_owned());
        Register { name, group, slots: 4, agents, incarnation, ..Default::default() }
    }

    async fn overview(node: &Node, name: &str) -> Box<agent::Overview> {
        let key = agent_key(&agent(name)).unwrap();
        match node.entities.ask::<Agent>(&key, Request::read(), agent::Command::List).await.unwrap() {
            agent::Reply::Overview(overview) => overview,
            other => panic!("{other:?}"),
        }
    }

    /// What of an agent runs or waits to.
    async fn runs(node: &Node, name: &str) -> usize {
        overview(node, name).await.instances.len()
    }

    #[tokio::test]
    async fn an_agent_that_is_refused_keeps_no_other_from_running_and_is_told_of() {
        let node = node();
        let spoilt = AgentDefinition { schedule: "every other day".to_owned(), ..agent("spoilt") };
        let mistyped = AgentDefinition {
            subscriptions: vec![r#"{"source":"github","repo":["a/b"]}"#.to_owned()],
            ..agent("mistyped")
        };
        let all = registration(1, vec![spoilt, mistyped, agent("good")]);
        let registered = register(&node.entities, &all).await.unwrap();
        let told: Vec<_> = registered.problems.iter().map(|one| one.agent.clone().unwrap().name).collect();
        assert_eq!(told, ["spoilt", "mistyped"]);
        assert!(registered.problems.iter().all(|one| !one.again), "{:?}", registered.problems);
        autostart(&node.entities, &all).await;
        assert_eq!(runs(&node, "good").await, 1);
        assert_eq!(runs(&node, "mistyped").await, 1, "all of it but its subscriptions");
        assert_eq!(runs(&node, "spoilt").await, 0);
    }

    #[tokio::test]
    async fn an_agent_that_somebody_has_disabled_turns_no_runner_away() {
        let node = node();
        let both = || vec![agent("idle"), agent("good")];
        register(&node.entities, &registration(1, both())).await.unwrap();
        let key = agent_key(&agent("idle")).unwrap();
        let disable = agent::Command::SetEnabled { enabled: false };
        node.entities.ask::<Agent>(&key, Request::read(), disable).await.unwrap();
        let anew = registration(2, both());
        register(&node.entities, &anew).await.unwrap();
        autostart(&node.entities, &anew).await;
        assert_eq!((runs(&node, "idle").await, runs(&node, "good").await), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_cannot_be_loaded_is_tried_again_and_keeps_no_other_from_starting() {
        let node = node();
        poison(&node, agent_key(&agent("broken")).unwrap()).await;
        let all = registration(1, vec![agent("broken"), agent("good")]);
        let registered = register(&node.entities, &all).await.unwrap();
        let [problem] = registered.problems.as_slice() else { panic!("{:?}", registered.problems) };
        assert!(problem.again && problem.agent.as_ref().is_some_and(|agent| agent.name == "broken"));
        let starting = timeout(PAUSE * 3, autostart(&node.entities, &all)).await;
        assert!(starting.is_err(), "it was given up");
        assert_eq!(runs(&node, "good").await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_does_not_answer_keeps_its_runner_waiting_for_no_longer_than_that_bears() {
        let (node, gate) = (node(), Gate::default());
        register(&node.entities, &registration(1, Vec::new())).await.unwrap();
        node.store.contents().faults().push(Fault::Slow(gate.clone()));
        let all = registration(2, vec![agent("slow"), agent("good")]);
        let registered = timeout(PATIENCE * 2, register(&node.entities, &all)).await.unwrap().unwrap();
        let [problem] = registered.problems.as_slice() else { panic!("{:?}", registered.problems) };
        assert!(problem.again && problem.problem.contains("has not answered in time"), "{problem:?}");
        gate.open();
        let again = register(&node.entities, &all).await.unwrap();
        assert_eq!(again.problems, []);
    }

    #[tokio::test]
    async fn an_agent_that_has_moved_to_another_group_stays_when_its_former_runner_has_it_no_more() {
        let node = node();
        let says = |name: &str, group: &str, agents: Vec<AgentDefinition>| {
            let removed = if agents.is_empty() { vec![named(&agent("good"))] } else { Vec::new() };
            let (name, group) = (name.to_owned(), group.to_owned());
            Register { name, group, removed, ..registration(1, agents) }
        };
        register(&node.entities, &says("r1", "a", vec![agent("good")])).await.unwrap();
        register(&node.entities, &says("r2", "b", vec![agent("good")])).await.unwrap();
        register(&node.entities, &says("r1", "a", Vec::new())).await.unwrap();
        let moved = overview(&node, "good").await;
        assert!(moved.definition.is_some() && moved.group == Some(Name::parse("b").unwrap()), "{moved:?}");
        register(&node.entities, &says("r2", "b", Vec::new())).await.unwrap();
        assert_eq!(overview(&node, "good").await.definition, None, "nobody has it any more");
    }

    #[tokio::test]
    async fn a_runner_that_is_refused_for_its_name_changes_no_agent() {
        let node = node();
        let says = |identity: &str, instances: u32| {
            let good = AgentDefinition { instances, ..agent("good") };
            Register { identity: identity.to_owned(), ..registration(1, vec![good]) }
        };
        register(&node.entities, &says("one", 1)).await.unwrap();
        let Err(refused) = register(&node.entities, &says("two", 2)).await else {
            panic!("a second runner of the name was taken in")
        };
        assert_eq!(refused.code, Code::AlreadyExists, "{refused}");
        assert_eq!(overview(&node, "good").await.definition.unwrap().scale, 1);
        register(&node.entities, &says("one", 3)).await.unwrap();
        assert_eq!(overview(&node, "good").await.definition.unwrap().scale, 3);
    }

    #[test]
    fn subscriptions_are_read_as_definitions_spell_them() {
        let wire =
            |text: &str| AgentDefinition { subscriptions: vec![text.to_owned()], ..Default::default() };
        let read = filters(&wire(r#"{"source":"github","event":"push","match":{"branch":"main"}}"#)).unwrap();
        let [filter] = read.as_slice() else { panic!("one filter") };
        assert_eq!((filter.kind, filter.source.as_deref()), (triggers::FilterKind::Webhook, Some("github")));
        assert_eq!(filter.matches["branch"], "main");
        let mistyped = filters(&wire(r#"{"source":"github","repo":["a/b"]}"#)).unwrap_err();
        assert!(mistyped.message.contains("did you mean `repos`"), "{mistyped}");
    }
}
