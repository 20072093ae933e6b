//! Servers that only hold their clients: what an open connection costs by itself.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use axum::routing::get;
use axum::serve::ListenerExt;
use futures::{Stream, StreamExt, stream};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ProgressNotificationParam, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::net::TcpListener;

/// An SSE stream that says hello and then lives.
pub(super) async fn sse() -> Result<()> {
    serve(Router::new().route("/events", get(events))).await
}

async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let hello = stream::iter([Ok(Event::default().data("hello"))]);
    Sse::new(hello.chain(stream::pending())).keep_alive(KeepAlive::default())
}

/// A tool that tells its caller that it is alive, and sleeps.
pub(super) async fn rmcp_wait() -> Result<()> {
    let config = StreamableHttpServerConfig::default().with_json_response(true);
    let service =
        StreamableHttpService::new(|| Ok(Sleeper), Arc::new(LocalSessionManager::default()), config);
    serve(Router::new().nest_service("/mcp", service)).await
}

#[derive(Clone)]
struct Sleeper;

impl ServerHandler for Sleeper {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Some(token) = context.meta.get_progress_token() {
            let _ = context.peer.notify_progress(ProgressNotificationParam::new(token, 1.0)).await;
        }
        context.ct.cancelled().await;
        Err(ErrorData::internal_error("cancelled", None))
    }
}

async fn serve(router: Router) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).await?;
    Ok(())
}
