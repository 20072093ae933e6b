//! Agents by name: wherever a tool takes an agent's id, it takes the agent's name as well.

use serde_json::Value;
use skein_shared::Refusal;
use tokio::time::Instant;
use uuid::Uuid;

use super::catalogue::{Call, Effect, Tool};

/// Puts ids where names are, so that no handler has to know.
///
/// # Errors
/// `not_found` for a name that no member has.
pub(super) async fn resolve(call: &Call, tool: &Tool, arguments: &mut Value) -> Result<(), Refusal> {
    for argument in tool.args.agents() {
        match arguments.get_mut(argument) {
            Some(Value::Array(agents)) => {
                for agent in agents {
                    replace(call, tool.effect, agent).await?;
                }
            }
            Some(agent) => replace(call, tool.effect, agent).await?,
            None => {}
        }
    }
    Ok(())
}

async fn replace(call: &Call, effect: Effect, agent: &mut Value) -> Result<(), Refusal> {
    let Value::String(name) = agent else { return Ok(()) };
    if Uuid::try_parse(name).is_err() {
        *name = Box::pin(named(call, effect, name)).await?.to_string();
    }
    Ok(())
}

/// The agent of a name. A change that is repeated means by it whom it has meant before: that one may have left or be
/// called otherwise by now, and the answer to the request is kept all the same.
///
/// # Errors
/// `not_found` for a name that no member has.
pub(super) async fn named(call: &Call, effect: Effect, name: &str) -> Result<Uuid, Refusal> {
    let keeps = call.key.is_some() && effect == Effect::Write;
    if keeps && let Some(agent) = call.gate.keys.named(call.request, name, Instant::now()) {
        return Ok(agent);
    }
    let agent = call.service.agent_named(&call.who, name).await?;
    if keeps {
        call.gate.keys.name(call.request, name, agent, Instant::now());
    }
    Ok(agent)
}
