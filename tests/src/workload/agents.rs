//! Real agents: events from outside start and wake them, and they call one another.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Field, Map};
use crate::history::calls::{Made, Run};
use crate::history::events::{Sent, Use, Used};
use crate::history::{Lost, Moment};
use crate::runner::Place;
use crate::webhook;

/// Gets an event, waits for the next, and ends.
pub const SLEEPER: &str = "sleeper";
/// Calls another for each event.
pub const CALLER: &str = "caller";
pub const CALLEE: &str = "callee";
pub const ALL: [&str; 3] = [SLEEPER, CALLER, CALLEE];

/// Between two events: each of them starts processes.
const PACE: Duration = Duration::from_millis(1500);
/// Before an event that nobody took is sent again, and how long one may take.
const PAUSE: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(5);

/// Writes the agents down for a runner.
///
/// # Errors
/// When a file cannot be written.
pub fn define(place: &Place) -> Result<()> {
    let wait = r#"wait_for_trigger={"type":"webhook","source":"github","event":"push","timeout":"1h"}"#;
    let call = format!(r#"call_agent={{"target_agent":"{CALLEE}","context":"do it"}}"#);
    // On a machine that is busy for minutes they fall behind: what comes is to wait, and not to give way to what comes
    // next.
    let subscribed =
        "instances = 2\nwork_queue = 1000\nsubscriptions = [{ source = \"github\", event = \"push\" }]\n";
    place.agent(SLEEPER, subscribed, &[wait])?;
    place.agent(CALLER, subscribed, &[&call, "result"])?;
    // What comes back names the run that answered.
    place.agent(CALLEE, "instances = 2\n", &[r#"return_value={"value":"$INSTANCE"}"#])
}

/// Sends events until it is told to stop, each until somebody says that it was taken in.
pub async fn push(field: Arc<Field>, stop: CancellationToken) {
    for number in 1.. {
        let began = field.claims.now();
        // The next one would be refused or taken like this one, so it waits for it.
        let accepted = loop {
            if deliver(&field.map, number).await {
                break true;
            }
            if stop.is_cancelled() {
                break false;
            }
            tokio::time::sleep(PAUSE).await;
        };
        field.note(Sent { number, accepted, time: began..field.claims.now() });
        if stop.is_cancelled() {
            return;
        }
        tokio::time::sleep(PACE).await;
    }
}

/// Says whether an event was taken in for certain. Its delivery has one name however often it is sent.
async fn deliver(map: &watch::Receiver<Map>, number: u64) -> bool {
    let ingress = map.borrow().ingress.clone();
    let body = json!({"ref": "refs/heads/main", "number": number, "repository": {"full_name": "acme/app"}});
    let body = body.to_string();
    let (delivery, signature) = (format!("d-{number}"), webhook::signature(&body));
    let pushed = webhook::push(&ingress, &delivery, &body, &signature);
    matches!(tokio::time::timeout(PATIENCE, pushed).await, Ok(Ok((200..300, _))))
}

/// When a line was written.
fn at(field: &Field, line: &Value) -> Moment {
    field.moment(line["at"].as_f64().unwrap_or_default())
}

/// What the runs of an agent did with events, from what they wrote down.
pub fn uses(field: &Field, agent: &str, journal: &[Value]) -> Vec<Used> {
    let used = |line: &Value| {
        let (by, event) = match line["step"].as_str()? {
            "start" => (Use::Started, &line["answer"]),
            "wait_for_trigger" => (Use::Resumed, &line["answer"]["payload"]),
            _ => return None,
        };
        let number = number(event)?;
        let instance = line["instance"].as_str()?.to_owned();
        Some(Used { agent: agent.to_owned(), instance, number, by, at: at(field, line) })
    };
    journal.iter().filter_map(used).collect()
}

/// The number of the event in what an agent was given, however it is wrapped.
fn number(given: &Value) -> Option<u64> {
    match given {
        Value::Object(fields) => {
            let own = fields.get("number").and_then(Value::as_u64);
            own.or_else(|| fields.values().find_map(number))
        }
        Value::String(text) => {
            number(&serde_json::from_str::<Value>(text).ok().filter(|inner| !inner.is_string())?)
        }
        _ => None,
    }
}

/// The calls that callers made, and what they heard of them.
pub fn made(field: &Field, journal: &[Value]) -> Vec<Made> {
    let of = |step: &'static str| journal.iter().filter(move |line| line["step"] == step);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    of("call_agent")
        .filter_map(|line| {
            let call = text(&line["answer"]["call_id"])?;
            let heard = of("result").find(|heard| heard["instance"] == line["instance"]);
            let told = heard.map(|heard| (text(&heard["answer"]["return_value"]), at(field, heard)));
            Some(Made { call, at: at(field, line), told })
        })
        .collect()
}

/// Those of an agent's runs that have written down a step, and when.
pub fn through(field: &Field, journal: &[Value], step: &str) -> Vec<Run> {
    let lines = journal.iter().filter(|line| line["step"] == step);
    let run =
        |line: &Value| Some(Run { instance: line["instance"].as_str()?.to_owned(), at: at(field, line) });
    lines.filter_map(run).collect()
}

/// The runs that were under way at some time, by what they wrote down.
pub fn under_way(field: &Field, journal: &[Value], time: &Lost) -> BTreeSet<String> {
    let then = |line: &&Value| (time.start..=time.end).contains(&at(field, line));
    journal.iter().filter(then).filter_map(|line| Some(line["instance"].as_str()?.to_owned())).collect()
}
