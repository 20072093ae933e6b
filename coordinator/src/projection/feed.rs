//! The thread that writes the read side: it builds the file from the store, or catches up with it, then follows
//! the commits.
//!
//! While it builds, commits wait in the mailbox. Pages of documents are read at different moments, so some are
//! newer than the entity's version noted at the beginning. What keeps this right is that each row carries the
//! version that last wrote it, and that a reported change applies only to a row older than itself:
//! - a change up to the noted version is in the pages, so it is left out;
//! - a later change is in the page of its document (left out, by the row's version) or it is not (applied);
//! - a document deleted before its page was read may come back from an earlier change, until its deletion,
//!   which is later than the noted version too, is taken from the mailbox.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;

use super::Progress;
use super::broken::{self, Broken};
use super::changes::Changes;
use super::history::{self, Mention};
use super::mailbox::{Mailbox, Message};
use super::origin::{self, Left, Tip};
use super::source::Source;
use super::tables::{self, Numbers};
use crate::store::pace::{Pace, Page};
use crate::store::sqlite::connection::is_damage;
use crate::store::{Batch, EventRecord, Record, StoredDocument, Version};

/// Documents read from the store at once, at most.
const DOCUMENTS: usize = 500;
/// Records read at once, at most: each may have the events of a few hundred commands, and a takeover waits for each
/// page.
const RECORDS: usize = 100;
/// Mentions that are gathered before they are written in the order of their table.
const MENTIONS: usize = 20_000;
/// Kibibytes of pages at hand, as SQLite's negative number: a build writes nearly all in order and needs few.
const BUILD_CACHE: i32 = -4 * 1024;
const FOLLOW_CACHE: i32 = -16 * 1024;
/// How long to wait before building is tried again after the store or the disk failed.
const RETRY: Duration = Duration::from_secs(1);

pub(super) struct Feed {
    connection: Connection,
    source: Source,
    mailbox: Arc<Mailbox>,
    progress: Arc<Progress>,
    known: Known,
    /// As whom it signs the file.
    writer: Option<String>,
}

/// What the thread knows of the entities.
#[derive(Default)]
struct Known {
    /// The last version taken in of each.
    versions: HashMap<EntityKey, Version>,
    numbers: Numbers,
}

impl Feed {
    pub(super) fn new(
        connection: Connection,
        source: Source,
        mailbox: Arc<Mailbox>,
        progress: Arc<Progress>,
    ) -> Self {
        let writer = origin::writer();
        Self { connection, source, mailbox, progress, known: Known::default(), writer }
    }

    /// Runs until the last handle is gone.
    pub(super) fn run(mut self) {
        let mut resumed = self.resume().unwrap_or_default();
        while !self.mailbox.is_closed() {
            let whole = if std::mem::take(&mut resumed) { Ok(()) } else { self.build() };
            if let Err(broken) = whole.and_then(|()| self.follow()) {
                if !matches!(broken, Broken::Closed) {
                    tracing::warn!(%broken, "the read side is built anew");
                    std::thread::park_timeout(RETRY);
                }
                self.progress.change(|known| known.built = false);
            }
        }
    }

    /// Goes on with what an earlier process left, if it is of this store. Entities that have changed since are
    /// read anew, of which only what differs is written.
    fn resume(&mut self) -> Result<bool, Broken> {
        let Some(Left { versions, numbers, tip }) = self.left()? else { return Ok(false) };
        tracing::debug!(entity = %tip.key, version = tip.version.0, "the read side goes on");
        self.known = Known { versions, numbers };
        // Before readers are told, who would take what is there for the newest.
        self.take(&[Message::Adopt])?;
        self.whole();
        Ok(true)
    }

    fn left(&self) -> Result<Option<Left>, Broken> {
        let Some(left) = origin::left(&self.connection)? else { return Ok(None) };
        let within = left.is_within(&self.source.versions()?);
        Ok((within && self.source.has(&left.tip)?).then_some(left))
    }

