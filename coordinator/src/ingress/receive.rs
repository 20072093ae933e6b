//! Takes one webhook in: verify, write down, answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use secrecy::SecretString;
use serde_json::{Value, json};
use skein_shared::id::Name;
use skein_shared::time::Timestamp;
use skein_shared::triggers::Incoming;
use skein_shared::{Code, Refusal, limits};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::provider::Normalised;
use super::signature;
use crate::config::{self, Provider};

/// A sender that takes longer than this for its body is cut off.
const BODY_TIME: Duration = Duration::from_secs(30);
/// Longest delivery id or event name, bytes. GitHub's are 36 and some 30.
const HEADER: usize = 256;

/// Where verified events go.
#[async_trait]
pub trait Intake: Send + Sync + 'static {
    fn now(&self) -> Timestamp;

    /// Writes the event down, and returns once it cannot be lost.
    async fn deliver(&self, swarm: &Name, incoming: Incoming) -> Result<Taken, Refusal>;
}

/// How an event was taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// For a duplicate, that of the first delivery.
    pub receipt: Uuid,
    pub duplicate: bool,
    /// Waiting instances that it resumes and agents that it starts.
    pub matched: usize,
}

/// What the door knows: its sources and its limits.
pub struct Gate {
    sources: HashMap<String, Source>,
    intake: Arc<dyn Intake>,
    largest: usize,
    permits: Semaphore,
}

struct Source {
    name: Name,
    provider: Provider,
    swarm: Name,
    secret: SecretString,
}

impl Gate {
    pub fn new(sources: &[config::Source], limits: &config::Limits, intake: Arc<dyn Intake>) -> Self {
        let sources = sources.iter().filter_map(|source| {
            let (name, provider, swarm) = (source.name.clone(), source.provider, source.swarm.clone());
            let secret = source.secret.clone()?;
            Some((name.to_string(), Source { name, provider, swarm, secret }))
        });
        Self {
            sources: sources.collect(),
            intake,
            largest: limits.webhook_bytes,
            permits: Semaphore::new(limits.webhooks_in_flight),
        }
    }
}

/// The routes of the ingress.
pub fn router(gate: Gate) -> Router {
    Router::new()
        .route("/webhooks/{source}", post(webhook))
        .route("/healthz", axum::routing::get(|| async { "ok\n" }))
        .fallback(|| async { refuse(&Refusal::new(Code::NotFound, "webhooks go to /webhooks/<source>")) })
        .with_state(Arc::new(gate))
}

async fn webhook(
    State(gate): State<Arc<Gate>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let outcome = receive(&gate, &name, &headers, body).await;
    // Names that nobody configured would let a stranger fill the metrics.
    let source = if gate.sources.contains_key(&name) { name } else { "unknown".to_owned() };
    let label = match &outcome {
        Ok(Outcome::Ignored(_)) => "ignored",
        Ok(Outcome::Taken(taken)) if taken.duplicate => "duplicate",
        Ok(Outcome::Taken(_)) => "accepted",
        Err(refusal) => refusal.code.as_str(),
    };
    metrics::counter!("skein_webhooks_total", "source" => source, "outcome" => label).increment(1);
    match outcome {
        Ok(outcome) => outcome.into_response(),
        Err(refusal) => refuse(&refusal),
    }
}

enum Outcome {
    Taken(Taken),
    Ignored(&'static str),
}

impl IntoResponse for Outcome {
    fn into_response(self) -> Response {
        match self {
            Outcome::Ignored(reason) => {
                (StatusCode::OK, Json(json!({"ok": true, "ignored": reason}))).into_response()
            }
            Outcome::Taken(Taken { receipt, duplicate, matched }) => {
                let status = if duplicate { StatusCode::OK } else { StatusCode::ACCEPTED };
                let answer =
                    json!({"ok": true, "receipt": receipt, "matched": matched, "duplicate": duplicate});
                (status, Json(answer)).into_response()
            }
        }
    }
}

/// The order matters: nothing of a body is believed, and no delivery id used up, before the signature holds.
async fn receive(gate: &Gate, name: &str, headers: &HeaderMap, body: Body) -> Result<Outcome, Refusal> {
    let source = gate.sources.get(name).ok_or_else(|| {
        Refusal::new(Code::NotFound, "there is no webhook source of this name; see [[ingress.source]]")
    })?;
    let _permit = gate.permits.try_acquire().map_err(|_| {
        Refusal::new(Code::Overloaded, "too many webhooks at a time; send it again").retry_after(1000)
    })?;
    let body = read(body, gate.largest).await?;
    let names = source.provider.headers();
    let signed =
        text(headers, names.signature).is_some_and(|header| signature::verify(&source.secret, header, &body));
    if !signed {
        let problem =
            format!("{} does not match the body; sign it with the secret of this source", names.signature);
        return Err(Refusal::new(Code::Unauthenticated, problem));
    }
    let delivery = required(headers, names.delivery)?;
    let event = required(headers, names.event)?;
    let payload = parse(&body)?;
    let context = match source.provider.normalise(event, &payload) {
        Normalised::Event(context) => context,
        Normalised::Ignored(reason) => return Ok(Outcome::Ignored(reason)),
    };
    let incoming = Incoming {
        receipt: Uuid::now_v7(),
        delivery: delivery.to_owned(),
        source: source.name.to_string(),
        provider: source.provider.as_str().to_owned(),
        event: event.to_owned(),
        context: Value::Object(context),
        payload,
        received_at: gate.intake.now(),
    };
    gate.intake.deliver(&source.swarm, incoming).await.map(Outcome::Taken)
}

async fn read(body: Body, largest: usize) -> Result<Bytes, Refusal> {
    let collected = tokio::time::timeout(BODY_TIME, Limited::new(body, largest).collect()).await;
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(Refusal::new(Code::TooLarge, format!("the body is larger than {largest} bytes")))
        }
        Ok(Err(_)) => Err(Refusal::new(Code::InvalidArgument, "the body broke off")),
        Err(_) => Err(Refusal::new(Code::WaitTimeout, "the body took too long to arrive")),
    }
}

