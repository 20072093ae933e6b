//! How many runs a swarm may have under way.

use skein_shared::fleet::{Command, Fleet, Overview, Reply};
use skein_shared::id::{EntityKey, Name};
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};

/// The group of runners that name no other.
pub const USUAL_GROUP: &str = "default";

impl Service {
    /// Limits how many slots the caller's swarm has at a time on the runners of a group; `None` lifts the limit. Runs beyond it
    /// go on, and none begins or resumes until there are fewer.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers; `invalid_argument` for a limit of none.
    pub async fn set_scale(
        &self,
        who: &Principal,
        request: Uuid,
        group: &Name,
        scale: Option<u32>,
    ) -> Result<(), Refusal> {
        policy::require(who, Right::Administer)?;
        if scale == Some(0) {
            let problem = "a scale is a whole number from 1 on; pause the agents to let none run";
            return Err(Refusal::new(Code::InvalidArgument, problem));
        }
        let command = Command::Scale { swarm: who.swarm.clone(), scale };
        match self.change::<Fleet>(&EntityKey::fleet(group), request, command).await? {
            Reply::Done => Ok(()),
            _ => Err(unexpected("the fleet")),
        }
    }

    /// The limit of the caller's swarm on the runners of a group, if it has one, and how many slots it has there.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers.
    pub async fn scale(&self, who: &Principal, group: &Name) -> Result<(Option<u32>, usize), Refusal> {
        policy::require(who, Right::Administer)?;
        let overview = self.fleet(group).await?;
        let taken = overview.places.iter().filter(|place| place.slot && place.swarm == who.swarm).count();
        Ok((overview.scales.get(&who.swarm).copied(), taken))
    }

    async fn fleet(&self, group: &Name) -> Result<Overview, Refusal> {
        match self.ask::<Fleet>(&EntityKey::fleet(group), Command::List).await? {
            Reply::Overview(overview) => Ok(*overview),
            _ => Err(unexpected("the fleet")),
        }
    }
}
