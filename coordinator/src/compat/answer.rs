//! How an answer looks: JSON, and `{"error": text}` for a refusal.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};
use skein_shared::{Code, Refusal};

pub(super) type Answer = Result<Response, Problem>;

/// What is sent instead of an answer.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    text: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    pub(super) fn bad_request(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    pub(super) fn of(code: Code, text: &str) -> Self {
        let status = match code {
            // To these routes an agent that has not joined is one that there is not.
            Code::NotJoined => StatusCode::NOT_FOUND,
            code => StatusCode::from_u16(code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        };
        Self::new(status, text)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self::of(refusal.code, &refusal.message)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status, Json(json!({ "error": self.text }))).into_response()
    }
}

pub(super) fn ok(body: Value) -> Answer {
    Ok(Json(body).into_response())
}

pub(super) fn made(body: Value) -> Answer {
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

pub(super) fn nothing() -> Answer {
    Ok(StatusCode::NO_CONTENT.into_response())
}
