//! The coordinators' routes beside MCP, for programs that do not speak it. Those who ask may show the instance's secret
//! in the body, and are answered in the words of these routes.

use bytes::Bytes;
use http::header::{self, HeaderMap};
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::proxy::{Body, in_json};

/// What an instance may ask for. Those of operators are none of its own.
const ROUTES: [&str; 4] = ["/locks", "/calls", "/signals", "/shutdown"];

/// Whether a path is one of these routes.
pub(super) fn serves(path: &str) -> bool {
    let below =
        |route: &str| path.strip_prefix(route).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    ROUTES.into_iter().any(below)
}

/// Takes the secret out of a body, so that it goes no further.
pub(super) fn take_secret(body: Bytes) -> (Option<String>, Bytes) {
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(&body) else { return (None, body) };
    match fields.shift_remove("secret") {
        None => (None, body),
        Some(secret) => {
            let shown = secret.as_str().map(str::to_owned);
            (shown, Bytes::from(Value::Object(fields).to_string()))
        }
    }
}

/// The token of `Authorization: Bearer`, if there is one.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(header::AUTHORIZATION)?.as_bytes().strip_prefix(b"Bearer ")
}

pub(super) fn refusal(status: StatusCode, text: &str) -> Response<Body> {
    in_json(status, &json!({ "error": text }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_asks_for_its_own_routes_alone() {
        for path in ["/locks/acquire", "/calls", "/calls/1-a", "/signals/status", "/shutdown"] {
            assert!(serves(path), "{path}");
        }
        for path in
            ["/", "/mcp", "/lockset", "/control/status", "/api/webhooks/1/replay", "/health", "/metrics"]
        {
            assert!(!serves(path), "{path}");
        }
    }

    #[test]
    fn a_secret_goes_no_further() {
        let body = Bytes::from(r#"{"secret":"s","resourceKey":"a:b","ttl":5}"#);
        let (secret, rest) = take_secret(body);
        assert_eq!((secret.as_deref(), &rest[..]), (Some("s"), &br#"{"resourceKey":"a:b","ttl":5}"#[..]));
        for other in ["", "{", "[]", r#"{"a":1}"#] {
            assert_eq!(take_secret(Bytes::from(other)), (None, Bytes::from(other)), "{other}");
        }
        assert_eq!(take_secret(Bytes::from(r#"{"secret":7}"#)), (None, Bytes::from("{}")));
    }
}
