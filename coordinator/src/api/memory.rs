//! What the service `Admin` does to what swarms remember.

use serde_json::Value;
use skein_proto::v1;
use skein_shared::Refusal;
use skein_shared::id::parse_uuid;
use tonic::Request;
use uuid::Uuid;

use super::admin::Admin;
use crate::auth::{Right, policy};

impl Admin {
    pub(super) async fn forget_memory(
        &self,
        request: Request<v1::ForgetMemoryRequest>,
    ) -> Result<Value, Refusal> {
        let v1::ForgetMemoryRequest { swarm, memory, idempotency_key } = request.get_ref();
        let who = self.changes_own_swarm(&request, swarm).await?;
        // Operators have other tokens at other nodes, and a repeat may come to another one. An agent may not be told
        // what another has had forgotten.
        let is_operator = policy::allows(who.role, Right::Administer);
        let space = if is_operator { Uuid::NAMESPACE_OID } else { who.agent };
        let id = match idempotency_key.as_str() {
            "" => Uuid::now_v7(),
            key => Uuid::new_v5(&space, format!("forget {} {key}", who.swarm).as_bytes()),
        };
        self.service.forget_memory(&who, id, parse_uuid("memory", memory)?).await
    }
}
