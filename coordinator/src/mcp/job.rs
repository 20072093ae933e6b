//! What goes on after the answer to a call. A client that can follow it gets its id, asks how it stands, and
//! finds the tool's result there once it is over.

use std::collections::BTreeMap;
use std::time::Duration;

use skein_shared::Refusal;
use skein_shared::time::Timestamp;

use super::client::Question;
use super::result::Reply;

#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub id: String,
    pub state: State,
    pub began: Timestamp,
    pub changed: Timestamp,
    /// How long it is kept from its beginning on, once that can be said.
    pub kept: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum State {
    Working,
    /// It stands still until these are answered.
    Asks(BTreeMap<String, Question>),
    /// Also when the tool has failed: then its reply says so.
    Done(Box<Reply>),
    /// It could not be run at all.
    Failed(Refusal),
    Cancelled,
}

impl Job {
    pub fn is_over(&self) -> bool {
        !matches!(self.state, State::Working | State::Asks(_))
    }
}