    /// Empties the file and fills it from the store.
    fn build(&mut self) -> Result<(), Broken> {
        self.known = Known::default();
        self.empty()?;
        // What was reported before is in the store, and what readers have found is gone.
        self.mailbox.clear();
        self.connection.pragma_update(None, "cache_size", BUILD_CACHE)?;
        // Before the first document, so that every page has at least these versions.
        self.known.versions = self.source.versions()?;
        self.build_documents()?;
        self.write(|transaction, _| tables::make_indexes(transaction))?;
        let last = self.build_history()?;
        let (versions, writer) = (self.known.versions.clone(), self.writer.clone());
        self.write(|transaction, numbers| {
            versions.iter().try_for_each(|(key, version)| numbers.reached(transaction, key, *version))?;
            reached(transaction, writer.as_deref(), last.as_ref())
        })?;
        self.connection.execute_batch("PRAGMA shrink_memory")?;
        self.connection.pragma_update(None, "cache_size", FOLLOW_CACHE)?;
        self.whole();
        Ok(())
    }

    /// Also a file of which not every page can be read.
    fn empty(&mut self) -> Result<(), Broken> {
        match self.write(|transaction, _| tables::clear(transaction)) {
            Err(Broken::Sqlite(error)) if is_damage(&error) => {
                tracing::warn!(problem = broken::said(&error), "the read side's file is written over");
                Ok(tables::overwrite(&mut self.connection)?)
            }
            cleared => cleared,
        }
    }

    /// Tells the readers that lists have no gaps.
    fn whole(&self) {
        let versions = self.known.versions.clone();
        self.progress.change(|known| {
            known.built = true;
            known.versions = versions;
        });
    }

    fn build_documents(&mut self) -> Result<(), Broken> {
        let mut next = self.source.documents(Pace::up_to(DOCUMENTS), None);
        loop {
            let Page { things: documents, pace, .. } = self.source.finish(next)?;
            let Some(last) = documents.last() else { return Ok(()) };
            // The store reads on while this page is written.
            next = self.source.documents(pace, Some((last.key.clone(), last.document.clone())));
            self.write(|transaction, numbers| {
                documents.iter().try_for_each(|document| {
                    let place = numbers.place(transaction, &document.key, &document.document)?;
                    tables::put(transaction, place, document)
                })
            })?;
        }
    }

    /// Gives the last commit.
    fn build_history(&mut self) -> Result<Option<Tip>, Broken> {
        let mut mentions = Vec::new();
        let mut newest: Option<Record> = None;
        let mut next = self.source.records(Pace::up_to(RECORDS), None);
        loop {
            let Page { things: records, pace, .. } = self.source.finish(next)?;
            let Some(last) = records.last() else { break };
            next = self.source.records(pace, Some((last.key.clone(), last.position)));
            self.write(|transaction, numbers| {
                for record in &records {
                    let entity = numbers.entity(transaction, &record.key)?;
                    mentions.extend(Mention::all(entity, record.version, record.at, &record.events));
                }
                match mentions.len() >= MENTIONS {
                    true => history::write(transaction, std::mem::take(&mut mentions)),
                    false => Ok(()),
                }
            })?;
            // They come in the order of the store, which may not be that of their positions.
            newest = newest.into_iter().chain(records).max_by_key(|record| record.position);
        }
        self.write(|transaction, _| history::write(transaction, mentions))?;
        Ok(newest.map(|record| Tip { key: record.key, version: record.version, at: record.at }))
    }

    /// One transaction of a build.
    fn write(
        &mut self,
        write: impl FnOnce(&Transaction<'_>, &mut Numbers) -> rusqlite::Result<()>,
    ) -> Result<(), Broken> {
        if self.mailbox.is_closed() {
            return Err(Broken::Closed);
        }
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        write(&transaction, &mut self.known.numbers)?;
        Ok(transaction.commit()?)
    }

    /// Takes in what is reported, one group after the other.
    fn follow(&mut self) -> Result<(), Broken> {
        while let Some(messages) = self.mailbox.take() {
            if messages.iter().any(|message| matches!(message, Message::Damaged)) {
                // Before those who wait are let go, who would take the lists for whole.
                self.progress.change(|known| known.built = false);
                return Err(Broken::Damaged);
            }
            let commits = messages.iter().filter(|message| matches!(message, Message::Committed(..))).count();
            self.progress.writing(commits);
            let result = self.take(&messages);
            // Also when it failed: the build that follows reads what they reported. Before readers are told,
            // so that whoever was told finds nothing waiting.
            self.progress.writing(0);
            self.publish(result?);
            messages.into_iter().for_each(Message::taken);
        }
        Err(Broken::Closed)
    }

    /// Writes what a group reports; gives the entities that changed by it.
    fn take(&mut self, messages: &[Message]) -> Result<HashSet<EntityKey>, Broken> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut group = Group {
            transaction: &transaction,
            source: &self.source,
            stored: None,
            known: &mut self.known,
            changes: Changes::default(),
            mentions: Vec::new(),
            touched: HashSet::new(),
            writer: self.writer.as_deref(),
            tip: None,
        };
        for message in messages {
            match message {
                Message::Committed(batch, version) => group.commit(batch, *version)?,
                Message::Reload(key) => group.reload(key)?,
                Message::Adopt => group.adopt()?,
                Message::Disown(of) => group.disown(of)?,
                // The latter is seen to before.
                Message::Barrier { .. } | Message::Damaged => {}
                Message::Trim { archived_before, events_before, events_per_entity } => {
                    group.flush()?;
                    let more_documents = tables::trim(&transaction, *archived_before)?;
                    let more_mentions = history::trim(&transaction, *events_before, *events_per_entity)?;
                    if more_documents || more_mentions {
                        // Behind what is reported meanwhile.
                        self.mailbox.put(Message::Trim {
                            archived_before: *archived_before,
                            events_before: *events_before,
                            events_per_entity: *events_per_entity,
                        });
                    }
                }
            }
        }
        group.flush()?;
        group.note_progress()?;
        let touched = group.touched;
        transaction.commit()?;
        Ok(touched)
    }

