//! How a refusal looks. Before it is known who asks, and when the service fails, it is `{"error": text}`; what the
//! swarm refuses is `{"ok": false, "reason": text}` with its facts.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal};

use crate::mcp::result::{Reply, is_fault};

pub(super) type Answer = Result<Json<Value>, Problem>;

/// What is sent instead of an answer.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    body: Value,
    retry_after_ms: Option<u64>,
}

/// Why a tool did not do it.
pub(super) enum No {
    /// The swarm refuses, with these facts.
    Refused(Value),
    /// The request is wrong, or the service fails.
    Fault(Problem),
}

impl Problem {
    pub(super) fn error(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, body: json!({ "error": text.into() }), retry_after_ms: None }
    }

    pub(super) fn bad_request(text: impl Into<String>) -> Self {
        Self::error(StatusCode::BAD_REQUEST, text)
    }

    /// A refusal by the swarm, with those of its facts that are there.
    pub(super) fn refused(status: StatusCode, reason: &Value, facts: Value) -> Self {
        let mut body =
            Map::from_iter([("ok".to_owned(), json!(false)), ("reason".to_owned(), reason.clone())]);
        if let Value::Object(facts) = facts {
            body.extend(facts.into_iter().filter(|(_, value)| !value.is_null()));
        }
        Self { status, body: Value::Object(body), retry_after_ms: None }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.code {
            // To these routes a token is a secret, and one that opens nothing is forbidden.
            Code::Unauthenticated => StatusCode::FORBIDDEN,
            code => StatusCode::from_u16(code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        };
        Self { retry_after_ms: refusal.retry_after_ms, ..Self::error(status, refusal.message) }
    }
}

/// What the service says, as the tools say it.
impl From<Refusal> for No {
    fn from(refusal: Refusal) -> Self {
        if is_fault(refusal.code) {
            return No::Fault(refusal.into());
        }
        No::Refused(json!({ "reason": refusal.message, "code": refusal.code }))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body)).into_response();
        let seconds = self.retry_after_ms.map(|millis| millis.div_ceil(1000).max(1));
        if let Some(seconds) = seconds {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl No {
    /// Reads what a tool said.
    pub(super) fn or_facts(reply: Reply) -> Result<Value, No> {
        if let Some(code) = reply.code.filter(|_| reply.is_error) {
            let told = reply.json["message"].as_str().unwrap_or(&reply.text);
            if code.http() == StatusCode::CONFLICT.as_u16() {
                return Err(No::Refused(json!({ "reason": told, "code": code })));
            }
            let mut refusal = Refusal::new(code, told);
            refusal.retry_after_ms = reply.json["retry_after_ms"].as_u64();
            return Err(No::Fault(refusal.into()));
        }
        if reply.json["ok"] == true { Ok(reply.json) } else { Err(No::Refused(reply.json)) }
    }

    /// What to send, when the route knows how it says a refusal.
    pub(super) fn told(self, refused: impl FnOnce(&Value) -> Problem) -> Problem {
        match self {
            No::Refused(facts) => refused(&facts),
            No::Fault(problem) => problem,
        }
    }
}

/// Milliseconds since the epoch, as these routes have times; null for what is none.
pub(super) fn millis(time: &Value) -> Value {
    json!(time.as_str().and_then(Timestamp::parse_iso).map(Timestamp::millis))
}
