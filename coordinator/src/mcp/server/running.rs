//! A call under way: heard while it goes on, answered with a result, a question or a task.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, ElicitRequestParams, InputRequest, InputRequiredResult, ProgressNotificationParam,
    ProgressToken, RequestStateCodec, SealOptions,
};
use rmcp::service::{Peer, RoleServer, ServiceError};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use uuid::Uuid;

use super::{FIRST_PROGRESS, PROGRESS, wire};
use crate::auth::Principal;
use crate::mcp::client::{Client, Questions};
use crate::mcp::dispatch::{Progress, Told};
use crate::mcp::result::{Reply, Then};

/// The call itself. It ends when it is dropped.
pub(super) type Running = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// How long a client may take for an answer.
pub(super) const ANSWERED_WITHIN: Duration = Duration::from_secs(600);
/// A beat is told apart from the one before it by this much, for progress has to rise.
const BEAT: f64 = 1e-3;

/// A call with an ear to it.
pub(super) struct Heard {
    run: Running,
    told: watch::Receiver<Told>,
    beat: Interval,
    /// How far it is; the protocol wants a number that rises.
    done: f64,
}

/// What is heard of a call.
pub(super) enum Sound {
    Over(Reply),
    Step { done: f64, of: Option<f64>, message: String },
    Log(String),
}

/// A place for what a call says, and the ear.
pub(super) fn channel(name: &str) -> (watch::Sender<Told>, watch::Receiver<Told>) {
    watch::channel(Told::Alive(format!("{name} is running")))
}

impl Heard {
    pub(super) fn new(run: Running, told: watch::Receiver<Told>) -> Self {
        Self { run, told, beat: beats(), done: 0.0 }
    }

    /// The same of a call that has said already how far it is.
    pub(super) fn going_on_from(mut self, done: f64) -> Self {
        self.done = done;
        self
    }

    /// The next that is heard. What was said comes before the call goes on, so nothing is said over.
    pub(super) async fn next(&mut self) -> Sound {
        tokio::select! {
            biased;
            Ok(()) = self.told.changed() => {}
            reply = &mut self.run => return Sound::Over(reply),
            _ = self.beat.tick() => {}
        }
        let told = self.told.borrow_and_update().clone();
        self.beat.reset();
        match told {
            Told::Log(text) => Sound::Log(text),
            Told::Alive(message) => {
                self.done += 1.0;
                Sound::Step { done: self.done, of: None, message }
            }
            Told::Step { done, of, message } => {
                self.done = if done > self.done { done } else { self.done + BEAT };
                Sound::Step { done: self.done, of: Some(of), message }
            }
        }
    }
}

/// The signs of life of what says nothing itself.
fn beats() -> Interval {
    let mut beat = interval_at(Instant::now() + FIRST_PROGRESS, PROGRESS);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beat
}

pub(super) fn progress(token: &ProgressToken, sound: Sound) -> Option<ProgressNotificationParam> {
    let Sound::Step { done, of, message } = sound else { return None };
    let mut told = ProgressNotificationParam::new(token.clone(), done).with_message(message);
    told.total = of;
    Some(told)
}

/// Keeps what a tool has put down until its client comes back with answers. The client carries it, sealed for
/// this caller and this request; another node cannot open it, and the client begins anew there.
#[derive(Clone)]
pub(super) struct Seal(Arc<RequestStateCodec>);

impl Seal {
    pub(super) fn new() -> Self {
        let key = [Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4()].map(Uuid::into_bytes).concat();
        Self(Arc::new(RequestStateCodec::new_unchecked(key)))
    }

