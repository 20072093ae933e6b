//! What the service `Admin` does with the keys of secrets.

use serde_json::{Value, json};
use skein_proto::v1;
use skein_shared::{Code, Refusal};
use tonic::Request;

use super::admin::Admin;

impl Admin {
    pub(super) async fn secret_keys(
        &self,
        request: Request<v1::SecretKeysRequest>,
    ) -> Result<Value, Refusal> {
        let order = request.get_ref().order.as_str();
        match order {
            "list" => self.operator(&request, "").await?,
            _ => self.changes(&request, "").await?,
        };
        match order {
            "list" => Ok(json!({ "keys": self.service.secret_keys().await? })),
            "add" => self.service.add_secret_key(),
            "rotate" => self.service.rotate_secrets().await,
            "drop" => self.service.drop_old_keys().await,
            _ => Err(Refusal::new(Code::InvalidArgument, "order: it is one of list, add, rotate and drop")),
        }
    }
}
