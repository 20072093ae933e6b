//! What the service `Admin` does to what swarms remember.

use serde_json::Value;
use skein_proto::v1;
use skein_shared::Refusal;
use skein_shared::id::parse_uuid;
use tonic::Request;
use uuid::Uuid;

use super::admin::Admin;

impl Admin {
    pub(super) async fn forget_memory(
        &self,
        request: Request<v1::ForgetMemoryRequest>,
    ) -> Result<Value, Refusal> {
        let v1::ForgetMemoryRequest { swarm, memory } = request.get_ref();
        let who = self.changes_own_swarm(&request, swarm).await?;
        self.service.forget_memory(&who, Uuid::now_v7(), parse_uuid("memory", memory)?).await
    }
}
