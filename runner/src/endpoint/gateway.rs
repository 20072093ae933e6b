//! The coordinators' routes beside MCP, for programs that do not speak it. Those who ask may show the instance's secret
//! in the body, and are answered in the words of these routes.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::{self, HeaderMap};
use http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::proxy::{Body, in_json};

/// What an instance may ask for. Those of operators are none of its own.
const ROUTES: [&str; 5] = ["/locks", "/calls", "/signals", "/shutdown", "/hook"];

/// Whether a path is one of these routes.
pub(super) fn serves(path: &str) -> bool {
    let below =
        |route: &str| path.strip_prefix(route).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    ROUTES.into_iter().any(below)
}

/// The secret that a body shows. All else is passed over, and takes no memory.
pub(super) fn secret(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Shown {
        secret: Option<String>,
    }
    // A list would be read as the fields in their order.
    let object = Some(body).filter(|body| body.trim_ascii_start().starts_with(b"{"))?;
    serde_json::from_slice::<Shown>(object).ok()?.secret
}

/// A body that has a secret, without it, so that it goes no further.
pub(super) fn without_secret(body: &[u8]) -> Option<Bytes> {
    let mut fields: BTreeMap<String, &RawValue> = serde_json::from_slice(body).ok()?;
    fields.remove("secret")?;
    serde_json::to_vec(&fields).ok().map(Bytes::from)
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
        for path in ["/locks/acquire", "/calls", "/calls/1-a", "/signals/status", "/shutdown", "/hook"] {
            assert!(serves(path), "{path}");
        }
        for path in [
            "/",
            "/mcp",
            "/lockset",
            "/hooks",
            "/control/status",
            "/api/webhooks/1/replay",
            "/health",
            "/metrics",
        ] {
            assert!(!serves(path), "{path}");
        }
    }

    #[test]
    fn a_secret_goes_no_further() {
        let body = br#"{"secret":"s","resourceKey":"a:b","ttl":5,"value":[1, {"secret":"s"}]}"#;
        assert_eq!(secret(body).as_deref(), Some("s"));
        let rest = br#"{"resourceKey":"a:b","ttl":5,"value":[1, {"secret":"s"}]}"#;
        assert_eq!(without_secret(body).as_deref(), Some(&rest[..]));
        for other in ["", "{", "[]", "[\"s\"]", r#"{"a":1}"#] {
            assert_eq!((secret(other.as_bytes()), without_secret(other.as_bytes())), (None, None), "{other}");
        }
        let wrong = br#"{"secret":7}"#;
        assert_eq!((secret(wrong), without_secret(wrong).as_deref()), (None, Some(&b"{}"[..])));
    }
}
