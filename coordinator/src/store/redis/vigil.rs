//! When the word of another has run out: its lease, or that it lives.
//!
//! Who gives its word writes down until when it holds, by the clock of the store. That clock may be set, and the next
//! primary has another one, so nobody goes by it: who looks measures on its own monotonic clock for how long a word
//! stands unchanged. It was given before it was seen, so it has run out for its giver when it has here.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::server::SKEW_MS;

/// No clock by which anybody works with a store is set by more, in milliseconds: before and after that it is within the
/// half of it of the walls of those who begin.
const STEP: u64 = 2 * SKEW_MS;
/// A word for longer is garbage.
const LONGEST: Duration = Duration::from_secs(86_400);

/// A word as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Of a lease; that somebody lives has none.
    pub epoch: u64,
    /// Until when it holds by the clock of the store, in milliseconds. The next word has another end.
    pub until: u64,
    /// For how long it was given.
    pub lasts: Duration,
}

/// Watches words, each by whose it is, for one who looks at all of them again and again.
#[derive(Clone, Debug)]
pub struct Vigil<K> {
    /// Whether somebody relies on a word until it has run out.
    is_strict: bool,
    /// When it was last looked, and how often.
    looked: Option<Instant>,
    looks: u64,
    words: BTreeMap<K, Watched>,
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    word: Word,
    /// When it has run out.
    end: Instant,
    /// By which look it was found last.
    look: u64,
}

impl<K: Ord> Vigil<K> {
    /// Watches over leases: none is over as long as its owner may rely on it, and so some last longer here, by the time
    /// between two looks.
    pub fn over_leases() -> Self {
        Self { is_strict: true, looked: None, looks: 0, words: BTreeMap::new() }
    }

    /// Watches over what is a hint, and is not to hold for longer than it was given for.
    pub fn over_hints() -> Self {
        Self { is_strict: false, looked: None, looks: 0, words: BTreeMap::new() }
    }

    /// Takes note of how all words stand now. `clock` is what that of the store said just before.
    pub fn look(&mut self, words: impl IntoIterator<Item = (K, Word)>, clock: u64, now: Instant) {
        self.looks += 1;
        let look = self.looks;
        for (whose, word) in words {
            match self.words.get_mut(&whose) {
                Some(watched) if watched.word == word => watched.look = look,
                _ => {
                    let end = now + self.left(&word, clock, now);
                    self.words.insert(whose, Watched { word, end, look });
                }
            }
        }
        self.words.retain(|_, watched| watched.look == look);
        self.looked = Some(now);
    }

    /// The word that has run out, if it has.
    pub fn over(&self, whose: &K, now: Instant) -> Option<Word> {
        self.words.get(whose).filter(|watched| now >= watched.end).map(|watched| watched.word)
    }

    /// All that have.
    pub fn all_over(&self, now: Instant) -> impl Iterator<Item = (&K, Word)> {
        let over = self.words.iter().filter(move |(_, watched)| now >= watched.end);
        over.map(|(whose, watched)| (whose, watched.word))
    }

    /// In what time a word runs out that is not given again.
    pub fn ends_in(&self, whose: &K, now: Instant) -> Option<Duration> {
        self.words.get(whose).map(|watched| watched.end.saturating_duration_since(now))
    }

