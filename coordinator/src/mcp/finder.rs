//! Finds tools by what somebody would call them.
//!
//! An exact name or alias always comes first: a search that misses it looks to a model as if the tool did
//! not exist. Otherwise words count by where they stand and by how rare they are.

mod words;

use std::collections::{BTreeMap, HashMap};

use skein_shared::spelling;

pub(super) use self::words::plain;
use self::words::unhump;
use super::catalogue::{Catalogue, Tool};

const NAME: f64 = 3.0;
const HINT: f64 = 2.0;
const TITLE: f64 = 2.0;
const SUMMARY: f64 = 1.0;
const ARGUMENT: f64 = 0.7;
/// A synonym says less than the word itself, and so does a word that is nearly the same.
const SYNONYM: f64 = 0.6;
/// A name or alias is the whole query, or a word of it.
const WHOLE: f64 = 1000.0;
const WORD: f64 = 100.0;
/// So many words of a query count. What somebody wants is said in fewer.
const ASKED: usize = 24;

/// The words of all tools of a catalogue, gathered once.
#[derive(Default)]
pub struct Index {
    /// For each word the tools that have it, by their positions, with its greatest weight there.
    words: HashMap<String, Vec<(usize, f64)>>,
    /// The names and aliases of each tool.
    names: HashMap<String, usize>,
    tools: usize,
}

impl Index {
    pub fn new<'a>(tools: impl Iterator<Item = &'a Tool>) -> Self {
        let mut index = Self::default();
        for (position, tool) in tools.enumerate() {
            index.tools += 1;
            for name in tool.names() {
                index.names.insert(plain(name), position);
            }
            for (word, weight) in weigh(tool) {
                index.words.entry(word).or_default().push((position, weight));
            }
        }
        index
    }

    /// The position of the tool that has this name or alias, however it is spelt.
    pub fn named(&self, name: &str) -> Option<usize> {
        self.names.get(&plain(name)).copied()
    }

    /// How well each tool fits, by its position; those that do not fit at all are left out.
    fn scores(&self, query: &str) -> HashMap<usize, f64> {
        let mut scores: HashMap<usize, f64> = HashMap::new();
        if let Some(position) = self.named(query) {
            scores.insert(position, WHOLE);
        }
        // In a sentence a name may stand in quotes or before a full stop.
        let bare = query.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
        let compound = bare.filter(|word| word.contains(['-', '_', '.']));
        for position in compound.filter_map(|word| self.names.get(&plain(word))) {
            *scores.entry(*position).or_default() += WORD;
        }
        for word in words::of(query).take(ASKED) {
            for (position, score) in self.word(&word) {
                *scores.entry(position).or_default() += score;
            }
        }
        scores
    }

    /// What one word of a query is worth to each tool: the best of itself and of what is said for it.
    fn word(&self, word: &str) -> BTreeMap<usize, f64> {
        let mut best = BTreeMap::new();
        self.take(&mut best, word, 1.0);
        words::synonyms(word).for_each(|other| self.take(&mut best, &other, SYNONYM));
        if best.is_empty() {
            self.nearly(word).for_each(|other| self.take(&mut best, other, SYNONYM));
        }
        best
    }

    /// Counts a known word for the tools that have it.
    fn take(&self, best: &mut BTreeMap<usize, f64>, word: &str, share: f64) {
        let Some(found) = self.words.get(word) else { return };
        let worth = self.rarity(found.len()) * share;
        for (position, weight) in found {
            let entry: &mut f64 = best.entry(*position).or_default();
            *entry = entry.max(weight * worth);
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "a catalogue has hundreds of tools")]
    fn rarity(&self, among: usize) -> f64 {
        ((self.tools as f64 + 1.0) / (among as f64 + 0.5)).ln()
    }

    /// The words that a slip of the finger makes of one. Short words are too much alike.
    fn nearly<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a str> {
        const SHORT: usize = 4;
        let long = (SHORT..=40).contains(&word.len());
        let near = move |other: &&String| {
            long && other.len().abs_diff(word.len()) <= 1 && spelling::distance(other, word) == 1
        };
        self.words.keys().filter(near).map(String::as_str)
    }
}

/// The best matches among the tools that `shown` lets pass, best first.
pub fn search<'a>(
    catalogue: &'a Catalogue,
    query: &str,
    limit: usize,
    shown: impl Fn(&Tool) -> bool,
) -> Vec<&'a Tool> {
    let scores = catalogue.index().scores(query);
    let mut scored: Vec<(f64, &Tool)> = catalogue
        .tools()
        .enumerate()
        .filter_map(|(position, tool)| Some((*scores.get(&position)?, tool)))
        .filter(|(_, tool)| shown(tool))
        .collect();
    scored.sort_by(|(a, one), (b, other)| b.total_cmp(a).then(one.name.cmp(other.name)));
    scored.into_iter().take(limit).map(|(_, tool)| tool).collect()
}

/// The names that come nearest to a wrong one.
pub fn nearest(catalogue: &Catalogue, name: &str, count: usize) -> Vec<&'static str> {
    let asked: String = plain(name).chars().take(80).collect();
    let mut ranked: Vec<(usize, &'static str)> =
        catalogue.tools().map(|tool| (spelling::distance(&asked, &plain(tool.name)), tool.name)).collect();
    ranked.sort_unstable();
    ranked.into_iter().take(count).map(|(_, name)| name).collect()
}

/// Every word of a tool with its greatest weight.
fn weigh(tool: &Tool) -> BTreeMap<String, f64> {
    let mut weights = BTreeMap::new();
    let mut add = |text: &str, weight: f64| {
        for word in words::of(text) {
            let entry: &mut f64 = weights.entry(word).or_default();
            *entry = entry.max(weight);
        }
    };
    tool.names().for_each(|name| add(name, NAME));
    add(tool.title, TITLE);
    add(tool.search, HINT);
    add(tool.summary, SUMMARY);
    add(tool.details, ARGUMENT);
    tool.args.names().for_each(|name| add(&unhump(name), ARGUMENT));
    weights
}
