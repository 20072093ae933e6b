//! Who asks, where an entity decides by ownership.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::code::{Code, Refusal};

/// Who asks for a change. The service fills it from the principal; the lead is the swarm's lead at that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub struct Caller {
    /// `None` is an operator, who may do everything.
    pub agent: Option<Uuid>,
    #[serde(default)]
    pub lead: bool,
}

impl Caller {
    pub fn agent(agent: Uuid) -> Self {
        Self { agent: Some(agent), lead: false }
    }

    /// Operators, the lead, and the `owners` of a thing may change it.
    ///
    /// # Errors
    /// `forbidden`, naming the thing and whom to ask.
    pub fn may_change(&self, what: &str, owners: &[Option<Uuid>]) -> Result<(), Refusal> {
        let owns = self.agent.is_none() || self.lead || owners.contains(&self.agent);
        if owns {
            return Ok(());
        }
        Err(Refusal::new(
            Code::Forbidden,
            format!("only its creator or the lead may change the {what}; ask one of them to do it"),
        ))
    }
}
