//! Search of the memory: by words, ranked by BM25, and by meaning, ranked by cosine, put together by their ranks.
//!
//! Each of the two looks at what the caller may see and at nothing else, so that what is hidden takes nobody's place.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use rusqlite::types::Value as Bound;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use skein_shared::id::EntityKey;
use skein_shared::memory::{Model, Scope, Source, Vector};
use uuid::Uuid;

use super::query::Statement;
use super::tables::{self, bound, count};
use super::vectors::Copies;

/// Words of a search text that count.
const WORDS: usize = 64;
/// Most documents that one search gives.
const LIMIT: usize = 200;
/// How many of the best by words, and by meaning, are put together.
const RANKED: usize = 100;
/// A memory of up to so many learnings is ranked whole.
const WHOLE: usize = 2000;
/// How many learnings of a larger one are ranked for the words that they have: those with the rare ones, and of those
/// that have none but frequent ones the newest.
const FEW: usize = 250;
/// A word that more than one learning in so many has says little, and BM25 looks at all of them.
const USUAL: usize = 8;
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
    copies: &Copies,
    key: &EntityKey,
    sought: &Sought,
) -> rusqlite::Result<Vec<Hit>> {
    let entity = "SELECT number FROM entity WHERE key = ?1";
    let entity = connection.prepare_cached(entity)?.query_row([key.to_string()], |row| row.get(0));
    let Some(entity) = entity.optional()? else { return Ok(Vec::new()) };
    let by_words = by_words(connection, entity, sought)?;
    let meaning = sought.meaning.as_ref().map(|(model, vector)| (model.id().to_string(), vector));
    let vectors = meaning.as_ref().map(|_| copies.of(connection, key, entity)).transpose()?;
    let vectors = vectors.as_ref().map(|vectors| vectors.read().unwrap_or_else(PoisonError::into_inner));
    let meant = vectors.as_deref().zip(meaning.as_ref());
    let by_meaning =
        meant.map_or_else(Vec::new, |(vectors, meaning)| vectors.nearest(meaning, sought, RANKED));
    let mut found = Vec::new();
    let ranked = [by_words.iter().collect::<Vec<_>>(), by_meaning.iter().map(|(memory, _)| memory).collect()];
    for (memory, score) in fused(&ranked).into_iter().take(sought.limit.min(LIMIT)) {
        let body = "SELECT body FROM document WHERE entity = ?1 AND document = ?2";
        let body =
            connection.prepare_cached(body)?.query_row(params![entity, memory], |row| tables::json(row, 0));
        let Some(body) = body.optional()? else { continue };
        let similarity = meant.and_then(|(vectors, meaning)| vectors.similarity(meaning, memory));
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

/// The text's words as phrases of FTS5. Each is quoted, so that nothing in it is syntax; what the tokenizer splits
/// is sought as it stands together.
fn words(text: &str) -> Vec<String> {
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
    words.iter().take(WORDS).map(|word| format!("\"{}\"", word.replace('"', "\"\""))).collect()
}

/// What is looked for in turn, as expressions of FTS5.
#[derive(Default)]
struct Turns {
    /// What these find is ranked.
    ranked: Vec<Turn>,
    /// Where not enough was found, the newest of these come behind all others.
    behind: Vec<String>,
}

struct Turn {
    expression: String,
    /// Of what it finds, so many of the newest are ranked.
    most: usize,
    /// It is left out where enough was found before.
    fills: bool,
}

impl Turns {
    fn of(connection: &Connection, entity: i64, words: Vec<String>) -> rusqlite::Result<Self> {
        if words.is_empty() {
            return Ok(Self::default());
        }
        if is_larger(connection, entity, i64::MIN, WHOLE)? {
            return Ok(Frequencies::of(connection, entity, words)?.turns());
        }
        let whole = Turn { expression: any(&words), most: WHOLE, fills: false };
        Ok(Self { ranked: vec![whole], behind: Vec::new() })
    }
}

fn any(words: &[String]) -> String {
    format!("({})", words.join(" OR "))
}

fn all(words: &[String]) -> String {
    words.join(" AND ")
}

/// The words of a search by how many learnings have them. To rank a text costs a hundred times as much as to find it,
/// so not everything that has some frequent word is ranked.
#[derive(Default)]
struct Frequencies {
    /// All that have any of these are ranked: together they are not more than [`FEW`].
    rare: Vec<String>,
    frequent: Vec<String>,
    /// These only fill up what the others leave.
    usual: Vec<String>,
}

impl Frequencies {
    /// In one swarm's memory: how others speak makes no difference.
    fn of(connection: &Connection, entity: i64, words: Vec<String>) -> rusqlite::Result<Self> {
        let mut counted = Vec::with_capacity(words.len());
        let mut found = Self::default();
        for word in words {
            let (rows, oldest) = newest_with(connection, entity, &word)?;
            let Some(oldest) = oldest else { continue };
            match rows > FEW && !is_larger(connection, entity, oldest, USUAL * rows)? {
                true => found.usual.push(word),
                false => counted.push((rows, word)),
            }
        }
        counted.sort_by_key(|(rows, _)| *rows);
        let mut together = 0;
        for (rows, word) in counted {
            together += rows;
            let kind = if together <= FEW { &mut found.rare } else { &mut found.frequent };
            kind.push(word);
        }
        Ok(found)
    }

    fn turns(&self) -> Turns {
        let Self { rare, frequent, usual } = self;
        let mut turns = Turns::default();
        let mut rank = |expression, fills| turns.ranked.push(Turn { expression, most: FEW, fills });
        if !rare.is_empty() {
            rank(any(rare), false);
        }
        if !rare.is_empty() && !frequent.is_empty() {
            // A part of those again, with all that speaks for them.
            rank(format!("{} AND {}", any(rare), any(frequent)), false);
        }
        if !frequent.is_empty() {
            rank(all(frequent), false);
            rank(any(frequent), true);
        }
        if !usual.is_empty() {
            turns.behind = vec![all(usual), any(usual)];
        }
        turns
    }
}

/// How many of the newest learnings with a word there are, up to one more than [`FEW`], and the oldest of them.
fn newest_with(connection: &Connection, entity: i64, word: &str) -> rusqlite::Result<(usize, Option<i64>)> {
    let sql = "SELECT count(*), min(row) FROM (
                   SELECT text.rowid AS row FROM text CROSS JOIN learning ON learning.row = text.rowid
                   WHERE text MATCH ?1 AND entity = ?2 ORDER BY text.rowid DESC LIMIT ?3)";
    connection.prepare_cached(sql)?.query_row(params![word, entity, count(FEW + 1)], |row| {
        Ok((row.get::<_, u32>(0)? as usize, row.get(1)?))
    })
}

/// Whether a memory has more learnings than so many, back to this row.
fn is_larger(connection: &Connection, entity: i64, oldest: i64, than: usize) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) FROM (SELECT 1 FROM learning WHERE entity = ?1 AND row >= ?2 LIMIT ?3)";
    let parameters = params![entity, oldest, count(than + 1)];
    let rows: u32 = connection.prepare_cached(sql)?.query_row(parameters, |row| row.get(0))?;
    Ok(rows as usize > than)
}

