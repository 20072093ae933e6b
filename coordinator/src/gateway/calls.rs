//! Calls between agents.

use axum::extract::{Path, RawQuery, State};
use http::StatusCode;
use serde_json::{Value, json};
use skein_shared::id::parse_uuid;

use super::answer::{Answer, No, Problem};
use super::door::Asked;
use super::{Gateway, granted};
use crate::service::values::PART_MAX;

/// Longest that a question after a call waits for its end, seconds. Those who ask wait ten for an answer.
const WAIT: u64 = 5;

pub(super) async fn call(State(gateway): State<Gateway>, asked: Asked) -> Answer {
    let facts = dispatched(&gateway, &asked, asked.text("context")?).await?;
    granted(json!({ "ok": true, "callId": facts["call_id"] }))
}

/// Calls an agent and gives what the call became.
pub(super) async fn dispatched(gateway: &Gateway, asked: &Asked, context: &str) -> Result<Value, Problem> {
    let arguments = json!({ "target_agent": asked.some_text("targetAgent")?, "context": context });
    gateway.call(asked, "call_agent", arguments).await.map_err(|no| {
        no.told(|facts| {
            let more = json!({ "code": facts["code"], "callId": facts["call_id"] });
            Problem::refused(StatusCode::CONFLICT, &facts["reason"], more)
        })
    })
}

/// How a call stands, at once or, with `?wait=SECONDS`, as soon as it is over.
pub(super) async fn check(
    State(gateway): State<Gateway>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    asked: Asked,
) -> Answer {
    let unknown = |facts: &Value| match facts["code"].as_str() {
        Some("not_found") => Problem::refused(
            StatusCode::NOT_FOUND,
            &json!("call not found"),
            json!({ "message": facts["reason"] }),
        ),
        code => Problem::refused(StatusCode::CONFLICT, &facts["reason"], json!({ "code": code })),
    };
    let facts = match patience(query.as_deref().unwrap_or_default())? {
        None => gateway.call(&asked, "check_call", json!({ "call_id": id })).await,
        Some(seconds) => {
            let arguments = json!({ "call_ids": [id], "timeout_s": seconds });
            let waited = gateway.call(&asked, "wait_for_calls", arguments).await;
            waited.map(|mut facts| facts["calls"][0].take())
        }
    };
    let mut facts = facts.map_err(|no| no.told(unknown))?;
    if facts.get("value_bytes").is_some() {
        let value = whole(&gateway, &asked, &facts["call_id"]).await;
        facts["return_value"] = json!(value.map_err(|no| no.told(unknown))?);
    }
    let mut told = json!({ "status": facts["status"] });
    for (name, field) in [("returnValue", "return_value"), ("errorMessage", "error_message")] {
        if let Some(value) = facts.get(field) {
            told[name] = value.clone();
        }
    }
    granted(told)
}

/// A value that is too long for one answer of a tool: a script has no use for its parts. Nor do they count as reads of
/// its agent, for it has asked once, and that was counted.
async fn whole(gateway: &Gateway, asked: &Asked, call: &Value) -> Result<String, No> {
    let call = parse_uuid("call_id", call.as_str().unwrap_or_default())?;
    let (mut text, mut next) = (String::new(), Some(0));
    while let Some(offset) = next {
        let part = gateway.service.read_value(&asked.who, call, offset, PART_MAX).await?;
        text += &part.text;
        next = part.next;
    }
    Ok(text)
}

/// The seconds of `wait=`.
fn patience(query: &str) -> Result<Option<u64>, Problem> {
    let Some(text) = query.split('&').find_map(|pair| pair.strip_prefix("wait=")) else { return Ok(None) };
    let seconds: u64 = text.parse().map_err(|_| {
        Problem::bad_request(format!("wait must be a number of seconds; more than {WAIT} are {WAIT}"))
    })?;
    Ok(Some(seconds.min(WAIT)))
}
