//! What happens to the memory.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::command::{Embedding, Remember};
use super::vector::Model;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Remembered {
        memory: Uuid,
        learning: Box<Remember>,
        /// The indexed file that it came from, and what that file's new content replaces. Of a piece that came by
        /// itself alone.
        file: Option<Uuid>,
        replaces: Vec<Uuid>,
        at: Timestamp,
    },
    /// These are what a file says from here on, in its order. What it said before is forgotten.
    Filed {
        file: Uuid,
        memories: Vec<Uuid>,
    },
    Forgotten {
        memory: Uuid,
    },
    /// It was read, or learnt once more.
    Touched {
        memory: Uuid,
        at: Timestamp,
    },
    Embedded {
        model: Model,
        embedding: Box<Embedding>,
    },
}
