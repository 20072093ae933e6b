//! What a runner says of itself and of its agents, checked before the kernel sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use skein_shared::cron::Cron;
use skein_shared::id::Name;
use skein_shared::{Code, Refusal, limits};

use crate::convert::command;
use crate::v1::{AgentDefinition, Register};

/// Roles that an agent can have in its swarm.
pub const ROLES: [&str; 3] = ["lead", "worker", "observer"];
/// States that a held instance can be in.
pub const HELD: [&str; 3] = ["running", "frozen", "ended"];
/// Most instances of one agent, and most slots of one runner.
pub const INSTANCES: u32 = 10_000;
/// Most queued work items and waiting instances that a definition may ask for.
pub const QUEUE: u32 = 10_000;
/// Deepest chain of calls that a definition may allow.
pub const CALL_DEPTH: u32 = 32;
/// Most times that a definition may let a run be run again.
pub const RERUNS: u32 = 1000;
/// Longest run, and longest grace between the request to end and the kill.
pub const TIMEOUT: Duration = Duration::from_secs(30 * 86_400);
pub const GRACE: Duration = Duration::from_secs(3600);
/// Most labels, subscriptions and agents of one registration.
pub const LABELS: usize = 64;
pub const SUBSCRIPTIONS: usize = 100;
pub const AGENTS: usize = 10_000;

/// No agent's name: credentials and swarms have it for what is meant when nothing is named.
const RESERVED: &str = "default";

/// Checks one agent's definition.
///
/// # Errors
/// `invalid_argument` naming the agent, the field, the limit and what to write instead.
pub fn check(definition: &AgentDefinition) -> Result<(), Refusal> {
    Name::parse(&definition.name)?;
    let agent = &definition.name;
    if agent == RESERVED {
        return Err(invalid(agent, "name", "it is reserved; give the agent another one"));
    }
    Name::parse(&definition.swarm).map_err(|refusal| invalid(agent, "swarm", &refusal.message))?;
    if !ROLES.contains(&definition.role.as_str()) {
        return Err(invalid(agent, "role", &format!("use one of {}", ROLES.join(", "))));
    }
    // With none it takes no work, as if somebody had disabled it.
    within(agent, "instances", u64::from(definition.instances), 0, u64::from(INSTANCES))?;
    within(agent, "work_queue", u64::from(definition.work_queue), 0, u64::from(QUEUE))?;
    within(agent, "max_waiting", u64::from(definition.max_waiting), 0, u64::from(QUEUE))?;
    within(agent, "max_call_depth", u64::from(definition.max_call_depth), 0, u64::from(CALL_DEPTH))?;
    within(agent, "max_reruns", u64::from(definition.max_reruns.unwrap_or_default()), 0, u64::from(RERUNS))?;
    within(agent, "timeout_ms", definition.timeout_ms, 1, millis(TIMEOUT))?;
    within(agent, "wait_timeout_ms", definition.wait_timeout_ms, 1, millis(limits::WAIT_MAX))?;
    within(agent, "max_wait_timeout_ms", definition.max_wait_timeout_ms, 0, millis(limits::WAIT_MAX))?;
    within(agent, "spill_after_ms", definition.spill_after_ms, 0, millis(limits::WAIT_MAX))?;
    within(agent, "grace_ms", definition.grace_ms, 0, millis(GRACE))?;
    labels(agent, &definition.labels)?;
    if !definition.schedule.is_empty() {
        Cron::parse(&definition.schedule, &definition.zone, agent)
            .map_err(|refusal| invalid(agent, "schedule", &refusal.message))?;
    }
    subscriptions(agent, &definition.subscriptions)
}

/// Checks what a registration says of the runner: names, sizes, each held instance. Its agents are judged by
/// [`agents`], each for itself.
///
/// # Errors
/// `invalid_argument` naming the field, the limit and what to write instead.
pub fn check_registration(register: &Register) -> Result<(), Refusal> {
    Name::parse(&register.name)?;
    let runner = &register.name;
    Name::parse(&register.group).map_err(|refusal| invalid(runner, "group", &refusal.message))?;
    // One that is about to end has none.
    within(runner, "slots", u64::from(register.slots), 0, u64::from(INSTANCES))?;
    within(runner, "agents", register.agents.len() as u64, 0, AGENTS as u64)?;
    labels(runner, &register.labels)?;
    for swarm in &register.swarms {
        Name::parse(swarm).map_err(|refusal| invalid(runner, "swarms", &refusal.message))?;
    }
    for removed in &register.removed {
        for name in [&removed.swarm, &removed.name] {
            Name::parse(name).map_err(|refusal| invalid(runner, "removed", &refusal.message))?;
        }
    }
    for held in &register.held {
        command::token(&held.token)?;
        if !HELD.contains(&held.state.as_str()) {
            return Err(invalid(&held.instance, "state", &format!("use one of {}", HELD.join(", "))));
        }
    }
    Ok(())
}