    fn publish(&self, touched: HashSet<EntityKey>) {
        self.progress.change(|known| {
            for key in touched {
                match self.known.versions.get(&key) {
                    Some(version) => known.versions.insert(key, *version),
                    None => known.versions.remove(&key),
                };
            }
        });
    }
}

/// A group while it is taken in.
struct Group<'a> {
    transaction: &'a Transaction<'a>,
    source: &'a Source,
    /// How all entities stand that are ours, once somebody has asked: for one alone it is asked for all of them. The
    /// store has whatever a group reports before that is taken.
    stored: Option<HashMap<EntityKey, Version>>,
    known: &'a mut Known,
    changes: Changes<'a>,
    mentions: Vec<Mention>,
    touched: HashSet<EntityKey>,
    writer: Option<&'a str>,
    /// The last commit that has events: by them the store can be asked for it.
    tip: Option<Tip>,
}

impl<'a> Group<'a> {
    fn commit(&mut self, batch: &'a Batch, version: Version) -> Result<(), Broken> {
        let key = &batch.key;
        if !batch.events.is_empty() {
            self.tip = Some(Tip { key: key.clone(), version, at: batch.at });
        }
        self.mention(key, version, batch.at, &batch.events)?;
        if !self.touched.contains(key) {
            self.touched.insert(key.clone());
            self.known.versions.entry(key.clone()).or_default();
        }
        let last = self.known.versions.get(key).copied().unwrap_or_default();
        if version <= last {
            return Ok(());
        }
        // A first commit may be heard of behind the loss of its shard, and seems to follow what is there: nothing. The
        // store knows whether the entity is ours still, as one is whose shard is only being given away.
        let is_doubtful = last == Version::default() && self.source.is_given_up(key);
        if is_doubtful || version.0 > last.0 + 1 {
            return self.reload(key);
        }
        self.changes.add(key, version, batch.at, &batch.documents);
        if let Some(last) = self.known.versions.get_mut(key) {
            *last = version;
        }
        Ok(())
    }

    fn mention(
        &mut self,
        key: &EntityKey,
        version: Version,
        at: Timestamp,
        events: &[EventRecord],
    ) -> rusqlite::Result<()> {
        let entity = self.known.numbers.entity(self.transaction, key)?;
        self.mentions.extend(Mention::all(entity, version, at, events));
        Ok(())
    }

    /// Makes an entity's rows what its documents are, and makes up for the mentions of the batches that were not
    /// reported. The store is never behind the mailbox.
    fn reload(&mut self, key: &EntityKey) -> Result<(), Broken> {
        let stored = self.stored()?;
        let version = stored.get(key).copied().unwrap_or_default();
        self.stored = Some(stored);
        self.reload_to(key, version)
    }

    /// Reads whatever is ours and stands at another version.
    fn adopt(&mut self) -> Result<(), Broken> {
        let stored = self.stored()?;
        stored.iter().try_for_each(|(key, version)| self.reload_to(key, *version))?;
        self.stored = Some(stored);
        Ok(())
    }

    fn stored(&mut self) -> Result<HashMap<EntityKey, Version>, Broken> {
        Ok(match self.stored.take() {
            Some(stored) => stored,
            None => self.source.versions()?,
        })
    }

