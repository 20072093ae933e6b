//! Which stream sends a report, and in which words.
//!
//! One stream speaks, that of the first connected coordinator; the others send what is still unacknowledged
//! at the second look, because the speaker's coordinator may be cut off from the rest.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use skein_proto::convert;
use skein_proto::v1::report::What as Wire;
use skein_proto::v1::{self, Exited, Frozen, Restored, Spilled, StartFailed, Started, Thawed};
use tokio::sync::watch;

use crate::instance::ledger::{Report, What};

/// The streams that are connected, by the number of their coordinator.
#[derive(Default)]
pub(super) struct Speakers {
    connected: Mutex<BTreeSet<usize>>,
    changed: watch::Sender<u64>,
    acknowledged: watch::Sender<u64>,
    /// Rises when what a coordinator has said may be lost with its stream.
    lost: watch::Sender<u64>,
}

impl Speakers {
    pub(super) fn join(&self, index: usize) {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner).insert(index);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Whether it was there.
    pub(super) fn leave(&self, index: usize) -> bool {
        let was_there = self.connected.lock().unwrap_or_else(PoisonError::into_inner).remove(&index);
        self.changed.send_modify(|count| *count += 1);
        was_there
    }

    pub(super) fn speaks(&self, index: usize) -> bool {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner).first() == Some(&index)
    }

    pub(super) fn are_any(&self) -> bool {
        !self.connected.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Tells when another stream may have become the speaker.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(super) fn note_acknowledged(&self) {
        self.acknowledged.send_modify(|count| *count += 1);
    }

    pub(super) fn acknowledged(&self) -> watch::Receiver<u64> {
        self.acknowledged.subscribe()
    }

    pub(super) fn note_lost(&self) {
        self.lost.send_modify(|count| *count += 1);
    }

    /// Tells when the ledgers have to be compared: nobody else notices that a command was lost.
    pub(super) fn losses(&self) -> watch::Receiver<u64> {
        self.lost.subscribe()
    }
}

pub(super) fn to_wire(sequence: u64, report: Report) -> v1::Report {
    let what = match report.what {
        What::Started { pid } => Wire::Started(Started { pid }),
        What::Frozen => Wire::Frozen(Frozen {}),
        What::Thawed => Wire::Thawed(Thawed {}),
        What::Spilled => Wire::Spilled(Spilled {}),
        What::Restored { pid } => Wire::Restored(Restored { pid }),
        What::Exited { exit, reason, usage } => {
            let usage = usage.map(convert::usage_to_wire);
            Wire::Exited(Exited { code: exit.code, signal: exit.signal, reason, usage })
        }
        What::StartFailed { reason, usage } => {
            Wire::StartFailed(StartFailed { reason, usage: usage.map(convert::usage_to_wire) })
        }
    };
    v1::Report {
        sequence,
        instance: report.instance,
        swarm: report.swarm,
        agent: report.agent,
        token: report.token.to_string(),
        what: Some(what),
    }
}
