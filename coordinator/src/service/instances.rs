//! Whether the instance that a token was made for still runs.

use skein_shared::agent::{Agent, Command};
use skein_shared::{Code, Refusal};

use super::Service;
use crate::auth::Principal;

impl Service {
    /// Lets a run of a runner pass while it lives. A hand-made token is its own instance and has no end.
    ///
    /// # Errors
    /// `unauthenticated` once the run has ended: what it asks for then would be held by nobody.
    pub async fn require_live(&self, who: &Principal) -> Result<(), Refusal> {
        if !who.managed {
            return Ok(());
        }
        let inspect = Command::Inspect { instance: who.instance.clone() };
        match self.ask::<Agent>(&who.own_agent(), inspect).await {
            Ok(_) => Ok(()),
            Err(refusal) if refusal.code == Code::NotFound => Err(Refusal::new(
                Code::Unauthenticated,
                format!("the run {} has ended, and its token with it; a new run gets its own", who.instance),
            )),
            Err(refusal) => Err(refusal),
        }
    }
}
