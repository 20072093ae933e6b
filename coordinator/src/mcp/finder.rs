//! Finds tools by what somebody would call them.
//!
//! An exact name or alias always comes first: a search that misses it looks to a model as if the tool did
//! not exist. Otherwise words count by where they stand and by how rare they are.

use std::collections::{BTreeMap, HashMap};

use skein_shared::spelling;

use super::catalogue::{Catalogue, Tool};

/// Words that people use for one another. Each group counts as one word in a query.
const SYNONYMS: [&[&str]; 16] = [
    &["task", "job", "todo", "ticket", "assignment"],
    &["agent", "worker", "member", "peer", "teammate"],
    &["send", "assign", "delegate", "dispatch", "hand"],
    &["create", "make", "new", "add", "register"],
    &["delete", "remove", "drop"],
    &["cancel", "abort", "stop", "kill"],
    &["list", "show", "all", "browse"],
    &["get", "read", "fetch", "details", "view"],
    &["update", "change", "edit", "modify", "set"],
    &["lock", "mutex", "lease", "exclusive", "acquire"],
    &["release", "unlock", "free"],
    &["wait", "block", "sleep", "pause", "watch"],
    &["message", "chat", "talk", "post", "reply", "say"],
    &["schedule", "cron", "recurring", "periodic", "timer", "every", "hour", "hourly", "day", "daily"],
    &["epic", "project", "milestone", "initiative"],
    &["memory", "learning", "remember", "recall", "knowledge", "note"],
];

const NAME: f64 = 3.0;
const HINT: f64 = 2.0;
const TITLE: f64 = 2.0;
const SUMMARY: f64 = 1.0;
const ARGUMENT: f64 = 0.7;
/// A synonym says less than the word itself.
const SYNONYM: f64 = 0.6;

/// The best matches among the tools that `shown` lets pass, best first.
pub fn search<'a>(
    catalogue: &'a Catalogue,
    query: &str,
    limit: usize,
    shown: impl Fn(&Tool) -> bool,
) -> Vec<&'a Tool> {
    let tools: Vec<&Tool> = catalogue.tools().filter(|tool| shown(tool)).collect();
    let weighed: Vec<BTreeMap<String, f64>> = tools.iter().map(|tool| weigh(tool)).collect();
    let mut frequency: HashMap<&str, usize> = HashMap::new();
    for words in &weighed {
        for word in words.keys() {
            *frequency.entry(word).or_default() += 1;
        }
    }
    let total = tools.len();
    let rarity = |word: &str| {
        let among = frequency.get(word).copied().unwrap_or(0);
        #[allow(clippy::cast_precision_loss, reason = "a catalogue has hundreds of tools")]
        ((total as f64 + 1.0) / (among as f64 + 0.5)).ln()
    };
    let asked = words(query);
    let mut scored: Vec<(f64, &Tool)> = tools
        .iter()
        .zip(&weighed)
        .map(|(tool, found)| (exact(tool, query) + score(&asked, found, &rarity), *tool))
        .filter(|(score, _)| *score > 0.0)
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

/// A name or alias, alone or as a word of the query, written in any of the usual ways.
fn exact(tool: &Tool, query: &str) -> f64 {
    const WHOLE: f64 = 1000.0;
    const WORD: f64 = 100.0;
    let names: Vec<String> =
        std::iter::once(&tool.name).chain(tool.aliases).map(|name| plain(name)).collect();
    if names.contains(&plain(query)) {
        return WHOLE;
    }
    let named = query.split_whitespace().any(|word| is_compound(word) && names.contains(&plain(word)));
    if named { WORD } else { 0.0 }
}

fn is_compound(word: &str) -> bool {
    word.contains(['-', '_', '.'])
}

fn score(asked: &[String], found: &BTreeMap<String, f64>, rarity: &impl Fn(&str) -> f64) -> f64 {
    asked
        .iter()
        .map(|word| {
            let own = found.get(word).map_or(0.0, |weight| weight * rarity(word));
            let group = SYNONYMS.iter().find(|group| group.iter().any(|other| stem(other) == *word));
            let other = group.into_iter().flat_map(|group| group.iter()).map(|other| {
                let other = stem(other);
                found.get(&other).map_or(0.0, |weight| weight * rarity(&other) * SYNONYM)
            });
            other.fold(own, f64::max)
        })
        .sum()
}

/// Every word of a tool with its greatest weight.
fn weigh(tool: &Tool) -> BTreeMap<String, f64> {
    let mut weights = BTreeMap::new();
    let mut add = |text: &str, weight: f64| {
        for word in words(text) {
            let entry: &mut f64 = weights.entry(word).or_default();
            *entry = entry.max(weight);
        }
    };
    add(tool.name, NAME);
    tool.aliases.iter().for_each(|alias| add(alias, NAME));
    add(tool.title, TITLE);
    add(tool.search, HINT);
    add(tool.summary, SUMMARY);
    add(tool.details, ARGUMENT);
    tool.args.names().for_each(|name| add(&unhump(name), ARGUMENT));
    weights
}

/// Words that say nothing about which tool is meant.
const EMPTY: [&str; 24] = [
    "a",
    "an",
    "the",
    "to",
    "of",
    "for",
    "in",
    "on",
    "and",
    "or",
    "is",
    "it",
    "my",
    "me",
    "i",
    "how",
    "with",
    "do",
    "that",
    "can",
    "something",
    "what",
    "when",
    "should",
];

fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .filter(|word| !EMPTY.contains(&word.as_str()))
        .map(|word| stem(&word))
        .collect()
}

/// Takes the commonest English endings off, so that `locking`, `locks` and `lock` are one word.
fn stem(word: &str) -> String {
    for ending in ["ing", "ies", "es", "ed", "s"] {
        if let Some(root) = word.strip_suffix(ending)
            && root.len() >= 3
            && !root.ends_with('s')
        {
            return root.trim_end_matches('e').to_owned();
        }
    }
    if word.len() > 3 { word.trim_end_matches('e').to_owned() } else { word.to_owned() }
}

/// `targetAgentId` as separate words.
fn unhump(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 4);
    for c in name.chars() {
        if c.is_uppercase() {
            text.push(' ');
        }
        text.push(c);
    }
    text
}

fn plain(name: &str) -> String {
    name.trim().to_lowercase().replace(['_', '.', ' '], "-")
}
