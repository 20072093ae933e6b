//! What searches of the memory look at: the words of learnings, whose they are, and what they mean.

use std::borrow::Cow;

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;
use skein_shared::json::Fields;
use skein_shared::memory::Vector;

use super::tables::{bound, type_of};
use super::vectors;

/// The type of documents whose words are searched for. An index of words costs more than all other tables
/// together, so there is none of what nobody searches.
const LEARNING: &str = "memory";
const VECTOR: &str = "vector";
/// The field of a vector's document that its row in the table of vectors has.
const CODES: &str = "vector";

/// The body as its row has it: without what another table has.
pub(super) fn shown<'a>(document: &str, body: &'a Fields<'a>) -> Cow<'a, Fields<'a>> {
    match type_of(document) {
        VECTOR => Cow::Owned(body.without(CODES)),
        _ => Cow::Borrowed(body),
    }
}

/// Follows a document, of which the body is whole.
pub(super) fn write(
    connection: &Connection,
    entity: i64,
    document: &str,
    row: i64,
    before: Option<&Fields<'_>>,
    body: &Fields<'_>,
) -> rusqlite::Result<()> {
    match type_of(document) {
        LEARNING => {
            write_text(connection, row, before, body)?;
            write_learning(connection, entity, row, before, body)
        }
        VECTOR => write_vector(connection, entity, body),
        _ => Ok(()),
    }
}

/// Forgets what it knows of a document.
pub(super) fn remove(connection: &Connection, row: i64) -> rusqlite::Result<()> {
    for statement in ["DELETE FROM text WHERE rowid = ?1", "DELETE FROM learning WHERE row = ?1"] {
        connection.prepare_cached(statement)?.execute([row])?;
    }
    let of = "SELECT entity, 'memory/' || substr(document, 8) FROM document
              WHERE row = ?1 AND document LIKE 'vector/%'";
    let of = connection.prepare_cached(of)?.query_row([row], |row| Ok((row.get(0)?, row.get(1)?)));
    let of: Option<(i64, String)> = of.optional()?;
    of.map_or(Ok(()), |(entity, memory)| forget_vector(connection, entity, &memory))
}

/// Forgets the rows of vectors that are gone, which are kept to tell of it.
pub(super) fn trim(connection: &Connection) -> rusqlite::Result<()> {
    match connection.prepare_cached("DELETE FROM vector WHERE codes IS NULL")?.execute([])? {
        0 => Ok(()),
        _ => vectors::begin_generation(connection),
    }
}

/// Texts change seldom, and putting one into the index costs as much as all else.
fn write_text(
    connection: &Connection,
    row: i64,
    before: Option<&Fields<'_>>,
    body: &Fields<'_>,
) -> rusqlite::Result<()> {
    let before = before.and_then(searchable);
    let after = searchable(body);
    if before == after {
        return Ok(());
    }
    if before.is_some() {
        connection.prepare_cached("DELETE FROM text WHERE rowid = ?1")?.execute([row])?;
    }
    if let Some((title, content)) = after {
        connection
            .prepare_cached("INSERT INTO text (rowid, title, content) VALUES (?1, ?2, ?3)")?
            .execute(params![row, title, content])?;
    }
    Ok(())
}

/// What the text search looks at in a learning: a title, whose words weigh more, and the rest.
fn searchable(body: &Fields<'_>) -> Option<(String, String)> {
    let texts = (gather(body, &["name", "tags"]), gather(body, &["content"]));
    (!texts.0.is_empty() || !texts.1.is_empty()).then_some(texts)
}

fn gather(body: &Fields<'_>, fields: &[&str]) -> String {
    let texts: Vec<String> = fields
        .iter()
        .filter_map(|field| body.read(field))
        .flat_map(|value| match value {
            Value::Array(values) => values,
            value => vec![value],
        })
        .filter_map(|value| value.as_str().map(str::to_owned))
        .collect();
    texts.join("\n")
}

fn write_learning(
    connection: &Connection,
    entity: i64,
    row: i64,
    before: Option<&Fields<'_>>,
    body: &Fields<'_>,
) -> rusqlite::Result<()> {
    const FIELDS: [&str; 3] = ["scope", "agentId", "source"];
    if before.is_some_and(|before| FIELDS.iter().all(|field| before.get(field) == body.get(field))) {
        return Ok(());
    }
    let [scope, agent, source] = FIELDS.map(|field| body.read(field).map(bound));
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO learning (row, entity, scope, agent, source) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![row, entity, scope, agent, source])?;
    Ok(())
}

/// One that cannot be read, or that there is none of, is no vector.
fn write_vector(connection: &Connection, entity: i64, body: &Fields<'_>) -> rusqlite::Result<()> {
    let text = |field: &str| body.read::<String>(field);
    let Some(memory) = text("memoryId").map(|id| skein_shared::memory::key(&id)) else { return Ok(()) };
    let vector = body.read::<Vector>(CODES);
    let Some((vector, model)) = vector.zip(text("modelId")) else {
        return forget_vector(connection, entity, &memory);
    };
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO vector (entity, memory, change, model, scope, agent, source, scale, codes)
             VALUES (?1, ?2, (SELECT coalesce(max(change), 0) + 1 FROM vector WHERE entity = ?1),
                     ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            entity,
            memory,
            model,
            text("scope"),
            text("agentId"),
            text("source"),
            vector.scale(),
            vector.codes()
        ])?;
    Ok(())
}

/// Its row says from now on that there is none.
fn forget_vector(connection: &Connection, entity: i64, memory: &str) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE vector SET codes = NULL,
                 change = (SELECT max(change) + 1 FROM vector WHERE entity = ?1)
             WHERE entity = ?1 AND memory = ?2 AND codes IS NOT NULL",
        )?
        .execute(params![entity, memory])?;
    Ok(())
}
