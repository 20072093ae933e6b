//! The protocol: the only file that knows rmcp. It speaks MCP 2026-07-28, which is stateless, and the
//! revisions with sessions before it, on the same URLs.
//!
//! Every request is authenticated by itself: a session carries what the client said of itself and no rights.
//! Ordinary calls are answered by `direct`, and by `listened` when they take long; all else goes through rmcp.

mod direct;
mod listened;
mod openings;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use http::HeaderMap;
use http_body_util::BodyExt;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, DiscoverResult,
    Implementation, InitializeRequestParams, InitializeResult, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::store::{
    SessionState, SessionStore, SessionStoreError,
};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Map, Value, json};
use skein_proto::trace::{self, TRACES};
use skein_shared::{Code, Refusal, limits};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug_span};
use uuid::Uuid;

use direct::Call;

/// A part of the log's filter: this library would say three lines for each request.
pub const QUIET: &str = "rmcp=warn";
/// The header by which a client names its trace.
const TRACEPARENT: &str = "traceparent";

use super::catalogue::Catalogue;
use super::dispatch::{self, Context, Gate, Progress};
use super::door::{Config, Door, METADATA, received, refused, text_header, unreadable};
use super::result::Reply;
use super::sessions::Sessions;
use super::view::{self, Detail};
use super::{idempotency, instructions};
use crate::auth::token::Keys;
use crate::auth::{Principal, Role, View};
use crate::service::Service;

/// An answer that comes sooner than this is sent alone; later ones are announced by progress, so that the
/// client gets its first byte within a second.
const FIRST_PROGRESS: Duration = Duration::from_millis(250);
/// Claude Code gives up after five minutes without progress; proxies often after one.
const PROGRESS: Duration = Duration::from_secs(30);
/// What is under way when the node stops has this long to end.
const FINISH: Duration = Duration::from_secs(1);
/// How long a client may keep a list. The catalogue changes with the program alone.
const LIST_TTL_MS: u64 = 300_000;

/// The routes of the MCP face: `/mcp` and its views, and the metadata that a 401 points to. It must be called
/// within a tokio runtime.
pub fn router(service: Service, keys: Keys, catalogue: Arc<Catalogue>, config: Config) -> Router {
    let facade = Facade::new(service, catalogue, &config);
    let mut transport = StreamableHttpServerConfig::default()
        .with_json_response(true)
        .with_allowed_hosts(config.allowed_hosts.clone())
        .with_allowed_origins(config.allowed_origins.clone())
        .with_max_request_body_bytes(limits::REQUEST)
        .with_cancellation_token(after(config.shutdown.clone(), FINISH * 2));
    let sessions = config.sessions.as_deref().map_or_else(Sessions::fleeting, Sessions::kept_in);
    transport.session_store = Some(Arc::new(Sleeping { sessions, adopts: config.adopts_sessions }));
    let door = Door::new(keys, facade.service.clock().clone(), config);
    let behind = facade.clone();
    let awake = Arc::new(LocalSessionManager::default());
    let mcp = StreamableHttpService::new(move || Ok(behind.clone()), Arc::clone(&awake), transport);
    let entrance = Arc::new(Entrance { mcp, awake, door, facade });
    Router::new()
        .route("/mcp", any(enter))
        .route("/mcp/", any(enter))
        .route("/mcp/{*view}", any(enter))
        .route(METADATA, get(metadata))
        .route("/.well-known/oauth-protected-resource/{*path}", get(metadata))
        .with_state(entrance)
}

/// rmcp drops what is under way when its token is cancelled: so it hears of the stop later than the handlers,
/// whose answers say that it is worth another try.
fn after(stop: CancellationToken, pause: Duration) -> CancellationToken {
    let later = CancellationToken::new();
    let cancel = later.clone();
    tokio::spawn(async move {
        stop.cancelled().await;
        tokio::time::sleep(pause).await;
        cancel.cancel();
    });
    later
}

struct Entrance {
    mcp: StreamableHttpService<Facade, LocalSessionManager>,
    /// The sessions that rmcp has in memory.
    awake: Arc<LocalSessionManager>,
    door: Door,
    facade: Facade,
}

/// Lets a request in: known, of bounded size and depth, with its view decided.
async fn enter(State(entrance): State<Arc<Entrance>>, request: Request) -> Response {
    let Entrance { door, facade, .. } = entrance.as_ref();
    let view = View::parse(request.uri().path().trim_start_matches("/mcp"));
    let view = match view.and_then(|view| view::check(&view).map(|()| view)) {
        Ok(view) => view,
        Err(refusal) => return refused(&refusal),
    };
    let who = match door.identify(request.headers()) {
        Ok(who) => who,
        Err(refusal) => return door.challenge(request.headers(), &refusal),
    };
    if who.role == Role::Runner {
        return refused(&Refusal::new(
            Code::Forbidden,
            "a runner's token opens no tools; use an agent's token",
        ));
    }
    if let Err(refusal) = facade.service.require_live(&who).await {
        return door.challenge(request.headers(), &refusal);
    }
    let (parts, body) = request.into_parts();
    let body = match received(body).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    let caller = Caller {
        view: view.narrowed_by(who.view.as_ref()),
        who,
        key: text_header(&parts.headers, idempotency::HEADER).map(str::to_owned),
        traceparent: text_header(&parts.headers, TRACEPARENT).map(str::to_owned),
    };
    let Some(call) = direct::read(&parts.method, &parts.headers, &body, door.allowed_hosts()) else {
        return Box::pin(entrance.pass_on(parts, body, caller)).await;
    };
    // What came in is read. A call may wait for long, and these hold the connection's buffers.
    drop((parts, body));
    facade.answer(caller, call).await
}

