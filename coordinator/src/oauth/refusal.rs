//! A refusal in OAuth's words (RFC 6749 5.2).

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;
use skein_shared::{Code, Refusal};

/// Why there is no token.
#[derive(Debug)]
pub(super) struct No {
    error: &'static str,
    refusal: Box<Refusal>,
}

impl No {
    pub(super) fn invalid_request(problem: impl Into<String>) -> Self {
        Self::new("invalid_request", Refusal::new(Code::InvalidArgument, problem))
    }

    pub(super) fn new(error: &'static str, refusal: Refusal) -> Self {
        Self { error, refusal: Box::new(refusal) }
    }

    pub(super) fn unsupported(problem: impl Into<String>) -> Self {
        Self::new("unsupported_grant_type", Refusal::new(Code::InvalidArgument, problem))
    }
}

impl From<Refusal> for No {
    fn from(refusal: Refusal) -> Self {
        let error = match refusal.code {
            Code::InvalidArgument | Code::NotFound => "invalid_request",
            Code::Forbidden if !refusal.detail["scope"].is_null() => "invalid_scope",
            Code::Unauthenticated | Code::Forbidden => "invalid_grant",
            _ => "temporarily_unavailable",
        };
        Self { error, refusal: Box::new(refusal) }
    }
}

impl IntoResponse for No {
    fn into_response(self) -> Response {
        let status = match self.error {
            "invalid_client" => StatusCode::UNAUTHORIZED,
            "temporarily_unavailable" => {
                StatusCode::from_u16(self.refusal.code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }
            _ => StatusCode::BAD_REQUEST,
        };
        let body = json!({ "error": self.error, "error_description": self.refusal.message });
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"skein\""));
        }
        if let Some(millis) = self.refusal.retry_after_ms {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(millis.div_ceil(1000)));
        }
        response
    }
}
