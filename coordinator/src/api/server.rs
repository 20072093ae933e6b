//! The listener for runners and administration.

use std::time::Duration;

use futures::TryStreamExt;
use skein_proto::v1::admin_server::AdminServer;
use skein_proto::v1::runners_server::RunnersServer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::Admin;
use super::line::Line;
use crate::runners::Control;

/// How often an idle connection is probed, so that a dead peer is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The listener failed.
#[derive(Debug, thiserror::Error)]
#[error("the listener for runners and administration failed: {0}")]
pub struct ServeError(#[from] tonic::transport::Error);

/// Serves until `stop`; calls under way may end by themselves, save streams that nobody reads.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    control: Control,
    admin: Admin,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let runners = RunnersServer::new(control).max_decoding_message_size(skein_shared::limits::RUNNER_MESSAGE);
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true)).map_ok(Line::of);
    Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .add_service(runners)
        .add_service(AdminServer::new(admin))
        .serve_with_incoming_shutdown(incoming, async move { stop.cancelled().await })
        .await?;
    Ok(())
}
