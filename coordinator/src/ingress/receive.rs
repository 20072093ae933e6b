//! Takes one webhook in: verify, write down, answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use metrics::Counter;
use serde_json::{Value, json};
use skein_shared::id::Name;
use skein_shared::mail::Letter;
use skein_shared::slack::{self, Question, Said};
use skein_shared::time::Timestamp;
use skein_shared::triggers::{Incoming, Rejected};
use skein_shared::{Code, Refusal, json, limits};
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;
use tracing::warn;
use uuid::Uuid;

use super::delivery::{Delivery, NAME, invalid};
use super::gate::{Gate, Source, Taken, unknown};
use super::provider::{Answer, COMMAND, Notice, Reading, is_at, sender};
use crate::config::Provider;

/// A sender that takes longer than this for its body is cut off.
const BODY_TIME: Duration = Duration::from_secs(5);
/// How much of a body that cannot be read is kept, bytes.
const KEPT: usize = 256 * 1024;
/// Longest token that a provider asks to have signed, bytes.
const TOKEN: usize = 1024;

/// The routes of the ingress.
pub fn router(gate: impl Into<Arc<Gate>>) -> Router {
    Router::new()
        .route("/webhooks/{source}", post(webhook).get(challenge))
        // Where Agent Swarm's are, for senders that were set up for that.
        .route("/api/{source}/webhook", post(webhook).get(challenge))
        .route("/healthz", axum::routing::get(|| async { "ok\n" }))
        .fallback(|| async {
            refuse(&Refusal::new(Code::NotFound, "webhooks go to /webhooks/<source> or /webhooks/<provider>"))
        })
        .with_state(gate.into())
}

async fn webhook(
    State(gate): State<Arc<Gate>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let begun = Instant::now();
    let (source, outcome) = receive(&gate, &name, &headers, body).await;
    // What is refused was not acknowledged, and strangers may send any amount of it.
    if outcome.is_ok() {
        metrics::histogram!("skein_webhook_seconds").record(begun.elapsed());
    }
    count(source, &outcome);
    match outcome {
        Ok(outcome) => outcome.into_response(),
        Err(refusal) => refuse(&refusal),
    }
}

/// What becomes of most requests, and what somebody wants to hear of at once.
const COMMON: [&str; 3] = ["accepted", "duplicate", "validation_failed"];

/// Counts what is for none of the sources. Names that nobody configured would let a stranger fill the metrics.
const UNKNOWN: &str = "unknown";

/// Lets the counters of a source be there before it has sent anything: a rate needs a zero.
pub(super) fn expect(source: &str) {
    for outcome in COMMON {
        counter(source, outcome).increment(0);
    }
}

fn counter(source: &str, outcome: &'static str) -> Counter {
    metrics::counter!("skein_webhooks_total", "source" => source.to_owned(), "outcome" => outcome)
}

/// Counts what became of a request.
pub(super) fn count(source: &str, outcome: &Result<Outcome, Refusal>) {
    let label = match outcome {
        Ok(Outcome::Challenge(_)) => "challenge",
        Ok(Outcome::Answered(_)) => "answered",
        Ok(Outcome::Ignored(..)) => "ignored",
        Ok(Outcome::Taken(taken, _)) if taken.duplicate => "duplicate",
        Ok(Outcome::Taken(..)) => "accepted",
        Err(refusal) if refusal.code == Code::Unauthenticated => "validation_failed",
        Err(refusal) => refusal.code.as_str(),
    };
    counter(source, label).increment(1);
}

/// A provider asks by GET whether the secret is known here; the first of the sources answers.
async fn challenge(
    State(gate): State<Arc<Gate>>,
    Path(name): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let sources = gate.behind(&name);
    let Some(source) = sources.first() else { return refuse(&unknown()) };
    let Some(token) = query.get("crc_token").filter(|token| is_token(token)) else {
        return refuse(&invalid(
            "events come by POST; a GET needs a `crc_token` of letters, digits and `+/=-_.` to be signed"
                .to_owned(),
        ));
    };
    // Without a secret there is nothing that a proof could show.
    match source.secret().and_then(|secret| sender(source.provider).prove(token, secret)) {
        Some(proof) => Json(proof).into_response(),
        None => refuse(&Refusal::new(Code::NotFound, "this source has no challenge by GET")),
    }
}

