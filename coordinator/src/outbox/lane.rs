//! One lane: the effects from one source for one target, delivered one after another in their order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use skein_shared::Code;
use skein_shared::entity::Effect;
use skein_shared::limits::EFFECT_EXPIRY;
use tokio::sync::watch;
use tracing::error;

use super::{Delivery, Runners};
use crate::entity::host::delivery_id;
use crate::entity::{Entities, Request};
use crate::store::{Mark, OutboxEntry, OutboxPlace};

/// How soon an undelivered effect is tried again; the pause doubles with each try.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Effects delivered before the pump hears of them: it takes them out of the store together.
const REPORT: usize = 64;

/// The source's and the target's name.
pub(super) type Name = (String, String);

pub(super) fn name(entry: &OutboxEntry) -> Name {
    let target = match &entry.effect {
        Effect::Entity { key, .. } => key.to_string(),
        Effect::Runner { runner, .. } => format!("runner:{runner}"),
    };
    (entry.source.to_string(), target)
}

/// What the lanes need of the node.
#[derive(Clone)]
pub(super) struct World {
    pub(super) entities: Entities,
    pub(super) runners: Arc<dyn Runners>,
    /// Changes when a runner has connected.
    pub(super) connected: watch::Receiver<u64>,
}

/// What one stretch of work came to.
pub(super) struct Report {
    pub(super) lane: Name,
    /// Knows since when the lane has been looking out for runners.
    pub(super) world: World,
    pub(super) delivered: Vec<OutboxPlace>,
    /// With the reason.
    pub(super) dead: Vec<(OutboxPlace, String)>,
    /// What is still to be delivered.
    pub(super) rest: VecDeque<OutboxEntry>,
    /// Tries of the first of the rest that came to nothing.
    pub(super) tries: u32,
}

/// What became of one try.
enum Fate {
    Delivered,
    /// Its target is away; what comes after it has to wait behind it.
    Later,
    Dead(String),
}

/// Delivers up to [`REPORT`] effects, or as many as can be. After `tries` in vain it waits first.
pub(super) async fn work(
    mut world: World,
    lane: Name,
    mut queue: VecDeque<OutboxEntry>,
    tries: u32,
) -> Report {
    if tries > 0 {
        let pause = FIRST_PAUSE.saturating_mul(1 << (tries - 1).min(16)).min(LONGEST_PAUSE);
        let connected = world.connected.changed();
        // The pump outlives its lanes, so an error cannot happen; were it to, trying again is harmless.
        let _ = tokio::time::timeout(pause, connected).await;
    }
    let (mut delivered, mut dead, mut vain) = (Vec::new(), Vec::new(), 0);
    while delivered.len() + dead.len() < REPORT
        && let Some(entry) = queue.front()
    {
        world.connected.mark_unchanged();
        match deliver(&world, entry).await {
            Fate::Delivered => delivered.push(entry.place()),
            Fate::Dead(reason) => {
                error!(source = %entry.source, sequence = entry.sequence, reason, "an effect became a dead letter");
                dead.push((entry.place(), reason));
            }
            Fate::Later => {
                vain = if delivered.is_empty() { tries.saturating_add(1) } else { 1 };
                break;
            }
        }
        queue.pop_front();
    }
    Report { lane, world, delivered, dead, rest: queue, tries: vain }
}

async fn deliver(world: &World, entry: &OutboxEntry) -> Fate {
    let fate = match &entry.effect {
        Effect::Runner { runner, command } => match world.runners.deliver(runner, command).await {
            Delivery::Sent => Fate::Delivered,
            Delivery::NotConnected => Fate::Later,
        },
        Effect::Entity { key, command } => {
            let mark = Mark { source: entry.source.clone(), epoch: entry.epoch, sequence: entry.sequence };
            let request = Request { id: delivery_id(&mark), timeout: Request::TIMEOUT, keep_reply: false };
            match world.entities.forward(key, request, Some(mark), command.clone()).await {
                Ok(_) => Fate::Delivered,
                Err(refusal) => match refusal.code {
                    Code::Overloaded | Code::Unavailable | Code::Unknown => Fate::Later,
                    // The target cannot be loaded: its effects wait until it is repaired.
                    Code::Internal if refusal.retry_after_ms.is_some() => Fate::Later,
                    Code::Internal => Fate::Dead(refusal.message),
                    // The receiver has committed the mark; its refusal goes back as an effect of its own.
                    _ => Fate::Delivered,
                },
            }
        }
    };
    match fate {
        Fate::Later if entry.at + EFFECT_EXPIRY < world.entities.clock().now() => {
            Fate::Dead("nobody took it in for 7 days".to_owned())
        }
        fate => fate,
    }
}
