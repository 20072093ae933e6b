//! What reading one entity gives.

use std::collections::{BTreeMap, HashMap};

use redis::{Script, cmd};
use serde::de::DeserializeOwned;
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::body;
use super::connection::{Connection, at};
use super::recent::{Kept, Standing};
use super::scan::page;
use super::shard::{Keys, Shard};
use super::spoilt::Spoilt;
use crate::store::{EventRecord, Record, StoreError, StoredBlob, StoredDocument, Version};

/// Documents of an entity that one command reads.
const DOCUMENTS: usize = 100;

/// Reads entities.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) connection: Connection,
    pub(super) load: Script,
    pub(super) live: Script,
}

impl Reader {
    pub(super) fn new(connection: Connection) -> Self {
        let heads = include_str!("scripts/heads.lua");
        let script = |text| Script::new(&format!("#!lua flags=no-writes\n{heads}{text}"));
        Self {
            connection,
            load: script(include_str!("scripts/load.lua")),
            live: script(include_str!("scripts/live.lua")),
        }
    }

    /// How entities stand; those of which there is nothing are left out.
    pub(super) async fn standing(
        &self,
        entities: &[EntityKey],
    ) -> Result<BTreeMap<EntityKey, Standing>, StoreError> {
        let questions: Vec<_> = entities
            .iter()
            .map(|key| {
                let name = Keys::new(key).entity();
                (name.clone(), cmd("HMGET").arg(name).arg("version").arg("batch").to_owned())
            })
            .collect();
        let found = self.connection.ask_sound::<(Option<u64>, Option<String>)>(&questions).await?;
        let there = entities.iter().zip(found);
        let stands = |(key, found): (&EntityKey, Result<_, StoreError>)| {
            let found = found.inspect_err(|StoreError(problem)| self.connection.watch.failed(problem));
            let Ok((version, batch)) = found else { return Some((key.clone(), Standing::UNKNOWN)) };
            let batch: Option<String> = batch;
            let batch = batch.and_then(|batch| batch.parse().ok());
            Some((key.clone(), Standing { version: Version(version?), batch, ..Standing::default() }))
        };
        Ok(there.filter_map(stands).collect())
    }

    /// Which of these versions have a record. The first of all is asked for last: what was forgotten meanwhile lies
    /// before it.
    pub(super) async fn kept(&self, key: &EntityKey, versions: Vec<Version>) -> Result<Kept, StoreError> {
        let records = self.records_of(key, versions).await?;
        let history = Keys::new(key).history();
        let ask = cmd("ZRANGE").arg(&history).arg(0).arg(0).arg("WITHSCORES").to_owned();
        let first: Vec<(String, u64)> = self.connection.ask(&history, &ask).await?;
        let made = records.into_iter().map(|record| (record.version, record.at)).collect();
        Ok(Kept { made, first: first.first().map(|(_, version)| Version(*version)) })
    }

    /// Documents of which the keys are known, in the same order, with an error for each that cannot be read. Those that
    /// were deleted meanwhile are left out.
    ///
    /// A commit may come between what is read. The heads are read first, so that a body is never older than the version
    /// which the head names: whoever takes in that commit's changes afterwards does so twice, which changes nothing.
    /// And changes are read before the bodies behind which a commit may put them.
    pub(super) async fn documents(
        &self,
        wanted: &[(EntityKey, String)],
    ) -> Result<Vec<Result<StoredDocument, StoreError>>, StoreError> {
        let of_one_entity = wanted.chunk_by(|(one, _), (other, _)| one == other);
        let parts: Vec<_> = of_one_entity.flat_map(|of_one| of_one.chunks(DOCUMENTS)).collect();
        let mut questions = Vec::with_capacity(parts.len() * 3);
        for part in &parts {
            let keys = Keys::new(&part[0].0);
            let names: Vec<&str> = part.iter().map(|(_, document)| document.as_str()).collect();
            for hash in [keys.heads(), keys.changes(), keys.bodies()] {
                let ask = cmd("HMGET").arg(&hash).arg(&names).to_owned();
                questions.push((hash, ask));
            }
        }
        let mut found = self.connection.ask_sound::<Fields>(&questions).await?.into_iter();
        let mut documents = Vec::with_capacity(wanted.len());
        for (part, asked) in parts.iter().zip(questions.chunks(3)) {
            let names = [0, 1, 2].map(|place| asked[place].0.as_str());
            let found: Vec<Result<Fields, StoreError>> = found.by_ref().take(3).collect();
            match found.into_iter().collect() {
                Ok(found) => documents.extend(stored_documents(part, names, found)),
                Err(problem) => documents.extend(part.iter().map(|_| Err(problem.clone()))),
            }
        }
        Ok(documents)
    }