impl Entrance {
    /// Leaves a request to rmcp.
    async fn pass_on(&self, mut parts: http::request::Parts, body: Bytes, caller: Caller) -> Response {
        if let Some(response) = unreadable(&body) {
            return response;
        }
        if let Err(refusal) =
            openings::admit(&self.awake, text_header(&parts.headers, "mcp-session-id"), &body).await
        {
            return refused(&refusal);
        }
        let here = CancellationToken::new();
        let listening = here.clone().drop_guard();
        parts.extensions.insert(caller);
        parts.extensions.insert(Gone(here));
        let answer = self.mcp.handle(http::Request::from_parts(parts, Body::from(body))).await;
        // The guard goes with the last of the answer, or with the connection.
        answer
            .map(|body| {
                Body::new(body.map_frame(move |frame| {
                    let _ = &listening;
                    frame
                }))
            })
            .into_response()
    }
}

async fn metadata(State(entrance): State<Arc<Entrance>>, headers: HeaderMap) -> axum::Json<Value> {
    axum::Json(entrance.door.metadata(&headers))
}

/// What the door found out about a request, for the handler behind rmcp.
#[derive(Clone, Debug)]
struct Caller {
    who: Principal,
    view: View,
    key: Option<String>,
    /// The trace that the call belongs to (W3C), if any.
    traceparent: Option<String>,
}

/// Cancelled when the client has its answer or has gone. rmcp notices the latter by itself only without a
/// session; a wait that goes on for nobody would start tasks for nobody.
#[derive(Clone, Debug)]
struct Gone(CancellationToken);

/// The handler: made anew for each request by cloning, so everything in it is shared.
#[derive(Clone)]
struct Facade {
    service: Service,
    catalogue: Arc<Catalogue>,
    /// Each tool as the protocol's type, brief and full, in the catalogue's order.
    listed: Arc<[(rmcp::model::Tool, rmcp::model::Tool)]>,
    gate: Gate,
    shutdown: CancellationToken,
}

impl Facade {
    fn new(service: Service, catalogue: Arc<Catalogue>, config: &Config) -> Self {
        let typed = |tool, detail| {
            serde_json::from_value(view::listed(tool, detail)).expect("a listed tool has the protocol's form")
        };
        let listed =
            catalogue.tools().map(|tool| (typed(tool, Detail::Brief), typed(tool, Detail::Full))).collect();
        Self { service, catalogue, listed, gate: config.gate.clone(), shutdown: config.shutdown.clone() }
    }

    /// Resolves when the node stops and what was short has had its time: a wait must not hold the node up.
    async fn stopping(&self) -> CallToolResult {
        self.shutdown.cancelled().await;
        tokio::time::sleep(FINISH).await;
        finished(Reply::error(
            &Refusal::new(
                Code::Unavailable,
                "this coordinator is stopping; call again, with the same idempotency key if you gave one",
            )
            .retry_after(1000),
        ))
    }

    fn config(&self, role: Role) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("skein", env!("CARGO_PKG_VERSION")))
            .with_instructions(instructions::for_role(role))
    }

    async fn answer(&self, caller: Caller, call: Call) -> Response {
        if let Some(token) = call.progress.clone() {
            return listened::answer(self, caller, call, token).await;
        }
        let result = self.finish(caller, &call.name, call.arguments, Progress::silent()).await;
        direct::answer(call.id, result)
    }

    /// Runs a tool until it is done or the node stops. A client that goes away drops this.
    async fn finish(
        &self,
        caller: Caller,
        name: &str,
        arguments: Map<String, Value>,
        progress: Progress,
    ) -> CallToolResult {
        let span = debug_span!(target: TRACES, "tools/call", otel.kind = "server", tool = name);
        trace::follow(&span, caller.traceparent.as_deref().unwrap_or_default());
        tokio::select! {
            reply = self.run(caller, name, arguments, progress).instrument(span) => finished(reply),
            stopped = self.stopping() => stopped,
        }
    }

    async fn run(
        &self,
        caller: Caller,
        name: &str,
        arguments: Map<String, Value>,
        progress: Progress,
    ) -> Reply {
        let context = Context {
            service: self.service.clone(),
            catalogue: Arc::clone(&self.catalogue),
            who: caller.who,
            view: caller.view,
            key: caller.key,
            progress,
            gate: self.gate.clone(),
        };
        dispatch::call(context, name, arguments).await
    }
}

