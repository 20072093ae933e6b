//! The protocol: the only file that knows rmcp. It speaks MCP 2026-07-28, which is stateless, and the
//! revisions with sessions before it, on the same URLs.
//!
//! Every request is authenticated by itself: a session carries what the client said of itself and no rights.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
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
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use skein_shared::id::{InstanceId, Name};
use skein_shared::{Code, Refusal, limits};
use subtle::ConstantTimeEq;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::catalogue::Catalogue;
use super::dispatch::{self, Context, Progress};
use super::result::Reply;
use super::view::{self, Detail};
use super::{idempotency, instructions};
use crate::auth::token::Keys;
use crate::auth::{Principal, Right, Role, View};
use crate::service::Service;

/// An answer that comes sooner than this is sent alone; later ones are announced by progress, so that the
/// client gets its first byte within a second.
const FIRST_PROGRESS: Duration = Duration::from_millis(250);
/// Claude Code gives up after five minutes without progress; proxies often after one.
const PROGRESS: Duration = Duration::from_secs(15);
/// How long a client may keep a list. The catalogue changes with the program alone.
const LIST_TTL_MS: u64 = 300_000;
/// Sessions remembered after they fell asleep. What is kept of one is some hundred bytes.
const SESSIONS: usize = 20_000;
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// Where the face may be reached, and by whom.
#[derive(Clone, Debug)]
pub struct Config {
    /// `host` or `host:port` values that the `Host` header may have, against DNS rebinding.
    pub allowed_hosts: Vec<String>,
    /// Origins of browsers that may call, such as `http://localhost:*`.
    pub allowed_origins: Vec<String>,
    /// The address that clients use, without a path; else the request's own host is named.
    pub public_url: Option<String>,
    /// The seed's way to tell callers apart: one key for all and a header with the agent's id. Whoever holds
    /// the key can act as any agent, so it is off unless an operator turns it on.
    pub shared_key: Option<SharedKey>,
    /// Ends the sessions when the node stops.
    pub shutdown: CancellationToken,
}

#[derive(Clone, Debug)]
pub struct SharedKey {
    pub key: SecretString,
    pub swarm: Name,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            allowed_hosts: ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec(),
            allowed_origins: ["http://localhost:*", "http://127.0.0.1:*"].map(str::to_owned).to_vec(),
            public_url: None,
            shared_key: None,
            shutdown: CancellationToken::new(),
        }
    }
}

/// The routes of the MCP face: `/mcp` and its views, and the metadata that a 401 points to.
pub fn router(service: Service, keys: Keys, catalogue: Arc<Catalogue>, config: Config) -> Router {
    let facade = Facade::new(service, catalogue);
    let mut transport = StreamableHttpServerConfig::default()
        .with_json_response(true)
        .with_allowed_hosts(config.allowed_hosts.clone())
        .with_allowed_origins(config.allowed_origins.clone())
        .with_max_request_body_bytes(limits::BODY)
        .with_cancellation_token(config.shutdown.clone());
    transport.session_store = Some(Arc::new(Sleeping::default()));
    let clock = facade.service.clock().clone();
    let mcp = StreamableHttpService::new(
        move || Ok(facade.clone()),
        Arc::new(LocalSessionManager::default()),
        transport,
    );
    let door = Door { mcp, keys, clock, config: Arc::new(config) };
    Router::new()
        .route("/mcp", any(enter))
        .route("/mcp/", any(enter))
        .route("/mcp/{*view}", any(enter))
        .route(METADATA, get(metadata))
        .route("/.well-known/oauth-protected-resource/{*path}", get(metadata))
        .with_state(door)
}

#[derive(Clone)]
struct Door {
    mcp: StreamableHttpService<Facade, LocalSessionManager>,
    keys: Keys,
    clock: crate::entity::Clock,
    config: Arc<Config>,
}

