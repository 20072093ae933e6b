//! Servers that do nothing: what a call costs before anything is done. Each runs in a process of its own.

use std::sync::Arc;

use anyhow::{Context, Result};
use async_trait::async_trait;
use axum::routing::post;
use axum::serve::ListenerExt;
use axum::{Json, Router};
use futures::future::BoxFuture;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::harness::contender::{Card, Contender, Durability, Plan, Work};
use crate::harness::mcp::{Client, Clients, Script, Target};
use crate::harness::process;

const PATH: &str = "/mcp";

/// A server with one tool that does nothing, by rmcp with the settings that Skein has.
///
/// # Errors
/// When it cannot listen.
pub(super) async fn serve_rmcp() -> Result<()> {
    let config = StreamableHttpServerConfig::default()
        .with_json_response(true)
        .with_allowed_origins(["http://localhost:*", "http://127.0.0.1:*"]);
    let service = StreamableHttpService::new(|| Ok(Empty), Arc::new(LocalSessionManager::default()), config);
    serve(Router::new().route_service(PATH, service)).await
}

/// A server that parses a request of the same form, and answers in the same form, by axum alone.
///
/// # Errors
/// When it cannot listen.
pub(super) async fn serve_axum() -> Result<()> {
    let answer = |Json(request): Json<Value>| async move {
        Json(json!({
            "jsonrpc": "2.0", "id": request["id"],
            "result": { "resultType": "complete", "content": [], "isError": false },
        }))
    };
    serve(Router::new().route(PATH, post(answer))).await
}

async fn serve(router: Router) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    Ok(axum::serve(listener, router).await?)
}

#[derive(Clone)]
struct Empty;

impl ServerHandler for Empty {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![Tool::new("empty", "Does nothing.", Arc::default())]))
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok(CallToolResult::success(Vec::new()).into())
    }
}

/// One empty call.
pub(crate) fn once(client: &mut Client) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move { client.call("empty", "{}").await.map(|_| ()) })
}

/// As many empty calls as a task cycle has.
pub(crate) fn thrice(client: &mut Client) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        for _ in 0..3 {
            once(client).await?;
        }
        Ok(())
    })
}

/// A server of the bench's own as a contender.
pub(crate) struct Bare {
    label: &'static str,
    version: &'static str,
    server: process::Server,
    target: Target,
    clients: Clients,
    script: Script,
}

impl Bare {
    /// # Errors
    /// When the server does not start.
    pub(crate) async fn rmcp(script: Script) -> Result<Self> {
        Self::start("bare rmcp", "bare-rmcp", "rmcp 3.9", script).await
    }

    /// # Errors
    /// When the server does not start.
    pub(crate) async fn axum(script: Script) -> Result<Self> {
        Self::start("bare axum", "bare-axum", "axum 0.8", script).await
    }

    async fn start(
        label: &'static str,
        server: &'static str,
        version: &'static str,
        script: Script,
    ) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", server]);
        let (server, address) = process::Server::start_listening(label, command).await?;
        let address = address.parse().with_context(|| format!("{label} says {address}"))?;
        let target = Target { address, path: PATH };
        Ok(Self { label, version, server, target, clients: Clients::default(), script })
    }
}

#[async_trait]
impl Contender for Bare {
    fn card(&self) -> Card {
        Card::limit(self.label, Durability::NotStored, self.version.to_owned(), self.server.metered())
    }

    async fn prepare(&mut self, in_flight: usize) -> Result<()> {
        while self.clients.len() < in_flight {
            self.clients.add(Client::connect(&self.target, None).await?);
        }
        Ok(())
    }

    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        self.clients.work(plan, self.script).await
    }

    /// It has nothing to flush.
    fn flushes(&self) -> Option<u64> {
        Some(0)
    }

    async fn stop(self: Box<Self>) -> Result<()> {
        self.server.stop().await
    }
}
