//! Search of the memory: by words, ranked by BM25, and by meaning, ranked by cosine, put together by their ranks.
//!
//! Each of the two looks at what the caller may see and at nothing else, so that what is hidden takes nobody's place.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

use rusqlite::types::Value as Bound;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use skein_shared::id::EntityKey;
use skein_shared::memory::{Model, Scope, Source, Vector};
use uuid::Uuid;

use super::query::Statement;
use super::tables::{bound, count, json};

/// Words of a search text that count.
const WORDS: usize = 64;
/// Most documents that one search gives.
const LIMIT: usize = 200;
/// How many of the best by words, and by meaning, are put together.
const RANKED: usize = 100;
/// Reciprocal rank fusion: the higher, the less it counts to be the very first (Cormack et al. 2009 have 60).
const SMOOTH: f64 = 60.0;
/// Words that nearly all texts have. They would say little about a text, and be looked up in all of them.
const FILLING: [&str; 32] = [
    "a", "an", "and", "are", "as", "at", "be", "by", "do", "does", "for", "from", "has", "how", "i", "in",
    "is", "it", "of", "on", "or", "that", "the", "this", "to", "was", "we", "what", "when", "which", "with",
    "you",
];

/// What is sought.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sought {
    pub text: String,
    /// What it means to a model. Without it the words decide alone.
    pub meaning: Option<(Model, Vector)>,
    pub seen: Seen,
    pub source: Option<Source>,
    pub limit: usize,
}

/// Which learnings may be found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Whose own they may be besides the swarm's; `None` for everybody's.
    pub by: Option<Uuid>,
    /// Those of this scope alone.
    pub scope: Option<Scope>,
}

/// A learning that was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hit {
    pub body: Value,
    /// Comparable within one search; higher is better.
    pub score: f64,
    /// The cosine between what is sought and what it means, where both are known.
    pub similarity: Option<f32>,
}

pub(super) fn search(
    connection: &Connection,
    key: &EntityKey,
    sought: &Sought,
) -> rusqlite::Result<Vec<Hit>> {
    let entity = "SELECT number FROM entity WHERE key = ?1";
    let entity = connection.prepare_cached(entity)?.query_row([key.to_string()], |row| row.get(0));
    let Some(entity) = entity.optional()? else { return Ok(Vec::new()) };
    let by_words = by_words(connection, entity, sought)?;
    let by_meaning = by_meaning(connection, entity, sought)?;
    let meanings: BTreeMap<&str, f32> =
        by_meaning.iter().map(|(memory, near)| (memory.as_str(), *near)).collect();
    let mut found = Vec::new();
    let ranked = [by_words.iter().collect::<Vec<_>>(), by_meaning.iter().map(|(memory, _)| memory).collect()];
    for (memory, score) in fused(&ranked).into_iter().take(sought.limit.min(LIMIT)) {
        let body = "SELECT body FROM document WHERE entity = ?1 AND document = ?2";
        let body = connection.prepare_cached(body)?.query_row(params![entity, memory], |row| json(row, 0));
        let Some(body) = body.optional()? else { continue };
        let similarity = match meanings.get(memory) {
            Some(similarity) => Some(*similarity),
            None => similarity(connection, entity, memory, sought)?,
        };
        found.push(Hit { body, score, similarity });
    }
    Ok(found)
}

/// Rankings put together: the best first, equal ones by id.
fn fused<'a>(rankings: &[Vec<&'a String>]) -> Vec<(&'a str, f64)> {
    let mut scores: BTreeMap<&str, f64> = BTreeMap::new();
    for ranking in rankings {
        for (memory, rank) in ranking.iter().zip(1_u32..) {
            *scores.entry(memory).or_default() += 1.0 / (SMOOTH + f64::from(rank));
        }
    }
    let mut fused: Vec<_> = scores.into_iter().collect();
    fused.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    fused
}

/// Any of the text's words, as an expression of FTS5. Each word is quoted, so that nothing in it is syntax;
/// what the tokenizer splits becomes a phrase. `None` when there is no word.
fn words(text: &str) -> Option<String> {
    // FTS5 reads expressions up to a NUL.
    let words = text.split(|letter: char| letter.is_whitespace() || letter == '\0');
    let words = words.filter(|word| word.chars().any(char::is_alphanumeric));
    let (filling, mut words): (Vec<&str>, Vec<&str>) = words.partition(|word| {
        let bare = word.trim_matches(|letter: char| !letter.is_alphanumeric()).to_lowercase();
        FILLING.contains(&bare.as_str())
    });
    if words.is_empty() {
        words = filling;
    }
    let quoted = words.iter().take(WORDS).map(|word| format!("\"{}\"", word.replace('"', "\"\"")));
    let quoted: Vec<String> = quoted.collect();
    (!quoted.is_empty()).then(|| quoted.join(" OR "))
}

