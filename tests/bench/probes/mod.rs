//! The least that a machine has to do: what contenders are held against.

pub(crate) mod http;
mod idle;
pub(crate) mod sqlite;

use anyhow::Result;
use clap::Subcommand;

/// Servers that run in a process of their own, so that what they use can be told from what their clients use.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum Server {
    /// Open SSE streams.
    BareSse,
    /// A tool of a bare rmcp server that sleeps.
    BareRmcpWait,
    /// rmcp with one tool that does nothing.
    BareRmcp,
    /// axum that answers a JSON request in JSON.
    BareAxum,
}

/// Serves until the process is ended. The first line printed is the address.
///
/// # Errors
/// When it cannot listen.
pub(crate) async fn serve(server: Server) -> Result<()> {
    match server {
        Server::BareSse => idle::sse().await,
        Server::BareRmcpWait => idle::rmcp_wait().await,
        Server::BareRmcp => http::serve_rmcp().await,
        Server::BareAxum => http::serve_axum().await,
    }
}
