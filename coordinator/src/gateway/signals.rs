//! What an agent says of its own run, and how it ends it.

use axum::extract::State;
use http::StatusCode;
use serde_json::{Value, json};

use super::answer::{Answer, Problem};
use super::calls::dispatched;
use super::door::Asked;
use super::{Gateway, granted};
use crate::auth::policy;
use crate::mcp::idempotency;

/// The exit status of a run that names none: another try will not help.
const UNRECOVERABLE: u8 = 15;

pub(super) async fn rerun(State(gateway): State<Gateway>, asked: Asked) -> Answer {
    said(&gateway, &asked, "request_rerun", json!({})).await
}

pub(super) async fn status(State(gateway): State<Gateway>, asked: Asked) -> Answer {
    let arguments = json!({ "text": asked.some_text("text")? });
    said(&gateway, &asked, "set_status", arguments).await
}

pub(super) async fn return_value(State(gateway): State<Gateway>, asked: Asked) -> Answer {
    let value = match asked.value("value")? {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    said(&gateway, &asked, "return_value", json!({ "value": value })).await
}

/// A call whose result nobody asks for.
pub(super) async fn trigger(State(gateway): State<Gateway>, asked: Asked) -> Answer {
    dispatched(&gateway, &asked, asked.some_text("context")?).await?;
    granted(json!({ "ok": true }))
}

pub(super) async fn exit(State(gateway): State<Gateway>, asked: Asked) -> Answer {
    let status = match asked.optional("code") {
        None => UNRECOVERABLE,
        Some(code) => code
            .as_u64()
            .and_then(|code| u8::try_from(code).ok())
            .ok_or_else(|| Problem::bad_request("code must be a whole number from 0 to 255"))?,
    };
    said(&gateway, &asked, "exit_run", json!({ "status": status })).await
}

/// Kills the caller's own run.
pub(super) async fn shutdown(State(gateway): State<Gateway>, asked: Asked) -> Answer {
    let who = &asked.who;
    policy::require_writable(who)?;
    let words = ["reason", "details"].map(|name| asked.optional(name).and_then(Value::as_str));
    let told: Vec<&str> = words.into_iter().flatten().filter(|text| !text.is_empty()).collect();
    let reason = match told.as_slice() {
        [] => "it shut itself down".to_owned(),
        told => format!("it shut itself down: {}", told.join(": ")),
    };
    let request = idempotency::request(who, "shutdown", asked.key.as_deref());
    gateway.service.shut_down(who, request, reason).await?;
    granted(json!({ "killed": true, "container": who.instance }))
}

async fn said(gateway: &Gateway, asked: &Asked, tool: &str, arguments: Value) -> Answer {
    let refused = |facts: &Value| {
        Problem::refused(StatusCode::CONFLICT, &facts["reason"], json!({ "code": facts["code"] }))
    };
    gateway.call(asked, tool, arguments).await.map_err(|no| no.told(refused))?;
    granted(json!({ "ok": true }))
}
