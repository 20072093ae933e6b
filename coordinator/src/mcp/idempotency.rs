//! The id of a request: its repeat has the same one, so that a lost answer never leads to a second task.

use std::collections::{HashMap, VecDeque};
use std::str::from_utf8;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderMap;
use http::request::Parts;
use serde_json::{Map, Value};
use skein_shared::id::timed;
use skein_shared::{Code, Refusal, limits};
use tokio::time::Instant;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use crate::auth::Principal;

/// The argument that every changing tool takes besides its own.
pub const ARGUMENT: &str = "idempotency_key";
/// The header that a runner's endpoint sends, once for each request of the agent and again on fail-over.
pub const HEADER: &str = "idempotency-key";
const LONGEST: usize = 200;
/// Most keys that are remembered, some 80 bytes each, and as many names; the oldest go first.
const KEPT: usize = 500_000;

/// Takes the key out of the arguments, or else from the header.
///
/// # Errors
/// `invalid_argument` when it is no text of 1 to 200 bytes.
pub fn key(arguments: &mut Map<String, Value>, header: Option<&str>) -> Result<Option<String>, Refusal> {
    let key = match arguments.remove(ARGUMENT) {
        None | Some(Value::Null) => header.map(str::to_owned),
        Some(Value::String(key)) => Some(key),
        Some(_) => Some(String::new()),
    };
    match key {
        Some(key) if key.is_empty() || key.len() > LONGEST => Err(Refusal::new(
            Code::InvalidArgument,
            format!("{ARGUMENT} must be a text of 1 to {LONGEST} bytes; leave it out to send a new request"),
        )),
        key => Ok(key),
    }
}

/// The key that a request has in its header. One that is no text is as bad as none: it is not left out, for its sender
/// relies on it.
pub fn header(headers: &HeaderMap) -> Option<&str> {
    headers.get(HEADER).map(|key| from_utf8(key.as_bytes()).unwrap_or_default())
}

/// The key of a request to a route, if its header has one, and the id of that request.
///
/// # Errors
/// As [`key`].
pub fn of_route(parts: &Parts, who: &Principal) -> Result<(Option<String>, Uuid), Refusal> {
    let key = key(&mut Map::new(), header(&parts.headers))?;
    let route = format!("{} {}", parts.method, parts.uri.path());
    let request = request(who, &route, key.as_deref());
    Ok((key, request))
}

/// The id of a call: always the same for the same caller, tool and key; a fresh one without a key.
///
/// The instance is part of it: two instances of one agent may number their calls alike. A key that is a UUID version 7,
/// as a runner's endpoint makes them, gives it a time ([`derived`](skein_shared::id::derived)).
pub fn request(who: &Principal, tool: &str, key: Option<&str>) -> Uuid {
    let Some(key) = key else { return Uuid::now_v7() };
    let name = [who.swarm.as_str(), who.instance.as_str(), tool, key].join("\n");
    timed(Uuid::try_parse(key).unwrap_or_default(), Uuid::new_v5(&who.agent, name.as_bytes()))
}

/// What came with each key. The entities refuse a reused key by themselves and durably; this also catches one whose
/// other arguments lead to another entity, such as a call to another agent, and knows whom a request named.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    digests: Aged<u64>,
    /// Agents by the request and the name that it has for them.
    named: Aged<Uuid>,
}

impl Keys {
    /// Notes the arguments of a request, or compares them with those of its earlier try.
    ///
    /// # Errors
    /// `idempotency_key_reused` when the key came with other arguments before.
    pub fn take(&self, request: Uuid, arguments: &Value, now: Instant) -> Result<(), Refusal> {
        let digest = digest(arguments);
        let mut seen = self.seen();
        match seen.digests.get(request, now) {
            Some(known) if known == digest => Ok(()),
            Some(_) => Err(Refusal::new(
                Code::KeyReused,
                format!(
                    "this {ARGUMENT} was used before with other arguments; use a new key for a new request"
                ),
            )),
            None => {
                seen.digests.put(request, digest, now);
                Ok(())
            }
        }
    }

    /// Whom an earlier try of a request meant by a name.
    pub fn named(&self, request: Uuid, name: &str, now: Instant) -> Option<Uuid> {
        self.seen().named.get(Uuid::new_v5(&request, name.as_bytes()), now)
    }

