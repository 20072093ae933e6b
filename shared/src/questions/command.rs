//! What the questions can be asked, and what they answer.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::caller::Caller;
use crate::code::Refusal;
use crate::id::InstanceId;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    Ask(Box<Ask>),
    Answer {
        question: Uuid,
        by: By,
        answer: String,
    },
    /// Nobody will answer it.
    Decline {
        question: Uuid,
        by: By,
        #[serde(default)]
        reason: Option<String>,
    },
    /// Its asker wants no answer any more.
    Withdraw {
        question: Uuid,
        by: Uuid,
    },
    /// Their asker is no member of the swarm any more: it has nothing that waits for an answer, and does not lead.
    WithdrawAll {
        agent: Uuid,
    },
    /// From the pool: this agent has come to lead. It is told of the questions that wait for an answer, and of those
    /// that come.
    TellLead {
        lead: Uuid,
    },
    /// Ends the questions whose time is over, and forgets what is too old.
    Tick,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    pub agent: Uuid,
    /// As the message to the lead names it.
    pub name: String,
    pub instance: InstanceId,
    /// The task that waits for the answer.
    #[serde(default)]
    pub task: Option<Uuid>,
    pub question: String,
    /// Any text is an answer where there are none.
    #[serde(default)]
    pub choices: Vec<String>,
    /// How long it stays open; without one for as long as a question may.
    #[serde(default)]
    pub open_for: Option<Duration>,
    /// The one task that the asker works on, if it is one: it waits where none is named. The service looks it up.
    #[serde(default)]
    pub at_work: Option<Uuid>,
    /// Whom to tell of it while the pool has said of nobody that it leads: the lead, unless it asks itself. The service
    /// looks it up.
    #[serde(default)]
    pub lead: Option<Uuid>,
    /// Why the task that is named cannot wait for the answer. The service looks it up; a question that was asked before
    /// is answered all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied: Option<Refusal>,
}

/// Who answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct By {
    pub caller: Caller,
    pub name: String,
    pub through: Through,
}

/// On which way an answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Through {
    /// From a lead or an operator, on a way of their own.
    Swarm,
    /// From the person in front of the asker's own client.
    Client,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Asked(Asked),
    Done,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// The question as clients see it.
    #[serde(flatten)]
    pub question: Value,
    /// Whether a lead is told of it. Answers of earlier programs do not say it.
    #[serde(default)]
    pub lead_told: Option<bool>,
}
