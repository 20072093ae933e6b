//! What the service `Admin` says of webhooks and does to them.

use serde_json::Value;
use skein_proto::v1;
use skein_shared::Refusal;
use skein_shared::id::parse_uuid;
use tonic::Request;
use uuid::Uuid;

use super::admin::Admin;

impl Admin {
    pub(super) async fn show_webhook(&self, request: Request<v1::WebhookRequest>) -> Result<Value, Refusal> {
        let v1::WebhookRequest { swarm, receipt } = request.get_ref();
        let who = self.of_swarm(&request, swarm).await?;
        self.service.webhook(&who, parse_uuid("receipt", receipt)?).await
    }

    pub(super) async fn replay_webhook(
        &self,
        request: Request<v1::WebhookRequest>,
    ) -> Result<Value, Refusal> {
        let v1::WebhookRequest { swarm, receipt } = request.get_ref();
        let who = self.changes_swarm(&request, swarm).await?;
        self.service.replay_webhook(&who, Uuid::now_v7(), parse_uuid("receipt", receipt)?).await
    }
}
