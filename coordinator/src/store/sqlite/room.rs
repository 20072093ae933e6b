//! Commits that are refused because the disk has no room for them. Each of their callers is told, and somebody has to
//! hear of it who can make room.

use rusqlite::{Error, ErrorCode};

use super::connection::sentence;
use super::standstill::Serving;
use crate::alarms::Kind;

/// What the alarm is about.
const SUBJECT: &str = "commits";

pub(super) struct Room {
    serving: Serving,
    /// There was none for the last commit.
    is_missing: bool,
}

impl Room {
    pub(super) fn enough(serving: Serving) -> Self {
        Self { serving, is_missing: false }
    }

    /// A write was refused.
    pub(super) fn refused(&mut self, error: &Error) {
        if !is_missing(error) {
            return;
        }
        self.is_missing = true;
        if let Some(alarms) = self.serving.get() {
            alarms.raise(Kind::StoreFull, SUBJECT, &format!("nothing can be written: {}", sentence(error)));
        }
    }

    /// A write was taken.
    pub(super) fn taken(&mut self) {
        if !std::mem::take(&mut self.is_missing) {
            return;
        }
        if let Some(alarms) = self.serving.get() {
            alarms.clear(Kind::StoreFull, SUBJECT);
        }
    }
}

/// Whether it was for want of room that a write failed.
pub(super) fn is_missing(error: &Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}
