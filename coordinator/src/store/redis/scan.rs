//! Reading over all shards: documents, records, effects, timers.

use std::cmp::Reverse;
use std::collections::HashMap;

use redis::{Cmd, FromRedisValue, cmd};
use skein_shared::fence::Epoch;
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::batch::EFFECTS;
use super::connection::at;
use super::held::Held;
use super::merge::{Merge, Part};
use super::reader::{Entry, Reader, behind, entity, json, number, parsed, record, required};
use super::shard::{Keys, Shard};
use super::spoilt::Spoilt;
use crate::store::{DeadLetter, Fence, OutboxEntry, Record, StoreError, StoredBlob, StoredDocument, Version};

/// Entities whose documents are listed at once.
const ENTITIES: usize = 64;
/// Entities of a shard that are read at once.
const PAGE: usize = 1000;

/// Reads what many shards hold together. What another program has spoilt is left out, and is an alarm.
pub(super) struct Scan<'a> {
    pub(super) reader: &'a Reader,
    pub(super) shards: Vec<Shard>,
    /// The newest position when the reading began. Shards are read at different moments: what is newer is left out, for
    /// something before it may be missing.
    pub(super) newest: u64,
    pub(super) spoilt: &'a Spoilt,
    pub(super) held: &'a Held,
}

