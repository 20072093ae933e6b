//! How many runs a swarm, or one of its agents, may have under way.

use std::num::NonZeroU32;

use serde_json::{Value, json};
use skein_proto::convert::definition::INSTANCES;
use skein_shared::agent::{self, Agent};
use skein_shared::fleet::{Command, Fleet, Reply};
use skein_shared::id::{EntityKey, Name};
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};

/// The group of runners that name no other.
pub const USUAL_GROUP: &str = "default";

impl Service {
    /// Limits how many slots the caller's swarm has at a time on the runners of a group; `None` lifts the limit. Runs
    /// beyond it go on, and none begins or resumes until there are fewer.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers.
    pub async fn set_scale(
        &self,
        who: &Principal,
        request: Uuid,
        group: &Name,
        scale: Option<NonZeroU32>,
    ) -> Result<(), Refusal> {
        policy::require(who, Right::Administer)?;
        let command = Command::Scale { swarm: who.swarm.clone(), scale };
        match self.change::<Fleet>(&EntityKey::fleet(group), request, command).await? {
            Reply::Done => Ok(()),
            _ => Err(unexpected("the fleet")),
        }
    }

    /// Says how many runs of an agent may be under way at a time, whatever its definition says; `None` has that say it
    /// again. Runs beyond it go on, and none begins until there are fewer. A later definition that says another number
    /// than the one before counts again.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers; `not_found` when no runner has defined the agent; `invalid_argument`
    /// for more than a definition may say.
    pub async fn scale_agent(
        &self,
        who: &Principal,
        request: Uuid,
        agent: &Name,
        scale: Option<NonZeroU32>,
    ) -> Result<(), Refusal> {
        policy::require(who, Right::Administer)?;
        if scale.is_some_and(|scale| scale.get() > INSTANCES) {
            let problem =
                format!("scale: an agent has at most {INSTANCES} runs at a time; say a lower number");
            return Err(Refusal::new(Code::InvalidArgument, problem));
        }
        let command = agent::Command::SetScale { scale };
        self.change::<Agent>(&EntityKey::agent(&who.swarm, agent), request, command).await.map(|_| ())
    }

    /// The limit of the caller's swarm on the runners of a group, if it has one, how many slots it has there, and how
    /// many runners there are: none where the group is mistyped.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers.
    pub async fn scale(&self, who: &Principal, group: &Name) -> Result<Value, Refusal> {
        policy::require(who, Right::Administer)?;
        let Reply::Overview(fleet) = self.ask::<Fleet>(&EntityKey::fleet(group), Command::List).await? else {
            return Err(unexpected("the fleet"));
        };
        let running = fleet.places.iter().filter(|place| place.slot && place.swarm == who.swarm).count();
        Ok(json!({
            "swarm": who.swarm, "group": group, "scale": fleet.scales.get(&who.swarm), "running": running,
            "runners": fleet.runners.len(),
        }))
    }
}
