//! How long a question is asked again, and what its asker is told in the end: the router's decisions, without I/O.

use std::time::Duration;

use skein_shared::{Code, Refusal};
use tokio::time::Instant;

/// How long to wait before a shard without an owner is looked at again when nobody tells of one; longer each time.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A question on its way to the owner of an entity, whoever that is.
#[derive(Debug)]
pub struct Errand {
    end: Instant,
    pause: Duration,
    /// What to say if nobody answers any more: a try that was not answered may have been carried out.
    silent: Option<Refusal>,
}

/// What follows an outcome.
#[derive(Debug)]
pub enum Next<T> {
    Done(Result<T, Refusal>),
    /// The owner has changed or is silent: ask again after this pause, or when owners change.
    Again(Duration),
}

impl Errand {
    pub fn new(end: Instant) -> Self {
        Self { end, pause: FIRST_PAUSE, silent: None }
    }

    /// The time that is left.
    pub fn left(&self, now: Instant) -> Duration {
        self.end.saturating_duration_since(now)
    }

    /// Notes that a node which was asked gave no answer.
    pub fn unanswered(&mut self, refusal: Refusal) {
        self.silent = Some(refusal);
    }

    /// Whether an earlier try may have been carried out.
    pub fn may_be_done(&self) -> bool {
        self.silent.is_some()
    }

    /// Says whether an outcome is the last word. That nothing was done at one try says nothing about an earlier one
    /// that was not answered.
    pub fn heard<T>(&mut self, outcome: Result<T, Refusal>, now: Instant) -> Next<T> {
        let refusal = match outcome {
            Err(refusal) if was_not_tried(refusal.code) => refusal,
            done => return Next::Done(done),
        };
        if refusal.code == Code::NotOwner && now + self.pause < self.end {
            return Next::Again(self.pause);
        }
        Next::Done(Err(self.silent.take().unwrap_or(refusal)))
    }

    /// Nothing happened during the pause: the next one is longer.
    pub fn slower(&mut self) {
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whether a refusal means that the command was not decided.
fn was_not_tried(code: Code) -> bool {
    matches!(code, Code::NotOwner | Code::Unavailable | Code::Overloaded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: Code) -> Result<(), Refusal> {
        Err(Refusal::new(code, "no"))
    }

    fn told(next: Next<()>) -> Option<Code> {
        match next {
            Next::Done(outcome) => Some(outcome.unwrap_err().code),
            Next::Again(_) => None,
        }
    }

    #[test]
    fn an_owner_that_changes_is_asked_again_until_the_time_is_over() {
        let begun = Instant::now();
        let mut errand = Errand::new(begun + Duration::from_secs(1));
        assert_eq!(told(errand.heard(refused(Code::NotOwner), begun)), None);
        let late = begun + Duration::from_millis(990);
        assert_eq!(told(errand.heard(refused(Code::NotOwner), late)), Some(Code::NotOwner));
        assert_eq!(told(errand.heard(refused(Code::LockHeld), begun)), Some(Code::LockHeld));
    }

    #[test]
    fn what_a_later_try_did_not_do_an_earlier_one_may_have_done() {
        let begun = Instant::now();
        let mut errand = Errand::new(begun + Duration::from_secs(1));
        assert!(!errand.may_be_done());
        errand.unanswered(Refusal::new(Code::Unknown, "it did not answer"));
        assert!(errand.may_be_done());
        assert_eq!(told(errand.heard(refused(Code::NotOwner), begun)), None);
        assert_eq!(told(errand.heard(refused(Code::Unavailable), begun)), Some(Code::Unknown));
    }
}
