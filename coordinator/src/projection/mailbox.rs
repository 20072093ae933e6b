//! What is reported to the read side and not written yet.
//!
//! Reports gather here, so that one group writes the last state of a document once, however often it changed.
//! A group is due when a reader waits, when it is large, or a short time after its first report.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;
use tokio::sync::{oneshot, watch};

use crate::store::{Batch, Version};

/// How long a report waits for others when nobody asks for it.
const DELAY: Duration = Duration::from_millis(250);
/// Bytes, roughly, that make a group large enough to be written at once.
const GROUP: usize = 4 << 20;
/// Bytes, roughly, from which on writers are to wait ([`Mailbox::room`]).
const FULL: usize = 64 << 20;

pub(super) enum Message {
    /// What a host reports.
    Committed(Arc<Batch>, Version),
    /// Read an entity anew: a commit of it was not reported.
    Reload(EntityKey),
    /// Read anew whatever is ours and stands at another version.
    Adopt,
    /// Remove entities that are another process'.
    Disown(Box<dyn Fn(&EntityKey) -> bool + Send>),
    Trim {
        archived_before: Timestamp,
        events_before: Timestamp,
        events_per_entity: u64,
    },
    /// A reader has found the file damaged: build it anew.
    Damaged,
    /// Answered once everything before it can be read.
    Barrier {
        passed: oneshot::Sender<()>,
    },
}

impl Message {
    /// Everything up to this one can be read.
    pub(super) fn taken(self) {
        if let Self::Barrier { passed } = self {
            // Whoever waits may have given up.
            let _ = passed.send(());
        }
    }
}

pub(super) struct Mailbox {
    waiting: Mutex<Waiting>,
    due: Condvar,
    /// Whether more than [`FULL`] waits.
    full: watch::Sender<bool>,
}

#[derive(Default)]
struct Waiting {
    messages: Vec<Message>,
    /// Roughly their bytes.
    weight: usize,
    /// One of them is a barrier, or says that the file is damaged.
    asked: bool,
    /// Those who want to read what is still to come.
    readers: usize,
    closed: bool,
}

impl Mailbox {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::default(), due: Condvar::new(), full: watch::Sender::new(false) })
    }

    pub(super) fn put(&self, message: Message) {
        let weight = match &message {
            Message::Committed(batch, _) => batch.weight(),
            Message::Reload(_)
            | Message::Adopt
            | Message::Disown(_)
            | Message::Trim { .. }
            | Message::Damaged
            | Message::Barrier { .. } => 0,
        };
        let mut waiting = self.lock();
        waiting.asked |= matches!(message, Message::Barrier { .. } | Message::Damaged);
        let first = waiting.messages.is_empty();
        waiting.messages.push(message);
        waiting.weight += weight;
        if waiting.weight > FULL {
            self.full.send_if_modified(|full| !std::mem::replace(full, true));
        }
        // In between the thread sleeps on: it would find nothing that is due.
        if first || waiting.is_due() {
            self.due.notify_one();
        }
    }

    /// From here until the guard is dropped whatever comes is written at once.
    pub(super) fn hurry(self: &Arc<Self>) -> Hurry {
        self.lock().readers += 1;
        self.due.notify_one();
        Hurry(Arc::clone(self))
    }

    /// Whether there is room for more.
    pub(super) fn has_room(&self) -> bool {
        !*self.full.borrow()
    }

    /// Waits until there is room for more, at most for `limit`.
    pub(super) async fn room(&self, limit: Duration) {
        let mut full = self.full.subscribe();
        let _ = tokio::time::timeout(limit, full.wait_for(|full| !full)).await;
    }

    /// Sleeps until a group is due, and takes it. `None` when the last handle is gone.
    pub(super) fn take(&self) -> Option<Vec<Message>> {
        let idle = |waiting: &mut Waiting| waiting.messages.is_empty() && !waiting.closed;
        let waiting = self.due.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        let early = |waiting: &mut Waiting| !waiting.is_due() && !waiting.closed;
        let gathered = self.due.wait_timeout_while(waiting, DELAY, early);
        let (mut waiting, _) = gathered.unwrap_or_else(PoisonError::into_inner);
        (!waiting.closed).then(|| self.empty(&mut waiting))
    }

    /// Drops what was reported, for a build that reads all of it. Those who wait go on waiting.
    pub(super) fn clear(&self) {
        let mut waiting = self.lock();
        let mut messages = self.empty(&mut waiting);
        messages.retain(|message| matches!(message, Message::Barrier { .. }));
        waiting.asked = !messages.is_empty();
        waiting.messages = messages;
    }

    /// Commits that wait.
    pub(super) fn len(&self) -> usize {
        let waiting = self.lock();
        waiting.messages.iter().filter(|message| matches!(message, Message::Committed(..))).count()
    }

    /// Whether a group is to be written whatever its age.
    #[cfg(test)]
    pub(super) fn is_due(&self) -> bool {
        self.lock().is_due()
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.due.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn empty(&self, waiting: &mut Waiting) -> Vec<Message> {
        waiting.asked = false;
        waiting.weight = 0;
        self.full.send_if_modified(|full| std::mem::replace(full, false));
        std::mem::take(&mut waiting.messages)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Whether a group is to be written whatever its age.
    fn is_due(&self) -> bool {
        !self.messages.is_empty() && (self.asked || self.readers > 0 || self.weight >= GROUP)
    }
}

/// A reader that waits.
pub(super) struct Hurry(Arc<Mailbox>);

impl Drop for Hurry {
    fn drop(&mut self) {
        self.0.lock().readers -= 1;
    }
}