    pub(super) fn close(&self, who: &Principal, of: &str, state: &Value) -> Result<String, ErrorData> {
        let bound = bound(who, of);
        let options = SealOptions::new().associated_data(&bound).ttl(ANSWERED_WITHIN);
        let sealed = self.0.seal_json_with(state, &options);
        sealed.map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    pub(super) fn open(&self, who: &Principal, of: &str, sealed: Option<&str>) -> Result<Value, ErrorData> {
        let Some(sealed) = sealed else { return Ok(Value::Null) };
        self.0.open_json_with(sealed, &bound(who, of)).map_err(|_| {
            let problem = "requestState: it is too old, or not as it was given to you for this request; call \
                           again without it";
            ErrorData::invalid_params(problem, None)
        })
    }
}

fn bound(who: &Principal, of: &str) -> Vec<u8> {
    [who.swarm.as_str(), who.instance.as_str(), of].join("\n").into_bytes()
}

/// What a client of the stateless revision gets.
pub(super) fn response(
    seal: &Seal,
    who: &Principal,
    of: &str,
    client: &Client,
    mut reply: Reply,
) -> Result<CallToolResponse, ErrorData> {
    Ok(match std::mem::take(&mut reply.then) {
        Then::Nothing => wire::finished(reply).into(),
        Then::Goes(job) => wire::begun(&job).into(),
        Then::Takes(ability) => return Err(wire::lacks(ability)),
        Then::Asks(questions) => input_required(seal, who, of, client, &questions)?.into(),
    })
}

pub(super) fn input_required(
    seal: &Seal,
    who: &Principal,
    of: &str,
    client: &Client,
    questions: &Questions,
) -> Result<InputRequiredResult, ErrorData> {
    askable(client, questions)?;
    let state = match &questions.state {
        Value::Null => None,
        state => Some(seal.close(who, of, state)?),
    };
    Ok(InputRequiredResult::new(Some(wire::requests(&questions.asked)?), state))
}

/// A client is asked only what it can answer.
fn askable(client: &Client, questions: &Questions) -> Result<(), ErrorData> {
    let missing = questions.asked.values().map(|question| question.takes).find(|takes| !client.can(*takes));
    missing.map_or(Ok(()), |ability| Err(wire::lacks(ability)))
}

/// What came of the questions, or nothing when nobody has answered in time, or the client cannot ask after all.
type Answers = Option<BTreeMap<String, Value>>;

/// Asks the client of a session, which gets questions while its call is under way, and hears meanwhile that it is
/// alive: a person may take longer than a client waits for something silent.
pub(super) async fn ask(
    peer: &Peer<RoleServer>,
    client: &Client,
    questions: &Questions,
    token: Option<&ProgressToken>,
    done: &mut f64,
) -> Result<Answers, ErrorData> {
    let mut asking = std::pin::pin!(ask_all(peer, client, questions));
    let mut beat = beats();
    loop {
        tokio::select! {
            answers = asking.as_mut() => return answers,
            _ = beat.tick() => {}
        }
        *done += 1.0;
        let message = "waiting for the person".to_owned();
        let alive = Sound::Step { done: *done, of: None, message };
        if let Some(told) = token.and_then(|token| progress(token, alive)) {
            // A client that cannot be told has gone, which our caller hears.
            let _ = peer.notify_progress(told).await;
        }
    }
}

async fn ask_all(
    peer: &Peer<RoleServer>,
    client: &Client,
    questions: &Questions,
) -> Result<Answers, ErrorData> {
    askable(client, questions)?;
    let mut answers = BTreeMap::new();
    for (key, request) in wire::requests(&questions.asked)? {
        let Some(answer) = ask_one(peer, request).await? else { return Ok(None) };
        answers.insert(key, answer);
    }
    Ok(Some(answers))
}

/// What came of one question. A client that said at its beginning that it can ask may answer all the same that it knows
/// no such method, or what is no answer.
#[expect(deprecated, reason = "the older revision has them")]
async fn ask_one(peer: &Peer<RoleServer>, request: InputRequest) -> Result<Option<Value>, ErrorData> {
    let answer = match request {
        InputRequest::Elicitation(request) => {
            let params: ElicitRequestParams = request.params;
            // Its client is told when the time is over: the person would answer what is asked elsewhere by then.
            let asking = peer.create_elicitation_with_timeout(params, Some(ANSWERED_WITHIN));
            asking.await.map(serde_json::to_value)
        }
        InputRequest::CreateMessage(request) => {
            in_time(peer.create_message(request.params)).await.map(serde_json::to_value)
        }
        InputRequest::ListRoots(_) => in_time(peer.list_roots()).await.map(serde_json::to_value),
        _ => return Err(ErrorData::internal_error("a question that no client knows", None)),
    };
    let failed =
        |error: String| ErrorData::internal_error(format!("the client did not answer: {error}"), None);
    match answer {
        Ok(answer) => answer.map(Some).map_err(|error| failed(error.to_string())),
        Err(ServiceError::Timeout { .. } | ServiceError::McpError(_) | ServiceError::UnexpectedResponse) => {
            Ok(None)
        }
        Err(error) => Err(failed(error.to_string())),
    }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, ServiceError>>) -> Result<T, ServiceError> {
    let late = |_| Err(ServiceError::Timeout { timeout: ANSWERED_WITHIN });
    tokio::time::timeout(ANSWERED_WITHIN, answer).await.unwrap_or_else(late)
}

/// Tells the client of a session what a tool has logged.
#[expect(deprecated, reason = "the older revision has it")]
pub(super) async fn log(peer: &Peer<RoleServer>, text: String) {
    use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
    let log = LoggingMessageNotificationParam::new(LoggingLevel::Info, Value::String(text));
    let _ = peer.notify_logging_message(log).await;
}

/// How a call may be heard.
pub(super) fn said(told: watch::Sender<Told>, heard: bool) -> Progress {
    if heard { Progress::heard(told) } else { Progress::unheard(told) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Design: first byte at once, and a sign of life every 15 seconds.
    #[tokio::test(start_paused = true)]
    async fn a_silent_call_is_heard_of_soon_and_then_every_fifteen_seconds() {
        let (_said, ear) = channel("bash");
        let mut heard = Heard::new(Box::pin(std::future::pending()), ear);
        let begun = Instant::now();
        let mut times = Vec::new();
        let mut last = 0.0;
        for _ in 0..4 {
            let Sound::Step { done, .. } = heard.next().await else { panic!("it is over") };
            assert!(done > last, "progress rises");
            last = done;
            times.push(begun.elapsed().as_millis());
        }
        assert_eq!(times, [250, 15_250, 30_250, 45_250]);
    }
}
