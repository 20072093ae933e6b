//! The id of a request: its repeat has the same one, so that a lost answer never leads to a second task.

use serde_json::{Map, Value};
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use crate::auth::Principal;

/// The argument that every changing tool takes besides its own.
pub const ARGUMENT: &str = "idempotency_key";
/// The header that a runner's endpoint sends, once for each request of the agent and again on fail-over.
pub const HEADER: &str = "idempotency-key";
const LONGEST: usize = 200;

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

/// The id of a call: always the same for the same caller, tool and key; a fresh one without a key.
///
/// The instance is part of it: two instances of one agent may number their calls alike.
pub fn request(who: &Principal, tool: &str, key: Option<&str>) -> Uuid {
    let Some(key) = key else { return Uuid::now_v7() };
    let name = [who.swarm.as_str(), who.instance.as_str(), tool, key].join("\n");
    Uuid::new_v5(&who.agent, name.as_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
