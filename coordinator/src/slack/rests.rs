//! How long nobody asks Slack for a channel, for which it refuses what an operator has to mend.
//!
//! Each thread of it tries again by itself, for days, and all of a workspace share what Slack allows them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::error::Error;

/// The first rest; each further one is twice as long.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);

#[derive(Default)]
pub(super) struct Rests(Mutex<BTreeMap<String, Rest>>);

struct Rest {
    until: Instant,
    length: Duration,
    problem: Error,
}

impl Rests {
    /// What Slack has refused a moment ago.
    pub(super) fn problem(&self, channel: &str) -> Option<Error> {
        let rests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = rests.get(channel).filter(|rest| Instant::now() < rest.until)?;
        Some(rest.problem.clone())
    }

    /// Takes note of what came of asking it.
    pub(super) fn note(&self, channel: &str, told: &Result<(), Error>) {
        let mut rests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = rests.remove(channel);
        let Err(problem) = told else { return };
        if !problem.may_be_mended() {
            return;
        }
        let length = before.map_or(SHORTEST, |rest| (rest.length * 2).min(LONGEST));
        let rest = Rest { until: Instant::now() + length, length, problem: problem.clone() };
        rests.insert(channel.to_owned(), rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(error: &str) -> Result<(), Error> {
        Err(Error::Refused { method: "conversations.replies", error: error.to_owned(), needed: None })
    }

    #[tokio::test(start_paused = true)]
    async fn a_channel_rests_longer_and_longer_until_it_is_mended() {
        let rests = Rests::default();
        let mut asked = 0;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(3600) {
            if rests.problem("C1").is_none() {
                asked += 1;
                rests.note("C1", &refused("missing_scope"));
            }
            assert_eq!(rests.problem("C2"), None, "it is no matter of other channels");
            tokio::time::advance(Duration::from_millis(500)).await;
        }
        assert!((15..25).contains(&asked), "{asked}");
        rests.note("C1", &Ok(()));
        rests.note("C1", &refused("missing_scope"));
        tokio::time::advance(SHORTEST).await;
        assert_eq!(rests.problem("C1"), None, "it begins anew");
        rests.note("C1", &refused("channel_not_found"));
        assert_eq!(rests.problem("C1"), None, "nobody mends that");
    }
}
