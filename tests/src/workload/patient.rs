//! A call that is repeated, at one node after another and with the same idempotency key, until one of them says what
//! became of it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

use super::Field;
use crate::history::Outcome;
use crate::mcp::Client;

/// How long all nodes together may take to answer.
const LONGEST: Duration = Duration::from_secs(20);
/// Before the next node is asked: nothing tells when one is there again.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Patient {
    client: Client,
    field: Arc<Field>,
    /// The node that is asked first, which tells clients apart.
    home: usize,
}

impl Patient {
    pub(super) fn new(token: &str, field: &Arc<Field>, home: usize) -> Self {
        Self { client: Client::new("", token), field: Arc::clone(field), home }
    }

    /// A refusal is an answer too; a failure of the service is none. Whoever has given up a try does not know from a
    /// later one that came to nothing whether that has any effect: it may be on its way still, and arrive behind the
    /// other.
    pub(super) async fn ask(&self, tool: &str, mut arguments: Value, changes: bool) -> Outcome<Value> {
        if changes {
            arguments["idempotency_key"] = json!(Uuid::new_v4());
        }
        let began = Instant::now();
        let (mut node, mut has_given_up) = (self.home, false);
        while began.elapsed() < LONGEST {
            let (place, url) = {
                let nodes = &self.field.map.borrow().nodes;
                (node % nodes.len(), nodes[node % nodes.len()].clone())
            };
            let (client, from) = (self.client.at(&url), self.field.claims.now());
            let asked = tokio::time::timeout(self.field.patience, client.call(tool, arguments.clone())).await;
            self.field.note_try(format!(
                "client {}, {from:?} to {:?}, {tool} {arguments} at {place}: {asked:?}",
                self.home,
                self.field.claims.now()
            ));
            match asked {
                Ok(Ok(answer)) if has_given_up && changes && came_to_nothing(&answer) => {
                    return Outcome::Unknown;
                }
                Ok(Ok(answer)) => return told(answer),
                Ok(Err(_)) | Err(_) => has_given_up = true,
            }
            node += 1;
            tokio::time::sleep(PAUSE).await;
        }
        Outcome::Unknown
    }
}

/// Whether an answer says that nothing was changed.
fn came_to_nothing(answer: &Value) -> bool {
    let found_none = answer.get("waited_seconds").is_some() && answer.get("task").is_none();
    let handed_again = answer["redelivered"] == json!(true);
    found_none || handed_again || matches!(told(answer.clone()), Outcome::Fail(_))
}

/// The tools of Agent Swarm say `success`, those of Action Llama `ok`, and the others are errors when they refuse.
fn told(answer: Value) -> Outcome<Value> {
    let refused = ["success", "ok"].iter().any(|field| answer[*field] == json!(false));
    match refused {
        true => Outcome::Fail(answer["code"].as_str().unwrap_or_default().to_owned()),
        false => Outcome::Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_out_again_says_nothing_of_an_earlier_try() {
        let claimed = |again: bool| json!({"waited_seconds": 0, "task": {"id": "a"}, "redelivered": again});
        assert!(came_to_nothing(&claimed(true)) && !came_to_nothing(&claimed(false)));
        assert!(came_to_nothing(&json!({"waited_seconds": 5})));
        assert!(came_to_nothing(&json!({"ok": false, "code": "lock_held"})));
    }
}
