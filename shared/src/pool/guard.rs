//! The duplicate guard: is a new task the same as one that its creator gave out minutes ago?
//!
//! Texts are bodies and not in memory, so each young task leaves a *sketch*: the smallest hashes of its
//! words. The words that two texts share, among the smallest of both together, estimate the Jaccard
//! similarity of their word sets; for texts of up to [`WORDS`] different words together it is exact.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::slack::IN_THREAD;
use crate::time::Timestamp;

/// Hashes in a sketch: 48 keep the estimate's standard error below 0.08.
const WORDS: usize = 48;
/// Only tasks of the last ten minutes count (spec: Agent Swarm 3.7).
const YOUNG: Duration = Duration::from_secs(600);
/// And of those the newest fifty of a creator.
const NEWEST: usize = 50;
/// Above this two texts are the same task.
const SAME: f64 = 0.80;
/// Above this they are, if they go to the same agent.
const SAME_FOR_AGENT: f64 = 0.60;

/// What the guard remembers of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    /// Ascending. None of a text that was not read yet: it is like no other.
    words: Vec<u32>,
    /// The Slack thread that it came from.
    thread: Option<u32>,
}

impl Sketch {
    pub(super) fn of(text: &str, context: &Map<String, Value>) -> Self {
        // It is the same below all words of threads, and would make any two short ones alike.
        let lower = text.strip_suffix(IN_THREAD).unwrap_or(text).to_lowercase();
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let mut hashes: BTreeSet<u32> =
            lower.split(|c| !word(c)).filter(|word| !word.is_empty()).map(hash).collect();
        if hashes.is_empty() {
            // Signs alone: the whole text is its one word, or any two such texts would be duplicates.
            hashes.insert(hash(lower.trim()));
        }
        Self { words: hashes.into_iter().take(WORDS).collect(), thread: thread(context) }
    }

    /// Similarity of the word sets, 0 to 1.
    pub(super) fn similarity(&self, other: &Self) -> f64 {
        let mine: BTreeSet<u32> = self.words.iter().copied().collect();
        let theirs: BTreeSet<u32> = other.words.iter().copied().collect();
        let smallest: Vec<u32> = mine.union(&theirs).copied().take(WORDS).collect();
        if smallest.is_empty() {
            return 0.0;
        }
        let shared = smallest.iter().filter(|word| mine.contains(word) && theirs.contains(word)).count();
        #[allow(clippy::cast_precision_loss, reason = "both are at most WORDS")]
        {
            shared as f64 / smallest.len() as f64
        }
    }

    /// Why the new task is a duplicate of this one, if it is.
    pub(super) fn duplicate(&self, new: &Self, same_agent: bool) -> Option<String> {
        if self.thread.is_some() && self.thread == new.thread {
            return Some("both come from the same Slack thread".to_owned());
        }
        let similarity = self.similarity(new);
        let percent = (similarity * 100.0).round();
        if similarity > SAME {
            return Some(format!("their texts are {percent} % alike"));
        }
        if similarity > SAME_FOR_AGENT && same_agent {
            return Some(format!("their texts are {percent} % alike and both go to the same agent"));
        }
        None
    }
}

fn thread(context: &Map<String, Value>) -> Option<u32> {
    let channel = context.get("slackChannelId")?.as_str()?;
    let thread = context.get("slackThreadTs")?.as_str()?;
    Some(hash(&format!("{channel}/{thread}")))
}

