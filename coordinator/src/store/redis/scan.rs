//! Reading over all shards: documents, records, effects, timers.

use std::collections::HashMap;

use redis::{Cmd, cmd};
use skein_shared::fence::Epoch;
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::batch::EFFECTS;
use super::connection::at;
use super::merge::Merge;
use super::reader::{Entry, Reader, behind, entity, json, number, parsed, record, required};
use super::shard::{Keys, Shard};
use crate::store::{DeadLetter, Fence, OutboxEntry, Record, StoreError, StoredBlob, StoredDocument, Version};

/// Entities whose documents are listed at once.
const ENTITIES: usize = 64;
/// Entities of a shard that are read at once.
const PAGE: usize = 1000;

/// Reads what many shards hold together.
pub(super) struct Scan<'a> {
    pub(super) reader: &'a Reader,
    pub(super) shards: Vec<Shard>,
    /// The newest position when the reading began. Shards are read at different moments: what is newer is left out, for
    /// something before it may be missing.
    pub(super) newest: u64,
}

impl Scan<'_> {
    /// The same question to each shard, about one of its keys.
    fn each(&self, key: impl Fn(Shard) -> String, ask: impl Fn(&str) -> Cmd) -> Vec<(String, Cmd)> {
        let keys = self.shards.iter().map(|shard| key(*shard));
        keys.map(|key| (key.clone(), ask(&key))).collect()
    }

    /// The names of entities from one on, in order.
    async fn entities(&self, from: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let mut merge = Merge::new(self.shards.len(), None, limit, |name: &String| Some(name.clone()));
        while let Some((after, count)) = merge.round() {
            let begin = match after {
                Some(name) => behind(&name),
                None if from.is_empty() => "-".to_owned(),
                None => format!("[{from}"),
            };
            let questions = self.each(Shard::entities, |key| {
                cmd("ZRANGEBYLEX").arg(key).arg(&begin).arg("+").arg("LIMIT").arg(0).arg(count).to_owned()
            });
            merge.take(self.reader.connection.ask_all(&questions).await?);
        }
        Ok(merge.page())
    }

    pub(super) async fn blobs(
        &self,
        after: Option<(EntityKey, Uuid)>,
        limit: usize,
    ) -> Result<Vec<StoredBlob>, StoreError> {
        let mut from = after.as_ref().map(|(key, _)| key.to_string()).unwrap_or_default();
        let is_later = |blob: &StoredBlob| match &after {
            Some((key, last)) => blob.key != *key || blob.blob > *last,
            None => true,
        };
        let mut page = Vec::new();
        loop {
            let names = self.entities(&from, ENTITIES).await?;
            let keys = names.iter().map(|name| entity("entities", name));
            let keys: Vec<EntityKey> = keys.collect::<Result<_, _>>()?;
            page.extend(self.reader.blobs(&keys).await?.into_iter().filter(is_later));
            match names.last() {
                Some(name) if names.len() == ENTITIES && page.len() < limit => from = least_behind(name),
                _ => break,
            }
        }
        page.truncate(limit);
        Ok(page)
    }

    pub(super) async fn documents(
        &self,
        after: Option<(EntityKey, String)>,
        limit: usize,
    ) -> Result<Vec<StoredDocument>, StoreError> {
        let (mut from, mut after) =
            after.map_or_else(Default::default, |(key, document)| (key.to_string(), document));
        let mut page = Vec::new();
        loop {
            let room = limit - page.len();
            let names = self.entities(&from, ENTITIES).await?;
            let wanted = self.document_keys(&names, (&from, &after), room).await?;
            page.extend(self.reader.documents(&wanted).await?);
            // What was deleted while it was read leaves room for others.
            (from, after) = match (wanted.last(), names.last()) {
                _ if page.len() == limit => return Ok(page),
                (Some((key, document)), _) if wanted.len() == room => (key.to_string(), document.clone()),
                (_, Some(name)) if names.len() == ENTITIES => (least_behind(name), String::new()),
                _ => return Ok(page),
            };
        }
    }

    /// The keys of documents of these entities after one, in order.
    async fn document_keys(
        &self,
        names: &[String],
        (from, after): (&str, &str),
        limit: usize,
    ) -> Result<Vec<(EntityKey, String)>, StoreError> {
        let mut questions = Vec::with_capacity(names.len());
        let mut entities = Vec::with_capacity(names.len());
        for name in names {
            let entity = entity("entities", name)?;
            let key = Keys::new(&entity).documents();
            let begin = if name == from { behind(after) } else { "-".to_owned() };
            let ask =
                cmd("ZRANGEBYLEX").arg(&key).arg(begin).arg("+").arg("LIMIT").arg(0).arg(limit).to_owned();
            questions.push((key, ask));
            entities.push(entity);
        }
        let found: Vec<Vec<String>> = self.reader.connection.ask_all(&questions).await?;
        let keys = entities.into_iter().zip(found);
        let keys = keys
            .flat_map(|(key, documents)| documents.into_iter().map(move |document| (key.clone(), document)));
        Ok(keys.take(limit).collect())
    }

    /// Every entity.
    pub(super) async fn all_entities(&self) -> Result<Vec<EntityKey>, StoreError> {
        let mut all = Vec::new();
        let mut from = String::new();
        loop {
            let names = self.entities(&from, PAGE).await?;
            for name in &names {
                all.push(entity("entities", name)?);
            }
            match names.last().filter(|_| names.len() == PAGE) {
                Some(last) => from = least_behind(last),
                None => return Ok(all),
            }
        }
    }

    pub(super) async fn versions(&self) -> Result<Vec<(EntityKey, Version)>, StoreError> {
        let mut versions = Vec::new();
        let mut from = String::new();
        loop {
            let names = self.entities(&from, PAGE).await?;
            let keys = names.iter().map(|name| entity("entities", name)).collect::<Result<Vec<_>, _>>()?;
            let questions: Vec<_> = keys
                .iter()
                .map(|key| {
                    let key = Keys::new(key).entity();
                    (key.clone(), cmd("HGET").arg(key).arg("version").to_owned())
                })
                .collect();
            let found: Vec<Option<u64>> = self.reader.connection.ask_all(&questions).await?;
            let last = names.last().filter(|_| names.len() == PAGE);
            for ((key, version), (name, _)) in keys.into_iter().zip(found).zip(&questions) {
                let version = version.ok_or_else(|| at(name, &"it is missing; restore it from a copy"))?;
                versions.push((key, Version(version)));
            }
            match last {
                Some(last) => from = least_behind(last),
                None => return Ok(versions),
            }
        }
    }

    pub(super) async fn records(&self, after: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        let mut merge = Merge::new(self.shards.len(), after, limit, |record: &Record| record.position);
        while let Some((after, count)) = merge.round() {
            let questions = self.streams(Shard::events, &format!("{}-0", after.saturating_add(1)), count);
            let found = self.reader.connection.ask_all(&questions).await?;
            merge.take(self.entries(found, record)?);
        }
        Ok(merge.page().into_iter().take_while(|record| record.position <= self.newest).collect())
    }

    pub(super) async fn outbox(&self, after: u64, limit: usize) -> Result<Vec<OutboxEntry>, StoreError> {
        let mut merge = Merge::new(self.shards.len(), after, limit, |entry: &OutboxEntry| entry.position);
        while let Some((after, count)) = merge.round() {
            let questions = self.streams(Shard::outbox, &outbox_id(after.saturating_add(1)), count);
            let found = self.reader.connection.ask_all(&questions).await?;
            merge.take(self.entries(found, outbox_entry)?);
        }
        let settled = |entry: &OutboxEntry| entry.position / EFFECTS <= self.newest;
        Ok(merge.page().into_iter().take_while(settled).collect())
    }

    /// Asks for what each shard's stream has from an id on.
    fn streams(&self, key: impl Fn(Shard) -> String, from: &str, count: usize) -> Vec<(String, Cmd)> {
        self.each(key, |key| cmd("XRANGE").arg(key).arg(from).arg("+").arg("COUNT").arg(count).to_owned())
    }

    fn entries<T>(
        &self,
        found: Vec<Vec<Entry>>,
        read: fn(Shard, &Entry) -> Result<T, StoreError>,
    ) -> Result<Vec<Vec<T>>, StoreError> {
        let parts = self.shards.iter().zip(found);
        parts.map(|(shard, entries)| entries.iter().map(|entry| read(*shard, entry)).collect()).collect()
    }

    pub(super) async fn timers(&self, limit: usize) -> Result<Vec<(EntityKey, Timestamp)>, StoreError> {
        let questions = self.each(Shard::timers, |key| {
            let mut ask = cmd("ZRANGEBYSCORE");
            ask.arg(key).arg("-inf").arg("+inf").arg("WITHSCORES").arg("LIMIT").arg(0).arg(limit);
            ask
        });
        let found: Vec<Vec<(String, f64)>> = self.reader.connection.ask_all(&questions).await?;
        let mut timers = Vec::new();
        for (shard, part) in self.shards.iter().zip(found) {
            for (name, due) in part {
                let key = entity(&shard.timers(), &name)?;
                timers.push((due_at(due), name, key));
            }
        }
        timers.sort();
        Ok(timers.into_iter().take(limit).map(|(due, _, key)| (key, due)).collect())
    }

    pub(super) async fn dead_letters(&self, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        let mut merge =
            Merge::new(self.shards.len(), after, limit, |letter: &DeadLetter| letter.entry.position);
        while let Some((after, count)) = merge.round() {
            let begin = format!("({}", digits(after));
            let questions = self.each(Shard::dead_order, |key| {
                cmd("ZRANGEBYLEX").arg(key).arg(&begin).arg("+").arg("LIMIT").arg(0).arg(count).to_owned()
            });
            let positions: Vec<Vec<String>> = self.reader.connection.ask_all(&questions).await?;
            let mut parts = Vec::with_capacity(positions.len());
            for (shard, positions) in self.shards.iter().zip(positions) {
                parts.push(self.letters(*shard, &positions).await?);
            }
            merge.take(parts);
        }
        Ok(merge.page())
    }

    async fn letters(&self, shard: Shard, positions: &[String]) -> Result<Vec<DeadLetter>, StoreError> {
        if positions.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<String> =
            positions.iter().map(|position| format!("{}:{position}", shard.dead())).collect();
        let questions: Vec<_> =
            names.iter().map(|name| (name.clone(), cmd("HGETALL").arg(name).to_owned())).collect();
        let found: Vec<HashMap<String, String>> = self.reader.connection.ask_all(&questions).await?;
        let letters = names.iter().zip(positions.iter().zip(&found));
        letters
            .map(|(name, (position, fields))| {
                Ok(DeadLetter {
                    entry: effect(name, parsed(name, position)?, fields)?,
                    reason: required(name, fields, "reason")?.to_owned(),
                    buried_at: Timestamp(number(name, fields, "buried_at")?),
                })
            })
            .collect()
    }
}

