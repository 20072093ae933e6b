//! A stand-in for Slack on loopback, which checks what it is asked as the real one does: tokens, content types,
//! arguments, membership, limits and cursors.

mod files;
mod socket;
mod talk;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Map, Value, json};
use skein_coordinator::config::Workspace as Settings;
use skein_coordinator::entity::Clock;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use talk::{event, next_letter};

pub const BOT: &str = "xoxb-a-bot-token-that-nobody-prints";
pub const APP: &str = "xapp-an-app-token-that-nobody-prints";
/// The bot, as people mention it.
pub const BOT_USER: &str = "UBOT";

/// How long something may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    /// Turned away, with so many seconds to wait.
    Limited(u64),
    /// Refused with this word.
    Refused(&'static str),
    /// It is not carried out.
    Broken,
    /// It is carried out, and its answer is lost. That of a download breaks off in the middle.
    AnswerLost,
    /// It is on its way until it is let go, also when nobody waits for its answer any more.
    Late,
}

#[derive(Default)]
struct Workspace {
    channels: Vec<Value>,
    users: BTreeMap<String, Value>,
    messages: BTreeMap<String, Vec<Value>>,
    files: BTreeMap<String, (Value, Vec<u8>)>,
    /// Where a file's content is not, but elsewhere.
    redirects: BTreeMap<String, String>,
    /// The files whose content was asked for, and what each request showed as its authorization.
    downloads: Vec<(String, Option<String>)>,
    troubles: VecDeque<(String, Trouble)>,
    calls: Vec<(String, Map<String, Value>)>,
    clock: u64,
    socket_mode: socket::SocketMode,
    /// How many calls are on their way, and whether they may arrive.
    late: usize,
    let_go: bool,
}

impl Workspace {
    /// What shall go wrong with this call.
    fn trouble(&mut self, method: &str) -> Option<Trouble> {
        let at = self.troubles.iter().position(|(name, _)| name == method)?;
        self.troubles.remove(at).map(|(_, trouble)| trouble)
    }
}

/// A workspace with the channels `C1` (general, the bot is in it), `C2` (random, it is not) and `D1` (one person's),
/// and the people `U1` (Ada) and `U2` (Bob).
#[derive(Clone)]
pub struct Slack {
    address: SocketAddr,
    /// Where connections of Socket Mode are opened.
    socket: SocketAddr,
    workspace: Arc<Mutex<Workspace>>,
    /// Counts what happens, for those who wait for something.
    happened: watch::Sender<u64>,
}

impl Slack {
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let sockets = TcpListener::bind("127.0.0.1:0").await?;
        let slack = Self {
            address: listener.local_addr()?,
            socket: sockets.local_addr()?,
            workspace: Arc::default(),
            happened: watch::Sender::default(),
        };
        slack.furnish();
        let router = Router::new()
            .route("/api/{method}", post(call))
            .route("/upload/{file}", post(files::upload).layer(DefaultBodyLimit::disable()))
            .route("/files/{file}", get(files::download))
            .with_state(slack.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        tokio::spawn(socket::accept(slack.clone(), sockets));
        Ok(slack)
    }

