//! One call of the Web API from end to end: its turn, the request, Slack's limits, and what the answer says.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use secrecy::SecretString;
use serde_json::{Map, Value};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;
use tracing::debug;
use url::{Url, form_urlencoded};

use super::error::Error;
use super::http::{Http, whole};
use super::method::{Form, Method, Token};
use super::pace::Pace;
use crate::https::{Failure, bearer, retry_after};

/// How long a call may take with all its pauses. Agents wait for it.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long one try may take.
pub(super) const TRY: Duration = Duration::from_secs(10);
/// Pause before a call that Slack failed at is sent again; it doubles.
const AGAIN: Duration = Duration::from_millis(500);
/// How often a call is tried, at most.
const TRIES: u32 = 4;
/// What Slack wants when it does not say how long to wait.
const USUAL_PAUSE: Duration = Duration::from_secs(30);
/// What is believed of it at most: more is a mistake, and no moment so far away can be written down.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// Largest answer, bytes. A page of 200 long messages has less.
const ANSWER: u64 = 16 * 1024 * 1024;

/// Arguments of a call; those that are null are left out.
pub(super) type Args = Map<String, Value>;

/// The turn of those who write one message, held while a request of it is on its way. It has the moment at which the
/// last one failed, which may be there all the same.
pub(super) type Line = OwnedMutexGuard<Option<Instant>>;

pub(super) struct Client {
    pub(super) http: Arc<Http>,
    bot: SecretString,
    app: Option<SecretString>,
    pace: Mutex<Pace>,
}

impl Client {
    pub(super) fn new(api: Url, bot: SecretString, app: Option<SecretString>) -> Result<Self, Error> {
        Ok(Self { http: Arc::new(Http::new(api)?), bot, app, pace: Mutex::default() })
    }

    pub(super) fn has_app_token(&self) -> bool {
        self.app.is_some()
    }

    /// Calls a method. What Slack turned away for its limits, and what it cannot have got, is sent again within
    /// [`PATIENCE`]; what it may have got only if that does no harm.
    pub(super) async fn call(&self, method: &Method, args: Args) -> Result<Value, Error> {
        self.call_in(method, args, &mut None).await
    }

