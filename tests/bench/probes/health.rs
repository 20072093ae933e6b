//! A bare HTTP server that only says that it is ready: the least that a server's start costs.

use std::net::SocketAddr;

use anyhow::Result;
use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;

/// # Errors
/// When it cannot listen.
pub(crate) async fn serve(listen: SocketAddr) -> Result<()> {
    let router = Router::new().route("/readyz", get(|| async { "ready\n" }));
    Ok(axum::serve(TcpListener::bind(listen).await?, router).await?)
}
