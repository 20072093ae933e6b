//! A call that is repeated, at one node after another and with the same idempotency key, until one of them says what
//! became of it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Field, Map};
use crate::history::Outcome;
use crate::mcp::Client;

/// How long all nodes together may take to answer.
const LONGEST: Duration = Duration::from_secs(20);
/// Before the next node is asked: nothing tells when one is there again.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Patient {
    client: Client,
    map: watch::Receiver<Map>,
    /// The node that is asked first.
    home: usize,
    /// How long one node may take.
    patience: Duration,
}

impl Patient {
    pub(super) fn new(token: &str, field: &Field, home: usize) -> Self {
        Self { client: Client::new("", token), map: field.map.clone(), home, patience: field.patience }
    }

    /// A refusal is an answer too; a failure of the service is none.
    pub(super) async fn ask(&self, tool: &str, mut arguments: Value, changes: bool) -> Outcome<Value> {
        if changes {
            arguments["idempotency_key"] = json!(Uuid::new_v4());
        }
        let began = Instant::now();
        let mut node = self.home;
        while began.elapsed() < LONGEST {
            let url = {
                let nodes = &self.map.borrow().nodes;
                nodes[node % nodes.len()].clone()
            };
            let client = self.client.at(&url);
            let asked = tokio::time::timeout(self.patience, client.call(tool, arguments.clone())).await;
            if let Ok(Ok(answer)) = asked {
                return told(answer);
            }
            node += 1;
            tokio::time::sleep(PAUSE).await;
        }
        Outcome::Unknown
    }
}

/// The tools of Agent Swarm say `success`, those of Action Llama `ok`, and the others are errors when they refuse.
fn told(answer: Value) -> Outcome<Value> {
    let refused = ["success", "ok"].iter().any(|field| answer[*field] == json!(false));
    match refused {
        true => Outcome::Fail(answer["code"].as_str().unwrap_or_default().to_owned()),
        false => Outcome::Ok(answer),
    }
}
