//! Text search, ranked by BM25.

use rusqlite::types::Value as Bound;
use rusqlite::{Connection, params_from_iter};
use serde_json::Value;
use skein_shared::id::{Kind, Name};

use super::query::{Filter, Statement};
use super::tables::{SEARCHED, count, json};

/// Words of a search text that count.
const WORDS: usize = 64;
/// Most documents that one search gives.
const LIMIT: usize = 200;

/// A document that was found.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Hit {
    pub body: Value,
    /// Comparable within one search; higher is better.
    pub score: f64,
}

/// Any of the text's words, as an expression of FTS5. Each word is quoted, so that nothing in it is syntax;
/// what the tokenizer splits becomes a phrase. `None` when there is no word.
pub(super) fn words(text: &str) -> Option<String> {
    // FTS5 reads expressions up to a NUL.
    let words = text.split(|letter: char| letter.is_whitespace() || letter == '\0');
    let quoted: Vec<String> = words
        .filter(|word| word.chars().any(char::is_alphanumeric))
        .take(WORDS)
        .map(|word| format!("\"{}\"", word.replace('"', "\"\"")))
        .collect();
    (!quoted.is_empty()).then(|| quoted.join(" OR "))
}

pub(super) fn search(
    connection: &Connection,
    swarm: &Name,
    words: &str,
    filters: &[Filter],
    limit: usize,
) -> rusqlite::Result<Vec<Hit>> {
    // A word of the title weighs as much as four of the content.
    let mut sql = Statement::new(
        "SELECT body, -bm25(text, 4.0, 1.0) AS score FROM text
         CROSS JOIN document ON document.row = text.rowid WHERE text MATCH ",
    );
    sql.bind(Bound::Text(words.to_owned()));
    sql.push(" AND ");
    sql.of_type(swarm, SEARCHED, Kind::Memory);
    sql.filters(filters);
    sql.push(" ORDER BY score DESC, document, entity LIMIT ");
    sql.bind(Bound::Integer(count(limit.min(LIMIT))));
    let mut statement = connection.prepare_cached(&sql.text)?;
    let rows = statement
        .query_map(params_from_iter(sql.values), |row| Ok(Hit { body: json(row, 0)?, score: row.get(1)? }))?;
    rows.collect()
}
