//! What waits in the journal and cannot be brought to its tables, for a page of the file is damaged or the disk
//! refuses. Commits go on, the journal grows, and somebody has to be told.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rusqlite::Error;
use tokio::time::Instant;

use super::connection::sentence;
use super::room;
use crate::alarms::{Alarms, Kind};

/// How long commits go on by themselves before some of what waits is tried with them again: a try costs about as much
/// as if it succeeded.
const AGAIN: Duration = Duration::from_secs(5);
/// What the alarm is about.
const SUBJECT: &str = "journal";
const KINDS: [Kind; 2] = [Kind::StoreFull, Kind::StoreGarbage];

/// Where alarms go, from when the store serves a node.
pub(super) type Serving = Arc<OnceLock<Alarms>>;

pub(super) struct Standstill {
    serving: Serving,
    /// When it was last tried in vain; none while all goes well.
    tried: Option<Instant>,
}

impl Standstill {
    pub(super) fn none(serving: Serving) -> Self {
        Self { serving, tried: None }
    }

    /// Whether something is to be folded with a group of commits.
    pub(super) fn lets_try(&self) -> bool {
        self.tried.is_none_or(|tried| tried.elapsed() >= AGAIN)
    }

    /// It was tried in vain.
    pub(super) fn goes_on(&mut self, error: &Error) {
        self.tried = Some(Instant::now());
        let problem = format!(
            "what was committed waits in the store's journal, which grows, and cannot be brought to its tables: {}; \
             nothing is lost meanwhile, but no node starts with this file before that is mended",
            sentence(error)
        );
        match self.serving.get() {
            Some(alarms) => alarms.raise(kind(error), SUBJECT, &problem),
            None => tracing::error!(problem, "the store's journal grows"),
        }
    }

    /// Something was brought to its tables.
    pub(super) fn ends(&mut self) {
        if self.tried.take().is_none() {
            return;
        }
        let Some(alarms) = self.serving.get() else { return };
        KINDS.iter().for_each(|kind| alarms.clear(*kind, SUBJECT));
    }
}

fn kind(error: &Error) -> Kind {
    if room::is_missing(error) { Kind::StoreFull } else { Kind::StoreGarbage }
}
