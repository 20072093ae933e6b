//! The rows of Skein's own commits, without Skein.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use async_trait::async_trait;
use rusqlite::{Connection, params};
use skein_coordinator::store::{Batch, TimerChange};
use skein_shared::entity::DocumentChange;
use skein_shared::json::{Fields, Json};

use super::open;
use crate::harness::contender::{Card, Contender, Durability, Metered, Plan, Work};

/// A run of Skein, taken down.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recording {
    pub batches: Vec<Batch>,
    /// Operations that they belong to.
    pub operations: u64,
}

/// Takes down the commits of a Skein that works under the given number in flight.
pub(crate) type Record =
    Arc<dyn Fn(PathBuf, usize) -> futures::future::BoxFuture<'static, Result<Recording>> + Send + Sync>;

/// The rows of one commit, with their JSON made.
struct Rows {
    entity: String,
    batch: [u8; 16],
    documents: Vec<(String, bool, String, Option<Json>)>,
    deleted: Vec<String>,
    /// The journal's text of documents and of marks.
    journal: (String, String),
    timer: TimerChange,
    events: String,
    replies: Option<String>,
    effects: Vec<String>,
}

/// Documents that wait before they are written to their table, as in the store.
const FOLD: usize = 1024;

pub(crate) struct Shaped {
    record: Record,
    folder: PathBuf,
    state: Option<ShapedState>,
    flushes: Arc<Mutex<u64>>,
}

struct ShapedState {
    connection: Connection,
    rows: Vec<Rows>,
    /// Operations in one pass over the rows, and the commits of one pass.
    operations: u64,
    place: usize,
    pass: u64,
    version: i64,
    flushes: u64,
    /// By entity and key: the last row, with all that its body was changed by.
    waiting: BTreeMap<(String, String), Option<Row>>,
    /// The last version and batch of each entity.
    heads: BTreeMap<String, (i64, [u8; 16])>,
    /// The position of each entity's versions.
    places: BTreeMap<(String, i64), i64>,
}

struct Row {
    live: bool,
    version: i64,
    head: String,
    changes: Vec<Json>,
}

impl Shaped {
    pub(crate) fn new(folder: &Path, record: Record) -> Self {
        Self { record, folder: folder.to_owned(), state: None, flushes: Arc::default() }
    }
}

impl ShapedState {
    fn new(path: &Path, recording: Recording) -> Result<Self> {
        let connection = open(path)?;
        connection.execute_batch(include_str!("../../../../coordinator/src/store/sqlite/schema.sql"))?;
        connection.execute_batch(include_str!("../../../../coordinator/src/store/sqlite/journal.sql"))?;
        connection.execute_batch(include_str!("../../../../coordinator/src/store/sqlite/places.sql"))?;
        let rows = recording.batches.into_iter().map(rows).collect::<Result<_>>()?;
        Ok(Self {
            connection,
            rows,
            operations: recording.operations,
            place: 0,
            pass: 0,
            version: 0,
            flushes: 0,
            waiting: BTreeMap::new(),
            heads: BTreeMap::new(),
            places: BTreeMap::new(),
        })
    }

    /// Writes the next commit. A share of an operation is counted for each, so that a slot may end anywhere.
    fn commit(&mut self) -> Result<()> {
        if self.place == self.rows.len() {
            self.place = 0;
            self.pass += 1;
        }
        self.version += 1;
        let rows = &self.rows[self.place];
        self.place += 1;
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        let position = rows.write(&self.connection, self.version)?;
        self.places.insert((rows.entity.clone(), self.version), position);
        self.connection.execute_batch("COMMIT")?;
        self.flushes += 1;
        rows.wait(&mut self.waiting, self.version, self.pass);
        self.heads.insert(rows.entity.clone(), (self.version, rows.batch));
        if self.waiting.len() >= FOLD { self.fold() } else { Ok(()) }
    }

    fn fold(&mut self) -> Result<()> {
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        for (entity, (version, batch)) in std::mem::take(&mut self.heads) {
            self.connection
                .prepare_cached(
                    "INSERT INTO entity (key, version, batch, at, sequence) VALUES (?1, ?2, ?3, ?2, 0)
                     ON CONFLICT DO UPDATE SET version = ?2, batch = ?3, at = ?2",
                )?
                .execute(params![entity, version, batch])?;
        }
        for ((entity, version), position) in std::mem::take(&mut self.places) {
            self.connection
                .prepare_cached("INSERT INTO place (entity, version, position) VALUES (?1, ?2, ?3)")?
                .execute(params![entity, version, position])?;
        }
        for ((entity, key), row) in std::mem::take(&mut self.waiting) {
            let Some(row) = row else {
                self.connection
                    .prepare_cached("DELETE FROM document WHERE entity = ?1 AND document = ?2")?
                    .execute(params![entity, key])?;
                continue;
            };
            let line = Fields::joined(row.changes.iter());
            self.connection
                .prepare_cached(
                    "INSERT INTO document (entity, document, live, version, written, head, body)
                     VALUES (?1, ?2, ?3, ?4, ?4, ?5, coalesce(?6, '{}'))
                     ON CONFLICT DO UPDATE SET live = ?3, version = ?4, written = ?4, head = ?5,
                         body = coalesce(body || char(10) || ?6, body)",
                )?
                .execute(params![
                    entity,
                    key,
                    row.live,
                    row.version,
                    row.head,
                    line.as_deref().map(Json::text)
                ])?;
        }
        self.connection.execute("DELETE FROM journal_even", [])?;
        self.connection.execute_batch("COMMIT")?;
        self.flushes += 1;
        Ok(())
    }
}