/// The agents of a registration that can be taken, and what is wrong with each of the others.
pub fn agents(register: &Register) -> (Vec<&AgentDefinition>, Vec<(&AgentDefinition, Refusal)>) {
    let (mut good, mut wrong, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    for definition in &register.agents {
        let once = seen.insert((&definition.swarm, &definition.name));
        match check(definition).and_then(|()| fits(definition, register, once)) {
            Ok(()) => good.push(definition),
            Err(refusal) => wrong.push((definition, refusal)),
        }
    }
    (good, wrong)
}

/// Whether a definition may be among the others of its runner.
fn fits(definition: &AgentDefinition, register: &Register, once: bool) -> Result<(), Refusal> {
    if !once {
        return Err(invalid(&definition.name, "name", "it is defined twice in this swarm"));
    }
    if !register.swarms.is_empty() && !register.swarms.contains(&definition.swarm) {
        let problem = format!("the runner may not run agents of swarm `{}`", definition.swarm);
        return Err(invalid(&definition.name, "swarm", &problem));
    }
    Ok(())
}

fn within(subject: &str, field: &str, value: u64, least: u64, most: u64) -> Result<(), Refusal> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(invalid(subject, field, &format!("{value} is not between {least} and {most}")))
}

fn labels(subject: &str, labels: &BTreeMap<String, String>) -> Result<(), Refusal> {
    within(subject, "labels", labels.len() as u64, 0, LABELS as u64)?;
    for (key, value) in labels {
        if key.is_empty() || key.len() > Name::MAX || value.len() > 256 {
            let problem = "a label has a key of 1 to 64 bytes and a value of at most 256";
            return Err(invalid(subject, "labels", problem));
        }
    }
    Ok(())
}

fn subscriptions(agent: &str, filters: &[String]) -> Result<(), Refusal> {
    within(agent, "subscriptions", filters.len() as u64, 0, SUBSCRIPTIONS as u64)?;
    for filter in filters {
        match serde_json::from_str(filter) {
            Ok(Value::Object(_)) => {}
            _ => return Err(invalid(agent, "subscriptions", "each must be a JSON object")),
        }
    }
    Ok(())
}

fn invalid(subject: &str, field: &str, problem: &str) -> Refusal {
    Refusal::new(Code::InvalidArgument, format!("{subject}: {field}: {problem}"))
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker() -> AgentDefinition {
        AgentDefinition {
            name: "worker".into(),
            swarm: "default".into(),
            instances: 1,
            timeout_ms: 3_600_000,
            work_queue: 100,
            max_waiting: 100,
            max_call_depth: 3,
            wait_timeout_ms: 1_800_000,
            grace_ms: 10_000,
            subscriptions: vec![r#"{"source":"github"}"#.into()],
            role: "worker".into(),
            ..AgentDefinition::default()
        }
    }

    fn spoilt(change: impl FnOnce(&mut AgentDefinition)) -> String {
        let mut definition = worker();
        change(&mut definition);
        check(&definition).unwrap_err().message
    }

    #[test]
    fn definitions_are_held_to_their_limits() {
        check(&worker()).unwrap();
        assert!(spoilt(|d| d.name = "Worker".into()).contains("not a name"));
        assert!(spoilt(|d| d.name = "default".into()).contains("reserved"));
        assert!(spoilt(|d| d.role = "boss".into()).contains("lead, worker, observer"));
        check(&AgentDefinition { instances: 0, ..worker() }).unwrap();
        assert!(spoilt(|d| d.instances = u32::MAX).contains("is not between 0 and"));
        assert!(spoilt(|d| d.timeout_ms = u64::MAX).contains("timeout_ms"));
        assert!(spoilt(|d| d.subscriptions = vec!["[]".into()]).contains("JSON object"));
    }

    #[test]
    fn a_wrong_agent_of_a_registration_spoils_no_other() {
        let agent =
            |name: &str, swarm: &str| AgentDefinition { name: name.into(), swarm: swarm.into(), ..worker() };
        let register = Register {
            name: "r1".into(),
            group: "default".into(),
            slots: 4,
            swarms: vec!["default".into()],
            agents: vec![
                agent("one", "default"),
                agent("one", "default"),
                agent("Two", "default"),
                agent("three", "other"),
                agent("four", "default"),
            ],
            ..Register::default()
        };
        check_registration(&register).unwrap();
        let (good, wrong) = agents(&register);
        assert_eq!(good.iter().map(|agent| agent.name.as_str()).collect::<Vec<_>>(), ["one", "four"]);
        let told: Vec<&str> = wrong.iter().map(|(_, refusal)| refusal.message.as_str()).collect();
        assert!(
            told[0].contains("twice") && told[1].contains("Two") && told[2].contains("other"),
            "{told:?}"
        );
    }
}
