//! A running node, as its operator reaches it: the other end of [`super::admin`].

use std::time::Duration;

use serde_json::Value;
use skein_proto::v1::admin_client::AdminClient;
use skein_proto::v1::{Document, ListRequest};
use skein_shared::{Code, Refusal};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint as Address};
use tonic::{Request, Response, Status};

use crate::api::bearer;
use crate::node::Endpoint;
use crate::node::datadir::Layout;

/// How long a node may take to let somebody in.
const CONNECT: Duration = Duration::from_secs(5);
/// How often a node is asked whether it is there, and how long it may take to say so. One that stands still does not.
const PROBE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(15);

pub type Admin = AdminClient<InterceptedService<Channel, Bearer>>;

/// What a node answers to most commands: a document, or why not.
pub type Answer = Result<Response<Document>, Status>;

/// Puts a token on every call.
#[derive(Clone)]
pub struct Bearer(MetadataValue<Ascii>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", self.0.clone());
        Ok(request)
    }
}

/// Connects to the node of a data directory, as its operator.
///
/// # Errors
/// `unavailable` when no node runs there, `unauthenticated` when its operator's token cannot be read.
pub async fn connect(layout: &Layout) -> Result<Admin, Refusal> {
    let endpoint = Endpoint::of_a_node(layout)?;
    reach(layout, &endpoint, operator(layout)?).await
}

/// Connects to the node of a data directory, as whoever has the token.
///
/// # Errors
/// `unavailable` when no node runs there, `unauthenticated` for what is no token.
pub async fn connect_as(layout: &Layout, token: &str) -> Result<Admin, Refusal> {
    let endpoint = Endpoint::of_a_node(layout)?;
    let bearer = bearer_of(token).ok_or_else(|| {
        Refusal::new(Code::Unauthenticated, "the token file holds no token; `skein token issue` makes one")
    })?;
    reach(layout, &endpoint, bearer).await
}

async fn reach(layout: &Layout, endpoint: &Endpoint, bearer: Bearer) -> Result<Admin, Refusal> {
    let unreachable = |error: tonic::transport::Error| {
        let (node, data) = (endpoint.grpc, layout.root().display());
        let problem = format!(
            "the node of {data} does not answer at {node} ({error}); start it, or name the data directory of another one \
             with --data or SKEIN_DATA"
        );
        Refusal::new(Code::Unavailable, problem)
    };
    let address =
        Address::from_shared(format!("http://{}", Endpoint::near(endpoint.grpc))).map_err(unreachable)?;
    let address = address
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(PROBE)
        .keep_alive_timeout(PATIENCE)
        .keep_alive_while_idle(true);
    let channel = address.connect().await.map_err(unreachable)?;
    // The longest webhooks come whole, with all that an event says of them.
    Ok(AdminClient::with_interceptor(channel, bearer).max_decoding_message_size(usize::MAX))
}

fn operator(layout: &Layout) -> Result<Bearer, Refusal> {
    let file = layout.operator_token();
    let token = std::fs::read_to_string(&file).map_err(|error| {
        let problem =
            format!("{} cannot be read: {error}; run as the user who started the node", file.display());
        Refusal::new(Code::Unauthenticated, problem)
    })?;
    bearer_of(&token)
        .ok_or_else(|| Refusal::new(Code::Unauthenticated, "operator.token holds no token; restart the node"))
}

/// None for what no header can hold, and so is no token.
fn bearer_of(token: &str) -> Option<Bearer> {
    let mut value = format!("Bearer {}", token.trim()).parse::<MetadataValue<Ascii>>().ok()?;
    value.set_sensitive(true);
    Some(Bearer(value))
}

/// A list, put together of as many answers as it takes.
#[derive(Debug, Default)]
pub struct Listed {
    /// JSON objects.
    pub rows: Vec<Value>,
    /// Rows may be missing: the read side is still catching up with the store.
    pub rebuilding: bool,
}

/// The rows of one view, so many at most.
///
/// # Errors
/// The node's refusal.
pub async fn list(admin: &mut Admin, view: &str, swarm: &str, limit: u32) -> Result<Listed, Refusal> {
    let (view, swarm) = (view.to_owned(), swarm.to_owned());
    rows(admin, ListRequest { view, swarm, limit, ..ListRequest::default() }).await
}

/// All that a request asks for. What changes meanwhile may be missing from a list of several answers.
///
/// # Errors
/// The node's refusal.
pub async fn rows(admin: &mut Admin, mut request: ListRequest) -> Result<Listed, Refusal> {
    let mut listed = Listed::default();
    loop {
        let reply = admin.list(request.clone()).await.map_err(untold)?.into_inner();
        listed.rebuilding |= reply.rebuilding;
        for row in &reply.rows {
            listed.rows.push(read(row)?);
        }
        let got = u32::try_from(reply.rows.len()).unwrap_or(u32::MAX);
        request.limit = request.limit.saturating_sub(got);
        if reply.next.is_empty() || request.limit == 0 {
            return Ok(listed);
        }
        request.after = reply.next;
    }
}

/// The document that a node has answered with.
///
/// # Errors
/// The node's refusal; `internal` when the answer cannot be read.
pub fn document(answer: Answer) -> Result<Value, Refusal> {
    read(&answer.map_err(refused)?.into_inner().json)
}

/// The document by which a node has shown something.
///
/// # Errors
/// The node's refusal; `unavailable` when the connection has broken instead, `internal` when the answer cannot be read.
pub fn shown(answer: Answer) -> Result<Value, Refusal> {
    read(&answer.map_err(untold)?.into_inner().json)
}

/// The node's refusal; `outcome_unknown` when the connection has broken instead.
pub fn refused(status: Status) -> Refusal {
    bearer::refusal(&status)
}

/// The node's refusal to tell something; `unavailable` when the connection has broken instead.
pub fn untold(status: Status) -> Refusal {
    broken_off(status, "call again")
}

/// The same, with advice of its own.
pub fn broken_off(status: Status, advice: &str) -> Refusal {
    if !bearer::is_broken(&status) {
        return refused(status);
    }
    let problem = format!("the connection to the node broke ({}); {advice}", status.message());
    Refusal::new(Code::Unavailable, problem)
}

/// Reads a JSON document of an answer.
///
/// # Errors
/// `internal` when it is none.
pub fn read(json: &str) -> Result<Value, Refusal> {
    serde_json::from_str(json)
        .map_err(|error| Refusal::new(Code::Internal, format!("the node's answer cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn whoever_only_looked_is_not_told_to_look_whether_it_was_done() {
        let broken = || Err(Status::from_error(Box::new(io::Error::from(io::ErrorKind::BrokenPipe))));
        let told = shown(broken()).unwrap_err();
        assert_eq!(told.code, Code::Unavailable, "{told}");
        assert!(!told.message.contains("look whether") && told.message.contains("call again"), "{told}");
        assert_eq!(document(broken()).unwrap_err().code, Code::Unknown, "what was ordered may be done");
        let refused = Err(bearer::status(&Refusal::new(Code::NotFound, "there is no agent x")));
        assert_eq!(shown(refused).unwrap_err().code, Code::NotFound);
    }
}