/// Lets a request in: known, of bounded size and depth, with its view decided.
async fn enter(State(door): State<Door>, request: Request) -> Response {
    let view = match View::parse(request.uri().path().trim_start_matches("/mcp")) {
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
    let (mut parts, body) = request.into_parts();
    let body = match bounded(body).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    parts.extensions.insert(Caller {
        view: view.narrowed_by(who.view.as_ref()),
        who,
        key: text_header(&parts.headers, idempotency::HEADER).map(str::to_owned),
    });
    let answer = door.mcp.handle(http::Request::from_parts(parts, Body::from(body))).await;
    answer.map(Body::new).into_response()
}

/// What the door found out about a request, for the handler behind rmcp.
#[derive(Clone, Debug)]
struct Caller {
    who: Principal,
    view: View,
    key: Option<String>,
}

impl Door {
    fn identify(&self, headers: &HeaderMap) -> Result<Principal, Refusal> {
        let token = text_header(headers, header::AUTHORIZATION.as_str())
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim())
            .ok_or_else(|| {
                Refusal::new(
                    Code::Unauthenticated,
                    "a token is needed: send it as `Authorization: Bearer <token>` (`skein token issue` makes one)",
                )
            })?;
        match &self.config.shared_key {
            Some(shared) if same(shared.key.expose_secret(), token) => claimed(&shared.swarm, headers),
            _ => self.keys.verify(token, self.clock.wall()),
        }
    }

    fn base(&self, headers: &HeaderMap) -> String {
        let host = || text_header(headers, header::HOST.as_str()).unwrap_or("localhost");
        self.config.public_url.clone().unwrap_or_else(|| format!("http://{}", host()))
    }

    /// 401, with where to read how to get a token (RFC 9728).
    fn challenge(&self, headers: &HeaderMap, refusal: &Refusal) -> Response {
        let mut response = refused(refusal);
        if refusal.code == Code::Unauthenticated {
            let problem =
                if headers.contains_key(header::AUTHORIZATION) { ", error=\"invalid_token\"" } else { "" };
            let challenge = format!(
                "Bearer resource_metadata=\"{}{METADATA}\", scope=\"{} {}\"{problem}",
                self.base(headers),
                Right::Read.scope(),
                Right::Work.scope()
            );
            if let Ok(value) = HeaderValue::from_str(&challenge) {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
            }
        }
        response
    }
}

async fn metadata(State(door): State<Door>, headers: HeaderMap) -> Response {
    let scopes = Right::ALL.into_iter().filter(|right| *right != Right::Run).map(Right::scope);
    axum::Json(json!({
        "resource": format!("{}/mcp", door.base(&headers)),
        "resource_name": "Skein",
        "scopes_supported": scopes.collect::<Vec<_>>(),
        "bearer_methods_supported": ["header"],
    }))
    .into_response()
}

fn same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

/// The caller by the seed's header. Ownership and leadership are still the pool's to check.
fn claimed(swarm: &Name, headers: &HeaderMap) -> Result<Principal, Refusal> {
    let id = text_header(headers, "x-agent-id").ok_or_else(|| {
        Refusal::new(Code::Unauthenticated, "with the shared key, say who you are: X-Agent-ID: <uuid>")
    })?;
    let agent: Uuid = skein_shared::id::parse_uuid("X-Agent-ID", id)?;
    let agent_name = Name::parse(&format!("agent-{}", agent.as_simple()))?;
    Ok(Principal {
        swarm: swarm.clone(),
        agent,
        agent_name,
        instance: InstanceId(agent.to_string()),
        managed: false,
        role: Role::Lead,
        view: None,
    })
}

fn text_header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn refused(refusal: &Refusal) -> Response {
    let status = StatusCode::from_u16(refusal.code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, axum::Json(super::result::refusal_json(refusal))).into_response()
}

/// Reads a body of at most 4 MiB, and refuses JSON that is broken or nested too deeply before any parser
/// recurses into it.
async fn bounded(body: Body) -> Result<Bytes, Response> {
    let body = Limited::new(body, limits::BODY).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            refused(&Refusal::new(Code::TooLarge, "a request may have 4 MiB; put large things into files"))
        } else {
            refused(&Refusal::new(Code::InvalidArgument, "the request's body could not be read"))
        }
    })?;
    let body = body.to_bytes();
    if body.is_empty() {
        return Ok(body);
    }
    if depth(&body) > limits::JSON_DEPTH {
        let told = format!("JSON may be nested {} levels deep", limits::JSON_DEPTH);
        return Err(unparsable(-32600, &told));
    }
    match serde_json::from_slice::<serde::de::IgnoredAny>(&body) {
        Ok(_) => Ok(body),
        Err(error) => Err(unparsable(-32700, &format!("the body is not JSON: {error}"))),
    }
}

fn unparsable(code: i32, message: &str) -> Response {
    let error = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": message } });
    (StatusCode::BAD_REQUEST, axum::Json(error)).into_response()
}