    fn furnish(&self) {
        let mut workspace = self.lock();
        workspace.clock = Clock::start().wall().0 / 1000;
        workspace.channels = vec![
            json!({"id": "C1", "name": "general", "is_channel": true, "is_private": false, "is_member": true, "num_members": 3}),
            json!({"id": "C2", "name": "random", "is_channel": true, "is_private": false, "is_member": false, "num_members": 9}),
            json!({"id": "D1", "is_im": true, "user": "U1"}),
        ];
        for (id, name) in [("U1", "Ada"), ("U2", "Bob")] {
            let email = format!("{}@acme.example", name.to_lowercase());
            let user = json!({"id": id, "name": name.to_lowercase(),
                "profile": {"display_name": name, "real_name": format!("{name} Long"), "email": email}});
            workspace.users.insert(id.to_owned(), user);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Workspace> {
        self.workspace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn api(&self) -> String {
        format!("http://{}/api/", self.address)
    }

    /// The part of `config.toml` that names it.
    pub fn configuration(&self) -> String {
        self.configuration_for("default")
    }

    /// The same for one of several swarms.
    pub fn configuration_for(&self, swarm: &str) -> String {
        format!(
            "[[slack.workspace]]\nswarm = \"{swarm}\"\nbot_token = \"{BOT}\"\napp_token = \"{APP}\"\napi = \"{}\"\n",
            self.api()
        )
    }

    /// The same for a client in the test itself.
    pub fn settings(&self) -> Settings {
        serde_json::from_value(json!({"bot_token": BOT, "app_token": APP, "api": self.api()}))
            .expect("settings of a workspace")
    }

    /// Lets the next call of the method go wrong.
    pub fn trouble(&self, method: &str, trouble: Trouble) {
        self.lock().troubles.push_back((method.to_owned(), trouble));
    }

    /// A person writes something. Gives its time stamp.
    pub fn says(&self, channel: &str, user: &str, text: &str, thread: Option<&str>) -> String {
        self.keep(channel, json!({"type": "message", "user": user, "text": text}), thread)
    }

    fn keep(&self, channel: &str, mut message: Value, thread: Option<&str>) -> String {
        let mut workspace = self.lock();
        workspace.clock += 1;
        let ts = format!("{}.000100", workspace.clock);
        message["ts"] = json!(ts);
        if let Some(thread) = thread {
            message["thread_ts"] = json!(thread);
        }
        workspace.messages.entry(channel.to_owned()).or_default().push(message);
        drop(workspace);
        self.happened.send_modify(|count| *count += 1);
        ts
    }

    /// All that is written in a channel, the oldest first.
    pub fn written(&self, channel: &str) -> Vec<Value> {
        self.lock().messages.get(channel).cloned().unwrap_or_default()
    }

    /// The arguments of all calls of the method that were well made.
    pub fn calls(&self, method: &str) -> Vec<Map<String, Value>> {
        let workspace = self.lock();
        let calls = workspace.calls.iter().filter(|(name, _)| name == method);
        calls.map(|(_, args)| args.clone()).collect()
    }

    /// Waits until something is as wanted.
    ///
    /// # Panics
    /// When it does not come about.
    pub async fn until(&self, wanted: impl Fn(&Self) -> bool) {
        let mut happened = self.happened.subscribe();
        let waiting = async {
            while !wanted(self) {
                let _ = happened.changed().await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect("Slack has waited for it in vain");
    }

    fn change(&self, change: impl FnOnce(&mut Workspace)) {
        change(&mut self.lock());
        self.happened.send_modify(|count| *count += 1);
    }

    /// Waits until so many calls are on their way.
    pub async fn until_late(&self, count: usize) {
        self.until(|slack| slack.lock().late == count).await;
    }

    /// What is on its way from now on is let go anew.
    pub fn holds_back(&self) {
        self.change(|workspace| (workspace.late, workspace.let_go) = (0, false));
    }

    /// Lets those arrive that are on their way.
    pub fn lets_go(&self) {
        self.change(|workspace| workspace.let_go = true);
    }

    /// Waits until the channel has so many messages of the bot, and gives them.
    ///
    /// # Panics
    /// When they do not come.
    pub async fn until_posted(&self, channel: &str, count: usize) -> Vec<Value> {
        self.until(|slack| slack.posts(channel).len() >= count).await;
        self.posts(channel)
    }

    fn posts(&self, channel: &str) -> Vec<Value> {
        self.written(channel).into_iter().filter(|one| one["bot_id"].is_string()).collect()
    }
}

type Args = Map<String, Value>;

/// What a method demands: whether it takes JSON, and its required arguments.
fn demands(method: &str) -> Option<(bool, &'static [&'static str])> {
    Some(match method {
        "auth.test" | "apps.connections.open" => (false, &[]),
        "chat.postMessage" => (true, &["channel", "text"]),
        "chat.update" => (true, &["channel", "ts", "text"]),
        "conversations.history" => (false, &["channel"]),
        "conversations.list" => (false, &[]),
        "conversations.replies" => (false, &["channel", "ts"]),
        "files.completeUploadExternal" => (true, &["files"]),
        "files.getUploadURLExternal" => (false, &["filename", "length"]),
        "files.info" => (false, &["file"]),
        "users.info" => (false, &["user"]),
        _ => return None,
    })
}

async fn call(
    State(slack): State<Slack>,
    Path(method): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let args = match read(&method, &headers, &body) {
        Ok(args) => args,
        Err(error) => return refused(error),
    };
    let trouble = slack.lock().trouble(&method);
    match trouble {
        Some(Trouble::Limited(seconds)) => {
            let answer = Json(json!({"ok": false, "error": "ratelimited"}));
            (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, seconds.to_string())], answer).into_response()
        }
        Some(Trouble::Refused(word)) => refused(word),
        Some(Trouble::Broken) => StatusCode::BAD_GATEWAY.into_response(),
        Some(Trouble::AnswerLost) => {
            slack.take(&method, &args);
            StatusCode::GATEWAY_TIMEOUT.into_response()
        }
        // Whoever goes away takes nothing back.
        Some(Trouble::Late) => {
            let arriving = tokio::spawn(async move {
                slack.change(|workspace| workspace.late += 1);
                slack.until(|slack| slack.lock().let_go).await;
                slack.take(&method, &args)
            });
            arriving.await.unwrap_or_else(|_| StatusCode::BAD_GATEWAY.into_response())
        }
        None => slack.take(&method, &args),
    }
}

/// Slack's refusals are successes of HTTP.
fn refused(error: &'static str) -> Response {
    Json(json!({"ok": false, "error": error})).into_response()
}

fn read(method: &str, headers: &HeaderMap, body: &[u8]) -> Result<Args, &'static str> {
    let (takes_json, required) = demands(method).ok_or("unknown_method")?;
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let wanted = if method == "apps.connections.open" { APP } else { BOT };
    match header(AUTHORIZATION).strip_prefix("Bearer ") {
        None => return Err("not_authed"),
        Some(token) if token == wanted => {}
        Some(BOT | APP) => return Err("not_allowed_token_type"),
        Some(_) => return Err("invalid_auth"),
    }
    let args: Args = match header(CONTENT_TYPE).split(';').next().unwrap_or_default() {
        "application/json" if takes_json => serde_json::from_slice(body).map_err(|_| "json_not_object")?,
        // As of an empty form: what reads does not look into JSON.
        "application/json" => Args::new(),
        "application/x-www-form-urlencoded" => serde_urlencoded(body),
        _ => return Err("invalid_post_type"),
    };
    if args.contains_key("token") {
        return Err("token_in_the_arguments");
    }
    let given = |name: &&&str| args.get(**name).is_some_and(|value| !value.is_null() && value != "");
    match required.iter().find(|name| !given(name)) {
        Some(&"channel") => Err("channel_not_found"),
        Some(&"text") => Err("no_text"),
        Some(_) => Err("invalid_arguments"),
        None => Ok(args),
    }
}

fn serde_urlencoded(body: &[u8]) -> Args {
    let pairs = url::form_urlencoded::parse(body);
    pairs.map(|(name, value)| (name.into_owned(), Value::from(value.into_owned()))).collect()
}

impl Slack {
    fn take(&self, method: &str, args: &Args) -> Response {
        self.lock().calls.push((method.to_owned(), args.clone()));
        match self.carry_out(method, args) {
            Ok(mut answer) => {
                answer["ok"] = json!(true);
                Json(answer).into_response()
            }
            Err(error) => refused(error),
        }
    }