    /// Documents of an entity after one. What another program has spoilt of them is left out.
    pub(super) async fn documents_of(
        &self,
        spoilt: &Spoilt,
        key: &EntityKey,
        after: &str,
        limit: usize,
    ) -> Result<Vec<StoredDocument>, StoreError> {
        let (list, mut after, mut documents) = (Keys::new(key).documents(), after.to_owned(), Vec::new());
        loop {
            let room = limit - documents.len();
            let ask = [(list.clone(), page(&list, &behind(&after), room))];
            let names = self.connection.ask_sound::<Vec<String>>(&ask).await?.pop();
            let names = spoilt.left_out(&self.connection.watch, names.unwrap_or_else(|| Ok(Vec::new())))?;
            let mut wanted: Vec<_> =
                names.unwrap_or_default().into_iter().map(|name| (key.clone(), name)).collect();
            for document in self.documents(&wanted).await? {
                documents.extend(spoilt.left_out(&self.connection.watch, document)?);
            }
            // What was deleted while it was read, or is spoilt, leaves room for others.
            after = match wanted.pop() {
                Some((_, last)) if wanted.len() + 1 == room && documents.len() < limit => last,
                _ => return Ok(documents),
            };
        }
    }

    /// A chunk of a blob that is kept.
    pub(super) async fn chunk(
        &self,
        key: &EntityKey,
        blob: Uuid,
        place: u32,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let keys = Keys::new(key);
        let (blobs, chunks) = (keys.blobs(), keys.chunks(blob));
        let ask = cmd("HGET").arg(&blobs).arg(blob.to_string()).to_owned();
        let kept: Option<String> = self.connection.ask(&blobs, &ask).await?;
        if kept.is_none() {
            return Ok(None);
        }
        self.connection.ask(&chunks, &cmd("HGET").arg(&chunks).arg(place).to_owned()).await
    }

    /// The blobs of entities that are kept, by the blob's id, with an error for each entity of which they cannot be
    /// read.
    pub(super) async fn blobs(
        &self,
        entities: &[EntityKey],
    ) -> Result<Vec<Result<Vec<StoredBlob>, StoreError>>, StoreError> {
        let names: Vec<String> = entities.iter().map(|key| Keys::new(key).blobs()).collect();
        let questions: Vec<_> =
            names.iter().map(|name| (name.clone(), cmd("HGETALL").arg(name).to_owned())).collect();
        let found = self.connection.ask_sound::<BTreeMap<String, String>>(&questions).await?;
        let kept = entities.iter().zip(&names).zip(found);
        Ok(kept.map(|((key, name), kept)| blobs_of(key, name, kept?)).collect())
    }

    pub(super) async fn records_of(
        &self,
        key: &EntityKey,
        mut versions: Vec<Version>,
    ) -> Result<Vec<Record>, StoreError> {
        let keys = Keys::new(key);
        let history = keys.history();
        versions.sort_unstable();
        versions.dedup();
        let positions: Vec<_> = versions
            .iter()
            .map(|Version(version)| {
                (history.clone(), cmd("ZRANGEBYSCORE").arg(&history).arg(*version).arg(*version).to_owned())
            })
            .collect();
        let positions: Vec<Vec<String>> = self.connection.ask_all(&positions).await?;
        self.records_at(keys.shard, &positions.concat()).await
    }

    /// Records of an entity's batches after a version.
    pub(super) async fn history(
        &self,
        key: &EntityKey,
        mut after: Version,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let keys = Keys::new(key);
        let (history, mut records) = (keys.history(), Vec::new());
        loop {
            let room = limit - records.len();
            let mut ask = cmd("ZRANGEBYSCORE");
            ask.arg(&history).arg(format!("({}", after.0)).arg("+inf").arg("WITHSCORES");
            ask.arg("LIMIT").arg(0).arg(room);
            let found: Vec<(String, u64)> = self.connection.ask(&history, &ask).await?;
            let last = found.last().filter(|_| found.len() == room).map(|(_, version)| Version(*version));
            let positions: Vec<String> = found.into_iter().map(|(position, _)| position).collect();
            records.extend(self.records_at(keys.shard, &positions).await?);
            // What was trimmed while it was read leaves room for others.
            after = match last {
                Some(last) if records.len() < limit => last,
                _ => return Ok(records),
            };
        }
    }

    /// The records at these positions; those that were trimmed are left out.
    async fn records_at(&self, shard: Shard, positions: &[String]) -> Result<Vec<Record>, StoreError> {
        let events = shard.events();
        let questions: Vec<_> = positions
            .iter()
            .map(|position| {
                let id = format!("{position}-0");
                (events.clone(), cmd("XRANGE").arg(&events).arg(&id).arg(&id).to_owned())
            })
            .collect();
        let found: Vec<Vec<Entry>> = self.connection.ask_all(&questions).await?;
        found.concat().iter().map(|entry| record(shard, entry)).collect()
    }
}

