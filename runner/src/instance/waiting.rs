//! Starts that wait until what an instance was before has ended here. What is told of the instance meanwhile is told of
//! the latest of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use skein_shared::fence::Token;

use super::ledger::{Row, State};
use super::machine::REST;
use super::{CALLED_OFF, Instances};
use crate::error::Error;

/// What comes once the earlier one has ended.
#[derive(Clone)]
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

    fn get(&self, instance: &str) -> Option<Waiting> {
        self.lock().get(instance).cloned()
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

impl Instances {
    /// Starts what waited for the end of an instance, or says that it was called off.
    pub(super) async fn go_on(self: &Arc<Self>, instance: &str, waiting: Waiting) -> Result<(), Error> {
        match waiting {
            Waiting::Start(row, input) => self.start(*row, &input).await,
            Waiting::CalledOff(token) => {
                let Some(mut row) = self.shared.ledger.row(instance).await? else { return Ok(()) };
                (row.state, row.exit, row.reason) = (State::Ended, None, CALLED_OFF.to_owned());
                self.shared.report_end(row, token).await
            }
        }
    }

    /// The same with whatever waits, as often as it takes: nobody else would, and whoever has commanded it waits for
    /// its word. A runner that leaves does not, for its next registration has it commanded again. In a box, for a start
    /// ends in this once more.
    pub(super) fn go_on_at_last<'a>(self: &'a Arc<Self>, instance: &'a str) -> BoxFuture<'a, ()> {
        let going = async move {
            loop {
                let turn = self.taking.lock().await;
                // It stays in the line until then: what is told of it meanwhile is told of this.
                let Some(waiting) = self.line.get(instance) else { return };
                let Err(error) = self.go_on(instance, waiting).await else {
                    self.line.take(instance);
                    return;
                };
                drop(turn);
                tracing::error!(instance, %error, "an instance was not started anew; tried again");
                if self.tasks.is_closed() {
                    return;
                }
                tokio::time::sleep(REST).await;
            }
        };
        going.boxed()
    }
}
