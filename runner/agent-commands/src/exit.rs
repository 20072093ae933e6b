//! Exit statuses (spec: Action Llama 3), and what is printed with a failure.

use crate::json;

pub(crate) const OK: u8 = 0;
pub(crate) const CONFLICT: u8 = 1;
pub(crate) const NOT_FOUND: u8 = 2;
pub(crate) const FORBIDDEN: u8 = 3;
pub(crate) const BAD_REQUEST: u8 = 4;
/// No gateway is configured, or it takes no requests now.
pub(crate) const UNAVAILABLE: u8 = 5;
pub(crate) const UNREACHABLE: u8 = 6;
pub(crate) const UNEXPECTED: u8 = 7;
pub(crate) const TIMED_OUT: u8 = 8;
pub(crate) const USAGE: u8 = 9;
pub(crate) const BAD_GATEWAY: u8 = 10;
pub(crate) const GATEWAY_TIMEOUT: u8 = 11;
pub(crate) const SERVER_ERROR: u8 = 12;

/// Why nothing was done, as far as is known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: u8,
    said: Said,
}

#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// What the gateway answered, as it stands.
    Json(String),
    Reason(String),
}

impl Failure {
    pub(crate) fn new(status: u8, reason: impl Into<String>) -> Self {
        Self { status, said: Said::Reason(reason.into()) }
    }

    pub(crate) fn usage(problem: String) -> Self {
        Self::new(USAGE, problem)
    }

    /// The gateway's refusal.
    pub(crate) fn answered(http: u16, json: &str) -> Self {
        Self { status: of_http(http), said: Said::Json(json.to_owned()) }
    }

    /// Whether it says nothing of what was asked for, and may be over in a moment.
    pub(crate) fn passes(&self) -> bool {
        matches!(self.status, UNAVAILABLE | UNREACHABLE | BAD_GATEWAY | GATEWAY_TIMEOUT)
    }

    pub(crate) fn json(&self) -> String {
        match &self.said {
            Said::Json(json) => json.clone(),
            Said::Reason(reason) => format!("{{\"ok\":false,\"reason\":{}}}", json::text(reason)),
        }
    }
}

/// The exit status for an HTTP status that is no success.
fn of_http(status: u16) -> u8 {
    match status {
        400 | 413 => BAD_REQUEST,
        401 | 403 => FORBIDDEN,
        404 => NOT_FOUND,
        409 => CONFLICT,
        // Too many requests: later it is available again.
        429 | 503 => UNAVAILABLE,
        500 => SERVER_ERROR,
        502 => BAD_GATEWAY,
        504 => GATEWAY_TIMEOUT,
        _ => UNEXPECTED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_http_status_has_its_exit_status() {
        let table = [
            (409, 1),
            (404, 2),
            (403, 3),
            (401, 3),
            (400, 4),
            (413, 4),
            (503, 5),
            (429, 5),
            (302, 7),
            (418, 7),
            (502, 10),
            (504, 11),
            (500, 12),
        ];
        for (http, exit) in table {
            assert_eq!(Failure::answered(http, "{}").status, exit, "{http}");
        }
    }
}
