//! What can be asked of the triggers of a swarm, and what they answer.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::event::Resumption;
use super::filter::{Envelope, Filter};
use crate::forge::Activity;
use crate::id::{EntityKey, InstanceId, Name};
use crate::mail::Letter;
use crate::slack::Said;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// An event from outside. A second delivery of the same event does nothing and says so.
    Deliver {
        incoming: Incoming,
    },
    /// An instance waits for an event. Answered by an effect to `reply_to`, for the freeze waits for it.
    Register {
        wait: Uuid,
        agent: Name,
        instance: InstanceId,
        filter: Filter,
        registered_at: Timestamp,
        deadline: Timestamp,
        broadcast: bool,
        reply_to: EntityKey,
    },
    /// The wait is over: it timed out or its instance ended.
    Cancel {
        wait: Uuid,
    },
    /// The agent had ended the wait before the event reached it, and gives the event back. `payload` is the
    /// envelope as it came: bodies are not kept in memory.
    Unclaimed {
        receipt: Uuid,
        agent: Name,
        wait: Uuid,
        payload: Envelope,
        /// The event and what it repeats on request, from the receipt: the swarm may have to hear of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept: Option<Box<Kept>>,
    },
    /// A genuine request that could not be read. It is written down, so that somebody can see what was sent.
    Reject {
        rejected: Rejected,
    },
    /// From an agent: the run that the event asked for is not to be.
    Refused {
        receipt: Uuid,
        agent: Name,
        reason: String,
    },
    /// From an agent: the run that it had refused is to be after all.
    TakenUp {
        receipt: Uuid,
        agent: Name,
    },
    /// Replaces the agent's subscriptions; an empty list ends them.
    Subscribe {
        agent: Name,
        filters: Vec<Filter>,
    },
    /// Hands on the event of receipt `of` once more, under a new receipt. The service takes `incoming` from
    /// the receipt's body.
    Replay {
        of: Uuid,
        incoming: Incoming,
    },
    /// Pauses all agents of the swarm, or ends that. The service tells the agents.
    Pause {
        paused: bool,
    },
    /// Asks what was said last.
    AskPause,
    /// The receipts since a moment, the oldest first, so many at most: from the one behind `after` on, which was the
    /// last of the page before.
    ReceivedSince {
        at: Timestamp,
        limit: usize,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Uuid>,
    },
    Tick,
}

/// A verified event from outside, as the ingress wrote it down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Incoming {
    pub receipt: Uuid,
    /// The provider's id of the delivery, empty if it has none; then only `receipt` tells repeats.
    pub delivery: String,
    /// The configured name of the webhook source.
    pub source: String,
    /// The kind of source: `github`, `slack`, ….
    pub provider: String,
    pub event: String,
    /// The fields that all providers share, in one flat object.
    pub context: Value,
    /// The body as the provider sent it.
    pub payload: Value,
    pub received_at: Timestamp,
    /// Nobody's signature was asked for, so anybody may have sent it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsigned: bool,
    /// What a person says with it, if the swarm talks to people there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<Box<Said>>,
    /// The letter that somebody wrote with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub letter: Option<Box<Letter>>,
    /// What somebody did with it at a forge where the swarm has a bot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<Box<Activity>>,
}

/// What the body of a receipt says of its event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    pub incoming: Incoming,
    #[serde(default)]
    pub replay_of: Option<Uuid>,
}

/// A request that was signed by its source, and is no event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rejected {
    pub receipt: Uuid,
    pub source: String,
    pub provider: String,
    /// What was wrong with it.
    pub problem: String,
    /// The body, as much of it as is kept.
    pub body: String,
    pub received_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Delivered {
        /// For a duplicate the receipt of the first delivery.
        receipt: Uuid,
        duplicate: bool,
        resumed: Vec<Resumption>,
        /// Agents whose subscription starts a run.
        started: Vec<Name>,
        /// The swarm hears of it, for none of its agents had asked for it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        heard: bool,
    },
    Registered {
        wait: Uuid,
    },
    /// Whether the swarm's agents are paused. `word` rises with each change.
    Pause {
        paused: bool,
        word: u64,
    },
    Receipts(Vec<Uuid>),
    Done,
}
