//! The pump: reads undelivered effects in order and hands each to its target.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use skein_shared::Code;
use skein_shared::entity::Effect;
use skein_shared::limits::EFFECT_EXPIRY;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::{Delivery, Runners};
use crate::entity::host::delivery_id;
use crate::entity::{Entities, Request};
use crate::store::{Mark, OutboxEntry, Store};

/// Effects read in one step.
const PAGE: usize = 512;
/// How soon undelivered effects are tried again.
const RETRY: Duration = Duration::from_millis(250);
/// Looks at the store at least this often.
const LONGEST: Duration = Duration::from_secs(30);

/// What became of one try.
enum Fate {
    Delivered,
    /// Its target is away; later effects of the same pair have to wait behind it.
    Later,
    Dead(String),
}

/// Runs until `stop`.
pub async fn run(entities: Entities, runners: Arc<dyn Runners>, stop: CancellationToken) {
    let mut committed = entities.shared().outbox.subscribe();
    loop {
        committed.mark_unchanged();
        let left = drain(&entities, runners.as_ref()).await;
        let pause = if left { RETRY } else { LONGEST };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = committed.changed() => {}
            () = runners.connected() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Goes once through the outbox. Says whether something has to be tried again.
async fn drain(entities: &Entities, runners: &dyn Runners) -> bool {
    let store = Arc::clone(&entities.shared().store);
    let mut after = 0;
    let mut left = false;
    let mut blocked = HashSet::new();
    loop {
        let page = match store.outbox(after, PAGE).await {
            Ok(page) => page,
            Err(problem) => {
                warn!(%problem, "the outbox cannot be read");
                return true;
            }
        };
        let Some(last) = page.last() else { return left };
        after = last.position;
        let full = page.len() == PAGE;
        left |= deliver_page(entities, runners, store.as_ref(), page, &mut blocked).await;
        if !full {
            return left;
        }
    }
}

async fn deliver_page(
    entities: &Entities,
    runners: &dyn Runners,
    store: &dyn Store,
    page: Vec<OutboxEntry>,
    blocked: &mut HashSet<(String, String)>,
) -> bool {
    let mut lanes: HashMap<(String, String), Vec<OutboxEntry>> = HashMap::new();
    for entry in page {
        lanes.entry((entry.source.to_string(), target(&entry.effect))).or_default().push(entry);
    }
    let work = lanes.into_iter().filter(|(lane, _)| !blocked.contains(lane));
    let done = join_all(work.map(|(lane, entries)| deliver_lane(entities, runners, lane, entries))).await;
    let mut delivered = Vec::new();
    let mut left = !blocked.is_empty();
    for outcome in done {
        delivered.extend(outcome.delivered);
        for (position, reason) in outcome.dead {
            let now = entities.clock().now();
            if let Err(problem) = store.bury(store.fence(), position, reason, now).await {
                warn!(%problem, "an effect could not be moved to the dead letters");
            }
        }
        if outcome.stopped {
            blocked.insert(outcome.lane);
            left = true;
        }
    }
    if !delivered.is_empty()
        && let Err(problem) = store.delivered(store.fence(), delivered).await
    {
        warn!(%problem, "delivered effects could not be taken out; they go again and are told apart by their marks");
        left = true;
    }
    left
}

struct Lane {
    lane: (String, String),
    delivered: Vec<u64>,
    dead: Vec<(u64, String)>,
    stopped: bool,
}

/// Delivers the effects of one pair of source and target, in their order.
async fn deliver_lane(
    entities: &Entities,
    runners: &dyn Runners,
    lane: (String, String),
    entries: Vec<OutboxEntry>,
) -> Lane {
    let mut outcome = Lane { lane, delivered: Vec::new(), dead: Vec::new(), stopped: false };
    for entry in entries {
        match deliver(entities, runners, &entry).await {
            Fate::Delivered => outcome.delivered.push(entry.position),
            Fate::Dead(reason) => {
                error!(source = %entry.source, sequence = entry.sequence, reason, "an effect became a dead letter");
                outcome.dead.push((entry.position, reason));
            }
            Fate::Later => {
                outcome.stopped = true;
                return outcome;
            }
        }
    }
    outcome
}

async fn deliver(entities: &Entities, runners: &dyn Runners, entry: &OutboxEntry) -> Fate {
    let expired = entry.at + EFFECT_EXPIRY < entities.clock().now();
    let fate = match &entry.effect {
        Effect::Runner { runner, command } => match runners.deliver(runner, command).await {
            Delivery::Sent => Fate::Delivered,
            Delivery::NotConnected => Fate::Later,
        },
        Effect::Entity { key, command } => {
            let mark = Mark { source: entry.source.clone(), epoch: entry.epoch, sequence: entry.sequence };
            let request = Request { id: delivery_id(&mark), timeout: Request::TIMEOUT, keep_reply: false };
            match entities.forward(key, request, Some(mark), command.clone()).await {
                Ok(_) => Fate::Delivered,
                Err(refusal) => match refusal.code {
                    Code::Overloaded | Code::Unavailable | Code::Unknown => Fate::Later,
                    Code::Internal => Fate::Dead(refusal.message),
                    // The receiver has committed the mark; its refusal goes back as an effect of its own.
                    _ => Fate::Delivered,
                },
            }
        }
    };
    match fate {
        Fate::Later if expired => Fate::Dead("nobody took it in for 7 days".to_owned()),
        fate => fate,
    }
}

fn target(effect: &Effect) -> String {
    match effect {
        Effect::Entity { key, .. } => key.to_string(),
        Effect::Runner { runner, .. } => format!("runner:{runner}"),
    }
}
