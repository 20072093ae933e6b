//! Starts that wait until what an instance was before has ended here. What is told of the instance meanwhile is told of
//! the latest of them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use skein_shared::fence::Token;

use super::ledger::Row;

/// What comes once the earlier one has ended.
pub(super) enum Waiting {
    /// A start, with its input.
    Start(Box<Row>, Value),
    /// The start was called off, by a command of this token: it hears that nothing began.
    CalledOff(Token),
}

impl Waiting {
    fn token(&self) -> Token {
        match self {
            Self::Start(row, _) => row.token,
            Self::CalledOff(token) => *token,
        }
    }
}

/// One for each instance at most.
#[derive(Default)]
pub(super) struct Line(Mutex<HashMap<String, Waiting>>);

impl Line {
    /// Whoever was there gives way.
    pub(super) fn put(&self, instance: &str, waiting: Waiting) {
        self.lock().insert(instance.to_owned(), waiting);
    }

    pub(super) fn take(&self, instance: &str) -> Option<Waiting> {
        self.lock().remove(instance)
    }

    /// The highest token of what waits.
    pub(super) fn token(&self, instance: &str) -> Option<Token> {
        self.lock().get(instance).map(Waiting::token)
    }

    /// The instance was given away, as of this token: what came after it still comes.
    pub(super) fn give_away(&self, instance: &str, known: Token) {
        let mut line = self.lock();
        if line.get(instance).is_some_and(|waiting| waiting.token() <= known) {
            line.remove(instance);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
