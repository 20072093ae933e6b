//! What was lost, for people to read: it stays in the store, where each coordinator shows it.

use std::fmt::Display;

use redis::{Script, cmd};
use serde::{Deserialize, Serialize};
use skein_shared::time::Timestamp;

use super::connection::{Connection, Unrun, at, is_garbage, sentence};
pub use super::recent::LostWrites;
use super::shard::INCIDENTS;
use crate::store::StoreError;

/// How many are kept.
const KEPT: usize = 100;

/// Acknowledged writes that were gone when Redis had been restarted or replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    /// When it was found.
    pub at: Timestamp,
    /// Which node had acknowledged them.
    pub node: String,
    pub lost: Vec<LostWrites>,
}

/// The list of incidents.
pub(super) struct Incidents {
    connection: Connection,
    tell: Script,
}

impl Incidents {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection, tell: Script::new(include_str!("scripts/tell.lua")) }
    }

    /// Writes an incident down. Where the list holds something else, which is an alarm, the log alone has it: that
    /// nobody can read of it there is no reason to serve nobody.
    ///
    /// # Errors
    /// When Redis cannot be asked.
    pub(super) async fn tell(&self, incident: &Incident) -> Result<(), StoreError> {
        let text = serde_json::to_string(incident).map_err(|error| at(INCIDENTS, &error))?;
        let arguments = [text.into_bytes(), KEPT.to_string().into_bytes()];
        let told: Result<String, Unrun> =
            self.connection.run(&self.tell, &[INCIDENTS.to_owned()], &arguments).await;
        match told {
            Err(Unrun::Answered(error)) if is_garbage(&error) => {
                self.is_garbage(&sentence(&error));
                Ok(())
            }
            told => told.map(|_| ()).map_err(|unrun| unrun.problem(INCIDENTS)),
        }
    }

    /// All that can be read; what cannot is an alarm.
    ///
    /// # Errors
    /// When Redis cannot be asked, or the list holds something else.
    pub(super) async fn all(&self) -> Result<Vec<Incident>, StoreError> {
        let ask = cmd("LRANGE").arg(INCIDENTS).arg(0).arg(-1).to_owned();
        let texts: Result<Vec<String>, _> = self.connection.ask(INCIDENTS, &ask).await;
        let texts = texts.inspect_err(|StoreError(problem)| self.connection.watch.failed(problem))?;
        let read =
            |text: &String| serde_json::from_str(text).inspect_err(|error| self.is_garbage(error)).ok();
        Ok(texts.iter().filter_map(read).collect())
    }

    fn is_garbage(&self, problem: &impl Display) {
        let StoreError(problem) = at(INCIDENTS, problem);
        self.connection.watch.failed(&problem);
    }
}