    /// Notes whom a request means by a name: its repeat means the same agent, whoever is called so by then.
    pub fn name(&self, request: Uuid, name: &str, agent: Uuid, now: Instant) {
        self.seen().named.put(Uuid::new_v5(&request, name.as_bytes()), agent, now);
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is remembered for as long as replies are kept.
#[derive(Debug, Default)]
struct Aged<V> {
    values: HashMap<Uuid, V>,
    by_age: VecDeque<(Instant, Uuid)>,
}

impl<V: Copy> Aged<V> {
    fn get(&mut self, id: Uuid, now: Instant) -> Option<V> {
        while let Some(&(at, oldest)) = self.by_age.front()
            && now.duration_since(at) > limits::REPLY_KEEP
        {
            self.by_age.pop_front();
            self.values.remove(&oldest);
        }
        self.values.get(&id).copied()
    }

    fn put(&mut self, id: Uuid, value: V, now: Instant) {
        while self.by_age.len() >= KEPT
            && let Some((_, oldest)) = self.by_age.pop_front()
        {
            self.values.remove(&oldest);
        }
        if self.values.insert(id, value).is_none() {
            self.by_age.push_back((now, id));
        }
    }
}

/// The same for arguments in another order.
fn digest(arguments: &Value) -> u64 {
    let mut sorted = arguments.clone();
    sorted.sort_all_objects();
    xxh3_64(sorted.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use serde_json::json;

    use super::*;
    use crate::auth::Role;

    #[test]
    fn a_key_belongs_to_its_arguments_while_replies_are_kept() {
        let (keys, request) = (Keys::default(), Uuid::from_u128(1));
        let now = Instant::now();
        keys.take(request, &json!({ "a": 1, "b": { "c": 2, "d": 3 } }), now).unwrap();
        keys.take(request, &json!({ "b": { "d": 3, "c": 2 }, "a": 1 }), now).unwrap();
        assert_eq!(keys.take(request, &json!({ "a": 2 }), now).unwrap_err().code, Code::KeyReused);
        let now = now + limits::REPLY_KEEP * 2;
        keys.take(request, &json!({ "a": 2 }), now).unwrap();
    }

    #[test]
    fn whom_a_request_named_is_known_while_replies_are_kept() {
        let (keys, request, ann) = (Keys::default(), Uuid::from_u128(1), Uuid::from_u128(2));
        let now = Instant::now();
        keys.name(request, "ann", ann, now);
        assert_eq!(keys.named(request, "ann", now), Some(ann));
        assert_eq!(keys.named(request, "bob", now), None);
        assert_eq!(keys.named(Uuid::from_u128(3), "ann", now), None);
        assert_eq!(keys.named(request, "ann", now + limits::REPLY_KEEP * 2), None);
    }

    #[test]
    fn of_too_many_keys_the_oldest_are_forgotten() {
        let (keys, now) = (Keys::default(), Instant::now());
        for number in 0..=KEPT as u128 {
            keys.take(Uuid::from_u128(number), &Value::Null, now).unwrap();
        }
        assert_eq!(keys.seen().digests.values.len(), KEPT);
        keys.take(Uuid::from_u128(0), &json!("other"), now).unwrap();
        let newest = Uuid::from_u128(KEPT as u128);
        assert_eq!(keys.take(newest, &json!("other"), now).unwrap_err().code, Code::KeyReused);
    }

    #[test]
    fn a_key_with_a_time_gives_it_to_the_request_and_to_what_follows_from_it() {
        let who = Principal::named("worker", Role::Worker);
        let key = Uuid::now_v7();
        let id = request(&who, "call_agent", Some(&key.to_string()));
        assert_eq!(id.get_timestamp(), key.get_timestamp());
        assert_eq!(id, request(&who, "call_agent", Some(&key.to_string())));
        assert_ne!(id, request(&who, "send-task", Some(&key.to_string())), "each tool has its own");
        assert_eq!(request(&who, "call_agent", Some("first")).get_version_num(), 5);
    }

    #[test]
    fn a_key_in_a_header_is_taken_or_refused_and_never_left_out() {
        let taken = |value: &[u8]| {
            let headers = HeaderMap::from_iter([(
                HeaderName::from_static(HEADER),
                HeaderValue::from_bytes(value).unwrap(),
            )]);
            key(&mut Map::new(), header(&headers)).map_err(|refusal| refusal.code)
        };
        assert_eq!(taken(b"once"), Ok(Some("once".to_owned())));
        assert_eq!(taken("G\u{e4}nse".as_bytes()), Ok(Some("G\u{e4}nse".to_owned())));
        for bad in [&b"G\xe4nse"[..], b""] {
            assert_eq!(taken(bad), Err(Code::InvalidArgument));
        }
        assert_eq!(header(&HeaderMap::new()), None);
    }

    #[test]
    fn the_argument_goes_before_the_header() {
        let mut arguments =
            Map::from_iter([(ARGUMENT.to_owned(), json!("mine")), ("x".to_owned(), json!(1))]);
        assert_eq!(key(&mut arguments, Some("theirs")).unwrap().as_deref(), Some("mine"));
        assert!(!arguments.contains_key(ARGUMENT));
        assert_eq!(key(&mut arguments, Some("theirs")).unwrap().as_deref(), Some("theirs"));
        assert_eq!(key(&mut arguments, None).unwrap(), None);
        for bad in [json!(7), json!(""), json!("k".repeat(201))] {
            let mut arguments = Map::from_iter([(ARGUMENT.to_owned(), bad)]);
            assert_eq!(key(&mut arguments, None).unwrap_err().code, Code::InvalidArgument);
        }
    }
}
