//! The transport tools: they run inside an instance, by its runner, and nowhere else.

use std::time::Duration;

use serde_json::Value;
use skein_shared::agent::{Agent, Command, Reply};
use skein_shared::ask::{Ask, What};
use skein_shared::id::{EntityKey, InstanceId};
use skein_shared::transport::{self, Outcome, Tool};
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};

/// What the runner has, beyond the tool's own time, to start and to end it.
const MARGIN: Duration = Duration::from_secs(20);

impl Service {
    /// Runs a tool inside the caller's own instance, or inside the one that an operator names.
    ///
    /// # Errors
    /// `forbidden` for a token that is of no instance on a runner; `wrong_state` while it is frozen or not yet there;
    /// `unavailable` without its runner.
    pub async fn use_tool(
        &self,
        who: &Principal,
        request: Uuid,
        named: Option<&str>,
        tool: Tool,
        arguments: Value,
    ) -> Result<Outcome, Refusal> {
        let limit = match tool {
            Tool::Bash => transport::limit(arguments["timeout"].as_f64())?,
            _ => transport::QUICK,
        };
        let (agent, instance) = self.place(who, named).await?;
        let runner = self.runner_of(&agent, &instance).await?;
        let name = serde_json::to_value(tool).ok().and_then(|name| name.as_str().map(str::to_owned));
        let ask = Ask {
            id: request,
            instance,
            timeout_ms: u64::try_from((limit + MARGIN).as_millis()).unwrap_or(u64::MAX),
            what: What::Tool { name: name.unwrap_or_default(), arguments },
        };
        let answer = self.entities.ask_runner(&runner, &ask).await?;
        serde_json::from_str(&answer).map_err(|_| unexpected("the runner"))
    }

    /// Where the tools of this caller work.
    async fn place(&self, who: &Principal, named: Option<&str>) -> Result<(EntityKey, InstanceId), Refusal> {
        let Some(named) = named.filter(|named| *named != who.instance.0) else {
            if who.managed {
                policy::require(who, Right::Work)?;
                return Ok((who.own_agent(), who.instance.clone()));
            }
            let problem = match policy::may(who, Right::Administer) {
                true => "name the instance to work in: `skein instances list` shows them",
                false => {
                    "this tool works inside an instance that a runner has started, and your token is of none; use the tools of your own program"
                }
            };
            return Err(Refusal::new(Code::Forbidden, problem));
        };
        if !policy::allows(who.role, Right::Administer) {
            let problem = "an agent's tools work in its own instance alone; leave `instance` out";
            return Err(Refusal::new(Code::Forbidden, problem));
        }
        policy::require(who, Right::Administer)?;
        let agent = self.agent_of(&who.swarm, named).await?;
        Ok((EntityKey::agent(&who.swarm, &agent), InstanceId(named.to_owned())))
    }

    /// The runner on which an instance runs now.
    async fn runner_of(&self, agent: &EntityKey, instance: &InstanceId) -> Result<String, Refusal> {
        let inspect = Command::Inspect { instance: instance.clone() };
        let Reply::Instance(found) = self.ask::<Agent>(agent, inspect).await? else {
            return Err(unexpected("the agent"));
        };
        if found.external {
            let problem = format!(
                "{instance} runs without a runner, so nobody could use tools in it; name one on a runner"
            );
            return Err(Refusal::new(Code::Forbidden, problem));
        }
        let state = found.state.as_str();
        found.runner.ok_or_else(|| {
            let problem = format!("{instance} is {state} and on no runner; its tools work while it runs");
            Refusal::new(Code::WrongState, problem)
        })
    }
}