/// The documents of the best, the best first. A word of the title weighs as much as four of the content.
fn by_words(connection: &Connection, entity: i64, sought: &Sought) -> rusqlite::Result<Vec<String>> {
    let Some(words) = words(&sought.text) else { return Ok(Vec::new()) };
    let mut sql = Statement::new(
        "SELECT document.document FROM (
             SELECT text.rowid AS row, bm25(text, 4.0, 1.0) AS score
             FROM text CROSS JOIN learning ON learning.row = text.rowid WHERE text MATCH ",
    );
    sql.bind(Bound::Text(words));
    sql.push(" AND ");
    sql.learnings(entity, sought);
    sql.push(" ORDER BY score, text.rowid LIMIT ");
    sql.bind(Bound::Integer(count(RANKED)));
    sql.push(") CROSS JOIN document USING (row) ORDER BY score, document.document");
    let mut statement = connection.prepare_cached(&sql.text)?;
    let rows = statement.query_map(params_from_iter(sql.values), |row| row.get(0))?;
    rows.collect()
}

/// How near a learning is. The order of those that are equally near is that of their ids.
struct Near {
    similarity: f32,
    memory: String,
}

impl Ord for Near {
    /// The greatest is the one that leaves first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.similarity.total_cmp(&self.similarity).then_with(|| self.memory.cmp(&other.memory))
    }
}

impl PartialOrd for Near {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Near {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Near {}

/// The documents of the nearest, the nearest first, of all that have a vector of the same model.
fn by_meaning(connection: &Connection, entity: i64, sought: &Sought) -> rusqlite::Result<Vec<(String, f32)>> {
    let Some((model, vector)) = &sought.meaning else { return Ok(Vec::new()) };
    let mut sql = Statement::new("SELECT scale, codes, memory FROM vector WHERE ");
    sql.learnings(entity, sought);
    sql.push(" AND model = ");
    sql.bind(Bound::Text(model.id().to_string()));
    let mut statement = connection.prepare_cached(&sql.text)?;
    let mut rows = statement.query(params_from_iter(sql.values))?;
    let mut nearest: BinaryHeap<Near> = BinaryHeap::with_capacity(RANKED + 1);
    while let Some(row) = rows.next()? {
        let Some(similarity) = vector.cosine(row.get(0)?, row.get_ref(1)?.as_blob()?) else { continue };
        if nearest.len() == RANKED && nearest.peek().is_some_and(|last| similarity <= last.similarity) {
            continue;
        }
        nearest.push(Near { similarity, memory: row.get(2)? });
        if nearest.len() > RANKED {
            nearest.pop();
        }
    }
    let nearest = nearest.into_sorted_vec();
    Ok(nearest.into_iter().map(|near| (near.memory, near.similarity)).collect())
}

/// Of one that was found by its words alone.
fn similarity(
    connection: &Connection,
    entity: i64,
    memory: &str,
    sought: &Sought,
) -> rusqlite::Result<Option<f32>> {
    let Some((model, vector)) = &sought.meaning else { return Ok(None) };
    let mut statement = connection
        .prepare_cached("SELECT scale, codes FROM vector WHERE entity = ?1 AND memory = ?2 AND model = ?3")?;
    let mut rows = statement.query(params![entity, memory, model.id().to_string()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(vector.cosine(row.get(0)?, row.get_ref(1)?.as_blob()?))
}

impl Statement {
    /// The learnings of a memory that may be found.
    fn learnings(&mut self, entity: i64, sought: &Sought) {
        let mut is = |field: &str, value: Value| {
            self.push(field);
            self.push(" = ");
            self.bind(bound(&value));
        };
        is("entity", entity.into());
        if let Some(source) = sought.source {
            is(" AND source", serde_json::json!(source));
        }
        if let Some(scope) = sought.seen.scope {
            is(" AND scope", serde_json::json!(scope));
        }
        if let Some(agent) = sought.seen.by {
            is(" AND (agent", serde_json::json!(agent));
            is(" OR scope", serde_json::json!(Scope::Swarm));
            self.push(")");
        }
    }
}
