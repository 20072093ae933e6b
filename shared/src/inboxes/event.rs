//! What happens in inboxes.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::command::Slack;
use super::state::Source;
use crate::code::Refusal;
use crate::mail::Ids;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Delivered {
        message: Uuid,
        number: u64,
        agent: Uuid,
        content: String,
        source: Source,
        slack: Slack,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mail: Option<Box<Ids>>,
        /// The digest of the delivery's key.
        seen: Option<Uuid>,
        at: Timestamp,
    },
    /// The oldest notice of a full inbox has made room for a newer message.
    GaveWay {
        message: Uuid,
        at: Timestamp,
    },
    Taken {
        agent: Uuid,
        messages: Vec<Uuid>,
        at: Timestamp,
    },
    Responded {
        message: Uuid,
        text: String,
        at: Timestamp,
    },
    Delegated {
        message: Uuid,
        task: Uuid,
        at: Timestamp,
    },
    /// The pool made no task of it: it is unread again, as the newest.
    Returned {
        message: Uuid,
        number: u64,
        agent: Uuid,
        task: Uuid,
        refusal: Refusal,
        at: Timestamp,
    },
    /// Something is about to be posted in Slack. It changes nothing here; its answer is what is kept.
    Posting {
        agent: Uuid,
        attempt: String,
        at: Timestamp,
    },
    /// They were handed out and forgotten.
    Released {
        messages: Vec<Uuid>,
        at: Timestamp,
    },
    /// They are notices that were handed out.
    Read {
        messages: Vec<Uuid>,
        at: Timestamp,
    },
    /// They are the new lead's, who has seen none of them, and what comes from here on is too.
    HandedOn {
        lead: Uuid,
        messages: Vec<Uuid>,
        at: Timestamp,
    },
    /// A new owner of the entity gives those who work on them a full period from `since`.
    Kept {
        messages: Vec<Uuid>,
        since: Timestamp,
    },
    /// These deliveries will not come again, and in these threads nobody has written for long.
    Forgotten {
        seen: Vec<Uuid>,
        #[serde(default)]
        threads: Vec<Uuid>,
    },
}
