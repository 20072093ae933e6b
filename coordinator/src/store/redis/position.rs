//! The position of the last batch, by which everybody reads on.

use std::sync::atomic::{AtomicU64, Ordering};

use redis::{Script, cmd};

use super::connection::Connection;
use super::generation::Generation;
use super::shard::{CLUSTER, POSITION};
use crate::store::StoreError;

/// The field with the last life of the server that somebody has begun.
const LIFE: &str = "life";

/// How many positions a life leaves free: more than there are commits within [`KEEP`](super::recent::KEEP), which is as
/// long as a server may go on with what a failover throws away. Positions of events end at 2^44, so 16 million lives
/// have room.
const GAP: u64 = 1 << 20;

/// Keeps positions rising, also where a server has forgotten the last ones.
pub(super) struct Positions {
    /// The highest that this process has seen.
    seen: AtomicU64,
    raise: Script,
}

impl Positions {
    pub(super) fn new() -> Self {
        Self { seen: AtomicU64::new(0), raise: Script::new(include_str!("scripts/raise.lua")) }
    }

    pub(super) fn sees(&self, position: u64) {
        self.seen.fetch_max(position, Ordering::Relaxed);
    }

    /// Before a shard is taken in a life of the server: whoever has read up to a position that was lost shall miss
    /// nothing that comes after.
    ///
    /// # Errors
    /// When the server cannot be asked, is in another life, takes no writes, or does not have this store.
    pub(super) async fn begin(
        &self,
        connection: &Connection,
        life: &Generation,
        store: &str,
    ) -> Result<(), StoreError> {
        let (seen, number) = (self.seen.load(Ordering::Relaxed), life.number().to_string());
        let begun: Option<String> = connection.ask(CLUSTER, cmd("HGET").arg(CLUSTER).arg(LIFE)).await?;
        // A server that takes no writes refuses also what would write nothing.
        if seen == 0 && begun.as_ref() == Some(&number) {
            return Ok(());
        }
        let keys = [POSITION, CLUSTER].map(str::to_owned);
        let arguments = [store.to_owned(), number, seen.to_string(), GAP.to_string()];
        let raised = connection.run_in(life, &self.raise, &keys, &arguments.map(String::into_bytes)).await;
        let raised: Option<u64> = raised.map_err(|unrun| unrun.problem(POSITION))?;
        let emptied = || StoreError("somebody has emptied this Redis just now; look who".to_owned());
        self.sees(raised.ok_or_else(emptied)?);
        Ok(())
    }
}
