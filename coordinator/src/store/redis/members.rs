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
    /// What all who live say of themselves.
    pub living: Vec<String>,
}

impl Members {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection, beat: Script::new(include_str!("scripts/beat.lua")) }
    }

    /// Says that a member lives, for `ttl` from now, and gives what is heard of the others; nothing when the
    /// list holds something else, which is an alarm. A hint that is missing is to stop nobody.
    ///
    /// # Errors
    /// When Redis cannot be asked.
    pub async fn beat(&self, id: &str, record: &str, ttl: Duration) -> Result<Option<Heard>, StoreError> {
        let arguments = [id.into(), record.into(), ttl.as_millis().to_string().into()];
        let said: Result<(Vec<u8>, Vec<Vec<u8>>), Unrun> =
            self.connection.run(&self.beat, &[MEMBERS.to_owned()], &arguments).await;
        match said {
            Err(Unrun::Answered(error)) if is_garbage(&error) => {
                let StoreError(problem) = at(MEMBERS, &sentence(&error));
                self.connection.watch.failed(&problem);
                Ok(None)
            }
            Ok((before, living)) => {
                Ok(Some(Heard { before: text(before), living: living.into_iter().map(text).collect() }))
            }
            Err(unrun) => Err(unrun.problem(MEMBERS)),
        }
    }

    /// What all who live say of themselves; nobody when the list holds something else, which is an alarm.
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
            let entry = text(entry);
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
fn text(record: Vec<u8>) -> String {
    String::from_utf8_lossy(&record).into_owned()
}
