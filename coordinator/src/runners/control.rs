//! Takes control streams in.

use std::pin::Pin;

use futures::Stream;
use skein_proto::v1::runners_server::Runners;
use skein_proto::v1::{CoordinatorMessage, RunnerMessage};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status, Streaming};

use super::Sessions;
use super::session::Session;
use crate::api::bearer;
use crate::auth::{Right, policy};
use crate::entity::Entities;
use crate::service::access::Access;

/// Says which coordinator it is, before the runner registers: it may have a stream to it by another address.
const NODE: &str = "skein-node";
/// Messages that may wait for a slow runner before commands go back to the outbox.
const WAITING: usize = 256;

/// The gRPC service `Runners`.
pub struct Control {
    pub entities: Entities,
    pub sessions: Sessions,
    pub access: Access,
    /// The base URL of the MCP face, as runners reach it.
    pub mcp_url: String,
    pub stop: CancellationToken,
    pub tracker: TaskTracker,
}

#[tonic::async_trait]
impl Runners for Control {
    type ControlStream = Pin<Box<dyn Stream<Item = Result<CoordinatorMessage, Status>> + Send>>;

    async fn control(
        &self,
        request: Request<Streaming<RunnerMessage>>,
    ) -> Result<Response<Self::ControlStream>, Status> {
        let credential = bearer::identify(request.metadata(), &self.access)
            .await
            .and_then(|known| policy::require(&known.who, Right::Run).map(|()| known))
            .map_err(|refusal| bearer::status(&refusal))?;
        let who = credential.who.clone();
        let (outgoing, answers) = mpsc::channel(WAITING);
        let session = Session {
            entities: self.entities.clone(),
            sessions: self.sessions.clone(),
            mcp_url: self.mcp_url.clone(),
            outgoing,
            named: who.agent_name,
        };
        let (stop, access) = (self.stop.clone(), self.access.clone());
        let messages = request.into_inner();
        self.tracker.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = session.serve(messages) => {}
                () = access.end_of(&credential) => {}
            }
        });
        let mut response: Response<Self::ControlStream> =
            Response::new(Box::pin(ReceiverStream::new(answers)));
        let node = self.entities.cluster().and_then(|cluster| cluster.me().id.parse().ok());
        if let Some(node) = node {
            response.metadata_mut().insert(NODE, node);
        }
        Ok(response)
    }
}
