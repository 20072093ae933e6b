//! Who takes part in the cluster. This is a hint: who may write is decided by the leases alone.

use std::time::Duration;

use redis::{Script, cmd};

use super::connection::{Connection, Unrun, at, is_garbage, key_of, sentence};
use super::shard::MEMBERS;
use crate::store::StoreError;

/// The list of the coordinators, as JSON texts of whatever each says of itself.
#[derive(Clone)]
pub struct Members {
    connection: Connection,
    beat: Script,
}

/// What a member hears who says that it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// What was said last in its own name; empty if nobody had for too long.
    pub before: String,
    /// What the clock of the store said, in milliseconds.
    pub clock: u64,
    /// What all have said last, also those who have fallen silent since.
    pub said: Vec<Said>,
}

/// As the script answers: the clock, what the member had said, and of everybody an id, an end and what they said.
type Beaten = (u64, Vec<u8>, Vec<Vec<u8>>);

/// What somebody says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub id: String,
    /// Until when it holds by the clock of the store, in milliseconds.
    pub until: u64,
    pub record: String,
}

impl Said {
    /// It may be anything, where another program has written it.
    fn read(parts: &[Vec<u8>]) -> Option<Self> {
        let [id, until, record] = parts else { return None };
        Some(Self { id: text(id), until: text(until).parse().ok()?, record: text(record) })
    }
}

impl Members {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection, beat: Script::new(include_str!("scripts/beat.lua")) }
    }

    /// Says that a member lives, for `ttl` from now, and gives what is heard of the others; nothing when the
    /// list holds something else, which is an alarm. A hint that is missing is to stop nobody. Those who are `silent`,
    /// by their ids and the ends of what they said last, are forgotten unless they have said something since.
    ///
    /// # Errors
    /// When Redis cannot be asked.
    pub async fn beat(
        &self,
        id: &str,
        record: &str,
        ttl: Duration,
        silent: &[(String, u64)],
    ) -> Result<Option<Heard>, StoreError> {
        let mut arguments: Vec<Vec<u8>> = vec![id.into(), record.into(), ttl.as_millis().to_string().into()];
        for (id, until) in silent {
            arguments.push(id.as_str().into());
            arguments.push(until.to_string().into());
        }
        let heard: Result<Beaten, Unrun> =
            self.connection.run(&self.beat, &[MEMBERS.to_owned()], &arguments).await;
        match heard {
            Err(Unrun::Answered(error)) if is_garbage(&error) => {
                let StoreError(problem) = at(MEMBERS, &sentence(&error));
                self.connection.watch.failed(&problem);
                Ok(None)
            }
            Ok((clock, before, all)) => {
                let said = all.chunks(3).filter_map(Said::read).collect();
                Ok(Some(Heard { before: text(&before), clock, said }))
            }
            Err(unrun) => Err(unrun.problem(MEMBERS)),
        }
    }

    /// What all who live by the clock of the store say of themselves, for whoever has not watched them; nobody when the
    /// list holds something else, which is an alarm.
    ///
    /// # Errors
    /// When Redis cannot be asked.
    pub async fn all(&self) -> Result<Vec<String>, StoreError> {
        let (seconds, micros): (u64, u64) = self.connection.ask("TIME", &cmd("TIME")).await?;
        let now = seconds * 1000 + micros / 1000;
        let said = self.connection.ask::<Vec<Vec<u8>>>(MEMBERS, cmd("HVALS").arg(MEMBERS)).await;
        let said = match said {
            Err(StoreError(problem)) if key_of(&problem).is_some() => {
                self.connection.watch.failed(&problem);
                return Ok(Vec::new());
            }
            said => said?,
        };
        let lives = |entry: Vec<u8>| {
            let entry = text(&entry);
            let (ends, record) = entry.split_once(' ')?;
            (ends.parse::<u64>().ok()? > now).then(|| record.to_owned())
        };
        Ok(said.into_iter().filter_map(lives).collect())
    }

    /// Takes a member off the list.
    ///
    /// # Errors
    /// When Redis cannot be asked: it leaves the list by itself then.
    pub async fn leave(&self, id: &str) -> Result<(), StoreError> {
        let _: i64 = self.connection.ask(MEMBERS, cmd("HDEL").arg(MEMBERS).arg(id)).await?;
        Ok(())
    }
}

/// What is no text is the record of nobody, and nobody can read it, in whatever way it is spelt.
fn text(record: &[u8]) -> String {
    String::from_utf8_lossy(record).into_owned()
}
