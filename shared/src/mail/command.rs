//! What the mail can be asked, and what it answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::letter::Letter;
use crate::caller::Caller;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// The inbox's mail is `agent`'s from now on. An inbox that is another's only the lead takes over.
    Register {
        by: Caller,
        agent: Uuid,
        inbox: String,
        #[serde(default)]
        email: Option<String>,
    },
    /// Only the agent whose it is may.
    Unregister { agent: Uuid, inbox: String },
    /// The agent's inboxes, the newest first.
    List { agent: Uuid },
    /// From the triggers: somebody has written, and no agent had asked for it.
    Receive(Box<Letter>),
    /// A task was made of a thread's newest letter: what comes next in the thread follows it.
    Follow { thread: String, task: Uuid, agent: Option<Uuid> },
    /// Forgets threads in which nobody writes any more.
    Tick,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The agent's inboxes after the change, the newest first.
    Addresses(Vec<Value>),
    Done,
}