impl Scan<'_> {
    /// Asks each shard the same question about one of its lists. One that holds something else is nothing.
    async fn each<T: FromRedisValue + Default>(
        &self,
        list: impl Fn(Shard) -> String,
        ask: impl Fn(&str) -> Cmd,
    ) -> Result<Vec<(Shard, T)>, StoreError> {
        let lists = self.shards.iter().map(|shard| list(*shard));
        let questions: Vec<_> = lists.map(|list| (list.clone(), ask(&list))).collect();
        let found = self.reader.connection.ask_sound(&questions).await?;
        let mut lists = Vec::with_capacity(found.len());
        for ((shard, (list, _)), found) in self.shards.iter().zip(&questions).zip(found) {
            if self.spoilt.is_mended(list, found.is_ok()) {
                self.held.lose(&[*shard]);
            }
            lists.push((*shard, self.sound(found)?.unwrap_or_default()));
        }
        Ok(lists)
    }

    /// What was read; nothing if it is garbage.
    fn sound<T>(&self, read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        self.spoilt.left_out(&self.reader.connection.watch, read)
    }

    /// What was read without the garbage in it.
    fn all_sound<T>(
        &self,
        read: impl IntoIterator<Item = Result<T, StoreError>>,
    ) -> Result<Vec<T>, StoreError> {
        read.into_iter().filter_map(|read| self.sound(read).transpose()).collect()
    }

    /// Entities from a name on, in the order of their names.
    async fn entities(&self, from: &str, limit: usize) -> Result<Vec<EntityKey>, StoreError> {
        let mut merge =
            Merge::new(self.shards.len(), String::new(), limit, |(name, _): &(String, EntityKey)| {
                name.clone()
            });
        while let Some((after, count)) = merge.round() {
            let begin = match (after.as_str(), from) {
                ("", "") => "-".to_owned(),
                ("", from) => format!("[{from}"),
                (after, _) => behind(after),
            };
            let names: Vec<(Shard, Vec<String>)> =
                self.each(Shard::entities, |list| page(list, &begin, count)).await?;
            let mut parts = Vec::with_capacity(names.len());
            for (shard, names) in names {
                let to = names.last().filter(|_| names.len() >= count).cloned();
                let found = names
                    .into_iter()
                    .map(|name| Ok((name.clone(), resident(shard, &shard.entities(), &name)?)));
                parts.push(Part { found: self.all_sound(found)?, to });
            }
            merge.take(parts);
        }
        Ok(merge.page().into_iter().map(|(_, key)| key).collect())
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
            let keys = self.entities(&from, ENTITIES).await?;
            let found = self.all_sound(self.reader.blobs(&keys).await?)?;
            page.extend(found.into_iter().flatten().filter(is_later));
            match keys.last() {
                Some(key) if keys.len() == ENTITIES && page.len() < limit => from = behind_entity(key),
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
            let keys = self.entities(&from, ENTITIES).await?;
            let wanted = self.document_keys(&keys, (&from, &after), room).await?;
            page.extend(self.all_sound(self.reader.documents(&wanted).await?)?);
            // What was deleted while it was read leaves room for others.
            (from, after) = match (wanted.last(), keys.last()) {
                _ if page.len() == limit => return Ok(page),
                (Some((key, document)), _) if wanted.len() == room => (key.to_string(), document.clone()),
                (_, Some(key)) if keys.len() == ENTITIES => (behind_entity(key), String::new()),
                _ => return Ok(page),
            };
        }
    }

    /// The keys of documents of these entities after one, in order.
    async fn document_keys(
        &self,
        entities: &[EntityKey],
        (from, after): (&str, &str),
        limit: usize,
    ) -> Result<Vec<(EntityKey, String)>, StoreError> {
        let ask = |entity: &EntityKey| {
            let keys = Keys::new(entity);
            let begin = if keys.name == from { behind(after) } else { "-".to_owned() };
            let list = keys.documents();
            let ask = page(&list, &begin, limit);
            (list, ask)
        };
        let questions: Vec<_> = entities.iter().map(ask).collect();
        let found = self.reader.connection.ask_sound::<Vec<String>>(&questions).await?;
        let mut keys = Vec::new();
        for (key, documents) in entities.iter().zip(found) {
            let documents = self.sound(documents)?.unwrap_or_default();
            keys.extend(documents.into_iter().map(|document| (key.clone(), document)));
        }
        keys.truncate(limit);
        Ok(keys)
    }

    /// Every entity.
    pub(super) async fn all_entities(&self) -> Result<Vec<EntityKey>, StoreError> {
        let mut all = Vec::new();
        let mut from = String::new();
        loop {
            let keys = self.entities(&from, PAGE).await?;
            let last = keys.last().filter(|_| keys.len() == PAGE).map(behind_entity);
            all.extend(keys);
            match last {
                Some(last) => from = last,
                None => return Ok(all),
            }
        }
    }

    pub(super) async fn versions(&self) -> Result<Vec<(EntityKey, Version)>, StoreError> {
        let mut versions = Vec::new();
        let mut from = String::new();
        loop {
            let keys = self.entities(&from, PAGE).await?;
            let questions: Vec<_> = keys
                .iter()
                .map(|key| {
                    let key = Keys::new(key).entity();
                    (key.clone(), cmd("HGET").arg(key).arg("version").to_owned())
                })
                .collect();
            let found = self.reader.connection.ask_sound::<Option<u64>>(&questions).await?;
            let last = keys.last().filter(|_| keys.len() == PAGE).map(behind_entity);
            let found = keys.into_iter().zip(found).zip(&questions).map(|((key, version), (name, _))| {
                let version = version?.ok_or_else(|| at(name, &"it is missing; restore it from a copy"))?;
                Ok((key, Version(version)))
            });
            versions.extend(self.all_sound(found)?);
            match last {
                Some(last) => from = last,
                None => return Ok(versions),
            }
        }
    }

    pub(super) async fn records(&self, after: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        let mut merge = Merge::new(self.shards.len(), after, limit, |record: &Record| record.position);
        while let Some((after, count)) = merge.round() {
            let from = format!("{}-0", after.saturating_add(1));
            let range = ["XRANGE", &from, "+"];
            merge.take(self.streams(Shard::events, range, count, batch_position, record).await?);
        }
        Ok(merge.page().into_iter().take_while(|record| record.position <= self.newest).collect())
    }

    /// Records of one shard after the other, in each by their positions. An order over all shards would have each of
    /// them asked for each page, and most of what they say left for the next one.
    pub(super) async fn shard_by_shard(
        &self,
        after: Option<(Shard, u64)>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let mut page = Vec::new();
        for shard in &self.shards {
            let place = match after {
                Some((first, _)) if *shard < first => continue,
                Some((first, position)) if *shard == first => position,
                _ => 0,
            };
            let one = Self { shards: vec![*shard], ..*self };
            page.extend(one.records(place, limit - page.len()).await?);
            if page.len() == limit {
                break;
            }
        }
        Ok(page)
    }

    /// They are read from the newest on.
    pub(super) async fn newest_records(&self, limit: usize) -> Result<Vec<Record>, StoreError> {
        let (begin, place) = (self.newest.saturating_add(1), |record: &Record| Reverse(record.position));
        let position = |key: &str, id: &str| batch_position(key, id).map(Reverse);
        let mut merge = Merge::new(self.shards.len(), Reverse(begin), limit, place);
        while let Some((Reverse(before), count)) = merge.round() {
            let range = ["XREVRANGE", &before.saturating_sub(1).to_string(), "-"];
            merge.take(self.streams(Shard::events, range, count, position, record).await?);
        }
        Ok(merge.page().into_iter().rev().collect())
    }

    pub(super) async fn outbox(&self, after: u64, limit: usize) -> Result<Vec<OutboxEntry>, StoreError> {
        let mut merge = Merge::new(self.shards.len(), after, limit, |entry: &OutboxEntry| entry.position);
        while let Some((after, count)) = merge.round() {
            let from = outbox_id(after.saturating_add(1));
            let range = ["XRANGE", &from, "+"];
            merge.take(self.streams(Shard::outbox, range, count, effect_position, outbox_entry).await?);
        }
        let settled = |entry: &OutboxEntry| entry.position / EFFECTS <= self.newest;
        Ok(merge.page().into_iter().take_while(settled).collect())
    }

    /// What each shard's stream has in a range: a command, and from where to where.
    async fn streams<T, P>(
        &self,
        list: fn(Shard) -> String,
        [command, from, to]: [&str; 3],
        count: usize,
        position: fn(&str, &str) -> Result<P, StoreError>,
        read: fn(Shard, &Entry) -> Result<T, StoreError>,
    ) -> Result<Vec<Part<T, P>>, StoreError> {
        let ask = |list: &str| cmd(command).arg(list).arg(from).arg(to).arg("COUNT").arg(count).to_owned();
        let found: Vec<(Shard, Vec<Entry>)> = self.each(list, ask).await?;
        let mut parts = Vec::with_capacity(found.len());
        for (shard, entries) in found {
            let last = entries.last().filter(|_| entries.len() >= count);
            let to = last.and_then(|(id, _)| position(&list(shard), id).ok());
            let found = self.all_sound(entries.iter().map(|entry| read(shard, entry)))?;
            parts.push(Part { found, to });
        }
        Ok(parts)
    }

    pub(super) async fn timers(&self, limit: usize) -> Result<Vec<(EntityKey, Timestamp)>, StoreError> {
        let found: Vec<(Shard, Vec<(String, f64)>)> = self
            .each(Shard::timers, |list| {
                let mut ask = cmd("ZRANGEBYSCORE");
                ask.arg(list).arg("-inf").arg("+inf").arg("WITHSCORES").arg("LIMIT").arg(0).arg(limit);
                ask
            })
            .await?;
        let mut timers = Vec::new();
        for (shard, part) in found {
            let part = part.into_iter().map(|(name, due)| {
                let key = resident(shard, &shard.timers(), &name)?;
                Ok((due_at(due), name, key))
            });
            timers.extend(self.all_sound(part)?);
        }
        timers.sort();
        Ok(timers.into_iter().take(limit).map(|(due, _, key)| (key, due)).collect())
    }

    pub(super) async fn dead_letters(&self, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        let mut merge =
            Merge::new(self.shards.len(), after, limit, |letter: &DeadLetter| letter.entry.position);
        while let Some((after, count)) = merge.round() {
            let begin = format!("({}", digits(after));
            let order: Vec<(Shard, Vec<String>)> =
                self.each(Shard::dead_order, |list| page(list, &begin, count)).await?;
            let mut parts = Vec::with_capacity(order.len());
            for (shard, order) in order {
                let positions =
                    self.all_sound(order.iter().map(|position| parsed(&shard.dead_order(), position)))?;
                let to = positions.last().filter(|_| order.len() >= count).copied();
                parts.push(Part { found: self.letters(shard, &positions).await?, to });
            }
            merge.take(parts);
        }
        Ok(merge.page())
    }

    async fn letters(&self, shard: Shard, positions: &[u64]) -> Result<Vec<DeadLetter>, StoreError> {
        let question = |position: &u64| {
            let name = format!("{}:{}", shard.dead(), digits(*position));
            (name.clone(), cmd("HGETALL").arg(name).to_owned())
        };
        let questions: Vec<_> = positions.iter().map(question).collect();
        let found = self.reader.connection.ask_sound::<HashMap<String, String>>(&questions).await?;
        self.all_sound(questions.iter().zip(positions).zip(found).map(|(((name, _), position), fields)| {
            let fields = fields?;
            Ok(DeadLetter {
                entry: effect(name, *position, &fields)?,
                reason: required(name, &fields, "reason")?.to_owned(),
                buried_at: Timestamp(number(name, &fields, "buried_at")?),
            })
        }))
    }
}

