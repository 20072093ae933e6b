//! What triggers tell an agent.

use serde_json::Value;
use uuid::Uuid;

use super::command::Incoming;
use super::decide::MESSAGES;
use super::event::{Outcome, Resumption};
use super::filter::Envelope;
use crate::agent::{Agent, Class, Command};
use crate::entity::Effect;
use crate::id::{EntityKey, Kind, Name};
use crate::mail::{self, Mail};
use crate::pool::{self, Pool};
use crate::slack::Said;

/// An event's effects: one for each wait that it ends and one for each run that it starts.
pub(super) fn of(outcome: &Outcome, swarm: &Name, receipt: Uuid, event: &Envelope) -> Vec<Effect> {
    let resumed = outcome.resumed.iter().map(|resumption| resume(swarm, resumption, receipt, event));
    resumed.chain(outcome.started.iter().map(|agent| run(swarm, agent, receipt, event))).collect()
}

fn resume(swarm: &Name, to: &Resumption, receipt: Uuid, event: &Envelope) -> Effect {
    let command = Command::Trigger { wait: to.wait, receipt, payload: event.clone() };
    Effect::entity::<Agent>(EntityKey::agent(swarm, &to.agent), &command)
}

fn run(swarm: &Name, agent: &Name, receipt: Uuid, event: &Envelope) -> Effect {
    let command = Command::Enqueue {
        class: Class::Webhook,
        source: format!("webhook:{}", event.source_name().unwrap_or("unknown")),
        receipt: Some(receipt),
        input: Value::Object(event.0.clone()),
    };
    Effect::entity::<Agent>(EntityKey::agent(swarm, agent), &command)
}

/// What the swarm hears of an event that none of its agents has asked for. Letters go to its mail, which knows whose
/// inbox and whose thread it is; all else goes to the pool, which knows who works on what.
pub(super) fn to_swarm(swarm: &Name, incoming: &Incoming) -> Option<Effect> {
    if let Some(letter) = &incoming.letter {
        let command = mail::Command::Receive(letter.clone());
        return Some(Effect::entity::<Mail>(EntityKey::of(Kind::Mail, swarm), &command));
    }
    let said = incoming.said.as_ref().filter(|said| said.may_concern()).cloned().map(pool::Command::Hear);
    let command = said.or_else(|| incoming.activity.clone().map(pool::Command::Forge))?;
    Some(Effect::entity::<Pool>(EntityKey::of(Kind::Pool, swarm), &command))
}

/// Whoever says too much at a time is told so, once.
pub(super) fn slow_down(swarm: &Name, said: &Said) -> Effect {
    let about = Uuid::new_v5(&Uuid::NAMESPACE_OID, said.key().as_bytes());
    let words = format!(
        "That is more than {MESSAGES} messages within a minute, so it was not passed on. Say it again in a while."
    );
    Effect::Slack { swarm: swarm.clone(), note: said.thread().note(about, "slowly", &words) }
}

/// Tells the agent that its wait stands, so that no event is missed from now on.
pub(super) fn registered(reply_to: &EntityKey, wait: Uuid) -> Effect {
    Effect::entity::<Agent>(reply_to.clone(), &Command::WaitRegistered { wait })
}
