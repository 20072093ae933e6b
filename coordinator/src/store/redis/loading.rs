//! Takes an entity into memory.

use std::collections::HashMap;

use redis::{Value, cmd};
use skein_shared::entity::LiveDocument;
use skein_shared::fence::Epoch;
use skein_shared::id::EntityKey;
use skein_shared::limits::REPLY_KEEP;
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::batch::nonce;
use super::connection::{Unrun, at, is_garbage, read};
use super::reader::{Head, Reader, behind, entity, garbled, json, parsed, required};
use super::shard::Keys;
use crate::store::{Fence, LIVE_PAGE, LivePage, Loaded, Mark, StoreError, StoredReply, Version};

/// Batches whose replies are read at once.
const REPLIES: usize = 512;
/// Pages of live documents that are under way at once: Redis works on one while another is taken apart here.
pub(super) const AHEAD: usize = 3;

/// Where a page of live documents begins.
#[derive(Clone, Copy)]
pub(super) enum Begin<'a> {
    /// Behind this document.
    Behind(&'a str),
    /// With the document that so many are in front of. Whoever asks by places needs no answer to ask for the next page,
    /// and they stay as they are for as long as the version does.
    Place(usize),
}

/// What `load.lua` answers: the entity, the keys and heads of live documents, the marks. Each of another key, by which
/// an error is told.
type Snapshot = (Value, Value, Value, Value);

/// What `live.lua` answers: version and last batch of the entity, the keys and heads of live documents.
type Page = (Value, Value, Value);

impl Reader {
    /// None when the shard is held under another fence. [`Fence::NONE`] where it is only read.
    pub(super) async fn load(&self, key: &EntityKey, fence: Fence) -> Result<Option<Loaded>, StoreError> {
        let keys = Keys::new(key);
        let names = [keys.entity(), keys.live(), keys.heads(), keys.marks(), keys.shard.lease()];
        let mut arguments: Vec<Vec<u8>> = vec![LIVE_PAGE.to_string().into()];
        arguments.extend(named(fence));
        let answer = self.connection.run::<Option<Snapshot>>(&self.load, &names, &arguments).await;
        let answer = match answer {
            Err(unrun) => return Err(self.unread(&unrun, &names, &["hash", "zset", "hash", "hash"]).await),
            Ok(answer) => answer,
        };
        let Some((entity, live, heads, marks)) = answer else { return Ok(None) };
        let entity: HashMap<String, String> = read(&keys.entity(), entity)?;
        if entity.is_empty() {
            return Ok(Some(Loaded::default()));
        }
        let number = |field: &str| optional(&keys.entity(), &entity, field);
        let (version, written) = (Version(number("version")?.unwrap_or(0)), number("at")?.unwrap_or(0));
        let written = Timestamp(written);
        Ok(Some(Loaded {
            version,
            batch: batch_of(&keys.entity(), &entity)?,
            at: written,
            sequence: number("sequence")?.unwrap_or(0),
            live: documents_of(&keys, read(&keys.live(), live)?, read(&keys.heads(), heads)?)?,
            marks: marks_of(&keys, read(&keys.marks(), marks)?)?,
            replies: self.replies(&keys, version, written - REPLY_KEEP).await?,
            timer: number("timer")?.map(Timestamp),
        }))
    }

    /// A page of the live documents. None as with [`Reader::load`].
    pub(super) async fn live(
        &self,
        key: &EntityKey,
        fence: Fence,
        begin: Begin<'_>,
        limit: usize,
    ) -> Result<Option<LivePage>, StoreError> {
        let keys = Keys::new(key);
        let names = [keys.entity(), keys.live(), keys.heads(), keys.shard.lease()];
        let begin = match begin {
            Begin::Behind(after) => behind(after),
            Begin::Place(place) => place.to_string(),
        };
        let mut arguments: Vec<Vec<u8>> = vec![begin.into(), limit.to_string().into()];
        arguments.extend(named(fence));
        let answer = self.connection.run::<Option<Page>>(&self.live, &names, &arguments).await;
        let answer = match answer {
            Err(unrun) => return Err(self.unread(&unrun, &names, &["hash", "zset", "hash"]).await),
            Ok(answer) => answer,
        };
        let Some((entity, live, heads)) = answer else { return Ok(None) };
        let (version, batch): (Option<u64>, Option<String>) = read(&names[0], entity)?;
        let batch = batch.map(|id| batch_id(&names[0], &id)).transpose()?;
        Ok(Some(LivePage {
            version: Version(version.unwrap_or(0)),
            batch: batch.unwrap_or_default(),
            documents: documents_of(&keys, read(&names[1], live)?, read(&names[2], heads)?)?,
        }))
    }