    /// Also entities without a known version: a build notes those at its beginning, and each of its pages has what is
    /// ours by then, so a shard that came and went meanwhile has left rows.
    fn disown(&mut self, of: &(dyn Fn(&EntityKey) -> bool + Send)) -> Result<(), Broken> {
        let gone: Vec<EntityKey> = self.known.numbers.entities().filter(|key| of(key)).cloned().collect();
        for key in gone {
            self.changes.forget(&key);
            let entity = self.known.numbers.entity(self.transaction, &key)?;
            tables::remove_all(self.transaction, entity)?;
            self.known.versions.remove(&key);
            self.touched.insert(key);
        }
        Ok(())
    }

    fn reload_to(&mut self, key: &EntityKey, version: Version) -> Result<(), Broken> {
        let last = self.known.versions.get(key).copied().unwrap_or_default();
        if version == last {
            return Ok(());
        }
        self.changes.forget(key);
        let mut after = String::new();
        let mut next = Some(self.source.documents_of(Pace::up_to(DOCUMENTS), key, &after));
        while let Some(reading) = next.take() {
            let Page { things: documents, is_full, pace } = self.source.finish(reading)?;
            let last = documents.last().filter(|_| is_full).map(|last| last.document.clone());
            // The store reads on while this page is compared.
            next = last.as_deref().map(|last| self.source.documents_of(pace, key, last));
            self.replace(key, &after, last.as_deref(), &documents)?;
            after = last.unwrap_or_default();
        }
        self.make_up(key, last, version)?;
        self.known.versions.insert(key.clone(), version);
        self.touched.insert(key.clone());
        Ok(())
    }

    /// Writes what differs between a page of documents, which begins after one document and goes up to another,
    /// and the rows that there are of it.
    fn replace(
        &mut self,
        key: &EntityKey,
        after: &str,
        last: Option<&str>,
        page: &[StoredDocument],
    ) -> rusqlite::Result<()> {
        let entity = self.known.numbers.entity(self.transaction, key)?;
        let mut rows = tables::rows(self.transaction, entity, after, last)?;
        for document in page {
            let row = rows.remove(&document.document);
            if row.is_some_and(|(_, version)| version == document.version) {
                continue;
            }
            if let Some((row, _)) = row {
                tables::remove(self.transaction, row)?;
            }
            let place = self.known.numbers.place(self.transaction, key, &document.document)?;
            tables::put(self.transaction, place, document)?;
        }
        rows.into_values().try_for_each(|(row, _)| tables::remove(self.transaction, row))
    }

    /// Takes in the mentions of the batches after one version and up to another. Of those before the first whose events
    /// the store keeps there is nothing to read, however many they are.
    fn make_up(&mut self, key: &EntityKey, after: Version, last: Version) -> Result<(), Broken> {
        let mut next = (after < last).then(|| self.source.history(Pace::up_to(RECORDS), key, after));
        while let Some(reading) = next.take() {
            let Page { things: records, is_full, pace } = self.source.finish(reading)?;
            let read = records.last().filter(|_| is_full).map(|record| record.version);
            next = read.filter(|read| *read < last).map(|read| self.source.history(pace, key, read));
            for record in &records {
                self.mention(key, record.version, record.at, &record.events)?;
            }
            if self.mentions.len() >= MENTIONS {
                history::write(self.transaction, std::mem::take(&mut self.mentions))?;
            }
        }
        Ok(())
    }

    /// Writes down how far the tables have come, for whoever goes on with them.
    fn note_progress(&mut self) -> rusqlite::Result<()> {
        for key in &self.touched {
            let version = self.known.versions.get(key).copied().unwrap_or_default();
            self.known.numbers.reached(self.transaction, key, version)?;
        }
        reached(self.transaction, self.writer, self.tip.as_ref())
    }

    /// Writes what is gathered.
    fn flush(&mut self) -> rusqlite::Result<()> {
        for (key, documents) in std::mem::take(&mut self.changes).into_iter() {
            for (document, change) in documents {
                let place = self.known.numbers.place(self.transaction, key, document)?;
                tables::change(self.transaction, place, change)?;
            }
        }
        history::write(self.transaction, std::mem::take(&mut self.mentions))
    }
}

/// Signs the file, if there is a commit to be known by and a name to sign with.
fn reached(connection: &Connection, writer: Option<&str>, tip: Option<&Tip>) -> rusqlite::Result<()> {
    let (Some(writer), Some(tip)) = (writer, tip) else { return Ok(()) };
    origin::reached(connection, writer, tip)
}
