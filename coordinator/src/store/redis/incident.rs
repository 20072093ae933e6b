//! What was lost, for people to read: it stays in the store, where each coordinator shows it.

use redis::{Script, cmd};
use serde::{Deserialize, Serialize};
use skein_shared::time::Timestamp;

use super::connection::{Connection, Unrun, at};
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

    pub(super) async fn tell(&self, incident: &Incident) -> Result<(), StoreError> {
        let text = serde_json::to_string(incident).map_err(|error| at(INCIDENTS, &error))?;
        let arguments = [text.into_bytes(), KEPT.to_string().into_bytes()];
        let told: Result<String, Unrun> =
            self.connection.run(&self.tell, &[INCIDENTS.to_owned()], &arguments).await;
        told.map(|_| ()).map_err(|unrun| unrun.problem(INCIDENTS))
    }

    pub(super) async fn all(&self) -> Result<Vec<Incident>, StoreError> {
        let ask = cmd("LRANGE").arg(INCIDENTS).arg(0).arg(-1).to_owned();
        let texts: Vec<String> = self.connection.ask(INCIDENTS, &ask).await?;
        let read = |text: &String| serde_json::from_str(text).map_err(|error| at(INCIDENTS, &error));
        texts.iter().map(read).collect()
    }
}