    /// Why a script could not read these keys, of which the first are of these types. Redis does not say which of them
    /// holds something else.
    async fn unread(&self, unrun: &Unrun, keys: &[String], kinds: &[&str]) -> StoreError {
        if !matches!(unrun, Unrun::Answered(error) if is_garbage(error)) {
            return unrun.problem(&keys[0]);
        }
        let ask = |key: &String| (key.clone(), cmd("TYPE").arg(key).to_owned());
        let questions: Vec<_> = keys.iter().map(ask).collect();
        let found = self.connection.ask_sound::<String>(&questions).await.unwrap_or_default();
        let is_other = |kind: &str, found: &str| found != kind && found != "none";
        let mut typed = keys.iter().zip(kinds).zip(found);
        let spoilt = typed.find(|((_, kind), found)| found.as_ref().is_ok_and(|found| is_other(kind, found)));
        unrun.problem(spoilt.map_or(&keys[0], |((key, _), _)| key))
    }

    /// The replies of the entity's batches up to a version that were committed since then, oldest first. Times rise
    /// with versions, so the walk back ends at the first earlier one.
    async fn replies(
        &self,
        keys: &Keys,
        last: Version,
        since: Timestamp,
    ) -> Result<Vec<StoredReply>, StoreError> {
        let key = keys.replies();
        let (mut batches, mut newest) = (Vec::new(), last.0.to_string());
        'pages: loop {
            let mut ask = cmd("ZREVRANGEBYSCORE");
            ask.arg(&key).arg(&newest).arg("-inf").arg("LIMIT").arg(0).arg(REPLIES);
            let page: Vec<String> = self.connection.ask(&key, &ask).await?;
            for member in &page {
                let parts: Vec<&str> = member.splitn(3, ' ').collect();
                let [version, written, kept] = parts[..] else { return Err(garbled(&key)) };
                if Timestamp(parsed(&key, written)?) < since {
                    break 'pages;
                }
                newest = format!("({}", parsed(&key, version)?);
                batches.push(json::<Vec<StoredReply>>(&key, kept)?);
            }
            if page.len() < REPLIES {
                break;
            }
        }
        Ok(batches.into_iter().rev().flatten().collect())
    }
}

/// A fence as a script compares it; nothing where it is only read.
fn named(fence: Fence) -> impl Iterator<Item = Vec<u8>> {
    let named = (fence != Fence::NONE).then(|| [fence.epoch.0.to_string(), nonce(fence)]);
    named.into_iter().flatten().map(String::into_bytes)
}

fn documents_of(
    keys: &Keys,
    live: Vec<String>,
    heads: Vec<Option<String>>,
) -> Result<Vec<LiveDocument>, StoreError> {
    let name = keys.heads();
    let documents = live.into_iter().zip(heads);
    documents
        .map(|(key, head)| match head {
            Some(mut head) => {
                // There may be a million, so none is written once more.
                let before = head.len() - Head::parse(&name, &key, &head)?.text.len();
                head.drain(..before);
                Ok(LiveDocument { key, head })
            }
            None => Err(at(
                &name,
                &format!("the head of the live document `{key}` is missing; restore it from a copy"),
            )),
        })
        .collect()
}

fn marks_of(keys: &Keys, marks: HashMap<String, String>) -> Result<Vec<Mark>, StoreError> {
    let key = keys.marks();
    let mut marks: Vec<(String, String)> = marks.into_iter().collect();
    marks.sort_unstable();
    let read = |(source, reached): (String, String)| {
        let (epoch, sequence) = reached.split_once(' ').ok_or_else(|| garbled(&key))?;
        let (epoch, sequence) = (Epoch(parsed(&key, epoch)?), parsed(&key, sequence)?);
        Ok(Mark { source: entity(&key, &source)?, epoch, sequence })
    };
    marks.into_iter().map(read).collect()
}

fn optional(key: &str, fields: &HashMap<String, String>, field: &str) -> Result<Option<u64>, StoreError> {
    fields.get(field).map(|text| parsed(key, text)).transpose()
}

/// The id of the last batch.
fn batch_of(key: &str, entity: &HashMap<String, String>) -> Result<Uuid, StoreError> {
    batch_id(key, required(key, entity, "batch")?)
}

fn batch_id(key: &str, id: &str) -> Result<Uuid, StoreError> {
    id.parse().map_err(|_| at(key, &"its last batch has no id; restore it from a copy"))
}