/// FNV-1a with a final mix: the smallest hashes must be a fair sample, and FNV alone orders short words
/// by their last letter.
pub(super) fn hash(text: &str) -> u32 {
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    for byte in text.bytes() {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    state = (state ^ (state >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (state >> 32) as u32
}

/// The newest sketches of each creator.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    of: BTreeMap<Uuid, BTreeMap<(Timestamp, Uuid), Sketch>>,
}

impl Recent {
    pub(super) fn add(&mut self, creator: Uuid, created: Timestamp, task: Uuid, sketch: Sketch) {
        let mine = self.of.entry(creator).or_default();
        mine.insert((created, task), sketch);
        if mine.len() > NEWEST {
            mine.pop_first();
        }
    }

    /// Young tasks whose texts were not read yet.
    pub(super) fn unread(&self, now: Timestamp) -> impl Iterator<Item = Uuid> + '_ {
        let since = (now - YOUNG, Uuid::nil());
        let young = self.of.values().flat_map(move |mine| mine.range(since..));
        young.filter(|(_, sketch)| sketch.words.is_empty()).map(|(&(_, task), _)| task)
    }

    /// Notes a text that was read, if its task is still among the newest.
    pub(super) fn read(&mut self, creator: Uuid, created: Timestamp, task: Uuid, sketch: Sketch) {
        if let Some(kept) = self.of.get_mut(&creator).and_then(|mine| mine.get_mut(&(created, task))) {
            *kept = sketch;
        }
    }

    pub(super) fn remove(&mut self, creator: Uuid, created: Timestamp, task: Uuid) {
        if let Some(mine) = self.of.get_mut(&creator) {
            mine.remove(&(created, task));
            if mine.is_empty() {
                self.of.remove(&creator);
            }
        }
    }

    /// Young tasks of a creator, newest first.
    pub(super) fn young(&self, creator: Uuid, now: Timestamp) -> impl Iterator<Item = (Uuid, &Sketch)> {
        let since = (now - YOUNG, Uuid::nil());
        let mine = self.of.get(&creator).into_iter();
        mine.flat_map(move |mine| mine.range(since..).rev()).map(|(&(_, task), sketch)| (task, sketch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alike(one: &str, other: &str) -> f64 {
        Sketch::of(one, &Map::new()).similarity(&Sketch::of(other, &Map::new()))
    }

    /// So a new task is held against the same few, whether there were none before it or a million.
    #[test]
    fn what_a_new_task_is_held_against_does_not_grow() {
        let (mut recent, creator) = (Recent::default(), Uuid::from_u128(1));
        for number in 0..10_000_u64 {
            let at = Timestamp(1_790_000_000_000 + number);
            recent.add(creator, at, Uuid::from_u128(number.into()), Sketch::of("a task", &Map::new()));
        }
        assert_eq!(recent.of[&creator].len(), NEWEST);
        assert_eq!(recent.young(creator, Timestamp(1_790_000_010_000)).count(), NEWEST);
    }

    #[test]
    fn similarity_is_that_of_the_word_sets() {
        assert!((alike("Fix the LOGIN bug!", "fix the login bug") - 1.0).abs() < 1e-9);
        assert!((alike("fix the login bug", "fix the logout bug") - 0.6).abs() < 1e-9);
        assert!(alike("write the docs", "measure throughput") < 1e-9);
    }

    #[test]
    fn short_requests_are_not_alike_because_both_come_from_threads() {
        let said = |words: &str| format!("{words}{IN_THREAD}");
        assert!(alike(&said("write the docs"), &said("measure throughput")) < 1e-9);
        assert!((alike(&said("write the docs"), "write the docs") - 1.0).abs() < 1e-9);
    }

    #[test]
    fn scripts_without_blanks_are_not_all_alike() {
        assert!(alike("ログインの不具合を直す", "文書を翻訳する") < 1e-9);
        assert!((alike("修复登录错误", "修复登录错误") - 1.0).abs() < 1e-9);
        assert!(alike("🦢🦢", "🚀") < 1e-9);
        assert!((alike("🦢", "🦢") - 1.0).abs() < 1e-9);
    }

    #[test]
    fn long_texts_are_estimated_within_the_error() {
        let text = |from: u32| (from..from + 400).map(|n| format!("w{n}")).collect::<Vec<_>>().join(" ");
        assert!((alike(&text(0), &text(0)) - 1.0).abs() < 1e-9);
        let third = alike(&text(0), &text(200));
        assert!((third - 1.0 / 3.0).abs() < 0.2, "{third}");
    }
}