    /// How long to wait for a word that is new here.
    fn left(&self, word: &Word, clock: u64, now: Instant) -> Duration {
        let lasts = word.lasts.min(LONGEST);
        if self.is_strict {
            // Who begins need not wait for those that ended long ago. Of the others it cannot know whether the clock
            // was set since they were given.
            let is_long_over = self.looked.is_none() && word.until.saturating_add(STEP) < clock;
            return if is_long_over { Duration::ZERO } else { lasts };
        }
        // It is younger than the last look, which did not find it.
        let oldest = self.looked.map_or(lasts, |looked| now.saturating_duration_since(looked));
        Duration::from_millis(word.until.saturating_sub(clock)).clamp(lasts.saturating_sub(oldest), lasts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTS: Duration = Duration::from_secs(10);
    const CLOCK: u64 = 1_790_000_000_000;
    const MS: Duration = Duration::from_millis(1);

    fn word(until: u64) -> Word {
        Word { epoch: 1, until, lasts: LASTS }
    }

    #[test]
    fn a_lease_has_ended_once_it_was_seen_unchanged_for_as_long_as_it_lasts_whatever_the_clock_says() {
        for step in [-3_600_000, 0, 3_600_000] {
            let (mut vigil, begun) = (Vigil::over_leases(), Instant::now());
            vigil.look([('a', word(CLOCK + 10_000))], CLOCK, begun);
            let renewed = begun + LASTS / 3;
            let set = CLOCK.saturating_add_signed(step);
            vigil.look([('a', word(CLOCK + 13_333))], set, renewed);
            vigil.look([('a', word(CLOCK + 13_333))], set + 9_000, renewed + LASTS - MS);
            assert_eq!(vigil.over(&'a', renewed + LASTS - MS), None, "a step of {step} ms");
            assert_eq!(vigil.over(&'a', renewed + LASTS), Some(word(CLOCK + 13_333)), "a step of {step} ms");
            // It was only thought to have ended.
            vigil.look([('a', word(set + 23_333))], set + 13_333, renewed + LASTS);
            assert_eq!(vigil.over(&'a', renewed + LASTS * 2 - MS), None);
        }
    }

    #[test]
    fn one_that_is_taken_anew_counts_from_then_and_one_that_was_given_up_is_forgotten() {
        let (mut vigil, begun) = (Vigil::over_leases(), Instant::now());
        vigil.look([('a', word(CLOCK))], CLOCK, begun);
        let taken = begun + LASTS;
        vigil.look([('a', Word { epoch: 2, ..word(CLOCK) })], CLOCK, taken);
        assert_eq!((vigil.over(&'a', taken), vigil.ends_in(&'a', taken)), (None, Some(LASTS)));
        vigil.look(std::iter::empty(), CLOCK, taken);
        assert_eq!((vigil.over(&'a', taken + LASTS), vigil.ends_in(&'a', taken)), (None, None));
    }

    #[test]
    fn who_begins_waits_for_each_lease_but_those_that_no_clock_that_was_set_has_ended() {
        let (mut vigil, begun) = (Vigil::over_leases(), Instant::now());
        let words =
            [('a', word(CLOCK - STEP)), ('b', word(CLOCK - STEP - 1)), ('c', word(CLOCK + 86_400_000))];
        vigil.look(words, CLOCK, begun);
        let over =
            |vigil: &Vigil<char>, now| vigil.all_over(now).map(|(whose, _)| *whose).collect::<String>();
        assert_eq!(over(&vigil, begun), "b");
        assert_eq!(over(&vigil, begun + LASTS), "abc");
        // Later, what comes may be of one who lives.
        vigil.look([('d', word(CLOCK - STEP - 1))], CLOCK, begun + LASTS);
        assert_eq!(over(&vigil, begun + LASTS), "");
    }

    #[test]
    fn no_clock_changes_a_hint_by_more_than_the_time_between_two_looks() {
        let between = Duration::from_secs(2);
        for (step, left) in [(0, 9_000), (-3_600_000, 10_000), (3_600_000, 8_000)] {
            let (mut vigil, begun) = (Vigil::over_hints(), Instant::now());
            vigil.look([('a', word(CLOCK)), ('b', word(CLOCK + 4_000))], CLOCK, begun);
            assert_eq!(vigil.over(&'a', begun), Some(word(CLOCK)), "it had ended");
            assert_eq!(vigil.ends_in(&'b', begun), Some(Duration::from_secs(4)));
            let now = begun + between;
            let clock = (CLOCK + 2_000).saturating_add_signed(step);
            vigil.look([('c', word(CLOCK + 11_000))], clock, now);
            assert_eq!(vigil.ends_in(&'c', now), Some(MS * left), "a step of {step} ms");
        }
    }
}