fn parse(body: &[u8]) -> Result<Value, Refusal> {
    let payload: Value = serde_json::from_slice(body).map_err(|error| {
        let problem = format!("the body is not JSON ({error}); set the content type to application/json");
        Refusal::new(Code::InvalidArgument, problem)
    })?;
    if depth(&payload) > limits::JSON_DEPTH {
        let problem = format!("the body is nested deeper than {} levels", limits::JSON_DEPTH);
        return Err(Refusal::new(Code::InvalidArgument, problem));
    }
    Ok(payload)
}

/// How deep the value goes. The parser has already refused what could overrun the stack.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn required<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, Refusal> {
    let value = text(headers, name).map(str::trim).unwrap_or_default();
    if value.is_empty() || value.len() > HEADER {
        let problem = format!("the header {name} is missing, or longer than {HEADER} bytes");
        return Err(Refusal::new(Code::InvalidArgument, problem));
    }
    Ok(value)
}

/// A refusal as an answer: `{code, message}`.
fn refuse(refusal: &Refusal) -> Response {
    let status = StatusCode::from_u16(refusal.code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let answer = json!({"code": refusal.code, "message": refusal.message});
    let mut response = (status, Json(answer)).into_response();
    if let Some(millis) = refusal.retry_after_ms {
        response.headers_mut().insert(header::RETRY_AFTER, millis.div_ceil(1000).max(1).into());
    }
    response
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use axum::http::{Request, request};
    use hmac::{Hmac, KeyInit, Mac};
    use sha2::Sha256;
    use tower::ServiceExt;

    use super::*;

    #[derive(Default)]
    struct Ledger {
        seen: Mutex<Vec<(Name, Incoming)>>,
        down: bool,
    }

    #[async_trait]
    impl Intake for Ledger {
        fn now(&self) -> Timestamp {
            Timestamp(1_790_000_000_000)
        }

        async fn deliver(&self, swarm: &Name, incoming: Incoming) -> Result<Taken, Refusal> {
            if self.down {
                return Err(Refusal::new(Code::Unavailable, "the store is away").retry_after(1500));
            }
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, first)) = seen.iter().find(|(_, first)| first.delivery == incoming.delivery) {
                return Ok(Taken { receipt: first.receipt, duplicate: true, matched: 0 });
            }
            let receipt = incoming.receipt;
            seen.push((swarm.clone(), incoming));
            Ok(Taken { receipt, duplicate: false, matched: 1 })
        }
    }

    fn door(ledger: &Arc<Ledger>) -> Router {
        let source = |name: &str, provider| config::Source {
            name: Name::parse(name).unwrap(),
            provider,
            swarm: Name::parse("build").unwrap(),
            secret: Some(SecretString::from("hush")),
            secret_file: None,
        };
        let limits = config::Limits { webhook_bytes: 1000, ..config::Limits::default() };
        let sources = [source("hub", Provider::Github), source("ci", Provider::Generic)];
        router(Gate::new(&sources, &limits, Arc::clone(ledger) as Arc<dyn Intake>))
    }

    fn sign(body: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(b"hush").unwrap();
        mac.update(body.as_bytes());
        let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256={hex}")
    }

    fn hub(body: &str) -> request::Builder {
        Request::post("/webhooks/hub")
            .header("x-hub-signature-256", sign(body))
            .header("x-github-delivery", "d-1")
            .header("x-github-event", "issues")
    }

    async fn send(door: &Router, request: Request<Body>) -> (u16, Value) {
        let response = door.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    const ISSUE: &str = r#"{"action":"opened","issue":{"number":4},"repository":{"full_name":"acme/api"}}"#;

    #[tokio::test]
    async fn a_signed_event_is_written_down_once() {
        let ledger = Arc::new(Ledger::default());
        let door = door(&ledger);
        let (status, answer) = send(&door, hub(ISSUE).body(ISSUE.into()).unwrap()).await;
        assert_eq!((status, &answer["duplicate"]), (202, &json!(false)), "{answer}");
        let (status, again) = send(&door, hub(ISSUE).body(ISSUE.into()).unwrap()).await;
        assert_eq!((status, &again["duplicate"]), (200, &json!(true)));
        assert_eq!(again["receipt"], answer["receipt"]);

        let seen = ledger.seen.lock().unwrap();
        let [(swarm, incoming)] = seen.as_slice() else { panic!("one event") };
        assert_eq!(swarm.as_str(), "build");
        assert_eq!((incoming.source.as_str(), incoming.provider.as_str()), ("hub", "github"));
        assert_eq!(incoming.context, json!({"repo": "acme/api", "action": "opened", "number": 4}));
        assert_eq!(incoming.payload["issue"]["number"], 4);
    }

    #[tokio::test]
    async fn what_is_not_signed_is_not_believed() {
        let ledger = Arc::new(Ledger::default());
        let door = door(&ledger);
        let tampered = ISSUE.replace("opened", "closed");
        let unsigned = Request::post("/webhooks/hub")
            .header("x-github-delivery", "d-1")
            .header("x-github-event", "issues")
            .body(ISSUE.into());
        for request in [hub(ISSUE).body(tampered.into()), hub("other").body(ISSUE.into()), unsigned] {
            let (status, answer) = send(&door, request.unwrap()).await;
            assert_eq!((status, &answer["code"]), (401, &json!("unauthenticated")));
        }
        // A forger has not used up the delivery's id.
        let (status, _) = send(&door, hub(ISSUE).body(ISSUE.into()).unwrap()).await;
        assert_eq!(status, 202);
    }

    #[tokio::test]
    async fn malformed_requests_are_told_what_is_wrong() {
        let ledger = Arc::new(Ledger::default());
        let door = door(&ledger);
        let large = format!("\"{}\"", "x".repeat(2000));
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        let nameless = Request::post("/webhooks/hub")
            .header("x-hub-signature-256", sign(ISSUE))
            .header("x-github-event", "issues");
        let elsewhere = Request::post("/webhooks/other").header("x-hub-signature-256", sign(ISSUE));
        for (request, status, code) in [
            (hub(&large).body(large.clone().into()), 413, "too_large"),
            (hub("{oops").body("{oops".into()), 400, "invalid_argument"),
            (hub(&deep).body(deep.clone().into()), 400, "invalid_argument"),
            (nameless.body(ISSUE.into()), 400, "invalid_argument"),
            (elsewhere.body(ISSUE.into()), 404, "not_found"),
            (Request::get("/").body(Body::empty()), 404, "not_found"),
        ] {
            let (got, answer) = send(&door, request.unwrap()).await;
            assert_eq!((got, answer["code"].as_str()), (status, Some(code)), "{answer}");
            assert!(answer["message"].as_str().is_some_and(|message| !message.contains("hush")));
        }
        assert!(ledger.seen.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn other_senders_use_the_plain_headers() {
        let ledger = Arc::new(Ledger::default());
        let body = r#"{"title":"down"}"#;
        let request = Request::post("/webhooks/ci")
            .header("x-signature-256", sign(body))
            .header("x-delivery-id", "7")
            .header("x-event", "alert")
            .body(body.into());
        assert_eq!(send(&door(&ledger), request.unwrap()).await.0, 202);
        assert_eq!(ledger.seen.lock().unwrap()[0].1.context, json!({"title": "down"}));
    }

    #[tokio::test]
    async fn a_ping_is_answered_and_forgotten() {
        let ledger = Arc::new(Ledger::default());
        let ping = Request::post("/webhooks/hub")
            .header("x-hub-signature-256", sign("{}"))
            .header("x-github-delivery", "d-0")
            .header("x-github-event", "ping")
            .body("{}".into());
        let (status, answer) = send(&door(&ledger), ping.unwrap()).await;
        assert_eq!((status, &answer["ignored"]), (200, &json!("ping")));
        assert!(ledger.seen.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_cannot_be_written_down_is_not_accepted() {
        let ledger = Arc::new(Ledger { down: true, ..Ledger::default() });
        let response = door(&ledger).oneshot(hub(ISSUE).body(Body::from(ISSUE)).unwrap()).await.unwrap();
        assert_eq!(response.status().as_u16(), 503);
        assert_eq!(response.headers()["retry-after"], "2");
    }
}
