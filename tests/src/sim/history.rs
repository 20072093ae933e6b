//! What clients asked and were told.

use serde_json::Value;
use skein_shared::Code;
use uuid::Uuid;

/// What a client wanted.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    Acquire { key: String, ttl_ms: u64 },
    Release { key: String },
    Join,
    Create { task: Uuid },
    ClaimNext,
    Poll,
    Finish { task: Uuid },
    GiveBack { task: Uuid },
    Deliver { text: String },
    Take,
    Schedule { name: String },
    Define,
    Redefine { usual: bool },
    Pause { paused: bool },
    Run,
    Kill,
    Subscribe,
    Ring { receipt: Uuid },
    Wait { instance: String, wait: Uuid },
    Register,
    Report,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It took effect, with this answer.
    Ok(Value),
    /// It was refused: certainly it has had no effect.
    Fail(Code),
    /// Nobody said, or not for certain.
    Unknown,
}

/// One operation. Times are in microseconds.
#[derive(Clone, Debug)]
pub struct Operation {
    pub client: usize,
    pub call: Call,
    pub request: Uuid,
    pub invoked: u64,
    /// `u64::MAX` while the outcome is unknown.
    pub returned: u64,
    pub outcome: Outcome,
}

impl Operation {
    pub fn answer(&self) -> Option<&Value> {
        match &self.outcome {
            Outcome::Ok(answer) => Some(answer),
            _ => None,
        }
    }

    pub fn may_have_happened(&self) -> bool {
        !matches!(self.outcome, Outcome::Fail(_))
    }
}

/// A write that the guarded resource took.
#[derive(Clone, Debug)]
pub struct Write {
    pub key: String,
    pub client: usize,
    pub token: String,
}
