//! Webhooks as they were taken in, and handing one on once more.

use serde_json::{Value, json};
use skein_shared::id::Kind;
use skein_shared::triggers::{Command, Incoming, Reply, Triggers};
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};

impl Service {
    /// A receipt with its event, or with what could not be read, and what it led to.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers; `not_found`.
    pub async fn webhook(&self, who: &Principal, receipt: Uuid) -> Result<Value, Refusal> {
        policy::require(who, Right::Administer)?;
        let body = self.body(&who.entity(Kind::Triggers), &format!("receipt/{receipt}")).await?;
        body.ok_or_else(|| {
            let problem = format!(
                "there is no webhook {receipt} in swarm `{}`: `skein webhooks list` names those of the last seven days",
                who.swarm
            );
            Refusal::new(Code::NotFound, problem)
        })
    }

    /// Hands the event of a receipt on once more, as of the source that it was verified by.
    ///
    /// # Errors
    /// `forbidden`, `not_found`, and `wrong_state` for a request that could not be read.
    pub async fn replay_webhook(
        &self,
        who: &Principal,
        request: Uuid,
        receipt: Uuid,
    ) -> Result<Value, Refusal> {
        let mut body = self.webhook(who, receipt).await?;
        let incoming: Option<Incoming> = serde_json::from_value(body["incoming"].take()).ok();
        let incoming = incoming.ok_or_else(|| {
            let problem = "this request could not be read, so there is no event to hand on; let its sender send it again";
            Refusal::new(Code::WrongState, problem)
        })?;
        let command = Command::Replay { of: receipt, incoming };
        match self.change::<Triggers>(&who.entity(Kind::Triggers), request, command).await? {
            Reply::Delivered { receipt: new, resumed, started, heard, .. } => Ok(json!({
                "receipt": new,
                "replayOf": receipt,
                "matched": resumed.len() + started.len() + usize::from(heard),
                "resumed": resumed,
                "started": started,
                "heard": heard,
            })),
            _ => Err(unexpected("the triggers")),
        }
    }
}
