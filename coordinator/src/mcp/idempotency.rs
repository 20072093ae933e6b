//! The id of a request: its repeat has the same one, so that a lost answer never leads to a second task.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

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
/// Most keys that are remembered, some 80 bytes each; the oldest go first.
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

/// The key of a request to a route, if its header has one, and the id of that request.
///
/// # Errors
/// As [`key`].
pub fn of_route(parts: &Parts, who: &Principal) -> Result<(Option<String>, Uuid), Refusal> {
    let header = parts.headers.get(HEADER).and_then(|key| key.to_str().ok());
    let key = key(&mut Map::new(), header)?;
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

/// The arguments that each key came with. The entities refuse a reused key by themselves and durably; this
/// also catches one whose other arguments lead to another entity, such as a call to another agent.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    digests: HashMap<Uuid, u64>,
    by_age: VecDeque<(Instant, Uuid)>,
}

impl Keys {
    /// Notes the arguments of a request, or compares them with those of its earlier try.
    ///
    /// # Errors
    /// `idempotency_key_reused` when the key came with other arguments before.
    pub fn take(&self, request: Uuid, arguments: &Value, now: Instant) -> Result<(), Refusal> {
        let digest = digest(arguments);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(&(at, oldest)) = seen.by_age.front()
            && (now.duration_since(at) > limits::REPLY_KEEP || seen.by_age.len() >= KEPT)
        {
            seen.by_age.pop_front();
            seen.digests.remove(&oldest);
        }
        match seen.digests.get(&request) {
            Some(known) if *known == digest => Ok(()),
            Some(_) => Err(Refusal::new(
                Code::KeyReused,
                format!(
                    "this {ARGUMENT} was used before with other arguments; use a new key for a new request"
                ),
            )),
            None => {
                seen.digests.insert(request, digest);
                seen.by_age.push_back((now, request));
                Ok(())
            }
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
    fn of_too_many_keys_the_oldest_are_forgotten() {
        let (keys, now) = (Keys::default(), Instant::now());
        for number in 0..=KEPT as u128 {
            keys.take(Uuid::from_u128(number), &Value::Null, now).unwrap();
        }
        assert_eq!(keys.seen.lock().unwrap().digests.len(), KEPT);
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