/// What the door left with the request.
fn left<T: Clone + Send + Sync + 'static>(context: &RequestContext<RoleServer>) -> Result<T, ErrorData> {
    context
        .extensions
        .get::<http::request::Parts>()
        .and_then(|parts| parts.extensions.get::<T>())
        .cloned()
        .ok_or_else(|| ErrorData::internal_error("the request came without its caller", None))
}

impl ServerHandler for Facade {
    fn get_info(&self) -> ServerConfig {
        self.config(Role::Worker)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let role = left::<Caller>(&context)?.who.role;
        context.peer.set_peer_info(request.clone());
        let negotiated = self.negotiate_initialize(&request)?;
        Ok(negotiated.with_instructions(instructions::for_role(role)))
    }

    async fn discover(&self, context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let role = left::<Caller>(&context)?.who.role;
        let versions = self.supported_protocol_versions().into_owned();
        Ok(DiscoverResult::from_server_info(versions, self.config(role))
            .with_ttl_ms(LIST_TTL_MS)
            .with_cache_scope(CacheScope::Private))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        if request.is_some_and(|page| page.cursor.is_some()) {
            return Err(ErrorData::invalid_params("tools come in one page; leave the cursor out", None));
        }
        let Caller { who, view, .. } = left(&context)?;
        let brief = view::detail(&view) == Detail::Brief;
        let tools = view::list(&self.catalogue, who.role, &view).into_iter().map(|position| {
            let (short, long) = &self.listed[position];
            if brief { short.clone() } else { long.clone() }
        });
        Ok(ListToolsResult::with_all_items(tools.collect())
            .with_ttl_ms(LIST_TTL_MS)
            .with_cache_scope(CacheScope::Private))
    }

    /// Runs the tool, tells a client that asked for progress that it is alive, and stops when it has gone.
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let caller = left::<Caller>(&context)?;
        let Gone(gone_away) = left(&context)?;
        let CallToolRequestParams { name, arguments, .. } = request;
        let arguments = arguments.unwrap_or_default();
        let Some(token) = context.meta.get_progress_token() else {
            tokio::select! {
                result = self.finish(caller, &name, arguments, Progress::silent()) => return Ok(result.into()),
                () = context.ct.cancelled() => return Err(gone()),
                () = gone_away.cancelled() => return Err(gone()),
            }
        };
        let (said, message) = watch::channel(format!("{name} is running"));
        let mut run = Box::pin(self.finish(caller, &name, arguments, Progress::heard(said)));
        let mut beat = tokio::time::interval_at(tokio::time::Instant::now() + FIRST_PROGRESS, PROGRESS);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut count = 0.0;
        loop {
            tokio::select! {
                result = &mut run => return Ok(result.into()),
                () = context.ct.cancelled() => return Err(gone()),
                () = gone_away.cancelled() => return Err(gone()),
                _ = beat.tick() => {
                    count += 1.0;
                    let text = message.borrow().clone();
                    let progress = ProgressNotificationParam::new(token.clone(), count).with_message(text);
                    // A client that cannot be told has gone, which the cancellation says as well.
                    let _ = context.peer.notify_progress(progress).await;
                }
            }
        }
    }
}

fn gone() -> ErrorData {
    ErrorData::internal_error("the client went away", None)
}

fn finished(reply: Reply) -> CallToolResult {
    let image = reply.image.map(|image| ContentBlock::image(image.data, image.mime_type));
    let content = std::iter::once(ContentBlock::text(reply.text)).chain(image).collect();
    let mut result = CallToolResult::success(content);
    result.structured_content = Some(reply.json).filter(|json| !json.is_null());
    result.is_error = Some(reply.is_error);
    result
}

/// Wakes a session that rmcp closed when it was idle, or that began before the node was started anew.
struct Sleeping {
    sessions: Sessions,
    adopts: bool,
}

#[async_trait::async_trait]
impl SessionStore for Sleeping {
    async fn load(&self, id: &str) -> Result<Option<SessionState>, SessionStoreError> {
        // All that a session holds is how its client described itself; without that it is served as any other.
        let unknown = || (self.adopts && Uuid::try_parse(id).is_ok()).then(undescribed);
        self.sessions.load(id).or_else(unknown).map(serde_json::from_value).transpose().map_err(Into::into)
    }

    async fn store(&self, id: &str, state: &SessionState) -> Result<(), SessionStoreError> {
        self.sessions.store(id, serde_json::to_value(state)?);
        Ok(())
    }

    async fn delete(&self, id: &str) -> Result<(), SessionStoreError> {
        self.sessions.delete(id);
        Ok(())
    }
}

/// A client of the older revision that began its session on another node.
fn undescribed() -> Value {
    json!({
        "initialize_params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "unknown", "version": "0" },
        },
    })
}
