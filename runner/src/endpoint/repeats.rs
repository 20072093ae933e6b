//! Calls that a client gave up before their answer came, as one does that was frozen past its own time limit. It makes
//! the same call again, as a request of its own; under the key of the first it gets the answer that it missed.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::header::HeaderValue;
use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

/// An answer this close to the client's limit may have come too late.
const MARGIN: Duration = Duration::from_secs(1);
/// Calls that are remembered of one instance.
const MOST: usize = 256;

/// The calls of one instance that its client may not have the answer of.
pub(super) struct Repeats {
    /// How long the client waits for an answer; none if that is not known.
    patience: Option<Duration>,
    asked: Mutex<HashMap<Uuid, Asked>>,
}

struct Asked {
    key: HeaderValue,
    at: Instant,
}

/// A call, by what is called with what.
pub(super) fn call(message: &Value) -> Option<Uuid> {
    let params = message.get("params").filter(|_| message["method"] == "tools/call")?;
    let called = format!("{} {}", params["name"], params["arguments"]);
    Some(Uuid::new_v5(&Uuid::NAMESPACE_OID, called.as_bytes()))
}

impl Repeats {
    pub(super) fn new(patience: Option<Duration>) -> Self {
        Self { patience: patience.map(|patience| patience.saturating_sub(MARGIN)), asked: Mutex::default() }
    }

    /// The key for a call: `fresh`, or that of the same call which the client gave up.
    pub(super) fn key(&self, call: Uuid, fresh: HeaderValue, now: Instant) -> HeaderValue {
        let Some(patience) = self.patience else { return fresh };
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let given_up = asked.get(&call).filter(|earlier| now.duration_since(earlier.at) >= patience);
        let key = given_up.map_or(fresh, |earlier| earlier.key.clone());
        if asked.len() < MOST || asked.contains_key(&call) {
            asked.insert(call, Asked { key: key.clone(), at: now });
        }
        key
    }

    /// The answer was passed on. It is over unless that came too late.
    pub(super) fn answered(&self, call: Uuid, now: Instant) {
        let Some(patience) = self.patience else { return };
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.get(&call).is_some_and(|earlier| now.duration_since(earlier.at) < patience) {
            asked.remove(&call);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wait(id: u32, event: &str) -> Uuid {
        let params = json!({"name": "wait_for_trigger", "arguments": {"event": event}, "_meta": {"progressToken": id}});
        call(&json!({"method": "tools/call", "id": id, "params": params})).unwrap()
    }

    #[test]
    fn a_call_that_was_given_up_keeps_its_key_until_it_has_its_answer() {
        let repeats = Repeats::new(Some(Duration::from_secs(11)));
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let key = |id, event, fresh, seconds| {
            repeats.key(wait(id, event), HeaderValue::from_static(fresh), at(seconds))
        };
        assert_eq!(key(1, "push", "a", 0), "a");
        repeats.answered(wait(1, "push"), at(20));
        assert_eq!(key(2, "issues", "b", 21), "b", "another call");
        assert_eq!(key(3, "push", "c", 21), "a", "its answer came too late");
        repeats.answered(wait(3, "push"), at(22));
        assert_eq!(key(4, "push", "d", 23), "d", "it has its answer");
        assert_eq!(key(5, "push", "e", 24), "e", "the client cannot have given that up yet");
    }

    #[test]
    fn a_client_of_unknown_patience_repeats_nothing() {
        let repeats = Repeats::new(None);
        let now = Instant::now();
        for fresh in ["a", "b"] {
            assert_eq!(repeats.key(wait(1, "push"), HeaderValue::from_static(fresh), now), fresh);
        }
        assert_eq!(call(&json!({"method": "tools/list", "id": 1})), None);
    }
}
