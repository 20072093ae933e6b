//! A model that says what a script tells it to, behind the interfaces of real ones: what coding agents talk to in
//! tests.
//!
//! It keeps nothing between requests: a script decides from the conversation that the client sends each time, so that a
//! request that is repeated gets the same answer.

mod anthropic;
mod gemini;
mod openai;

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What a script knows when the model is asked for its next words.
#[derive(Clone, Debug, Default)]
pub struct Talk {
    /// All that the client said for its user.
    pub prompt: String,
    /// The tools of the swarm that the client offers, by the names that the swarm has for them, but with `_` for `-`.
    pub tools: Vec<String>,
    /// The calls of such tools so far, and what came of each: JSON, or a text if it is none.
    pub results: Vec<(String, Value)>,
}

/// What the model says next.
#[derive(Clone, Debug)]
pub enum Say {
    /// Calls a tool of the swarm, or of the client.
    Call(&'static str, Value),
    /// Ends its turn.
    Text(&'static str),
}

/// Decides what the model says. An error is a client that did not do what it should have.
pub type Script = dyn Fn(&Talk) -> Result<Say> + Send + Sync;

/// What a stream of events is sent as.
const STREAM: &str = "text/event-stream";

/// Tokens that the model says it read and wrote in each answer.
pub const TOKENS: (u64, u64) = (10, 5);

/// A running model. It ends when dropped.
pub struct Model {
    address: String,
    state: Arc<Desk>,
    serving: JoinHandle<()>,
}

struct Desk {
    script: Box<Script>,
    problems: Mutex<Vec<String>>,
    talks: Mutex<Vec<Talk>>,
    /// Each request of a conversation with tools.
    requests: Mutex<Vec<Value>>,
}

impl Model {
    /// # Errors
    /// When there is no free port.
    pub async fn start(script: impl Fn(&Talk) -> Result<Say> + Send + Sync + 'static) -> Result<Self> {
        let state = Arc::new(Desk {
            script: Box::new(script),
            problems: Mutex::default(),
            talks: Mutex::default(),
            requests: Mutex::default(),
        });
        let router = Router::new()
            .route("/v1/messages", post(messages))
            .route("/v1/responses", post(responses))
            .route("/v1beta/models/{call}", post(contents))
            .fallback(elsewhere)
            .with_state(Arc::clone(&state));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("http://{}", listener.local_addr()?);
        let serving = tokio::spawn(async move {
            // It serves until the test ends it.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, state, serving })
    }

    /// Without a path.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Each request of a conversation with tools, as it came.
    pub fn requests(&self) -> Vec<Value> {
        self.state.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The longest conversation so far.
    ///
    /// # Errors
    /// When a script was not content with what it was sent.
    pub fn talk(&self) -> Result<Talk> {
        let problems = self.state.problems.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(problems.is_empty(), "the model was not content: {problems:?}");
        let talks = self.state.talks.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(talks.iter().max_by_key(|talk| talk.results.len()).cloned().unwrap_or_default())
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Desk {
    /// What follows in a conversation. One without tools is a question of the client's own, such as for a title.
    fn next(&self, request: &Value, talk: Talk) -> Result<Say> {
        if request["tools"].as_array().is_none_or(Vec::is_empty) {
            return Ok(Say::Text("Geese"));
        }
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        let next = (self.script)(&talk);
        self.talks.lock().unwrap_or_else(PoisonError::into_inner).push(talk);
        next
    }

    fn answer(
        &self,
        body: &[u8],
        read: fn(&Value) -> Talk,
        kind: &'static str,
        render: fn(&Value, &Say) -> String,
    ) -> Response {
        let said = serde_json::from_slice::<Value>(body)
            .map_err(anyhow::Error::from)
            .and_then(|request| Ok(render(&request, &self.next(&request, read(&request))?)));
        match said {
            Ok(answer) => ([("content-type", kind)], answer).into_response(),
            Err(problem) => {
                self.note(format!("{problem:#}"));
                // No client asks again after this.
                (StatusCode::BAD_REQUEST, format!("{problem:#}")).into_response()
            }
        }
    }

    fn note(&self, problem: String) {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).push(problem);
    }
}

async fn messages(State(desk): State<Arc<Desk>>, body: Bytes) -> Response {
    desk.answer(&body, anthropic::read, STREAM, anthropic::render)
}

async fn responses(State(desk): State<Arc<Desk>>, body: Bytes) -> Response {
    desk.answer(&body, openai::read, STREAM, openai::render)
}

/// The path ends in a model's name and what is asked of it.
async fn contents(
    State(desk): State<Arc<Desk>>,
    Path(call): Path<String>,
    uri: Uri,
    body: Bytes,
) -> Response {
    match call.rsplit_once(':') {
        Some((_, "streamGenerateContent")) => desk.answer(&body, gemini::read, STREAM, gemini::stream),
        Some((_, "generateContent")) => desk.answer(&body, gemini::read, "application/json", gemini::whole),
        _ => elsewhere(uri).await,
    }
}

/// Clients ask for lists of models and the like, and do without.
async fn elsewhere(uri: Uri) -> Response {
    (StatusCode::NOT_FOUND, format!("the model has no {uri}")).into_response()
}

/// The swarm's tools in a request: their names, spelt as in a [`Talk`], and what the model gets of each.
pub fn tools(request: &Value) -> Vec<(String, &Value)> {
    match request {
        _ if request["messages"].is_array() => anthropic::tools(request),
        _ if request["contents"].is_array() => gemini::tools(request),
        _ => openai::tools(request),
    }
}

/// One event of a stream, named by its type.
fn event(event: &Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
}

/// A tool's name as all clients can spell it.
pub fn plain(name: &str) -> String {
    name.replace('-', "_")
}

/// A result is JSON, if its text or the last line of it ends with some.
fn result(text: &str) -> Value {
    let lines = [text, text.lines().last().unwrap_or_default()];
    let json = lines.map(|text| text.find('{').map_or(text, |start| &text[start..]));
    let read = json.iter().find_map(|json| serde_json::from_str(json).ok());
    read.unwrap_or_else(|| Value::from(text))
}
