//! What triggers tell an agent.

use serde_json::Value;
use uuid::Uuid;

use super::event::{Outcome, Resumption};
use super::filter::Envelope;
use crate::agent::{Agent, Class, Command};
use crate::entity::Effect;
use crate::id::{EntityKey, Kind, Name};
use crate::mail::{self, Letter, Mail};
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

/// People's words go to the pool, which knows who works on what.
pub(super) fn hear(swarm: &Name, said: &Said) -> Effect {
    let command = pool::Command::Hear(Box::new(said.clone()));
    Effect::entity::<Pool>(EntityKey::of(Kind::Pool, swarm), &command)
}

/// Letters go to the swarm's mail, which knows whose inbox and whose thread it is.
pub(super) fn post(swarm: &Name, letter: &Letter) -> Effect {
    let command = mail::Command::Receive(Box::new(letter.clone()));
    Effect::entity::<Mail>(EntityKey::of(Kind::Mail, swarm), &command)
}

/// Tells the agent that its wait stands, so that no event is missed from now on.
pub(super) fn registered(reply_to: &EntityKey, wait: Uuid) -> Effect {
    Effect::entity::<Agent>(reply_to.clone(), &Command::WaitRegistered { wait })
}