/// The deepest nesting of brackets outside of strings.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut quoted, mut escaped) = (0_usize, 0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The handler: made anew for each request by cloning, so everything in it is shared.
#[derive(Clone)]
struct Facade {
    service: Service,
    catalogue: Arc<Catalogue>,
    /// Each tool as the protocol's type, brief and full, in the catalogue's order.
    listed: Arc<[(rmcp::model::Tool, rmcp::model::Tool)]>,
}

impl Facade {
    fn new(service: Service, catalogue: Arc<Catalogue>) -> Self {
        let typed = |tool, detail| {
            serde_json::from_value(view::listed(tool, detail)).expect("a listed tool has the protocol's form")
        };
        let listed =
            catalogue.tools().map(|tool| (typed(tool, Detail::Brief), typed(tool, Detail::Full))).collect();
        Self { service, catalogue, listed }
    }

    fn config(&self, role: Role) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("skein", env!("CARGO_PKG_VERSION")))
            .with_instructions(instructions::for_role(role))
    }

    async fn run(&self, caller: Caller, request: CallToolRequestParams, progress: Progress) -> Reply {
        let context = Context {
            service: self.service.clone(),
            catalogue: Arc::clone(&self.catalogue),
            who: caller.who,
            view: caller.view,
            key: caller.key,
            progress,
        };
        dispatch::call(context, &request.name, request.arguments.unwrap_or_default()).await
    }
}

fn caller(context: &RequestContext<RoleServer>) -> Result<Caller, ErrorData> {
    context
        .extensions
        .get::<http::request::Parts>()
        .and_then(|parts| parts.extensions.get::<Caller>())
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
        let role = caller(&context)?.who.role;
        context.peer.set_peer_info(request.clone());
        let negotiated = self.negotiate_initialize(&request)?;
        Ok(negotiated.with_instructions(instructions::for_role(role)))
    }

    async fn discover(&self, context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let role = caller(&context)?.who.role;
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
        let Caller { who, view, .. } = caller(&context)?;
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
        let caller = caller(&context)?;
        let Some(token) = context.meta.get_progress_token() else {
            tokio::select! {
                reply = self.run(caller, request, Progress::silent()) => return Ok(finished(reply).into()),
                () = context.ct.cancelled() => return Err(gone()),
            }
        };
        let (said, message) = watch::channel(format!("{} is running", request.name));
        let mut run = Box::pin(self.run(caller, request, Progress::heard(said)));
        let mut beat = tokio::time::interval_at(tokio::time::Instant::now() + FIRST_PROGRESS, PROGRESS);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut count = 0.0;
        loop {
            tokio::select! {
                reply = &mut run => return Ok(finished(reply).into()),
                () = context.ct.cancelled() => return Err(gone()),
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
    let mut result = CallToolResult::success(vec![ContentBlock::text(reply.text)]);
    result.structured_content = Some(reply.json);
    result.is_error = Some(reply.is_error);
    result
}

/// What clients of the older revisions said at their start. rmcp closes a session after five idle minutes,
/// and agents think longer than that: with this the session wakes up instead of being `not found`.
#[derive(Default)]
struct Sleeping {
    sessions: Mutex<Sessions>,
}

#[derive(Default)]
struct Sessions {
    states: HashMap<String, SessionState>,
    /// Oldest first; ids that were deleted are skipped when their turn comes.
    order: VecDeque<String>,
}

#[async_trait::async_trait]
impl SessionStore for Sleeping {
    async fn load(&self, id: &str) -> Result<Option<SessionState>, SessionStoreError> {
        Ok(self.sessions.lock().unwrap_or_else(PoisonError::into_inner).states.get(id).cloned())
    }

    async fn store(&self, id: &str, state: &SessionState) -> Result<(), SessionStoreError> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.states.insert(id.to_owned(), state.clone()).is_none() {
            sessions.order.push_back(id.to_owned());
        }
        while sessions.order.len() > SESSIONS {
            if let Some(oldest) = sessions.order.pop_front() {
                sessions.states.remove(&oldest);
            }
        }
        Ok(())
    }

    async fn delete(&self, id: &str) -> Result<(), SessionStoreError> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).states.remove(id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_and_not_texts() {
        assert_eq!(depth(br#"{"a":[{"b":"[[[[\"[["}]}"#), 3);
        assert_eq!(depth(b"[]]]]["), 1);
        assert_eq!(depth("[".repeat(100).as_bytes()), 100);
    }

    #[test]
    fn secrets_are_compared_whole() {
        assert!(same("key", "key"));
        assert!(!same("key", "keys") && !same("key", "kez"));
    }
}
