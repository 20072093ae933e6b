//! Which reports a stream sends, and which of them again.
//!
//! A runner that was cut off may have thousands. The first go at once and the rest as these are acknowledged, for a
//! stream takes in only so many. What is not acknowledged in time is sent again, in turns: reports that nobody can take
//! in yet must not keep those behind them from being sent.

/// Reports sent at one go.
const BATCH: u32 = 256;
/// So many acknowledgements let as many reports follow.
const STEP: u32 = 64;

/// The reports of one stream.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// The latest one sent.
    sent: u64,
    /// There may be more than those, and they follow as what was sent is acknowledged.
    is_behind: bool,
    /// How many were acknowledged since something was sent for the first time.
    acknowledged: u32,
    /// The latest one sent again in this turn.
    repeated: u64,
    /// The newest one at the last look: what is as old and still there was not acknowledged in time.
    seen: u64,
}

/// Some of the reports that wait, by their sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) after: u64,
    pub(super) most: u32,
}

impl Backlog {
    /// What to send when there may be new ones.
    pub(super) fn new_ones(&self) -> Option<Part> {
        (!self.is_behind).then_some(Part { after: self.sent, most: BATCH })
    }

    /// What to send now that one more was acknowledged.
    pub(super) fn acknowledged(&mut self) -> Option<Part> {
        self.acknowledged += 1;
        let follows = self.is_behind && self.acknowledged >= STEP;
        follows.then_some(Part { after: self.sent, most: STEP })
    }

    /// Takes note of the reports that are sent as such a part.
    pub(super) fn send(&mut self, part: Part, sequences: &[u64]) {
        self.acknowledged = 0;
        self.is_behind = sequences.len() == part.most as usize;
        self.sent = self.sent.max(sequences.last().copied().unwrap_or_default());
    }

    /// What to look at now and again, and up to which of them it was there at the last look. `newest` is the newest one
    /// that waits.
    pub(super) fn overdue(&mut self, newest: u64) -> (Part, u64) {
        let seen = std::mem::replace(&mut self.seen, newest);
        (Part { after: self.repeated, most: BATCH }, seen)
    }

    /// Takes note of the overdue reports that are sent again. With the last of them all have had their turn.
    pub(super) fn send_again(&mut self, part: Part, sequences: &[u64]) {
        let latest = sequences.last().copied().unwrap_or_default();
        self.sent = self.sent.max(latest);
        self.repeated = if sequences.len() == part.most as usize { latest } else { 0 };
        // What comes after the last one need not wait for an acknowledgement that may never be.
        self.is_behind &= self.sent < self.seen;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet, VecDeque};

    use super::*;

    /// A ledger, and what a stream has sent of it.
    #[derive(Default)]
    struct Stream {
        backlog: Backlog,
        waiting: BTreeSet<u64>,
        latest: u64,
        sent: VecDeque<u64>,
    }

    impl Stream {
        fn with(reports: u64) -> Self {
            Self { waiting: (1..=reports).collect(), latest: reports, ..Self::default() }
        }

        fn read(&self, Part { after, most }: Part, until: u64) -> Vec<u64> {
            let waiting = self.waiting.range(after + 1..).copied().take(most as usize);
            waiting.take_while(|report| *report <= until).collect()
        }

        fn send(&mut self, part: Option<Part>) {
            let Some(part) = part else { return };
            let reports = self.read(part, u64::MAX);
            self.backlog.send(part, &reports);
            self.sent.extend(reports);
        }

        fn report(&mut self) {
            self.latest += 1;
            self.waiting.insert(self.latest);
            self.send(self.backlog.new_ones());
        }

        fn acknowledge(&mut self, report: u64) {
            self.waiting.remove(&report);
            let part = self.backlog.acknowledged();
            self.send(part);
        }

        /// A look at what is overdue, and what is sent of that.
        fn look(&mut self) -> Vec<u64> {
            let newest = self.waiting.last().copied().unwrap_or_default();
            let (part, seen) = self.backlog.overdue(newest);
            let reports = self.read(part, seen);
            self.backlog.send_again(part, &reports);
            reports
        }
    }

    #[test]
    fn a_long_backlog_follows_as_it_is_acknowledged_and_never_clogs_the_stream() {
        let mut stream = Stream::with(5000);
        stream.send(stream.backlog.new_ones());
        let mut all = Vec::new();
        while let Some(report) = stream.sent.pop_front() {
            all.push(report);
            // The runner goes on meanwhile.
            if report.is_multiple_of(10) && report < 5000 {
                stream.report();
            }
            stream.acknowledge(report);
            assert!(stream.sent.len() <= BATCH as usize, "{} are under way", stream.sent.len());
        }
        assert_eq!(all, (1..=5499).collect::<Vec<_>>());
        assert!(stream.waiting.is_empty());
        stream.report();
        assert_eq!(stream.sent, [5500], "one that comes alone goes at once");
    }

    #[test]
    fn reports_that_nobody_takes_in_keep_none_behind_them_from_being_sent() {
        let mut stream = Stream::with(600);
        stream.send(stream.backlog.new_ones());
        assert_eq!(stream.sent.len(), BATCH as usize);
        assert!(stream.look().is_empty(), "nothing has waited for a while");
        let mut times: BTreeMap<u64, u32> = BTreeMap::new();
        for _ in 0..6 {
            for report in stream.look() {
                *times.entry(report).or_default() += 1;
            }
        }
        assert_eq!(times, (1..=600).map(|report| (report, 2)).collect::<BTreeMap<_, _>>());
        stream.sent.clear();
        stream.report();
        assert_eq!(stream.sent, [601], "it waits for an acknowledgement of others");
    }

    #[test]
    fn only_what_was_there_at_the_last_look_is_sent_again() {
        let mut stream = Stream::with(0);
        stream.report();
        assert!(stream.look().is_empty());
        stream.report();
        assert_eq!(stream.look(), [1]);
        assert_eq!(stream.look(), [1, 2]);
        stream.acknowledge(1);
        assert_eq!(stream.look(), [2]);
        stream.acknowledge(2);
        assert!(stream.look().is_empty());
    }
}
