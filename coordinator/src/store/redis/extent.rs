//! How far a store goes: its newest position, and which shards have anything.

use redis::cmd;

use super::connection::{Connection, at};
use super::shard::{INHABITED, POSITION, Shard};
use crate::store::StoreError;

/// As of the newest position, or later.
pub(super) struct Extent {
    pub(super) newest: u64,
    /// One bit for each shard that has entities. Nobody knows where that is missing though something was written, or is
    /// garbage, which is an alarm.
    inhabited: Option<Vec<u8>>,
}

impl Extent {
    /// # Errors
    /// When Redis cannot be asked, or the position is garbage.
    pub(super) async fn ask(connection: &Connection) -> Result<Self, StoreError> {
        let ask = |key: &str| (key.to_owned(), cmd("GET").arg(key).to_owned());
        let found = connection.ask_sound::<Option<Vec<u8>>>(&[ask(POSITION), ask(INHABITED)]).await?;
        let Ok([newest, inhabited]) = <[_; 2]>::try_from(found) else {
            return Ok(Self { newest: 0, inhabited: None });
        };
        let newest = match newest? {
            Some(digits) => String::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()),
            None => Some(0),
        };
        let newest = newest.ok_or_else(|| at(POSITION, &"it is no number; restore it from a copy"))?;
        let inhabited = inhabited.inspect_err(|StoreError(problem)| connection.watch.failed(problem));
        Ok(Self { newest, inhabited: inhabited.unwrap_or_default().or_else(|| (newest == 0).then(Vec::new)) })
    }

    /// Whether a shard has entities, or may have.
    pub(super) fn may_have(&self, shard: Shard) -> bool {
        self.inhabited.as_ref().is_none_or(|bits| shard.bit_of(bits))
    }
}
