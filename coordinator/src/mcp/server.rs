//! The protocol: this folder and `connection` alone know rmcp. It speaks MCP 2026-07-28, which is stateless, and the
//! revisions with sessions before it, on the same URLs.
//!
//! Every request is authenticated by itself: a session carries what the client said of itself and no rights.
//! Ordinary calls are answered by `direct`, and by `streamed` when they may take long; all else goes through rmcp.

mod attended;
mod broken;
mod direct;
mod entrance;
mod followed;
mod handler;
mod message;
mod openings;
mod priming;
mod running;
mod sleeping;
mod streamed;
mod subscriptions;
mod unfit;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use axum::routing::{any, get};
use rmcp::model::{
    ClientCapabilities, Implementation, ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer};
use serde::Deserialize;
use serde_json::{Map, Value};
use skein_proto::trace::{self, TRACES};
use skein_shared::{Code, Refusal, limits, transport};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug_span};

use direct::Call;
use entrance::{Entrance, enter, metadata};
use followed::{Answered, Followed};
use openings::Openings;
use running::{Heard, Running, Seal, Sound};
use sleeping::Sleeping;
use subscriptions::{Listener, Watched};

/// A part of the log's filter: this library would say three lines for each request, warn of what clients do wrong, and
/// call it an error when one that listens goes away.
pub const QUIET: &str = "rmcp=warn,rmcp::service=off";
/// The same for commands, which say themselves what they could not do.
pub const SILENT: &str = "rmcp=off";
/// The header by which a client names its trace.
const TRACEPARENT: &str = "traceparent";
/// The header by which a client of an older revision names its session.
const SESSION: &str = "mcp-session-id";

use super::catalogue::{Catalogue, Effect};
use super::client::Client;
use super::dispatch::{self, Context, Gate, Progress};
use super::door::{Config, Door, METADATA};
use super::fixture::Fixture;
use super::instructions;
use super::offer::Offer;
use super::product::Product;
use super::result::{Reply, Then};
use super::sessions::Sessions;
use super::view::{self, Detail};
use crate::auth::{Credential, Principal, Rights, Role, View, policy};
use crate::service::Service;
use crate::service::access::Access;
use crate::service::unread::Delivery;

/// An answer that comes sooner than this is sent alone; later ones are announced by progress, so that the
/// client gets its first byte within a second.
const FIRST_PROGRESS: Duration = Duration::from_millis(250);
/// Claude Code gives up after five minutes without progress; proxies often after one.
pub(super) const PROGRESS: Duration = Duration::from_secs(15);
/// What is under way when the node stops has this long to end.
const FINISH: Duration = Duration::from_secs(1);
/// A session without a message for so long falls asleep, and what is under way in it ends: so this is longer than any
/// call says nothing. A command may run for an hour, and a person may be asked behind it.
const IDLE: Duration = transport::LONGEST.saturating_add(running::ANSWERED_WITHIN);
/// How long a client may keep a list. The catalogue changes with the program alone.
const LIST_TTL_MS: u64 = 300_000;

