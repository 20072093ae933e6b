//! Agents by name: wherever a tool takes an agent's id, it takes the agent's name as well.

use serde_json::Value;
use skein_shared::Refusal;
use uuid::Uuid;

use super::catalogue::{Call, Tool};

/// Puts ids where names are, so that no handler has to know.
///
/// # Errors
/// `not_found` for a name that no member has.
pub(super) async fn resolve(call: &Call, tool: &Tool, arguments: &mut Value) -> Result<(), Refusal> {
    for argument in tool.args.agents() {
        match arguments.get_mut(argument) {
            Some(Value::Array(agents)) => {
                for agent in agents {
                    replace(call, agent).await?;
                }
            }
            Some(agent) => replace(call, agent).await?,
            None => {}
        }
    }
    Ok(())
}

async fn replace(call: &Call, agent: &mut Value) -> Result<(), Refusal> {
    let Value::String(name) = agent else { return Ok(()) };
    if Uuid::try_parse(name).is_err() {
        *name = Box::pin(call.service.agent_named(&call.who, name)).await?.to_string();
    }
    Ok(())
}
