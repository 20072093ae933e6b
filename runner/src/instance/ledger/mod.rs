//! What the runner knows of its instances, on disk: it survives a crash of the runner.
//!
//! A change of state and the report of it are one transaction, so that neither is ever without the other.

mod row;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, Params, params};
use serde::Serialize;
use serde_json::Value;
use skein_shared::entity::Reign;
use skein_shared::fence::Epoch;

pub use row::{Report, Row, State, What};

use crate::container::mark;
use crate::error::Error;
use crate::harness::Harness;

/// How many forgotten instances are remembered by token, so that a late command starts none of them again.
const REMEMBERED: i64 = 10_000;

/// The file. Calls block for a disk flush at most and run on blocking threads.
#[derive(Clone)]
pub struct Ledger {
    connection: Arc<Mutex<Connection>>,
    /// The highest epoch of each entity that is not written down yet, by the entity.
    unwritten: Arc<Mutex<BTreeMap<String, i64>>>,
}

impl Ledger {
    /// Opens or makes the ledger, readable by the runner's user alone.
    ///
    /// # Errors
    /// When the file cannot be made or is no ledger.
    pub fn open(file: &Path) -> Result<Self, Error> {
        // SQLite gives its companion files the mode of the first.
        let made = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(file);
        made.map_err(|error| Error::io("open the ledger", file, error))?;
        let connection = Connection::open(file)?;
        connection.execute_batch(
            "PRAGMA journal_mode = WAL;
             PRAGMA synchronous = FULL;
             CREATE TABLE IF NOT EXISTS instance (id TEXT PRIMARY KEY, data TEXT NOT NULL);
             CREATE TABLE IF NOT EXISTS report (sequence INTEGER PRIMARY KEY AUTOINCREMENT, data TEXT NOT NULL);
             CREATE TABLE IF NOT EXISTS reign (source TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
             CREATE TABLE IF NOT EXISTS announced (swarm TEXT, name TEXT, PRIMARY KEY (swarm, name)) WITHOUT ROWID;
             CREATE TABLE IF NOT EXISTS owner (uid INTEGER PRIMARY KEY, swarm TEXT, agent TEXT);
             CREATE TABLE IF NOT EXISTS number (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;",
        )?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)), unwritten: Arc::default() })
    }

    /// Counts this start of the runner and returns its number.
    pub async fn incarnation(&self) -> Result<u64, Error> {
        self.with(|connection| next(connection, "incarnation", 0)).await
    }

    /// What tells this data folder's processes from those of any other runner on the machine, for ever.
    pub async fn identity(&self) -> Result<String, Error> {
        let mut bytes = [0u8; mark::DIGITS / 2];
        getrandom::fill(&mut bytes)
            .map_err(|error| Error::config(format!("the machine gives no random numbers: {error}")))?;
        let drawn = bytes.iter().fold(0i64, |number, byte| number << 8 | i64::from(*byte));
        let kept = self.with(move |connection| {
            connection.execute("INSERT OR IGNORE INTO number VALUES ('identity', ?1)", [drawn])?;
            connection
                .query_row("SELECT value FROM number WHERE name = 'identity'", [], |row| row.get::<_, i64>(0))
        });
        Ok(format!("{:0digits$x}", kept.await?, digits = mark::DIGITS))
    }

    /// The number of an agent's group, the same for ever; it counts from zero.
    pub async fn group(&self, swarm: &str, agent: &str) -> Result<u32, Error> {
        let name = format!("group/{swarm}/{agent}");
        self.with(move |connection| {
            let known = connection
                .query_row("SELECT value FROM number WHERE name = ?1", [&name], |row| row.get(0))
                .optional()?;
            if let Some(known) = known {
                return Ok(known);
            }
            let number = u32::try_from(next(connection, "groups", -1)?).unwrap_or(u32::MAX);
            connection.execute("INSERT INTO number VALUES (?1, ?2)", params![name, number])?;
            Ok(number)
        })
        .await
    }

    /// A user of an agent's that is not `taken`; a new one if it has none. A user is never another agent's: what the
    /// first left behind with it, such as files and programs that run as it, would be the second's. `None` when all of
    /// `users` are given away.
    pub async fn user(
        &self,
        swarm: &str,
        agent: &str,
        users: Range<u32>,
        taken: BTreeSet<u32>,
    ) -> Result<Option<u32>, Error> {
        let (swarm, agent) = (swarm.to_owned(), agent.to_owned());
        self.with(move |connection| {
            let mut own = connection
                .prepare_cached("SELECT uid FROM owner WHERE swarm = ?1 AND agent = ?2 ORDER BY uid")?;
            let known = own.query_map([&swarm, &agent], |row| row.get(0))?;
            for uid in known {
                let uid: u32 = uid?;
                if users.contains(&uid) && !taken.contains(&uid) {
                    return Ok(Some(uid));
                }
            }
            let last: Option<u32> = connection.query_row(
                "SELECT max(uid) FROM owner WHERE uid >= ?1 AND uid < ?2",
                [users.start, users.end],
                |row| row.get(0),
            )?;
            let first = last.map_or(users.start, |last| last + 1);
            let new = (first..users.end).find(|uid| !taken.contains(uid));
            if let Some(uid) = new {
                connection.execute("INSERT INTO owner VALUES (?1, ?2, ?3)", params![uid, swarm, agent])?;
            }
            Ok(new)
        })
        .await
    }

    /// The highest user that was ever given away, to whatever agent.
    pub async fn highest_user(&self) -> Result<Option<u32>, Error> {
        self.with(|connection| connection.query_row("SELECT max(uid) FROM owner", [], |row| row.get(0))).await
    }

    /// The agents, as (swarm, name), that the coordinators have from this runner.
    pub async fn announced(&self) -> Result<BTreeSet<(String, String)>, Error> {
        self.with(|connection| {
            let mut statement = connection.prepare("SELECT swarm, name FROM announced")?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        })
        .await
    }

    /// Takes note of the agents that the coordinators have from this runner now.
    pub async fn announce(&self, agents: BTreeSet<(String, String)>) -> Result<(), Error> {
        self.with(move |connection| {
            let transaction = connection.transaction()?;
            transaction.execute("DELETE FROM announced", [])?;
            for (swarm, name) in agents {
                transaction.execute("INSERT INTO announced VALUES (?1, ?2)", params![swarm, name])?;
            }
            transaction.commit()
        })
        .await
    }

    /// Takes note of the epoch under which an entity commands, and gives the highest there was. One that commands as
    /// before costs no flush. An epoch that the disk does not take is kept in memory, and written down with a later
    /// call: what has filled the disk may be what the new owner commands to end.
    pub async fn reign(&self, reign: &Reign) -> Result<Epoch, Error> {
        let (source, epoch) = (reign.source.to_string(), i64::try_from(reign.epoch.0).unwrap_or(i64::MAX));
        let unwritten = Arc::clone(&self.unwritten);
        self.with(move |connection| {
            let mut unwritten = unwritten.lock().unwrap_or_else(PoisonError::into_inner);
            let written: Option<i64> = connection
                .query_row("SELECT epoch FROM reign WHERE source = ?1", [&source], |row| row.get(0))
                .optional()?;
            let known = written.max(unwritten.get(&source).copied());
            if known < Some(epoch) {
                unwritten.insert(source, epoch);
            }
            match write_reigns(connection, &unwritten) {
                Ok(()) => unwritten.clear(),
                Err(error) => tracing::error!(%error, "who commands was not written down; tried again"),
            }
            Ok(Epoch(known.unwrap_or(epoch).max(epoch).unsigned_abs()))
        })
        .await
    }

    /// Writes an instance down, and what is to be reported of it.
    pub async fn save(&self, row: Row, what: Option<What>) -> Result<(), Error> {
        self.with(move |connection| {
            let transaction = connection.transaction()?;
            let data = json(&row)?;
            transaction.execute(
                "INSERT INTO instance VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET data = excluded.data",
                params![row.instance, data],
            )?;
            if let Some(what) = what {
                let Row { instance, swarm, agent, token, .. } = row;
                let report = json(&Report { instance, swarm, agent, token, what })?;
                transaction.execute("INSERT INTO report (data) VALUES (?1)", [report])?;
            }
            transaction.commit()
        })
        .await
    }

    /// Takes an instance for one that never came.
    pub async fn remove(&self, instance: &str) -> Result<(), Error> {
        let instance = instance.to_owned();
        self.with(move |connection| connection.execute("DELETE FROM instance WHERE id = ?1", [instance]))
            .await?;
        Ok(())
    }

    pub async fn row(&self, instance: &str) -> Result<Option<Row>, Error> {
        let instance = instance.to_owned();
        self.with(move |connection| {
            let data: Option<String> = connection
                .query_row("SELECT data FROM instance WHERE id = ?1", [instance], |row| row.get(0))
                .optional()?;
            data.map(|data| parse(&data)).transpose()
        })
        .await
    }

    /// Who reads what an instance prints.
    pub async fn harness(&self, instance: &str) -> Harness {
        match self.row(instance).await {
            Ok(row) => row.map(|row| row.harness).unwrap_or_default(),
            Err(error) => {
                tracing::error!(instance, %error, "the ledger does not say which client it is");
                Harness::default()
            }
        }
    }

    /// Every instance that the coordinators have not yet let go of.
    pub async fn held(&self) -> Result<Vec<Row>, Error> {
        self.rows("SELECT data FROM instance WHERE data ->> 'state' <> 'forgotten' ORDER BY rowid", []).await
    }

    /// Instances that have ended and of which no report waits to be acknowledged: those that nobody has let go of, and
    /// of the others those that are named.
    pub async fn ended_without_report(&self, named: &BTreeSet<String>) -> Result<Vec<Row>, Error> {
        let named = Value::from_iter(named.iter().map(String::as_str)).to_string();
        self.rows(
            "SELECT data FROM instance
             WHERE (data ->> 'state' = 'ended'
                    OR data ->> 'state' = 'forgotten' AND id IN (SELECT value FROM json_each(?1)))
             AND id NOT IN (SELECT data ->> 'instance' FROM report) ORDER BY rowid",
            [named],
        )
        .await
    }

    async fn rows<P>(&self, query: &'static str, parameters: P) -> Result<Vec<Row>, Error>
    where
        P: Params + Send + 'static,
    {
        self.with(move |connection| {
            let mut statement = connection.prepare_cached(query)?;
            let rows = statement.query_map(parameters, |row| row.get::<_, String>(0))?;
            rows.map(|data| parse(&data?)).collect()
        })
        .await
    }

    /// Lets go of an instance: its secrets and its input are wiped, its token stays.
    pub async fn forget(&self, mut row: Row) -> Result<(), Error> {
        row.state = State::Forgotten;
        row.secret.clear();
        row.access_token.clear();
        row.input.clear();
        self.save(row, None).await?;
        self.with(|connection| {
            connection.execute(
                "DELETE FROM instance WHERE data ->> 'state' = 'forgotten'
                 AND rowid <= (SELECT max(rowid) FROM instance) - ?1",
                [REMEMBERED],
            )
        })
        .await?;
        Ok(())
    }

    /// Reports later than `after` that nobody has acknowledged, oldest first, at most `limit`.
    pub async fn reports(&self, after: u64, limit: u32) -> Result<Vec<(u64, Report)>, Error> {
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        self.with(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT sequence, data FROM report WHERE sequence > ?1 ORDER BY sequence LIMIT ?2",
            )?;
            let rows = statement.query_map(params![after, limit], |row| {
                Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get::<_, String>(1)?))
            })?;
            rows.map(|row| row.and_then(|(sequence, data)| Ok((sequence, parse(&data)?)))).collect()
        })
        .await
    }

    /// The newest report that nobody has acknowledged; zero if there is none.
    pub async fn newest_report(&self) -> Result<u64, Error> {
        let newest = self.with(|connection| {
            connection.query_row("SELECT max(sequence) FROM report", [], |row| row.get::<_, Option<i64>>(0))
        });
        Ok(newest.await?.unwrap_or_default().unsigned_abs())
    }

    pub async fn acknowledge(&self, sequence: u64) -> Result<(), Error> {
        let sequence = i64::try_from(sequence).unwrap_or(i64::MAX);
        self.with(move |connection| connection.execute("DELETE FROM report WHERE sequence = ?1", [sequence]))
            .await?;
        Ok(())
    }

    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let connection = Arc::clone(&self.connection);
        let done = tokio::task::spawn_blocking(move || {
            work(&mut connection.lock().unwrap_or_else(PoisonError::into_inner))
        });
        match done.await {
            Ok(result) => result.map_err(Error::Ledger),
            Err(lost) => Err(Error::config(format!("the runner's ledger was not reached: {lost}"))),
        }
    }
}

