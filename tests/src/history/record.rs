//! Operations with their times, by one monotonic clock.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Time since the recording began.
pub type Moment = Duration;

/// A time in which what was told may have been undone later: none, if nothing was lost.
pub type Lost = Range<Moment>;

/// Nothing was lost.
pub const NOTHING: Lost = Moment::MAX..Moment::MAX;

/// What a client knows of its operation in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<A> {
    /// It took effect, with this answer.
    Ok(A),
    /// It was refused with this code: certainly it has had no effect.
    Fail(String),
    /// Nobody said.
    Unknown,
}

impl<A> Outcome<A> {
    pub fn map<B>(self, into: impl FnOnce(A) -> B) -> Outcome<B> {
        match self {
            Self::Ok(answer) => Outcome::Ok(into(answer)),
            Self::Fail(code) => Outcome::Fail(code),
            Self::Unknown => Outcome::Unknown,
        }
    }
}

/// One operation of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<C, A> {
    pub client: usize,
    pub call: C,
    pub invoked: Moment,
    /// [`Moment::MAX`] while the outcome is unknown: it may still take effect.
    pub returned: Moment,
    pub outcome: Outcome<A>,
}

impl<C, A> Operation<C, A> {
    /// The answer, if it took effect for certain.
    pub fn answer(&self) -> Option<&A> {
        match &self.outcome {
            Outcome::Ok(answer) => Some(answer),
            _ => None,
        }
    }

    /// Whether it can have had an effect.
    pub fn may_have_happened(&self) -> bool {
        !matches!(self.outcome, Outcome::Fail(_))
    }
}

/// Takes operations down as they are invoked and as they return. Cheap to clone.
pub struct Recorder<C, A> {
    began: Instant,
    operations: Arc<Mutex<Vec<Operation<C, A>>>>,
}

impl<C, A> Clone for Recorder<C, A> {
    fn clone(&self) -> Self {
        Self { began: self.began, operations: Arc::clone(&self.operations) }
    }
}

impl<C: Clone, A: Clone> Recorder<C, A> {
    /// Recorders of one history begin at one moment.
    pub fn new(began: Instant) -> Self {
        Self { began, operations: Arc::default() }
    }

    pub fn now(&self) -> Moment {
        self.began.elapsed()
    }

    /// Carries out an operation. Whoever drops it half way leaves it unknown.
    pub async fn run(&self, client: usize, call: C, work: impl Future<Output = Outcome<A>>) -> Outcome<A> {
        let place = {
            let mut operations = self.operations.lock().unwrap_or_else(PoisonError::into_inner);
            let invoked = self.now();
            operations.push(Operation {
                client,
                call,
                invoked,
                returned: Moment::MAX,
                outcome: Outcome::Unknown,
            });
            operations.len() - 1
        };
        let outcome = work.await;
        if outcome_is_known(&outcome) {
            let returned = self.now();
            let mut operations = self.operations.lock().unwrap_or_else(PoisonError::into_inner);
            operations[place].returned = returned;
            operations[place].outcome = outcome.clone();
        }
        outcome
    }

    /// What was recorded so far, by the time of invocation.
    pub fn history(&self) -> Vec<Operation<C, A>> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn outcome_is_known<A>(outcome: &Outcome<A>) -> bool {
    !matches!(outcome, Outcome::Unknown)
}

/// What was under way or told between two moments counts for nothing: it may be so, or have been undone. Who was told a
/// little later may have been told of what was so by then.
pub fn forget_between<C: Clone, A: Clone>(
    history: &[Operation<C, A>],
    from: Moment,
    to: Moment,
) -> Vec<Operation<C, A>> {
    let was_then = |operation: &Operation<C, A>| operation.invoked <= to && operation.returned >= from;
    let forget = |operation: &Operation<C, A>| match was_then(operation) {
        true => Operation { returned: Moment::MAX, outcome: Outcome::Unknown, ..operation.clone() },
        false => operation.clone(),
    };
    history.iter().map(forget).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An operation between two milliseconds, for the checkers' tests.
    pub(crate) fn ok<C, A>(client: usize, call: C, from: u64, to: u64, answer: A) -> Operation<C, A> {
        let (invoked, returned) = (Duration::from_millis(from), Duration::from_millis(to));
        Operation { client, call, invoked, returned, outcome: Outcome::Ok(answer) }
    }

    pub(crate) fn unknown<C, A>(client: usize, call: C, from: u64) -> Operation<C, A> {
        let invoked = Duration::from_millis(from);
        Operation { client, call, invoked, returned: Moment::MAX, outcome: Outcome::Unknown }
    }

    pub(crate) fn fail<C, A>(client: usize, call: C, from: u64, to: u64) -> Operation<C, A> {
        let (invoked, returned) = (Duration::from_millis(from), Duration::from_millis(to));
        Operation { client, call, invoked, returned, outcome: Outcome::Fail("refused".to_owned()) }
    }

    /// That exactly these rules, and no other, are said to be broken.
    #[track_caller]
    pub(crate) fn breaks(found: &[String], rule: &str) {
        assert!(!found.is_empty(), "{rule} is broken and nothing was found");
        assert!(found.iter().all(|problem| problem.starts_with(rule)), "{rule} is broken, not {found:#?}");
    }

    #[test]
    fn what_is_forgotten_may_have_been() {
        let second = Duration::from_secs;
        let told = [
            ok(1, "early", 0, 10, ()),
            fail(2, "refused", 0, 2000),
            ok(3, "told late", 500, 4000, ()),
            ok(4, "late", 3500, 4000, ()),
        ];
        let kept = forget_between(&told, second(1), second(3));
        assert_eq!((&kept[0], &kept[3]), (&told[0], &told[3]));
        for forgotten in &kept[1..3] {
            assert_eq!((&forgotten.outcome, forgotten.returned), (&Outcome::Unknown, Moment::MAX));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_operation_is_unknown_until_it_returns() {
        let recorder: Recorder<&str, u32> = Recorder::new(Instant::now());
        let second = Duration::from_secs(1);
        let slow = recorder.run(0, "dropped", async {
            tokio::time::sleep(second * 5).await;
            Outcome::Ok(1)
        });
        assert!(tokio::time::timeout(second, slow).await.is_err());
        recorder.run(1, "answered", async { Outcome::Ok(2) }).await;
        recorder.run(2, "refused", async { Outcome::Fail("no".to_owned()) }).await;
        recorder.run(3, "lost", async { Outcome::Unknown }).await;
        let history = recorder.history();
        assert_eq!(history[0].outcome, Outcome::Unknown);
        assert_eq!((history[0].invoked, history[0].returned), (Moment::ZERO, Moment::MAX));
        assert_eq!(
            (history[1].invoked, history[1].returned, history[1].answer()),
            (second, second, Some(&2))
        );
        assert!(!history[2].may_have_happened() && history[2].returned == second);
        assert!(history[3].may_have_happened() && history[3].returned == Moment::MAX);
    }
}