/// Asks for the next entries of a list that is read in order.
pub(super) fn page(list: &str, begin: &str, limit: usize) -> Cmd {
    cmd("ZRANGEBYLEX").arg(list).arg(begin).arg("+").arg("LIMIT").arg(0).arg(limit).to_owned()
}

/// An entity that one of a shard's lists names, and whose place is that shard.
fn resident(shard: Shard, list: &str, name: &str) -> Result<EntityKey, StoreError> {
    let key = entity(list, name)?;
    if Shard::of(&key) != shard || key.text() != name {
        return Err(at(list, &format!("it names `{name}`, which does not belong there; take that out")));
    }
    Ok(key)
}

/// Where the entities behind one begin.
fn behind_entity(key: &EntityKey) -> String {
    format!("{key}\u{0}")
}

/// Positions in digits of fixed width, whose bytes have the order of the numbers.
pub(super) fn digits(position: u64) -> String {
    format!("{position:020}")
}

/// The id of an effect in its stream: the position of its batch and its place in it.
pub(super) fn outbox_id(position: u64) -> String {
    format!("{}-{}", position / EFFECTS, position % EFFECTS)
}

/// The position of the batch whose events have this id.
fn batch_position(key: &str, id: &str) -> Result<u64, StoreError> {
    parsed(key, id.split('-').next().unwrap_or_default())
}

fn effect_position(key: &str, id: &str) -> Result<u64, StoreError> {
    let (batch, place) = id.split_once('-').unwrap_or((id, ""));
    // Another program may have written any number.
    Ok(parsed(key, batch)?.saturating_mul(EFFECTS).saturating_add(parsed(key, place)?))
}

fn outbox_entry(shard: Shard, (id, fields): &Entry) -> Result<OutboxEntry, StoreError> {
    let key = shard.outbox();
    effect(&key, effect_position(&key, id)?, fields)
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
