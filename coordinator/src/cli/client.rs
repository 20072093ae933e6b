//! A running node, as its operator reaches it.

use serde_json::Value;
use skein_proto::v1::admin_client::AdminClient;
use skein_shared::{Code, Refusal};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint as Address};
use tonic::{Request, Status};

use super::{CliError, Common};
use crate::api::bearer;
use crate::node::Endpoint;

pub(super) type Admin = AdminClient<InterceptedService<Channel, Bearer>>;

/// Puts the operator's token on every call.
#[derive(Clone)]
pub(super) struct Bearer(MetadataValue<Ascii>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.clone());
        Ok(request)
    }
}

/// Connects to the node of the data directory.
pub(super) async fn connect(common: &Common) -> Result<Admin, CliError> {
    let layout = common.layout();
    let data = common.data.display();
    let endpoint = Endpoint::read(&layout).map_err(|error| {
        CliError::Unreachable(format!(
            "no node runs with the data directory {data} ({error}); start one with `skein up --data {data}`"
        ))
    })?;
    let token = std::fs::read_to_string(layout.operator_token()).map_err(|error| {
        let file = layout.operator_token();
        let problem =
            format!("{} cannot be read: {error}; run as the user who started the node", file.display());
        Refusal::new(Code::Unauthenticated, problem)
    })?;
    let mut value = format!("Bearer {}", token.trim()).parse::<MetadataValue<Ascii>>().map_err(|_| {
        Refusal::new(Code::Unauthenticated, "operator.token holds no token; restart the node")
    })?;
    value.set_sensitive(true);
    let unreachable = |error: tonic::transport::Error| {
        CliError::Unreachable(format!("the node at {} does not answer: {error}", endpoint.grpc))
    };
    let address = Address::from_shared(format!("http://{}", endpoint.grpc)).map_err(unreachable)?;
    let channel = address.connect().await.map_err(unreachable)?;
    Ok(AdminClient::with_interceptor(channel, Bearer(value)))
}

/// The node's refusal.
pub(super) fn refused(status: Status) -> CliError {
    CliError::Refused(bearer::refusal(&status))
}

/// Reads a JSON document of an answer.
pub(super) fn read(json: &str) -> Result<Value, CliError> {
    serde_json::from_str(json)
        .map_err(|error| CliError::Unreachable(format!("the node's answer cannot be read: {error}")))
}
