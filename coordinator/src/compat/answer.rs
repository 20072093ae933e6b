//! How an answer looks: JSON, and `{"error": text}` for a refusal, with its code.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};
use skein_shared::{Code, Refusal};

pub(super) type Answer = Result<Response, Problem>;

/// What is sent instead of an answer.
#[derive(Debug)]
pub(super) struct Problem(Refusal);

impl Problem {
    pub(super) fn of(code: Code, text: impl Into<String>) -> Self {
        Self(Refusal::new(code, text))
    }

    pub(super) fn bad_request(text: impl Into<String>) -> Self {
        Self::of(Code::InvalidArgument, text)
    }

    fn status(&self) -> StatusCode {
        match self.0.code {
            // To these routes an agent that has not joined is one that there is not.
            Code::NotJoined => StatusCode::NOT_FOUND,
            code => StatusCode::from_u16(code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = json!({ "error": self.0.message, "code": self.0.code });
        if let Some(pause) = self.0.retry_after_ms {
            body["retryAfterMs"] = json!(pause);
        }
        (self.status(), Json(body)).into_response()
    }
}

pub(super) fn ok(body: Value) -> Answer {
    Ok(Json(body).into_response())
}

pub(super) fn made(body: Value) -> Answer {
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

pub(super) fn taken(body: Value) -> Answer {
    Ok((StatusCode::ACCEPTED, Json(body)).into_response())
}

pub(super) fn nothing() -> Answer {
    Ok(StatusCode::NO_CONTENT.into_response())
}