/// An entry of a stream: its id and its fields.
pub(super) type Entry = (String, HashMap<String, String>);

/// Where the members behind one begin.
pub(super) fn behind(member: &str) -> String {
    match member {
        "" => "-".to_owned(),
        member => format!("({member}"),
    }
}

/// What an entity's heads have of one document.
pub(super) struct Head<'a> {
    live: bool,
    version: Version,
    at: Timestamp,
    pub(super) text: &'a str,
}

impl<'a> Head<'a> {
    pub(super) fn parse(name: &str, document: &str, kept: &'a str) -> Result<Self, StoreError> {
        let garbled = || no_head(name, document);
        let mut parts = kept.splitn(4, ' ');
        let mut part = || parts.next().ok_or_else(garbled);
        let (live, version, written, text) = (part()?, part()?, part()?, part()?);
        if !matches!(live, "0" | "1") {
            return Err(garbled());
        }
        let number = |text: &str| text.parse().map_err(|_| garbled());
        Ok(Self {
            live: live == "1",
            version: Version(number(version)?),
            at: Timestamp(number(written)?),
            text,
        })
    }
}

fn no_head(name: &str, document: &str) -> StoreError {
    at(name, &format!("the head of `{document}` is none; restore it from a copy"))
}

fn blobs_of(
    key: &EntityKey,
    name: &str,
    kept: BTreeMap<String, String>,
) -> Result<Vec<StoredBlob>, StoreError> {
    let read = |(blob, text): (String, String)| {
        let (bytes, written) = text.split_once(' ').ok_or_else(|| garbled(name))?;
        Ok(StoredBlob {
            key: key.clone(),
            blob: blob.parse().map_err(|_| garbled(name))?,
            bytes: parsed(name, bytes)?,
            at: Timestamp(parsed(name, written)?),
        })
    };
    kept.into_iter().map(read).collect()
}

/// Some fields of a hash, as they were asked for.
type Fields = Vec<Option<Vec<u8>>>;

/// Documents of what the hashes of these names have of them: their heads, what was changed of their bodies, and those.
fn stored_documents(
    wanted: &[(EntityKey, String)],
    [heads, changes, bodies]: [&str; 3],
    found: Vec<Fields>,
) -> Vec<Result<StoredDocument, StoreError>> {
    let mut found = found.into_iter().map(Vec::into_iter);
    let mut next = || found.next().unwrap_or_default();
    let found = next().zip(next().zip(next()));
    let there = wanted.iter().zip(found).filter_map(|(wanted, (head, body))| Some((wanted, head?, body)));
    there
        .map(|((key, document), head, (changed, made))| {
            let text = std::str::from_utf8(&head).map_err(|_| no_head(heads, document))?;
            let head = Head::parse(heads, document, text)?;
            Ok(StoredDocument {
                key: key.clone(),
                document: document.clone(),
                live: head.live,
                head: json(heads, head.text)?,
                body: body::read(document, [(bodies, made.as_deref()), (changes, changed.as_deref())])?,
                version: head.version,
                at: head.at,
            })
        })
        .collect()
}

/// A record out of the stream of events.
pub(super) fn record(shard: Shard, (id, fields): &Entry) -> Result<Record, StoreError> {
    let key = shard.events();
    let events: Vec<EventRecord> = json(&key, required(&key, fields, "events")?)?;
    Ok(Record {
        position: parsed(&key, id.split('-').next().unwrap_or_default())?,
        key: entity(&key, required(&key, fields, "entity")?)?,
        version: Version(number(&key, fields, "version")?),
        at: Timestamp(number(&key, fields, "at")?),
        events,
    })
}

pub(super) fn entity(key: &str, text: &str) -> Result<EntityKey, StoreError> {
    text.parse().map_err(|refusal: skein_shared::Refusal| at(key, &refusal.message))
}

pub(super) fn json<T: DeserializeOwned>(key: &str, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| at(key, &format!("no JSON of the right shape: {error}")))
}

pub(super) fn required<'a>(
    key: &str,
    fields: &'a HashMap<String, String>,
    field: &str,
) -> Result<&'a str, StoreError> {
    let found = fields.get(field).map(String::as_str);
    found.ok_or_else(|| at(key, &format!("the field `{field}` is missing; restore it from a copy")))
}

pub(super) fn number(key: &str, fields: &HashMap<String, String>, field: &str) -> Result<u64, StoreError> {
    parsed(key, required(key, fields, field)?)
}

pub(super) fn parsed(key: &str, text: &str) -> Result<u64, StoreError> {
    text.parse().map_err(|_| garbled(key))
}

pub(super) fn garbled(key: &str) -> StoreError {
    at(key, &"it holds something else than a number where one belongs; restore it from a copy")
}
