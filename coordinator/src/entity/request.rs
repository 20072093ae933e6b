//! What comes with a command: whose repeat it is, and how long somebody waits.

use std::time::Duration;

use uuid::Uuid;

/// Who asks for what once: the id that makes a repeat harmless, and how long the caller waits.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub id: Uuid,
    pub timeout: Duration,
    /// Whether the answer is kept, so that a repeat gets it again. Reads and internal ticks need none.
    pub keep_reply: bool,
    /// Whether a repeat could do something a second time if no answer is kept.
    pub changes: bool,
}

impl Request {
    pub const TIMEOUT: Duration = Duration::from_secs(30);

    /// A request whose repeat has to return the same answer.
    pub fn once(id: Uuid) -> Self {
        Self { id, timeout: Self::TIMEOUT, keep_reply: true, changes: true }
    }

    /// What another node has sent on.
    pub(super) fn forwarded(id: Uuid, timeout: Duration, keep: bool) -> Self {
        Self { id, timeout, keep_reply: keep, changes: keep }
    }

    /// Whether another node has to keep the answer: a change that is sent on may have to be sent again, to a third one
    /// perhaps.
    pub(super) fn kept_elsewhere(&self) -> bool {
        self.keep_reply || self.changes
    }

    /// The same in the time that is left, once more if it may have been done: then an answer is kept for it.
    #[must_use]
    pub fn again(self, left: Duration, may_be_done: bool) -> Self {
        Self { timeout: left, keep_reply: self.keep_reply || (may_be_done && self.changes), ..self }
    }

    /// A request that changes nothing that a repeat could double.
    pub fn read() -> Self {
        Self { id: Uuid::now_v7(), timeout: Self::TIMEOUT, keep_reply: false, changes: false }
    }
}