    fn carry_out(&self, method: &str, args: &Args) -> Result<Value, &'static str> {
        let text = |name: &str| args.get(name).and_then(Value::as_str).unwrap_or_default();
        match method {
            "auth.test" => Ok(json!({"team": "Acme", "user": "skein", "team_id": "T1", "user_id": BOT_USER})),
            "apps.connections.open" => {
                let ticket = self.lock().socket_mode.ticket();
                Ok(json!({"url": format!("ws://{}/link/?ticket={ticket}", self.socket)}))
            }
            "chat.postMessage" => self.post(args),
            "chat.update" => self.update(text("channel"), text("ts"), text("text")),
            "conversations.history" => {
                self.require_member(text("channel"))?;
                let mut found = self.written(text("channel"));
                found.retain(|message| message["thread_ts"].is_null());
                found.retain(|message| message["ts"].as_str() >= Some(text("oldest")));
                found.reverse();
                without_metadata_unless_asked(&mut found, args);
                page("messages", found, args, 100)
            }
            "conversations.replies" => {
                self.require_member(text("channel"))?;
                let mut found = self.written(text("channel"));
                found.retain(|one| one["ts"] == text("ts") || one["thread_ts"] == text("ts"));
                if found.is_empty() {
                    return Err("thread_not_found");
                }
                without_metadata_unless_asked(&mut found, args);
                page("messages", found, args, 1000)
            }
            "conversations.list" => {
                let kinds: Vec<&str> = text("types").split(',').collect();
                let mut found = self.lock().channels.clone();
                found.retain(|channel| {
                    kinds.contains(&if channel["is_im"] == true { "im" } else { "public_channel" })
                });
                page("channels", found, args, 1)
            }
            "users.info" => {
                let user = self.lock().users.get(text("user")).cloned();
                Ok(json!({"user": user.ok_or("user_not_found")?}))
            }
            "files.info" => self.info(text("file")),
            "files.getUploadURLExternal" => self.upload_url(text("filename"), text("length")),
            "files.completeUploadExternal" => self.complete(args),
            _ => Err("unknown_method"),
        }
    }