fn rows(batch: Batch) -> Result<Rows> {
    let journal = (serde_json::to_string(&batch.documents)?, serde_json::to_string(&batch.seen)?);
    let (mut documents, mut deleted) = (Vec::new(), Vec::new());
    for change in batch.documents {
        match change {
            DocumentChange::Put { key, live, head, body, .. } => {
                documents.push((key, live, head.text().to_owned(), body));
            }
            DocumentChange::Delete { key } => deleted.push(key),
        }
    }
    Ok(Rows {
        entity: batch.key.to_string(),
        batch: *batch.id.as_bytes(),
        documents,
        deleted,
        journal,
        timer: batch.timer,
        events: serde_json::to_string(&batch.events)?,
        replies: (!batch.replies.is_empty()).then(|| serde_json::to_string(&batch.replies)).transpose()?,
        effects: batch.outbox.iter().map(serde_json::to_string).collect::<Result<_, _>>()?,
    })
}

impl Rows {
    /// Gives the position of the record.
    fn write(&self, connection: &Connection, version: i64) -> Result<i64> {
        let (documents, seen) = &self.journal;
        connection
            .prepare_cached(
                "INSERT INTO journal_even (entity, version, batch, at, sequence, documents, seen)
                 VALUES (?1, ?2, ?3, ?2, 0, ?4, ?5)",
            )?
            .execute(params![self.entity, version, self.batch, documents, seen])?;
        if let TimerChange::Set(due) = self.timer {
            connection
                .prepare_cached("INSERT OR REPLACE INTO timer (entity, due) VALUES (?1, ?2)")?
                .execute(params![self.entity, due.0.cast_signed()])?;
        }
        connection
            .prepare_cached(
                "INSERT INTO record (entity, version, at, events, replies) VALUES (?1, ?2, ?2, ?3, ?4)",
            )?
            .execute(params![self.entity, version, self.events, self.replies])?;
        let position = connection.last_insert_rowid();
        for (effect, place) in self.effects.iter().zip(version * 65536..) {
            connection
                .prepare_cached("INSERT INTO outbox (position, source, epoch, sequence, at, effect) VALUES (?1, ?2, 1, ?1, ?1, ?3)")?
                .execute(params![place, self.entity, effect])?;
        }
        Ok(position)
    }

    /// Adds what the commit does to documents to what waits.
    fn wait(&self, waiting: &mut BTreeMap<(String, String), Option<Row>>, version: i64, pass: u64) {
        for (key, live, head, body) in &self.documents {
            let (live, head) = (*live, head.clone());
            let slot = waiting.entry((self.entity.clone(), fresh(key, pass))).or_default();
            let mut changes = slot.take().map(|row| row.changes).unwrap_or_default();
            changes.extend(body.clone());
            *slot = Some(Row { live, version, head, changes });
        }
        for key in &self.deleted {
            waiting.insert((self.entity.clone(), fresh(key, pass)), None);
        }
    }
}

/// Runs `turn` again and again on a thread of its own until the plan's time is over. It writes one group and gives
/// the operations that it finished.
async fn repeat<T>(
    plan: &Plan,
    state: T,
    mut turn: impl FnMut(&mut T) -> Result<u64> + Send + 'static,
) -> Result<(Work, T)>
where
    T: Send + 'static,
{
    let time = plan.time;
    let run = move || {
        let mut state = state;
        let (start, mut operations) = (Instant::now(), 0);
        while start.elapsed() < time {
            operations += turn(&mut state)?;
        }
        anyhow::Ok((Work { operations, elapsed: start.elapsed(), latency: None }, state))
    };
    tokio::task::spawn_blocking(run).await?
}
/// Things of a later pass are other things: the first digits of an id are overwritten by the pass.
pub(crate) fn fresh(key: &str, pass: u64) -> String {
    match key.split_once('/') {
        Some((kind, id)) if pass > 0 && id.len() > 24 => format!("{kind}/{pass:08x}{}", &id[8..]),
        _ => key.to_owned(),
    }
}

#[async_trait]
impl Contender for Shaped {
    fn card(&self) -> Card {
        Card::limit(
            "shaped",
            Durability::PowerCut,
            format!("SQLite {}", rusqlite::version()),
            Metered::Myself,
        )
    }

    async fn prepare(&mut self, in_flight: usize) -> Result<()> {
        let folder = self.folder.join(format!("shaped-{in_flight}"));
        std::fs::create_dir_all(&folder)?;
        let recording = (self.record)(folder.join("recorded"), in_flight).await?;
        self.state = Some(ShapedState::new(&folder.join("shaped.db"), recording)?);
        Ok(())
    }

    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        let state = self.state.take().context("the probe was not made ready")?;
        let (before, flushed) = (state.version, state.flushes);
        let (mut work, state) = repeat(plan, state, |state| state.commit().map(|()| 0)).await?;
        let commits = (state.version - before).cast_unsigned();
        *self.flushes.lock().unwrap_or_else(PoisonError::into_inner) += state.flushes - flushed;
        work.operations = commits * state.operations / state.rows.len() as u64;
        self.state = Some(state);
        Ok(work)
    }

    fn flushes(&self) -> Option<u64> {
        Some(*self.flushes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::fresh;

    #[test]
    fn a_later_pass_writes_other_documents_of_the_same_size() {
        let key = "task/0190a0b0-0000-7000-8000-000000000001";
        assert_eq!(fresh(key, 0), key);
        assert_eq!(fresh(key, 2), "task/00000002-0000-7000-8000-000000000001");
        assert_eq!(fresh("member/x", 2), "member/x");
    }
}
