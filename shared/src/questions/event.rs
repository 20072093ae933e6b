//! What happens to questions.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::command::Ask;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Asked {
        question: Uuid,
        ask: Box<Ask>,
        at: Timestamp,
        expires: Timestamp,
    },
    Answered {
        question: Uuid,
        /// Who answered, by name; and as an agent of the swarm, if it was one.
        by: String,
        agent: Option<Uuid>,
        answer: String,
        at: Timestamp,
    },
    Declined {
        question: Uuid,
        by: String,
        agent: Option<Uuid>,
        reason: Option<String>,
        at: Timestamp,
    },
    Withdrawn {
        question: Uuid,
        at: Timestamp,
    },
    Expired {
        question: Uuid,
        at: Timestamp,
    },
    /// What came of them is too old, or too much.
    Forgotten {
        questions: Vec<Uuid>,
    },
    /// Somebody has come to lead; or whoever led is no member any more, and nobody is told until the next one comes.
    LeadChanged {
        lead: Option<Uuid>,
    },
}
