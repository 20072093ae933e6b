//! What a delegated message asks of the pool.

use uuid::Uuid;

use super::command::Command;
use crate::code::Refusal;
use crate::entity::Effect;
use crate::id::{EntityKey, Kind, Name};
use crate::json::Json;
use crate::pool::{self, Create, Fact, Pool};

/// The field of the task that names its message.
const MESSAGE: &str = "inboxMessageId";

/// The command for the swarm's pool: to make this task of the agent's message.
pub(super) fn handed_over(create: &Create, agent: Uuid, message: Uuid, task: Uuid, swarm: &Name) -> Effect {
    let mut create = create.clone();
    create.by = Some(agent);
    create.spec.id = Some(task);
    create.spec.context.insert(MESSAGE.to_owned(), message.to_string().into());
    // The id is made for this task alone, so no task that ended long ago can have it.
    create.facts.push(Fact::unknown(task));
    let command = pool::Command::Create(Box::new(create));
    Effect::entity::<Pool>(EntityKey::of(Kind::Pool, swarm), &command)
}

/// What the inboxes want to know when the pool refuses it.
pub(super) fn refused(command: &Json, refusal: &Refusal) -> Option<Command> {
    let pool::Command::Create(create) = command.read().ok()? else { return None };
    let message = Uuid::try_parse(create.spec.context.get(MESSAGE)?.as_str()?).ok()?;
    let (agent, task) = create.by.zip(create.spec.id)?;
    Some(Command::Return { agent, message, task, refusal: refusal.clone() })
}