    /// The same in a line. Whoever comes next in it waits for what is on its way, also when nobody else does any more.
    pub(super) async fn call_in(
        &self,
        method: &Method,
        args: Args,
        line: &mut Option<Line>,
    ) -> Result<Value, Error> {
        let end = Instant::now() + PATIENCE;
        let queue = queue(method, &args);
        let body = encoded(method.form, &args);
        let mut pause = AGAIN;
        for left in (0..TRIES).rev() {
            self.turn(method, &queue, end).await?;
            let problem = match self.attempt(method, body.clone(), end, line).await {
                Ok(answer) => match understood(method, &answer)? {
                    Said::Answer(answer) => return Ok(answer),
                    Said::Wait(wait) => {
                        debug!(method = method.name, ?wait, "Slack wants fewer calls");
                        self.pace.lock().await.hold(&queue, method.per_minute, Instant::now(), wait);
                        if left == 0 || Instant::now() + wait > end {
                            return Err(Error::Limited { method: method.name, pause: wait });
                        }
                        continue;
                    }
                    Said::Failed(problem) => Error::Unanswered { method: method.name, problem },
                },
                Err(failure) => failure.of(method.name),
            };
            let again = method.repeatable || matches!(problem, Error::Unreachable { .. });
            if !again || !problem.is_passing() || left == 0 || Instant::now() + pause > end {
                return Err(problem);
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Err(Error::Limited { method: method.name, pause: USUAL_PAUSE })
    }

    /// Waits until the call may go.
    async fn turn(&self, method: &Method, queue: &str, end: Instant) -> Result<(), Error> {
        let now = Instant::now();
        let wait = self.pace.lock().await.turn(queue, method.per_minute, now, end - now);
        let wait = wait.ok_or(Error::Limited { method: method.name, pause: PATIENCE })?;
        tokio::time::sleep(wait).await;
        Ok(())
    }

    async fn attempt(
        &self,
        method: &Method,
        body: Bytes,
        end: Instant,
        line: &mut Option<Line>,
    ) -> Result<Response<Bytes>, Failure> {
        let kind = match method.form {
            Form::Urlencoded => "application/x-www-form-urlencoded",
            Form::Json => "application/json; charset=utf-8",
        };
        let token = match method.token {
            Token::Bot => &self.bot,
            Token::App => self.app.as_ref().unwrap_or(&self.bot),
        };
        let request = Request::post(self.http.url(method.name))
            .header(CONTENT_TYPE, kind)
            .header(AUTHORIZATION, bearer(token)?)
            .body(whole(body))
            .map_err(|error| Failure::Unreachable(error.to_string()))?;
        let patience = TRY.min(end.saturating_duration_since(Instant::now()));
        let (http, mut held) = (Arc::clone(&self.http), line.take());
        // In a task of its own, for what is on its way cannot be called back.
        let sending = tokio::spawn(async move {
            let answer = http.send(request, ANSWER, patience).await;
            if let Some(line) = &mut held {
                let is_known = answer.as_ref().is_ok_and(|answer| !answer.status().is_server_error());
                **line = (!is_known).then(Instant::now);
            }
            (answer, held)
        });
        let (answer, held) = sending.await.map_err(|panic| Failure::Unanswered(panic.to_string()))?;
        *line = held;
        answer
    }

    /// The header for the bot's own files.
    pub(super) fn bot_header(&self) -> Result<HeaderValue, Failure> {
        bearer(&self.bot)
    }
}

/// What Slack counts together.
fn queue(method: &Method, args: &Args) -> String {
    match args.get("channel").filter(|_| !method.repeatable).and_then(Value::as_str) {
        Some(channel) => format!("{} {channel}", method.name),
        None => method.name.to_owned(),
    }
}

fn encoded(form: Form, args: &Args) -> Bytes {
    let given = args.iter().filter(|(_, value)| !value.is_null());
    match form {
        Form::Json => {
            let given: Map<String, Value> =
                given.map(|(name, value)| (name.clone(), value.clone())).collect();
            Value::Object(given).to_string().into()
        }
        Form::Urlencoded => {
            let mut form = form_urlencoded::Serializer::new(String::new());
            for (name, value) in given {
                match value {
                    Value::String(text) => form.append_pair(name, text),
                    value => form.append_pair(name, &value.to_string()),
                };
            }
            form.finish().into()
        }
    }
}

enum Said {
    Answer(Value),
    /// It was turned away, and may come again after this.
    Wait(Duration),
    /// Slack is not well.
    Failed(String),
}

fn understood(method: &Method, answer: &Response<Bytes>) -> Result<Said, Error> {
    let status = answer.status();
    let wait = || retry_after(answer).unwrap_or(USUAL_PAUSE).min(LONGEST_PAUSE);
    if status == StatusCode::TOO_MANY_REQUESTS {
        return Ok(Said::Wait(wait()));
    }
    if status.is_server_error() {
        return Ok(Said::Failed(format!("HTTP status {}", status.as_u16())));
    }
    let garbled = |problem: String| Error::Garbled { method: method.name, problem };
    let body: Value = serde_json::from_slice(answer.body())
        .map_err(|_| garbled(format!("HTTP status {} without JSON", status.as_u16())))?;
    match (body["ok"].as_bool(), body["error"].as_str()) {
        (Some(true), _) => Ok(Said::Answer(body)),
        (Some(false), Some("ratelimited" | "rate_limited")) => Ok(Said::Wait(wait())),
        (Some(false), Some(error)) => Err(Error::Refused {
            method: method.name,
            error: error.chars().take(100).collect(),
            needed: body["needed"].as_str().map(str::to_owned),
        }),
        _ => Err(garbled("there is no `ok` in it".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use http::header::RETRY_AFTER;

    use super::*;
    use crate::slack::method::POST;

    #[test]
    fn a_pause_that_no_clock_can_hold_is_cut() {
        for (wanted, pause) in [
            ("7", Duration::from_secs(7)),
            ("18446744073709551615", LONGEST_PAUSE),
            ("soon", USUAL_PAUSE),
            ("-1", USUAL_PAUSE),
        ] {
            let answer =
                Response::builder().status(429).header(RETRY_AFTER, wanted).body(Bytes::new()).unwrap();
            let Ok(Said::Wait(told)) = understood(&POST, &answer) else { panic!("{wanted}") };
            assert_eq!(told, pause, "{wanted}");
        }
    }
}