/// The documents of the best, the best first.
fn by_words(connection: &Connection, entity: i64, sought: &Sought) -> rusqlite::Result<Vec<String>> {
    let turns = Turns::of(connection, entity, words(&sought.text))?;
    let mut scores: BTreeMap<i64, f64> = BTreeMap::new();
    for Turn { expression, most, fills } in turns.ranked {
        if fills && scores.len() >= RANKED {
            break;
        }
        for (row, score) in newest(connection, entity, sought, expression, BM25, most)? {
            let best = scores.entry(row).or_insert(score);
            *best = best.min(score);
        }
    }
    for expression in turns.behind {
        if scores.len() >= RANKED {
            break;
        }
        for (row, _) in newest(connection, entity, sought, expression, "0", RANKED)? {
            // BM25's scores are below zero.
            let behind = scores.len() as f64;
            scores.entry(row).or_insert(behind);
        }
    }
    let mut best: Vec<(f64, i64)> = scores.into_iter().map(|(row, score)| (score, row)).collect();
    best.sort_by(|(one, row), (other, later)| one.total_cmp(other).then(row.cmp(later)));
    best.truncate(RANKED);
    let mut statement = connection.prepare_cached("SELECT document FROM document WHERE row = ?1")?;
    let named = best.into_iter().map(|(score, row)| {
        let document: String = statement.query_row([row], |row| row.get(0))?;
        Ok((score, document))
    });
    let mut named = named.collect::<rusqlite::Result<Vec<_>>>()?;
    named.sort_by(|(one, id), (other, later)| one.total_cmp(other).then_with(|| id.cmp(later)));
    Ok(named.into_iter().map(|(_, document)| document).collect())
}

/// A word of the title weighs as much as four of the content. Lower is better.
const BM25: &str = "bm25(text, 4.0, 1.0)";

/// The newest rows that an expression finds, and their scores.
fn newest(
    connection: &Connection,
    entity: i64,
    sought: &Sought,
    expression: String,
    score: &str,
    most: usize,
) -> rusqlite::Result<Vec<(i64, f64)>> {
    let mut sql = Statement::new("SELECT text.rowid, ");
    sql.push(score);
    sql.push(" FROM text CROSS JOIN learning ON learning.row = text.rowid WHERE text MATCH ");
    sql.bind(Bound::Text(expression));
    sql.push(" AND ");
    sql.learnings(entity, sought);
    sql.push(" ORDER BY text.rowid DESC LIMIT ");
    sql.bind(Bound::Integer(count(most)));
    let mut statement = connection.prepare_cached(&sql.text)?;
    let rows = statement.query_map(params_from_iter(sql.values), |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

impl Statement {
    /// The learnings of a memory that may be found.
    fn learnings(&mut self, entity: i64, sought: &Sought) {
        let mut is = |field: &str, value: Value| {
            self.push(field);
            self.push(" = ");
            self.bind(bound(value));
        };
        is("entity", entity.into());
        if let Some(source) = sought.source {
            is(" AND source", json!(source));
        }
        if let Some(scope) = sought.seen.scope {
            is(" AND scope", json!(scope));
        }
        if let Some(agent) = sought.seen.by {
            is(" AND (agent", json!(agent));
            is(" OR scope", json!(Scope::Swarm));
            self.push(")");
        }
    }
}

impl Sought {
    /// The same rule for a learning whose vector is in memory.
    pub(super) fn may_find(&self, scope: Option<&str>, agent: Option<&str>, source: Option<&str>) -> bool {
        let is = |field: Option<&str>, wanted: Value| field.is_some() && field == wanted.as_str();
        self.source.is_none_or(|wanted| is(source, json!(wanted)))
            && self.seen.scope.is_none_or(|wanted| is(scope, json!(wanted)))
            && self.seen.by.is_none_or(|by| is(agent, json!(by)) || is(scope, json!(Scope::Swarm)))
    }
}