/// Whether this may be signed for anybody who asks. Bodies are signed with the same secret, so what could be one must
/// not.
fn is_token(token: &str) -> bool {
    let plain = |letter: u8| letter.is_ascii_alphanumeric() || b"+/=-_.".contains(&letter);
    !token.is_empty() && token.len() <= TOKEN && token.bytes().all(plain)
}

pub(super) enum Outcome {
    Taken(Taken, Answer),
    Challenge(Value),
    /// A person has asked something, and this is shown to them.
    Answered(Value),
    /// Why, and what the sender would have got for it: some show that to a person.
    Ignored(&'static str, Answer),
}

impl IntoResponse for Outcome {
    fn into_response(self) -> Response {
        match self {
            Outcome::Challenge(answer)
            | Outcome::Answered(answer)
            | Outcome::Taken(_, Answer::Body(answer)) => Json(answer).into_response(),
            Outcome::Taken(_, Answer::Nothing) | Outcome::Ignored(_, Answer::Nothing) => {
                StatusCode::OK.into_response()
            }
            Outcome::Ignored(reason, _) => Json(json!({"ok": true, "ignored": reason})).into_response(),
            Outcome::Taken(Taken { receipt, duplicate, matched }, Answer::Receipt) => {
                // X and Linear take any other status than 200 for a failure, and send it again.
                let answer =
                    json!({"ok": true, "receipt": receipt, "matched": matched, "duplicate": duplicate});
                Json(answer).into_response()
            }
        }
    }
}

/// Takes a request in, and says of which source it is. Until one has signed it, that is the first that may have.
///
/// The order matters: nothing of a body is believed, and no delivery id used up, before the signature holds.
async fn receive<'a>(
    gate: &'a Gate,
    name: &str,
    headers: &HeaderMap,
    body: Body,
) -> (&'a str, Result<Outcome, Refusal>) {
    let Some(first) = gate.behind(name).first().copied() else { return (UNKNOWN, Err(unknown())) };
    let until = Gate::patience();
    let (body, _room) = match read(gate, body, until).await {
        Ok(read) => read,
        Err(refusal) => return (first.name.as_str(), Err(refusal)),
    };
    let delivery = Delivery { headers, body: &body, at: gate.intake.wall() };
    if sender(first.provider).knocks(&delivery) {
        return (
            first.name.as_str(),
            Ok(Outcome::Ignored("the sender looks whether somebody is here", Answer::Receipt)),
        );
    }
    match gate.source_of(name, &delivery) {
        Ok(source) => (source.name.as_str(), believe(gate, source, &delivery, until).await),
        Err(refusal) => (first.name.as_str(), Err(refusal)),
    }
}

/// Takes in what a source has signed.
async fn believe(
    gate: &Gate,
    source: &Source,
    delivery: &Delivery<'_>,
    until: Instant,
) -> Result<Outcome, Refusal> {
    let _turn = gate.turn(until).await?;
    let read = match sender(source.provider).read(delivery) {
        Ok(read) => read,
        Err(refusal) => {
            set_aside(gate, source, delivery.body, &refusal).await;
            return Err(refusal);
        }
    };
    match read {
        Reading::Challenge(answer) => Ok(Outcome::Challenge(answer)),
        Reading::Ignored(reason) => Ok(Outcome::Ignored(reason, Answer::Receipt)),
        Reading::Event(notice) => take_in(gate, source, *notice).await,
    }
}

pub(super) async fn take_in(gate: &Gate, source: &Source, notice: Notice) -> Result<Outcome, Refusal> {
    let answer = notice.answer.clone();
    let incoming = incoming(notice, &source.name, source.provider, gate.intake.now())?;
    let mut incoming = Incoming { unsigned: !source.is_signed(), ..incoming };
    if source.provider == Provider::Slack
        && let Some(workspace) = gate.slack.of(&source.swarm)
    {
        if !workspace.may_speak(&incoming.event, incoming.context["author"].as_str()).await? {
            return Ok(Outcome::Ignored("its author is none of those who may speak to this swarm", answer));
        }
        // Agents' names and ids are not for whoever reaches the door.
        if source.is_signed()
            && let Some(question) = question(&incoming)
        {
            return Ok(Outcome::Answered(answer_to(gate, &source.swarm, question).await?));
        }
        incoming.said = Said::of(&incoming.payload).map(Box::new);
    }
    if source.provider == Provider::Agentmail {
        if !is_wanted(source, &incoming.payload["message"]) {
            return Ok(Outcome::Ignored(
                "it is of none of the domains that this source takes mail of",
                answer,
            ));
        }
        incoming.letter = Letter::of(&incoming.payload).map(Box::new);
    }
    incoming.activity = source.activity(&incoming.event, &incoming.payload).map(Box::new);
    let taken = gate.intake.deliver(&source.swarm, incoming).await?;
    Ok(Outcome::Taken(taken, answer))
}

