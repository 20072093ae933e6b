//! Deadlocks: instances that each hold what the next one wants.

use std::collections::BTreeSet;

use serde_json::json;

use super::naming::named;
use super::state::{Key, Lockspace};
use crate::code::{Code, Refusal};
use crate::entity::Ctx;
use crate::id::InstanceId;

/// Follows who waits for whose lock, from `holder` trying for `key`. Back at `holder` it has found a cycle,
/// told as holder, resource, holder, resource, …. Only live locks and fresh tries count: a holder that has
/// ended holds nothing, and one that gave up waits for nothing.
pub(super) fn cycle(locks: &Lockspace, holder: &InstanceId, key: &Key, ctx: &Ctx) -> Option<Vec<String>> {
    let mut path = Vec::new();
    let mut passed = BTreeSet::new();
    let (mut waiting, mut wanted) = (holder, key.as_ref());
    loop {
        // A ring that does not lead through `holder` is somebody else's deadlock.
        if !passed.insert(waiting) {
            return None;
        }
        path.extend([waiting.to_string(), wanted.to_owned()]);
        let lock = locks.locks.get(wanted).filter(|lock| lock.is_live(ctx))?;
        if lock.holder == *holder {
            return Some(path);
        }
        waiting = &lock.holder;
        wanted = &locks.edge(waiting).filter(|edge| edge.is_fresh(ctx.now))?.key;
    }
}

pub(super) fn refusal(cycle: Vec<String>) -> Refusal {
    let first = cycle.first().cloned().unwrap_or_default();
    let told: Vec<&str> = cycle.iter().map(String::as_str).collect();
    let message = format!(
        "deadlock: {} → {first}; leave it alone, and release what you hold, so that the others can go on",
        named(&told, " → ")
    );
    Refusal::new(Code::Deadlock, message).with(json!({ "deadlock": true, "cycle": cycle }))
}
