//! One list of refusal codes for MCP, gRPC, HTTP and the command line.

use serde::{Deserialize, Serialize};
use serde_json::Value;

macro_rules! codes {
    ($($name:ident = $text:literal, $http:literal, $grpc:literal, $exit:literal;)*) => {
        /// Why something was refused. The text form is stable; programs may match on it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Code { $(#[serde(rename = $text)] $name,)* }

        impl Code {
            pub const ALL: &[Code] = &[$(Code::$name,)*];

            pub fn as_str(self) -> &'static str { match self { $(Code::$name => $text,)* } }
            /// HTTP status.
            pub fn http(self) -> u16 { match self { $(Code::$name => $http,)* } }
            /// gRPC status number.
            pub fn grpc(self) -> i32 { match self { $(Code::$name => $grpc,)* } }
            /// Exit status of the command line.
            pub fn exit(self) -> u8 { match self { $(Code::$name => $exit,)* } }
        }
    };
}

codes! {
    InvalidArgument = "invalid_argument", 400, 3, 2;
    Unauthenticated = "unauthenticated", 401, 16, 3;
    Forbidden = "forbidden", 403, 7, 3;
    NotFound = "not_found", 404, 5, 4;
    UnknownTool = "unknown_tool", 404, 5, 4;
    AlreadyExists = "already_exists", 409, 6, 5;
    WrongState = "wrong_state", 409, 9, 5;
    NotJoined = "not_joined", 409, 9, 5;
    LeadExists = "lead_exists", 409, 6, 5;
    NoCapacity = "no_capacity", 409, 9, 5;
    Blocked = "blocked", 409, 9, 5;
    Duplicate = "duplicate", 409, 6, 5;
    KeyReused = "idempotency_key_reused", 409, 9, 5;
    LockHeld = "lock_held", 409, 9, 5;
    Deadlock = "deadlock", 409, 9, 5;
    AlreadyHolding = "already_holding", 409, 9, 5;
    NotHolding = "not_holding", 409, 9, 5;
    StaleToken = "stale_token", 409, 9, 5;
    SelfCall = "self_call", 409, 9, 5;
    Cycle = "cycle", 409, 9, 5;
    DepthExceeded = "depth_exceeded", 409, 9, 5;
    QueueFull = "queue_full", 429, 8, 6;
    Disabled = "disabled", 409, 9, 5;
    WaitTimeout = "wait_timeout", 408, 4, 6;
    SlackNotConfigured = "slack_not_configured", 409, 9, 5;
    TooLarge = "too_large", 413, 11, 2;
    RateLimited = "rate_limited", 429, 8, 6;
    Overloaded = "overloaded", 503, 14, 6;
    Unavailable = "unavailable", 503, 14, 6;
    NotOwner = "not_owner", 503, 14, 6;
    Unknown = "outcome_unknown", 504, 4, 6;
    Internal = "internal", 500, 13, 1;
}

impl Code {
    /// Whether it is for now alone: nobody could say, or do it, at that moment, and a repeat may find another answer.
    pub fn is_passing(self) -> bool {
        matches!(self, Code::Overloaded | Code::Unavailable | Code::NotOwner | Code::Unknown)
    }
}

/// A refusal is an answer: a code, a sentence that says what happened and what to do next, and the facts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub code: Code,
    pub message: String,
    /// Facts that a program may read, an object or null.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub detail: Value,
    /// How long to wait before another try, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl Refusal {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), detail: Value::Null, retry_after_ms: None }
    }

    #[must_use]
    pub fn with(mut self, detail: Value) -> Self {
        self.detail = detail;
        self
    }

    #[must_use]
    pub fn retry_after(mut self, millis: u64) -> Self {
        self.retry_after_ms = Some(millis);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_reads_back_from_its_text() {
        for &code in Code::ALL {
            let text = serde_json::to_string(&code).unwrap();
            assert_eq!(text, format!("\"{}\"", code.as_str()));
            assert_eq!(serde_json::from_str::<Code>(&text).unwrap(), code);
        }
    }
}
