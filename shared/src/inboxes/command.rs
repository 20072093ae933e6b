//! What the inboxes can be asked, and what they answer.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::state::{Message, Source};
use crate::code::Refusal;
use crate::denied::Denied;
use crate::mail::Ids;
use crate::pool::Create;
use crate::slack::{Note, Said};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    Deliver(Box<Deliver>),
    /// A person said something in Slack, and the pool knows nobody who works in that thread. In a thread that an inbox
    /// has had a message of it is for `lead`, else for `otherwise`, else for nobody. `request` is what was said without
    /// whom it names, as the agent reads it.
    Hear {
        said: Said,
        request: String,
        otherwise: Option<Uuid>,
        /// Who leads now: whoever had the thread's newest message may have left. Pools of an earlier release do not say
        /// it, and then it is for whoever had that message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lead: Option<Uuid>,
        /// What the person is told once the message is in an inbox.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<Box<Note>>,
    },
    /// Hands out the agent's oldest unread messages, five at most.
    Take {
        agent: Uuid,
        limit: u32,
    },
    /// The agent answered the message.
    Respond {
        agent: Uuid,
        message: Uuid,
        text: String,
    },
    /// Has a task made of the message. The pool is told to, and should it refuse, the message comes back.
    Delegate {
        agent: Uuid,
        message: Uuid,
        /// Without an id the task gets one, which the answer names.
        task: Box<Create>,
    },
    /// The pool made no task of the message.
    Return {
        agent: Uuid,
        message: Uuid,
        task: Uuid,
        refusal: Refusal,
    },
    /// How the agent's open message stands. Messages that ended are on the read side alone.
    Get {
        agent: Uuid,
        message: Uuid,
    },
    /// The agent is about to post something in Slack. Each try has an attempt of its own, and a repeat of the request
    /// is told that of its first one.
    Post {
        agent: Uuid,
        attempt: String,
    },
    /// How many unread messages the agent has.
    Count {
        agent: Uuid,
    },
    /// The agent's oldest open messages, so many at most.
    Open {
        agent: Uuid,
        limit: u32,
    },
    /// From the pool: this agent leads. What others have left open in their inboxes is for it to read, and what comes
    /// for one who led when it was sent.
    Inherit {
        lead: Uuid,
    },
    /// The service has found that an agent that is named is no member.
    Denied(Denied<Command>),
    /// Makes forgotten messages unread again, ends notices that were handed out, and forgets old deliveries.
    Tick,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deliver {
    pub agent: Uuid,
    pub content: String,
    pub source: Source,
    #[serde(default)]
    pub slack: Slack,
    /// Where at AgentMail it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mail: Option<Ids>,
    /// The provider's id of the event. A repeat within seven days makes no second message.
    #[serde(default)]
    pub dedupe: Option<String>,
}

/// Where in Slack a message came from, under the names that it has in the body.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Slack {
    #[serde(rename = "slackChannelId", skip_serializing_if = "Option::is_none")]
    pub channel_id: Option<String>,
    #[serde(rename = "slackThreadTs", skip_serializing_if = "Option::is_none")]
    pub thread_ts: Option<String>,
    #[serde(rename = "slackUserId", skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// What in the text led to the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matched_text: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The message's id; a repeat gets that of the first delivery.
    Delivered {
        message: Uuid,
        repeated: bool,
    },
    /// Ids, oldest first; `message/<id>` are the documents.
    Taken(Vec<Uuid>),
    Message(Message),
    /// The fields that changed, as clients see them.
    Ended(Value),
    Count {
        unread: u64,
    },
    /// Ids, oldest first, and how many are open in all. Those that others have left are counted too: they come to the
    /// lead, who may ask before they have.
    Open {
        messages: Vec<Uuid>,
        count: u64,
    },
    Posts {
        attempt: String,
    },
    Done,
}
