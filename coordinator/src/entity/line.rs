//! What is done about the batches of one entity on their way to the store, without I/O: which is sent, which again, and
//! what is told of each.
//!
//! Two batches may be under way, so that the next one is decided and written out while the disk flushes the last.
//! Each batch names the version that it builds on, so a batch never takes effect without the one before it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use skein_shared::id::EntityKey;
use tracing::warn;

use crate::store::{Batch, CommitError, Version};

/// Batches of one entity that may be under way at once.
pub const UNDER_WAY: usize = 2;

/// How often a batch is sent again whose outcome is unknown. The pauses make some nine seconds in all, and a store that
/// is silent at each repeat, for the 5 s that it is waited for, about a minute.
const AGAIN: u32 = 11;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What became of a batch; told once for each, until the first that failed.
pub type Outcome = Result<Version, CommitError>;

/// What happens to a line.
#[derive(Debug)]
pub enum Input {
    /// A batch to commit.
    Batch(Arc<Batch>),
    /// The store's answer to the oldest batch that it was sent and has not answered.
    Answer(Outcome),
    /// The pause is over.
    Rested,
}

/// What is to be done about it.
#[derive(Debug)]
pub enum Output {
    /// Send it to the store, behind what was sent before.
    Commit(Arc<Batch>),
    /// Tell the outcome of the oldest batch that was not told.
    Tell(Outcome),
    /// Say when so much time has passed.
    Rest(Duration),
    /// A failure was told. Nothing is taken any more.
    End,
}

/// The batches that were taken and not told yet.
#[derive(Debug, Default)]
pub struct Line {
    /// Oldest first, with the answers that came.
    under_way: VecDeque<(Arc<Batch>, Option<Outcome>)>,
    state: State,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    /// All went well so far.
    #[default]
    Flowing,
    /// One did not. Nothing may be left on its way when the failure is told: whoever loads the entity then must not
    /// be overtaken by a batch that was decided before.
    Gathering,
    /// The oldest was sent again, once, because it failed behind another.
    Retrying,
    /// The oldest is sent again until the store has it, so many times until now.
    FindingOut {
        again: u32,
        pause: Duration,
    },
    Ended,
}

impl Line {
    /// Whether it takes a batch now. Others wait until what went wrong is settled.
    pub fn is_open(&self) -> bool {
        self.state == State::Flowing
    }

    /// Whether everything that was taken was told.
    pub fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Takes a step.
    pub fn on(&mut self, input: Input) -> Vec<Output> {
        let mut outputs = Vec::new();
        match input {
            Input::Batch(batch) => {
                self.under_way.push_back((Arc::clone(&batch), None));
                outputs.push(Output::Commit(batch));
            }
            Input::Answer(outcome) => self.answered(outcome, &mut outputs),
            Input::Rested => self.rested(&mut outputs),
        }
        outputs
    }

    fn answered(&mut self, outcome: Outcome, outputs: &mut Vec<Output>) {
        match self.state {
            State::Flowing if outcome.is_ok() => {
                self.under_way.pop_front();
                outputs.push(Output::Tell(outcome));
            }
            State::Flowing | State::Gathering => {
                if let Some((_, answer)) = self.under_way.iter_mut().find(|(_, answer)| answer.is_none()) {
                    *answer = Some(outcome);
                }
                self.state = State::Gathering;
                if self.under_way.iter().all(|(_, answer)| answer.is_some()) {
                    self.settle(outputs);
                }
            }
            State::Retrying => self.retried(outcome, outputs),
            State::FindingOut { again, pause } => self.found_out(outcome, again, pause, outputs),
            State::Ended => {}
        }
    }

    /// All have answers, of which some are no good.
    fn settle(&mut self, outputs: &mut Vec<Output>) {
        // A later batch builds on the earlier ones: if it is there, so are they.
        let is_known = |answer: &Option<Outcome>| answer.as_ref().is_some_and(Result::is_ok);
        let known =
            self.under_way.iter().rposition(|(_, answer)| is_known(answer)).map_or(0, |last| last + 1);
        for (batch, _) in self.under_way.drain(..known) {
            outputs.push(Output::Tell(Ok(Version(batch.expected.0 + 1))));
        }
        match self.under_way.front_mut().and_then(|(_, answer)| answer.take()) {
            None => self.state = State::Flowing,
            Some(Err(CommitError::Unknown(problem))) => self.find_out(&problem, outputs),
            Some(definite) => self.tell(definite, outputs),
        }
    }

    /// Tells of the oldest, and goes on to the next, which failed because this one was not there yet, or might have.
    fn tell(&mut self, outcome: Outcome, outputs: &mut Vec<Output>) {
        let failed = outcome.is_err();
        self.under_way.pop_front();
        outputs.push(Output::Tell(outcome));
        if failed {
            self.state = State::Ended;
            self.under_way.clear();
            outputs.push(Output::End);
            return;
        }
        match self.under_way.front_mut().map(|(batch, answer)| (Arc::clone(batch), answer.take())) {
            None => self.state = State::Flowing,
            Some((_, Some(Err(CommitError::Unknown(problem))))) => self.find_out(&problem, outputs),
            Some((batch, _)) => {
                self.state = State::Retrying;
                outputs.push(Output::Commit(batch));
            }
        }
    }

    fn retried(&mut self, outcome: Outcome, outputs: &mut Vec<Output>) {
        match outcome {
            Err(CommitError::Unknown(problem)) => self.find_out(&problem, outputs),
            definite => self.tell(definite, outputs),
        }
    }

    /// Sends the oldest, whose outcome is unknown, until the store has it.
    fn find_out(&mut self, problem: &str, outputs: &mut Vec<Output>) {
        let Some((batch, _)) = self.under_way.front() else { return };
        lost(&batch.key, problem);
        self.state = State::FindingOut { again: 0, pause: FIRST_PAUSE };
        outputs.push(Output::Commit(Arc::clone(batch)));
    }

    /// A refusal of the repeat says nothing about the first try, so the outcome stays unknown with it.
    fn found_out(&mut self, outcome: Outcome, again: u32, pause: Duration, outputs: &mut Vec<Output>) {
        match outcome {
            Ok(version) => self.tell(Ok(version), outputs),
            Err(CommitError::Unknown(problem) | CommitError::Failed(problem)) => {
                if let Some((batch, _)) = self.under_way.front() {
                    lost(&batch.key, &problem);
                }
                let longer = (pause * 2).min(LONGEST_PAUSE);
                self.state = State::FindingOut { again: again + 1, pause: longer };
                outputs.push(Output::Rest(pause));
            }
            Err(moved_on) => self.tell(Err(CommitError::Unknown(moved_on.to_string())), outputs),
        }
    }

    fn rested(&mut self, outputs: &mut Vec<Output>) {
        let State::FindingOut { again, .. } = self.state else { return };
        let Some((batch, _)) = self.under_way.front() else { return };
        if again < AGAIN {
            outputs.push(Output::Commit(Arc::clone(batch)));
            return;
        }
        let problem = "no definite answer from the store".to_owned();
        self.tell(Err(CommitError::Unknown(problem)), outputs);
    }
}

fn lost(entity: &EntityKey, problem: &str) {
    warn!(%entity, problem, "a commit's answer was lost");
}
