//! When the next call may go, so that Slack need not turn calls away.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// How many calls may come at once after a quiet time. Slack tolerates bursts and promises none.
const BURST: u32 = 5;
/// So many queues are kept before those are dropped that nobody waits in.
const QUEUES: usize = 1000;

/// Calls by what Slack counts together: a method, and for messages the channel.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When each would be quiet if nothing more came.
    quiet: BTreeMap<String, Instant>,
}

impl Pace {
    /// Takes a turn, and says how long to wait for it; `None` without taking it when that is longer than `patience`.
    pub(super) fn turn(
        &mut self,
        what: &str,
        per_minute: u32,
        now: Instant,
        patience: Duration,
    ) -> Option<Duration> {
        let each = Duration::from_secs(60) / per_minute;
        let quiet = self.quiet.get(what).copied().unwrap_or(now).max(now);
        // A burst's last call begins when the queue is not longer than the burst without it.
        let wait = (quiet + each).duration_since(now).saturating_sub(each * BURST);
        if wait > patience {
            return None;
        }
        if self.quiet.len() >= QUEUES {
            self.quiet.retain(|_, quiet| *quiet > now);
        }
        self.quiet.insert(what.to_owned(), quiet + each);
        Some(wait)
    }

    /// Slack wants to hear nothing of this for so long.
    pub(super) fn hold(&mut self, what: &str, per_minute: u32, now: Instant, pause: Duration) {
        let each = Duration::from_secs(60) / per_minute;
        let until = now + pause + each * (BURST - 1);
        let quiet = self.quiet.entry(what.to_owned()).or_insert(now);
        *quiet = until.max(*quiet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_burst_goes_at_once_and_then_one_at_a_time() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let waits: Vec<u64> =
            (0..8).map(|_| pace.turn("post C1", 60, now, LONG).unwrap().as_secs()).collect();
        assert_eq!(waits, [0, 0, 0, 0, 0, 1, 2, 3]);
        assert_eq!(pace.turn("post C2", 60, now, LONG), Some(Duration::ZERO), "channels are apart");
        let later = now + Duration::from_secs(60);
        assert_eq!(pace.turn("post C1", 60, later, LONG), Some(Duration::ZERO));
    }

    #[test]
    fn who_cannot_wait_takes_no_turn() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        (0..BURST).for_each(|_| assert!(pace.turn("list", 20, now, LONG).is_some()));
        for _ in 0..3 {
            assert_eq!(pace.turn("list", 20, now, Duration::from_secs(2)), None);
        }
        assert_eq!(pace.turn("list", 20, now, LONG), Some(Duration::from_secs(3)));
    }

    #[test]
    fn nothing_goes_while_slack_wants_silence() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.hold("post", 60, now, Duration::from_secs(30));
        assert_eq!(pace.turn("post", 60, now, LONG), Some(Duration::from_secs(30)));
        assert_eq!(pace.turn("post", 60, now, LONG), Some(Duration::from_secs(31)));
    }

    #[test]
    fn queues_that_nobody_waits_in_are_dropped() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        let later = now + LONG;
        (0..QUEUES).for_each(|n| assert!(pace.turn(&format!("post C{n}"), 60, now, LONG).is_some()));
        assert!(pace.turn("post C0", 60, later, LONG).is_some());
        assert_eq!(pace.quiet.len(), 1);
    }
}
