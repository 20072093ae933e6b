//! The least that a machine has to do: what contenders are held against.

pub(crate) mod health;
pub(crate) mod http;
mod idle;
pub(crate) mod sqlite;

use std::net::SocketAddr;

use anyhow::Result;
use clap::Subcommand;

/// Servers that run in a process of their own, so that what they use can be told from what their clients use.
#[derive(Clone, Copy, Debug, Subcommand)]
#[expect(clippy::enum_variant_names, reason = "they are bare of Skein, each by another library")]
pub(crate) enum Server {
    /// rmcp with one tool that does nothing.
    BareRmcp,
    /// axum that answers a JSON request in JSON.
    BareAxum,
    /// Open SSE streams.
    BareSse,
    /// A tool of a bare rmcp server that sleeps.
    BareRmcpWait,
    /// Answers `/readyz` and nothing else.
    BareHealth {
        #[arg(long)]
        listen: SocketAddr,
    },
}

/// Serves until the process is ended. The first line printed is the address.
///
/// # Errors
/// When it cannot listen.
pub(crate) async fn serve(server: Server) -> Result<()> {
    match server {
        Server::BareRmcp => http::serve_rmcp().await,
        Server::BareAxum => http::serve_axum().await,
        Server::BareSse => idle::sse().await,
        Server::BareRmcpWait => idle::rmcp_wait().await,
        Server::BareHealth { listen } => health::serve(listen).await,
    }
}
