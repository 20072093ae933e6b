//! Which trace an effect belongs to, from its commit until its delivery. This is kept in memory alone: what is
//! delivered after a restart, or by another node, begins a trace of its own.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use skein_proto::trace;
use skein_shared::id::EntityKey;
use tracing::Span;

/// Effects whose traces are kept. They are delivered at once, as a rule.
const MOST: usize = 4096;

/// The traces of effects that were committed lately.
#[derive(Default)]
pub struct Traces(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    traces: HashMap<(EntityKey, u64), String>,
    /// Oldest first.
    order: VecDeque<(EntityKey, u64)>,
}

impl Traces {
    /// Takes note of the effects that a command caused.
    pub(super) fn note(&self, source: &EntityKey, effects: Range<u64>, by: &Span) {
        if effects.is_empty() || by.is_disabled() {
            return;
        }
        let traceparent = trace::traceparent(by);
        if traceparent.is_empty() {
            return;
        }
        let mut kept = self.lock();
        for sequence in effects {
            let effect = (source.clone(), sequence);
            kept.order.push_back(effect.clone());
            kept.traces.insert(effect, traceparent.clone());
        }
        while kept.order.len() > MOST {
            if let Some(oldest) = kept.order.pop_front() {
                kept.traces.remove(&oldest);
            }
        }
    }

    /// The trace of an effect; empty when there is none.
    pub fn of(&self, source: &EntityKey, sequence: u64) -> String {
        self.lock().traces.get(&(source.clone(), sequence)).cloned().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
