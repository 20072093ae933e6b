//! What differs between senders: the names of their headers, and the form of their events.

use serde_json::{Map, Value};

use super::{generic, github};
use crate::config::Provider;

/// The headers that a sender puts its facts into.
pub(super) struct Headers {
    pub signature: &'static str,
    pub delivery: &'static str,
    pub event: &'static str,
}

/// A body in the words that all senders share.
#[derive(Debug, PartialEq)]
pub(super) enum Normalised {
    Event(Map<String, Value>),
    /// Genuine, but nobody's business, with the reason.
    Ignored(&'static str),
}

impl Provider {
    pub(super) fn headers(self) -> Headers {
        match self {
            Provider::Github => Headers {
                signature: "x-hub-signature-256",
                delivery: "x-github-delivery",
                event: "x-github-event",
            },
            Provider::Generic => {
                Headers { signature: "x-signature-256", delivery: "x-delivery-id", event: "x-event" }
            }
        }
    }

    pub(super) fn normalise(self, event: &str, body: &Value) -> Normalised {
        match self {
            Provider::Github => github::normalise(event, body),
            Provider::Generic => generic::normalise(body),
        }
    }
}
