//! Calls that a client gave up before their answer came, as one does that was frozen past its own time limit, or in the
//! instant in which it came. It makes the same call again, as a request of its own; under the key of the first it gets
//! the answer that it missed.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::HeaderValue;
use tokio::time::Instant;
use uuid::Uuid;

use super::message::Message;

/// An answer this close to the client's limit may have come too late.
const MARGIN: Duration = Duration::from_secs(1);
/// The same call after this long is for another answer than the one that nobody took.
const SOON: Duration = Duration::from_secs(600);
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
    /// There was nobody to take the answer.
    unread: bool,
}

/// A call, by what is called with what.
pub(super) fn call(message: &Message<'_>) -> Option<Uuid> {
    let (name, arguments) = message.called()?;
    Some(Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{name} {arguments}").as_bytes()))
}

impl Repeats {
    pub(super) fn new(patience: Option<Duration>) -> Self {
        Self { patience: patience.map(|patience| patience.saturating_sub(MARGIN)), asked: Mutex::default() }
    }

    /// The key for a call: `fresh`, or that of the same call which the client gave up.
    pub(super) fn key(&self, call: Uuid, fresh: HeaderValue, now: Instant) -> HeaderValue {
        let late = |earlier: &Asked| {
            self.patience.is_some_and(|patience| now.duration_since(earlier.at) >= patience)
        };
        let unread = |earlier: &Asked| earlier.unread && now.duration_since(earlier.at) < SOON;
        let earlier = self.asked().remove(&call).filter(|earlier| unread(earlier) || late(earlier));
        let key = earlier.map_or(fresh, |earlier| earlier.key);
        if self.patience.is_some() {
            self.remember(call, Asked { key: key.clone(), at: now, unread: false });
        }
        key
    }

    /// The client hung up before it took the answer.
    pub(super) fn unread(&self, call: Uuid, key: HeaderValue, now: Instant) {
        self.remember(call, Asked { key, at: now, unread: true });
    }

    /// The answer was passed on. It is over unless that came too late.
    pub(super) fn answered(&self, call: Uuid, now: Instant) {
        let Some(patience) = self.patience else { return };
        let mut asked = self.asked();
        if asked.get(&call).is_some_and(|earlier| now.duration_since(earlier.at) < patience) {
            asked.remove(&call);
        }
    }

    fn remember(&self, call: Uuid, one: Asked) {
        let mut asked = self.asked();
        if asked.len() >= MOST && !asked.contains_key(&call) {
            // Those that no client asked again have been here longest.
            let oldest = asked.iter().min_by_key(|(_, earlier)| earlier.at).map(|(call, _)| *call);
            oldest.and_then(|oldest| asked.remove(&oldest));
        }
        asked.insert(call, one);
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<Uuid, Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wait(id: u32, event: &str) -> Uuid {
        let params = json!({"name": "wait_for_trigger", "arguments": {"event": event}, "_meta": {"progressToken": id}});
        let message = json!({"method": "tools/call", "id": id, "params": params}).to_string();
        call(&Message::read(message.as_bytes())).unwrap()
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
    fn a_call_whose_answer_nobody_took_keeps_its_key_once() {
        for patience in [None, Some(Duration::from_secs(60))] {
            let repeats = Repeats::new(patience);
            let now = Instant::now();
            let key = |event, fresh| repeats.key(wait(1, event), HeaderValue::from_static(fresh), now);
            assert_eq!(key("push", "a"), "a");
            repeats.unread(wait(1, "push"), HeaderValue::from_static("a"), now);
            assert_eq!((key("issues", "b"), key("push", "c")), ("b".parse().unwrap(), "a".parse().unwrap()));
            repeats.answered(wait(1, "push"), now);
            assert_eq!(key("push", "d"), "d");
            repeats.unread(wait(1, "push"), HeaderValue::from_static("d"), now - SOON);
            assert_eq!(key("push", "e"), if patience.is_some() { "d" } else { "e" }, "long ago");
        }
    }

    #[test]
    fn calls_that_nobody_asked_again_keep_no_other_from_being_remembered() {
        let repeats = Repeats::new(Some(Duration::from_secs(11)));
        let began = Instant::now();
        let key = |event: &str, fresh, seconds| {
            repeats.key(wait(1, event), HeaderValue::from_static(fresh), began + Duration::from_secs(seconds))
        };
        for (number, seconds) in (0..MOST).zip(0..) {
            key(&format!("issue {number}"), "x", seconds);
        }
        let late = u64::try_from(MOST).unwrap() + 20;
        assert_eq!(key("push", "a", late), "a");
        assert_eq!(key("push", "b", late + 11), "a", "its answer came too late");
        assert_eq!(key("issue 1", "c", late + 12), "x");
        assert_eq!(key("issue 0", "d", late + 12), "d", "the oldest made room");
    }

    #[test]
    fn a_client_of_unknown_patience_repeats_nothing() {
        let repeats = Repeats::new(None);
        let now = Instant::now();
        for fresh in ["a", "b"] {
            assert_eq!(repeats.key(wait(1, "push"), HeaderValue::from_static(fresh), now), fresh);
        }
        assert_eq!(call(&Message::read(br#"{"method":"tools/list","id":1}"#)), None);
    }
}