/// The routes of the MCP face: `/mcp` and its views, and the metadata that a 401 points to. It must be called
/// within a tokio runtime.
pub fn router(service: Service, access: Access, catalogue: Arc<Catalogue>, config: Config) -> Router {
    let facade = Facade::new(service, access.clone(), catalogue, &config);
    let mut transport = StreamableHttpServerConfig::default()
        .with_json_response(true)
        .with_allowed_hosts(config.allowed_hosts.clone())
        .with_allowed_origins(config.allowed_origins.clone())
        .with_max_request_body_bytes(limits::REQUEST)
        .with_cancellation_token(after(config.shutdown.clone(), FINISH * 2));
    let sessions = config.sessions.as_deref().map_or_else(Sessions::fleeting, Sessions::kept_in);
    let (sessions, adopts) = (Arc::new(sessions), config.adopts_sessions);
    transport.session_store = Some(Arc::new(Sleeping { sessions: Arc::clone(&sessions), adopts }));
    let door = Door::new(access, config);
    let behind = facade.clone();
    let mut awake = LocalSessionManager::default();
    awake.session_config.keep_alive = Some(IDLE);
    let awake = Arc::new(awake);
    let openings = Openings::new(Arc::clone(&awake), sessions, adopts, facade.gate.quota.clone());
    let mcp = StreamableHttpService::new(
        move || {
            let (watched, answered) = (Watched::default(), Answered::default());
            Ok(Facade { watched, answered, ..behind.clone() })
        },
        awake,
        transport,
    );
    let entrance = Arc::new(Entrance { mcp, openings, door, facade });
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

/// What the door found out about a request, for the handler behind rmcp.
#[derive(Clone, Debug)]
struct Caller {
    who: Principal,
    credential: Option<Arc<Credential>>,
    view: View,
    key: Option<String>,
    /// The trace that the call belongs to (W3C), if any.
    traceparent: Option<String>,
    delivery: Delivery,
}

impl Caller {
    /// With the shared key nothing says whether an agent leads or works but the swarm's own list of members.
    fn role(&self) -> Option<Role> {
        self.credential.as_ref().map(|_| self.who.role)
    }
}

/// Cancelled when the client has its answer or has gone. rmcp notices the latter by itself only without a
/// session; a wait that goes on for nobody would start tasks for nobody.
#[derive(Clone, Debug)]
struct Gone(CancellationToken);

/// A tool as the protocol's type.
struct Listed {
    brief: Tool,
    full: Tool,
    /// Some of its arguments come as headers too, which rmcp compares.
    mirrored: bool,
}

/// The handler: made anew for each request by cloning, so everything in it is shared; but what a session
/// watches is its own.
#[derive(Clone)]
struct Facade {
    service: Service,
    access: Access,
    offer: Arc<dyn Offer>,
    /// In the catalogue's order.
    listed: Arc<[Listed]>,
    gate: Gate,
    shutdown: CancellationToken,
    seal: Seal,
    watched: Watched,
    answered: Answered,
}

impl Facade {
    fn new(service: Service, access: Access, catalogue: Arc<Catalogue>, config: &Config) -> Self {
        let offer: Arc<dyn Offer> =
            if config.fixture { Arc::new(Fixture::new()) } else { Arc::new(Product::new(catalogue)) };
        let typed = |tool, detail| {
            serde_json::from_value(view::listed(tool, detail)).expect("a listed tool has the protocol's form")
        };
        let listed = offer.tools().tools().map(|tool| Listed {
            brief: typed(tool, Detail::Brief),
            full: typed(tool, Detail::Full),
            mirrored: tool.args.mirrored(),
        });
        Self {
            service,
            access,
            listed: listed.collect(),
            offer,
            gate: config.gate.clone(),
            shutdown: config.shutdown.clone(),
            seal: Seal::new(),
            watched: Watched::default(),
            answered: Answered::default(),
        }
    }

    fn is_mirrored(&self, name: &str) -> bool {
        self.offer.tools().position(name).is_some_and(|position| self.listed[position].mirrored)
    }

    /// Refuses the call of a tool that the token was left without the scope for, before anything else is said of it: a
    /// client can then fetch a token with more. Where the role does not allow the tool no token helps, and the tool
    /// says so.
    fn in_scope(&self, who: &Principal, body: &[u8]) -> Result<(), Refusal> {
        #[derive(Deserialize)]
        struct Named {
            method: String,
            params: Params,
        }
        #[derive(Deserialize)]
        struct Params {
            name: String,
        }
        if Rights::of(who.role).are_within(who.rights) {
            return Ok(());
        }
        let called = serde_json::from_slice::<Named>(body).ok().filter(|call| call.method == "tools/call");
        let Some(tool) = called.and_then(|call| self.offer.tools().get(&call.params.name)) else {
            return Ok(());
        };
        let right = view::right(tool, who.role);
        if policy::allows(who.role, right) { policy::require(who, right) } else { Ok(()) }
    }

    /// Resolves when the node stops and what was short has had its time: a wait must not hold the node up. What the
    /// store or another node was asked to write may be written all the same.
    async fn stopping(&self, effect: Effect) -> Reply {
        self.shutdown.cancelled().await;
        tokio::time::sleep(FINISH).await;
        let (code, problem) = match effect {
            Effect::Read => (Code::Unavailable, "this coordinator is stopping; call again"),
            Effect::Write => (
                Code::Unknown,
                "this coordinator is stopping, and what you asked for may happen all the same; call again with the same \
                 idempotency key, or if you gave none look first whether it did",
            ),
        };
        Reply::error(&Refusal::new(code, problem).retry_after(1000))
    }

    fn config(&self, role: Option<Role>) -> ServerConfig {
        let has = ServerCapabilities::builder()
            .enable_tools()
            .enable_prompts()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_resources_list_changed()
            .enable_completions()
            .enable_tasks();
        #[expect(deprecated, reason = "the older revision has it")]
        let has = match self.offer.is_fixture() {
            true => has.enable_logging().enable_tool_list_changed().enable_prompts_list_changed().build(),
            false => has.build(),
        };
        ServerConfig::new(has)
            .with_server_info(Implementation::new("skein", env!("CARGO_PKG_VERSION")))
            .with_instructions(instructions::for_role(role))
    }

    /// Answers an ordinary call.
    async fn answer(&self, caller: Caller, call: Call) -> Response {
        let delivery = caller.delivery.clone();
        if call.progress.is_some() || self.may_wait(&call) {
            let answer = streamed::answer(self, caller, call).await;
            return answer.map(|body| Followed::alone(body, delivery));
        }
        let Call { id, name, arguments, client, .. } = call;
        let who = caller.who.clone();
        let reply = self.finish(caller, client.clone(), &name, arguments, Progress::silent()).await;
        let answer = match reply.then {
            Then::Nothing => direct::finished(id, reply),
            _ => direct::answer(id, running::response(&self.seal, &who, &name, &client, reply)),
        };
        match delivery.carries_something() {
            true => answer.map(|body| Followed::alone(body, delivery)),
            false => answer,
        }
    }

    /// Whether a call may hold its caller. One of a finder does so for the tool that it names.
    fn may_wait(&self, call: &Call) -> bool {
        let waits = |name: &str| self.offer.tools().get(name).is_some_and(|tool| tool.waits);
        waits(&call.name) || call.arguments.get("name").and_then(Value::as_str).is_some_and(waits)
    }

    /// Runs a tool until it is done or the node stops. A client that goes away drops this.
    async fn finish(
        &self,
        caller: Caller,
        client: Client,
        name: &str,
        arguments: Map<String, Value>,
        progress: Progress,
    ) -> Reply {
        // The name of a tool that there is not is the caller's own words.
        let (tool, effect) =
            self.offer.tools().get(name).map_or(("unknown", Effect::Read), |tool| (tool.name, tool.effect));
        let span = debug_span!(target: TRACES, "tools/call", otel.kind = "server", tool);
        trace::follow(&span, caller.traceparent.as_deref().unwrap_or_default());
        let (credential, delivery) = (caller.credential.clone(), caller.delivery.clone());
        let context = self.context(caller, client, progress);
        let who = context.who.clone();
        let reply = tokio::select! {
            // Most calls are over at once, and need no place among those who hear of the end.
            biased;
            reply = dispatch::call(context, name, arguments).instrument(span) => reply,
            stopped = self.stopping(effect) => return stopped,
        };
        // A call may wait for an hour: nothing is told any more to a token that was revoked meanwhile.
        if let Err(refusal) = self.access.still_holds(credential.as_deref()).await {
            delivery.lost();
            return Reply::error(&refusal);
        }
        // A question to the client is no result yet, and what is said with it would be lost.
        let is_result = reply.then == Then::Nothing;
        if !is_result {
            return reply;
        }
        reply.steered(self.service.take_steering(&who, &delivery).await)
    }

    fn context(&self, caller: Caller, client: Client, progress: Progress) -> Context {
        Context {
            service: self.service.clone(),
            catalogue: Arc::clone(self.offer.tools()),
            who: caller.who.at(&caller.view),
            view: caller.view,
            key: caller.key,
            progress,
            delivery: caller.delivery,
            gate: self.gate.clone(),
            client,
        }
    }

    /// Somebody who looks at something that is no tool, which counts as a read all the same.
    fn looking(&self, context: &RequestContext<RoleServer>) -> Result<Context, ErrorData> {
        let caller = left::<Caller>(context)?;
        self.gate.quota.look(&caller.who, Instant::now()).map_err(|refusal| wire::refused(&refusal))?;
        Ok(self.context(caller, client_of(context), Progress::silent()))
    }

    /// Somebody who wants to hear of changes.
    fn listener(&self, context: &RequestContext<RoleServer>) -> Result<Listener, ErrorData> {
        let caller = left::<Caller>(context)?;
        let (offer, access, credential) =
            (Arc::clone(&self.offer), self.access.clone(), caller.credential.clone());
        let caller = self.context(caller, client_of(context), Progress::silent());
        Ok(Listener { offer, caller, access, credential })
    }

    /// Runs a tool while its client listens, or until it has gone. `done` is how far the call has said to be.
    async fn heard(
        &self,
        caller: &Caller,
        client: &Client,
        name: &str,
        arguments: Map<String, Value>,
        context: &RequestContext<RoleServer>,
        done: &mut f64,
    ) -> Result<Reply, ErrorData> {
        let Gone(gone_away) = left(context)?;
        let delivery = caller.delivery.clone();
        let token = context.meta.get_progress_token();
        let (said, ear) = running::channel(name);
        let progress = running::said(said, token.is_some());
        let (facade, caller, client, tool) = (self.clone(), caller.clone(), client.clone(), name.to_owned());
        let run: Running =
            Box::pin(async move { facade.finish(caller, client, &tool, arguments, progress).await });
        let mut heard = Heard::new(run, ear).going_on_from(*done);
        loop {
            let sound = tokio::select! {
                sound = heard.next() => sound,
                () = context.ct.cancelled() => break,
                () = gone_away.cancelled() => break,
            };
            // A client that cannot be told has gone, which the cancellation says as well.
            match (sound, &token) {
                (Sound::Over(reply), _) => {
                    if is_session(context) {
                        self.answered.keep(context.id.clone(), delivery);
                    }
                    return Ok(reply);
                }
                (Sound::Log(text), _) if is_session(context) => {
                    running::log(&context.peer, text).await;
                }
                (sound, Some(token)) => {
                    if let Some(progress) = running::progress(token, sound) {
                        *done = progress.progress;
                        let _ = context.peer.notify_progress(progress).await;
                    }
                }
                (_, None) => {}
            }
        }
        delivery.lost();
        Err(self.unanswered(name))
    }

    /// What a call ends with that nobody waits for any more. Whoever takes its stream up again in time hears it.
    fn unanswered(&self, name: &str) -> ErrorData {
        broken::unanswered(self.offer.tools().get(name).map(|tool| tool.name))
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

/// A client of an older revision, which is asked and told things while its call is under way.
fn is_session(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_none_or(|version| version.as_str() < ProtocolVersion::V_2026_07_28.as_str())
}

fn client_of(context: &RequestContext<RoleServer>) -> Client {
    let capabilities: ClientCapabilities = context.client_capabilities().unwrap_or_default();
    Client { abilities: wire::abilities(&capabilities), ..Client::default() }
}