fn write_reigns(connection: &mut Connection, reigns: &BTreeMap<String, i64>) -> rusqlite::Result<()> {
    if reigns.is_empty() {
        return Ok(());
    }
    let transaction = connection.transaction()?;
    for (source, epoch) in reigns {
        transaction.execute("INSERT OR REPLACE INTO reign VALUES (?1, ?2)", params![source, epoch])?;
    }
    transaction.commit()
}

/// Counts a number up and returns it; the first is one above `before`.
fn next(connection: &Connection, name: &str, before: i64) -> rusqlite::Result<u64> {
    let value: i64 = connection.query_row(
        "INSERT INTO number VALUES (?1, ?2 + 1) ON CONFLICT (name) DO UPDATE SET value = value + 1
         RETURNING value",
        params![name, before],
        |row| row.get(0),
    )?;
    Ok(value.unsigned_abs())
}

fn json(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

fn parse<T: serde::de::DeserializeOwned>(data: &str) -> rusqlite::Result<T> {
    let text = rusqlite::types::Type::Text;
    serde_json::from_str(data)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, text, Box::new(error)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use skein_shared::fence::Token;

    use super::*;

    fn row(instance: &str) -> Row {
        let token = Token { epoch: Epoch(1), number: 1 };
        let row = Row::new(instance.into(), "default".into(), "worker".into(), token, "a");
        Row { state: State::Running, secret: "s".into(), ..row }
    }

    #[tokio::test]
    async fn instances_and_reports_survive_a_reopening() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ledger.sqlite");
        let ledger = Ledger::open(&file).unwrap();
        assert_eq!(ledger.incarnation().await.unwrap(), 1);
        let identity = ledger.identity().await.unwrap();
        ledger.save(row("worker-1"), Some(What::Started { pid: 7 })).await.unwrap();
        ledger.save(row("worker-2"), Some(What::Frozen)).await.unwrap();
        drop(ledger);
        let ledger = Ledger::open(&file).unwrap();
        assert_eq!(ledger.incarnation().await.unwrap(), 2);
        assert_eq!(ledger.identity().await.unwrap(), identity);
        assert_eq!(ledger.held().await.unwrap().len(), 2);
        ledger.acknowledge(1).await.unwrap();
        let left = ledger.reports(0, 10).await.unwrap();
        assert_eq!((left.len(), left[0].0, &left[0].1.what), (1, 2, &What::Frozen));
        assert_eq!(ledger.newest_report().await.unwrap(), 2);
        ledger.acknowledge(2).await.unwrap();
        assert_eq!(ledger.newest_report().await.unwrap(), 0);
        ledger.save(row("worker-2"), Some(What::Thawed)).await.unwrap();
        assert_eq!(ledger.reports(0, 10).await.unwrap()[0].0, 3, "a sequence number is never used again");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn a_forgotten_instance_keeps_its_token_and_loses_its_secrets_and_its_input() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(&folder.path().join("ledger.sqlite")).unwrap();
        let given = || Row { input: "{}".into(), ..row("worker-1") };
        ledger.save(given(), None).await.unwrap();
        ledger.forget(given()).await.unwrap();
        assert!(ledger.held().await.unwrap().is_empty());
        let kept = ledger.row("worker-1").await.unwrap().unwrap();
        assert_eq!((kept.secret.as_str(), kept.input.as_str(), kept.token.number), ("", "", 1));
    }

    /// That of an agent.
    fn reign(agent: &str, epoch: u64) -> Reign {
        Reign { source: format!("agent/default/{agent}").parse().unwrap(), epoch: Epoch(epoch) }
    }

    #[tokio::test]
    async fn the_highest_epoch_of_each_entity_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ledger.sqlite");
        let ledger = Ledger::open(&file).unwrap();
        for (known, highest) in [(5, 5), (7, 7), (6, 7)] {
            assert_eq!(ledger.reign(&reign("a", known)).await.unwrap(), Epoch(highest));
        }
        assert_eq!(ledger.reign(&reign("b", 1)).await.unwrap(), Epoch(1), "another one's shard has its own");
        drop(ledger);
        assert_eq!(Ledger::open(&file).unwrap().reign(&reign("a", 1)).await.unwrap(), Epoch(7));
    }

    #[tokio::test]
    async fn an_epoch_that_could_not_be_written_down_counts_and_is_written_with_the_next_command() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ledger.sqlite");
        let ledger = Ledger::open(&file).unwrap();
        ledger.reign(&reign("a", 5)).await.unwrap();
        let disk = Connection::open(&file).unwrap();
        disk.execute_batch(
            "CREATE TRIGGER full BEFORE INSERT ON reign BEGIN SELECT RAISE(ABORT, 'the disk is full'); END",
        )
        .unwrap();
        for (known, highest) in [(7, 7), (6, 7), (5, 7), (8, 8)] {
            assert_eq!(ledger.reign(&reign("a", known)).await.unwrap(), Epoch(highest));
        }
        disk.execute_batch("DROP TRIGGER full").unwrap();
        ledger.reign(&reign("b", 1)).await.unwrap();
        drop(ledger);
        assert_eq!(Ledger::open(&file).unwrap().reign(&reign("a", 1)).await.unwrap(), Epoch(8));
    }

    #[tokio::test]
    async fn a_user_is_never_given_to_another_agent() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ledger.sqlite");
        let ledger = Ledger::open(&file).unwrap();
        let taken = |uids: &[u32]| uids.iter().copied().collect::<BTreeSet<u32>>();
        let user =
            async |agent: &str, held: &[u32]| ledger.user("s", agent, 10..14, taken(held)).await.unwrap();
        assert_eq!(user("a", &[10]).await, Some(11), "an instance from before has the first");
        assert_eq!(user("a", &[]).await, Some(11), "the same again once it is free");
        assert_eq!(user("a", &[11]).await, Some(12));
        assert_eq!(user("b", &[]).await, Some(13));
        assert_eq!(user("b", &[13]).await, None, "none is left");
        assert_eq!(user("a", &[11]).await, Some(12));
    }

    #[tokio::test]
    async fn an_agent_keeps_its_group() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(&folder.path().join("ledger.sqlite")).unwrap();
        assert_eq!(ledger.group("default", "a").await.unwrap(), 0);
        assert_eq!(ledger.group("default", "b").await.unwrap(), 1);
        assert_eq!(ledger.group("default", "a").await.unwrap(), 0);
    }
}
