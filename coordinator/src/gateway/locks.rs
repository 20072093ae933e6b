//! Locks, with their keys, holders and times as Action Llama's gateway has them, and the fencing token as well.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde_json::{Value, json};
use skein_shared::Code;

use super::answer::{Answer, Problem, millis};
use super::door::Asked;
use super::{Gateway, granted};

pub(super) async fn acquire(State(gateway): State<Gateway>, asked: Asked) -> Answer {
    let arguments = arguments(&asked)?;
    let facts = gateway.call(&asked, "acquire_lock", arguments).await.map_err(|no| no.told(conflict))?;
    granted(json!({
        "ok": true,
        "resourceKey": facts["resource_key"],
        "fencingToken": facts["fencing_token"],
        "expiresAt": millis(&facts["expires_at"]),
    }))
}

pub(super) async fn release(State(gateway): State<Gateway>, asked: Asked) -> Answer {
    let arguments = json!({ "resource_key": asked.some_text("resourceKey")? });
    gateway.call(&asked, "release_lock", arguments).await.map_err(|no| no.told(not_yours))?;
    granted(json!({ "ok": true }))
}

pub(super) async fn heartbeat(State(gateway): State<Gateway>, asked: Asked) -> Answer {
    let arguments = arguments(&asked)?;
    let facts = gateway.call(&asked, "heartbeat_lock", arguments).await.map_err(|no| no.told(not_yours))?;
    granted(json!({ "ok": true, "expiresAt": millis(&facts["expires_at"]) }))
}

/// The caller's own locks.
pub(super) async fn list(State(gateway): State<Gateway>, asked: Asked) -> Answer {
    let locks = gateway.service.held_locks(&asked.who).await?;
    let own = locks.iter().filter(|lock| lock.holder == asked.who.instance).map(|lock| {
        json!({
            "resourceKey": lock.key,
            "holder": lock.holder,
            "heldSince": lock.held_since.millis(),
            "expiresAt": lock.expires_at.millis(),
            "fencingToken": lock.token.to_string(),
        })
    });
    Ok(Json(own.collect()))
}

fn arguments(asked: &Asked) -> Result<Value, Problem> {
    let mut arguments = json!({ "resource_key": asked.some_text("resourceKey")? });
    if let Some(ttl) = asked.optional("ttl") {
        arguments["ttl_seconds"] = ttl.clone();
    }
    Ok(arguments)
}

/// Why a lock was not acquired.
fn conflict(facts: &Value) -> Problem {
    let more = json!({
        "code": facts["code"],
        "holder": facts["holder"],
        "heldSince": millis(&facts["held_since"]),
        "deadlock": facts["deadlock"],
        "cycle": facts["cycle"],
    });
    Problem::refused(status(facts, StatusCode::CONFLICT), &facts["reason"], more)
}

/// Why a lock was not released or kept. The reasons are the original's words.
fn not_yours(facts: &Value) -> Problem {
    let more = json!({ "code": facts["code"], "holder": facts["holder"], "message": facts["reason"] });
    match facts["holder"].as_str() {
        Some(holder) => Problem::refused(StatusCode::CONFLICT, &json!(format!("held by {holder}")), more),
        None if facts["code"] == Code::NotHolding.as_str() => {
            Problem::refused(StatusCode::NOT_FOUND, &json!("lock not found"), more)
        }
        None => Problem::refused(
            status(facts, StatusCode::CONFLICT),
            &facts["reason"],
            json!({ "code": facts["code"] }),
        ),
    }
}

/// A key that is no URI is a bad request.
fn status(facts: &Value, other: StatusCode) -> StatusCode {
    if facts["code"] == Code::InvalidArgument.as_str() { StatusCode::BAD_REQUEST } else { other }
}