/// What somebody asks the swarm by a command of Slack's.
fn question(incoming: &Incoming) -> Option<Question> {
    Question::of(incoming.context["action"].as_str().filter(|_| incoming.event == COMMAND)?)
}

/// Whoever asks sees it, and nobody else.
async fn answer_to(gate: &Gate, swarm: &Name, question: Question) -> Result<Value, Refusal> {
    let text = match question {
        Question::Help => slack::help().to_owned(),
        Question::Status => slack::status(&gate.intake.survey(swarm).await?),
    };
    Ok(json!({ "response_type": "ephemeral", "text": text }))
}

/// Whether inbox and sender of a letter are of the domains that the source is for.
fn is_wanted(source: &Source, message: &Value) -> bool {
    let inbox = message["inbox_id"].as_str().unwrap_or_default();
    let senders = Letter::senders(message);
    let sent = source.sender_domains.is_empty()
        || senders.iter().any(|sender| is_at(sender, &source.sender_domains));
    is_at(inbox, &source.inbox_domains) && sent
}

/// An event as the triggers take it.
///
/// # Errors
/// `invalid_argument` for a name or an id that is too long, `too_large` for a body that is.
pub(super) fn incoming(
    notice: Notice,
    source: &Name,
    provider: Provider,
    received_at: Timestamp,
) -> Result<Incoming, Refusal> {
    let Notice { delivery, event, context, payload, .. } = notice;
    // Numbers may take more room than they were sent in.
    if json::length(&payload) > limits::WEBHOOK {
        let problem = format!("the event takes more than {} bytes written out", limits::WEBHOOK);
        return Err(Refusal::new(Code::TooLarge, problem));
    }
    if event.is_empty() || event.len() > NAME || delivery.len() > NAME {
        let problem = format!("the event has no name, or its name or id is longer than {NAME} bytes");
        return Err(invalid(problem));
    }
    Ok(Incoming {
        receipt: Uuid::now_v7(),
        delivery,
        source: source.to_string(),
        provider: provider.as_str().to_owned(),
        event,
        context: context.into_value(),
        payload,
        received_at,
        unsigned: false,
        said: None,
        letter: None,
        activity: None,
    })
}

/// Keeps what a known sender has sent and nobody can read. Strangers could fill the store with it.
pub(super) async fn set_aside(gate: &Gate, source: &Source, body: &[u8], refusal: &Refusal) {
    if !source.is_signed() {
        return;
    }
    let kept = &body[..body.len().min(KEPT)];
    let rejected = Rejected {
        receipt: Uuid::now_v7(),
        source: source.name.to_string(),
        provider: source.provider.as_str().to_owned(),
        problem: refusal.message.clone(),
        body: sender(source.provider).kept(kept),
        received_at: gate.intake.now(),
    };
    // The sender is told of its mistake all the same.
    if let Err(refusal) = gate.intake.reject(&source.swarm, rejected).await {
        warn!(source = %source.name, %refusal, "an unreadable webhook was not written down");
    }
}

/// Reads a body, for which there is room as long as the permit lives.
async fn read(gate: &Gate, body: Body, until: Instant) -> Result<(Vec<u8>, SemaphorePermit<'_>), Refusal> {
    let (mut body, mut deadline) = (Limited::new(body, gate.largest), Instant::now() + BODY_TIME);
    let (mut read, mut room) = (Vec::new(), gate.room(0, until).await?);
    loop {
        let late = || Refusal::new(Code::WaitTimeout, "the body took too long to arrive");
        let frame = tokio::time::timeout_at(deadline, body.frame()).await.map_err(|_| late())?;
        let bytes = match frame {
            None => return Ok((read, room)),
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            Some(Err(error)) if error.is::<LengthLimitError>() => {
                let problem = format!("the body is larger than {} bytes", gate.largest);
                return Err(Refusal::new(Code::TooLarge, problem));
            }
            Some(Err(_)) => return Err(Refusal::new(Code::InvalidArgument, "the body broke off")),
        };
        let waiting = Instant::now();
        room.merge(gate.room(bytes.len(), until).await?);
        // That was not the sender's doing.
        deadline += waiting.elapsed();
        read.extend_from_slice(&bytes);
    }
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