    fn require_member(&self, id: &str) -> Result<(), &'static str> {
        let workspace = self.lock();
        let channel = workspace.channels.iter().find(|channel| channel["id"] == id);
        let channel = channel.ok_or("channel_not_found")?;
        let inside = channel["is_member"] == true || channel["is_im"] == true;
        if inside { Ok(()) } else { Err("not_in_channel") }
    }

    /// The id of a channel. To post there its name does as well.
    fn called(&self, channel: &str) -> String {
        let named = |one: &&Value| channel.strip_prefix('#').is_some_and(|name| one["name"] == name);
        let found =
            self.lock().channels.iter().find(named).and_then(|one| one["id"].as_str().map(str::to_owned));
        found.unwrap_or_else(|| channel.to_owned())
    }

    fn post(&self, args: &Args) -> Result<Value, &'static str> {
        let text = |name: &str| args.get(name).and_then(Value::as_str);
        let channel = &self.called(text("channel").unwrap_or_default());
        self.require_member(channel)?;
        if text("text").unwrap_or_default().chars().count() > 40_000 {
            return Err("msg_too_long");
        }
        let metadata = args.get("metadata").cloned().unwrap_or_default();
        let is_whole = metadata["event_type"].is_string() && metadata["event_payload"].is_object();
        if !metadata.is_null() && !is_whole {
            return Err("invalid_metadata_format");
        }
        let thread = text("thread_ts");
        if thread.is_some_and(|thread| !self.written(channel).iter().any(|one| one["ts"] == thread)) {
            return Err("thread_not_found");
        }
        let message = json!({"type": "message", "subtype": "bot_message", "bot_id": "B1", "text": text("text"),
            "username": text("username"), "icons": {"emoji": text("icon_emoji")}, "metadata": metadata});
        Ok(json!({"channel": channel, "ts": self.keep(channel, message, thread)}))
    }

    fn update(&self, channel: &str, ts: &str, text: &str) -> Result<Value, &'static str> {
        let mut workspace = self.lock();
        let messages = workspace.messages.get_mut(channel).ok_or("channel_not_found")?;
        let message = messages.iter_mut().find(|one| one["ts"] == ts).ok_or("message_not_found")?;
        if !message["bot_id"].is_string() {
            return Err("cant_update_message");
        }
        message["text"] = json!(text);
        Ok(json!({"channel": channel, "ts": ts}))
    }
}

fn without_metadata_unless_asked(messages: &mut [Value], args: &Args) {
    if args.get("include_all_metadata").is_none_or(|wanted| wanted != "true") {
        messages.iter_mut().for_each(|message| message["metadata"] = Value::Null);
    }
}

/// A page of a list, and where the next one begins. `largest` keeps pages small, so that cursors are followed.
fn page(name: &str, found: Vec<Value>, args: &Args, largest: usize) -> Result<Value, &'static str> {
    let number = |name: &str| args.get(name).and_then(Value::as_str).map(str::parse::<usize>);
    let from = number("cursor").unwrap_or(Ok(0)).map_err(|_| "invalid_cursor")?;
    let limit = number("limit").unwrap_or(Ok(100)).map_err(|_| "invalid_limit")?;
    if !(1..=1000).contains(&limit) {
        return Err("invalid_limit");
    }
    let end = found.len().min(from + limit.min(largest));
    let more = end < found.len();
    let next = if more { end.to_string() } else { String::new() };
    let mut answer = json!({"has_more": more, "response_metadata": {"next_cursor": next}});
    answer[name] = Value::Array(found[from.min(end)..end].to_vec());
    Ok(answer)
}
