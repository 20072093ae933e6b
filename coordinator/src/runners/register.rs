//! Tells the kernel what a runner is and what its agents are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::json;
use skein_proto::convert::{command, definition};
use skein_proto::v1::{AgentDefinition, HeldInstance, Register};
use skein_shared::agent::{self, Agent, Class, Definition};
use skein_shared::fleet::{self, Fleet};
use skein_shared::id::{EntityKey, InstanceId, Kind, Name};
use skein_shared::schedules::{self, Schedules};
use skein_shared::triggers::{self, Filter, Triggers};
use skein_shared::{Code, Refusal, limits};
use uuid::Uuid;

use super::sessions::{Grant, Grants};
use crate::entity::{Entities, Request};

/// A runner that was taken in.
pub(super) struct Registered {
    pub(super) fleet: EntityKey,
    /// The pools whose tasks its instances may hold.
    pub(super) pools: Vec<EntityKey>,
    pub(super) grants: Grants,
    /// Held instances that were given away meanwhile.
    pub(super) lost: Vec<String>,
}

/// Defines the runner's agents and then registers it, so that no grant comes before its agent is known.
pub(super) async fn register(entities: &Entities, register: &Register) -> Result<Registered, Refusal> {
    let mut registered = described(register)?;
    let group = Name::parse(&register.group)?;
    for agent in &register.agents {
        define(entities, &Name::parse(&agent.swarm)?, &group, agent).await?;
    }
    registered.lost = take_in(entities, &registered.fleet, register).await?;
    for agent in &register.removed {
        remove(entities, &registered.fleet, &Name::parse(&agent.swarm)?, &Name::parse(&agent.name)?).await?;
    }
    Ok(registered)
}

/// Takes in one more stream of a runner that is registered through another coordinator. Nothing is judged by what it
/// holds: a run may be on its way to it over another stream.
pub(super) async fn attach(entities: &Entities, register: &Register) -> Result<Registered, Refusal> {
    let registered = described(register)?;
    match is_known(entities, &registered.fleet, &register.name).await {
        Ok(()) => Ok(registered),
        Err(refusal) if refusal.code == Code::NotFound => Err(given_up()),
        Err(refusal) => Err(refusal),
    }
}

/// Whether the fleet has a runner that it has not given up.
///
/// # Errors
/// `not_found` when it has not; others when it cannot be asked.
pub(super) async fn is_known(entities: &Entities, fleet: &EntityKey, runner: &str) -> Result<(), Refusal> {
    let command = fleet::Command::Knows { runner: runner.to_owned() };
    entities.ask::<Fleet>(fleet, Request::read(), command).await.map(|_| ())
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
    for agent in &register.agents {
        let grant = Grant { role: agent.role.parse()?, timeout: Duration::from_millis(agent.timeout_ms) };
        grants.insert((agent.swarm.clone(), agent.name.clone()), grant);
        swarms.insert(Name::parse(&agent.swarm)?);
    }
    for held in &register.held {
        swarms.insert(Name::parse(&held.swarm)?);
    }
    let pools = swarms.iter().map(|swarm| EntityKey::of(Kind::Pool, swarm)).collect();
    let fleet = EntityKey::fleet(&Name::parse(&register.group)?);
    Ok(Registered { fleet, pools, grants, lost: Vec::new() })
}

/// Starts one run of each agent that asks for it, once for each start of the runner's process.
///
/// An agent that is at work already needs no second run; that also covers a reconnection so late that the
/// stored answer of the first request is forgotten.
pub(super) async fn autostart(entities: &Entities, register: &Register) -> Result<(), Refusal> {
    for definition in register.agents.iter().filter(|definition| definition.autostart) {
        let key = agent_key(definition)?;
        let overview = entities.ask::<Agent>(&key, Request::read(), agent::Command::List).await?;
        if let agent::Reply::Overview(overview) = overview
            && (!overview.queue.is_empty() || overview.instances.iter().any(|instance| !instance.external))
        {
            continue;
        }
        let name = format!("autostart {} {} {key}", register.name, register.incarnation);
        let request = Request::once(Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()));
        let command = agent::Command::Enqueue {
            class: Class::Manual,
            source: "autostart".to_owned(),
            receipt: None,
            input: json!({"type": "manual", "source": "autostart"}),
        };
        entities.ask::<Agent>(&key, request, command).await?;
    }
    Ok(())
}

async fn define(
    entities: &Entities,
    swarm: &Name,
    group: &Name,
    wire: &AgentDefinition,
) -> Result<(), Refusal> {
    let definition = Definition {
        scale: wire.instances,
        timeout_ms: wire.timeout_ms,
        work_queue: size(wire.work_queue),
        max_waiting: size(wire.max_waiting),
        max_call_depth: wire.max_call_depth,
        wait_timeout_ms: wire.wait_timeout_ms,
        grace_ms: wire.grace_ms,
        needs: labels(&wire.labels),
        max_reruns: wire.max_reruns.unwrap_or(limits::RERUNS),
        spill_after_ms: wire.spill_after_ms,
        ..Definition::default()
    };
    let key = agent_key(wire)?;
    let command = agent::Command::Define { definition, group: group.clone() };
    entities.ask::<Agent>(&key, Request::read(), command).await?;
    let triggers = EntityKey::of(Kind::Triggers, swarm);
    let command = triggers::Command::Subscribe { agent: Name::parse(&wire.name)?, filters: filters(wire)? };
    entities.ask::<Triggers>(&triggers, Request::read(), command).await?;
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
    entities.ask::<Schedules>(&EntityKey::of(Kind::Schedules, swarm), Request::read(), command).await?;
    Ok(())
}

/// Undefines an agent that its runner has no more, unless another one has it: its runs end, its queue becomes dead
/// letters, and nothing starts it.
async fn remove(entities: &Entities, fleet: &EntityKey, swarm: &Name, agent: &Name) -> Result<(), Refusal> {
    let command = fleet::Command::IsOffered { agent: agent.clone() };
    if let fleet::Reply::Offered(true) = entities.ask::<Fleet>(fleet, Request::read(), command).await? {
        return Ok(());
    }
    // First what would start it.
    let command = triggers::Command::Subscribe { agent: agent.clone(), filters: Vec::new() };
    entities.ask::<Triggers>(&EntityKey::of(Kind::Triggers, swarm), Request::read(), command).await?;
    let command = schedules::Command::Follow { agent: agent.clone(), cron: None, zone: String::new() };
    entities.ask::<Schedules>(&EntityKey::of(Kind::Schedules, swarm), Request::read(), command).await?;
    let key = EntityKey::agent(swarm, agent);
    entities.ask::<Agent>(&key, Request::read(), agent::Command::Undefine).await?;
    Ok(())
}

/// Registers with the fleet. Gives the held instances that went to others.
async fn take_in(
    entities: &Entities,
    fleet: &EntityKey,
    register: &Register,
) -> Result<Vec<String>, Refusal> {
    let registration = fleet::Registration {
        runner: register.name.clone(),
        slots: register.slots,
        labels: labels(&register.labels),
        engines: register.engines.iter().cloned().collect(),
        agents: register.agents.iter().map(|agent| Name::parse(&agent.name)).collect::<Result<_, _>>()?,
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
    use super::*;

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
