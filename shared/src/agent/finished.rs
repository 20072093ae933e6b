//! Calls that are over, for as long as their callers may ask for the result. There may be very many, so nothing that
//! an agent decides goes through them all.

use uuid::Uuid;

use super::call::CallRecord;
use crate::cow_map::CowMap;
use crate::time::Timestamp;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Finished {
    calls: CowMap<Uuid, CallRecord>,
    /// By the moment at which they are forgotten.
    by_end: CowMap<(Timestamp, Uuid), ()>,
}

impl Finished {
    pub(super) fn insert(&mut self, call: CallRecord) {
        self.by_end.insert((call.until, call.id), ());
        self.calls.insert(call.id, call);
    }

    pub(super) fn remove(&mut self, call: Uuid) -> Option<CallRecord> {
        let record = self.calls.remove(&call)?;
        self.by_end.remove(&(record.until, call));
        Some(record)
    }

    pub(super) fn get(&self, call: Uuid) -> Option<&CallRecord> {
        self.calls.get(&call)
    }

    pub(super) fn due(&self, now: Timestamp) -> Vec<Uuid> {
        self.by_end.keys().take_while(|(end, _)| *end <= now).map(|(_, call)| *call).collect()
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.by_end.keys().next().map(|(end, _)| *end)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &CallRecord> {
        self.calls.values()
    }
}