/// The least text behind another.
fn least_behind(text: &str) -> String {
    format!("{text}\u{0}")
}

/// Positions in digits of fixed width, whose bytes have the order of the numbers.
pub(super) fn digits(position: u64) -> String {
    format!("{position:020}")
}

/// The id of an effect in its stream: the position of its batch and its place in it.
pub(super) fn outbox_id(position: u64) -> String {
    format!("{}-{}", position / EFFECTS, position % EFFECTS)
}

fn outbox_entry(shard: Shard, (id, fields): &Entry) -> Result<OutboxEntry, StoreError> {
    let key = shard.outbox();
    let (batch, place) = id.split_once('-').unwrap_or((id, ""));
    effect(&key, parsed(&key, batch)? * EFFECTS + parsed(&key, place)?, fields)
}

fn effect(key: &str, position: u64, fields: &HashMap<String, String>) -> Result<OutboxEntry, StoreError> {
    Ok(OutboxEntry {
        position,
        source: entity(key, required(key, fields, "source")?)?,
        epoch: Epoch(number(key, fields, "epoch")?),
        sequence: number(key, fields, "sequence")?,
        at: Timestamp(number(key, fields, "at")?),
        effect: json(key, required(key, fields, "effect")?)?,
        fence: Fence::NONE,
    })
}

/// Scores are exact for every time that is not "never".
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn due_at(score: f64) -> Timestamp {
    if score.is_finite() { Timestamp(score as u64) } else { Timestamp::NEVER }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_keep_their_order_as_text() {
        let positions = [0, 1, EFFECTS - 1, EFFECTS, EFFECTS * 3 + 7, u64::MAX >> 1];
        assert!(positions.map(digits).is_sorted());
        assert_eq!(outbox_id(EFFECTS * 3 + 7), "3-7");
        assert_eq!(due_at(1_790_000_000_001.0), Timestamp(1_790_000_000_001));
        assert_eq!(due_at(f64::INFINITY), Timestamp::NEVER);
    }
}
