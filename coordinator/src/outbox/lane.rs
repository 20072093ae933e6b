//! One lane: the effects from one source for one target, delivered one after another in their order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use skein_shared::entity::{Effect, Reign};
use skein_shared::id::EntityKey;
use skein_shared::limits::EFFECT_EXPIRY;
use skein_shared::mutation::{self, Mutation};
use skein_shared::{Code, Refusal};
use tokio::sync::watch;
use tracing::error;

use super::{Delivery, Runners};
use crate::entity::Entities;
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
    world.connected.mark_unchanged();
    let some = queue.len().min(REPORT);
    let fates = deliver(&world, &queue.make_contiguous()[..some]).await;
    let (mut delivered, mut dead, mut rest) = (Vec::new(), Vec::new(), VecDeque::new());
    for (entry, fate) in queue.drain(..fates.len()).zip(fates) {
        match fate {
            Fate::Delivered => delivered.push(entry.place()),
            Fate::Dead(reason) => {
                error!(source = %entry.source, sequence = entry.sequence, reason, "an effect became a dead letter");
                dead.push((entry.place(), reason));
            }
            Fate::Later => rest.push_back(entry),
        }
    }
    let tries = match (rest.is_empty(), delivered.is_empty()) {
        (true, _) => 0,
        (false, true) => tries.saturating_add(1),
        (false, false) => 1,
    };
    rest.append(&mut queue);
    Report { lane, world, delivered, dead, rest, tries }
}

/// Tries effects of one lane, in their order. Those that it says nothing of were not tried.
async fn deliver(world: &World, entries: &[OutboxEntry]) -> Vec<Fate> {
    match entries.first().map(|first| &first.effect) {
        Some(Effect::Entity { key, .. }) => hand_over(world, key, entries).await,
        Some(Effect::Runner { runner, .. }) => command(world, runner, entries).await,
        None => Vec::new(),
    }
}

/// All at once: an entity that gets many decides and commits them together.
async fn hand_over(world: &World, target: &EntityKey, entries: &[OutboxEntry]) -> Vec<Fate> {
    let commands = entries.iter().filter_map(|entry| {
        let Effect::Entity { command, .. } = &entry.effect else { return None };
        let mark = Mark { source: entry.source.clone(), epoch: entry.epoch, sequence: entry.sequence };
        Some((mark, command))
    });
    let commands: Vec<_> = commands.collect();
    if mutation::is_on(Mutation::DeliverTwice) {
        world.entities.deliver(target, commands.clone()).await;
    }
    let outcomes = world.entities.deliver(target, commands).await;
    entries.iter().zip(outcomes).map(|(entry, outcome)| world.fate(entry, outcome)).collect()
}

/// One after the other, until one is not taken.
async fn command(world: &World, runner: &str, entries: &[OutboxEntry]) -> Vec<Fate> {
    let mut fates = Vec::with_capacity(entries.len());
    for entry in entries {
        let Effect::Runner { command, .. } = &entry.effect else { break };
        // Taken anew for each: whoever lost the entity meanwhile commands no more, and a runner that has heard of the
        // next owner refuses what is on its way.
        let Some(epoch) = world.entities.reigns(&entry.source) else { break };
        let reign = Reign { source: entry.source.clone(), epoch };
        match world.runners.deliver(runner, command, &reign).await {
            Delivery::Sent => fates.push(Fate::Delivered),
            Delivery::NotConnected if world.entities.command_elsewhere(runner, command, &reign).await => {
                fates.push(Fate::Delivered);
            }
            Delivery::NotConnected => {
                fates.push(world.later(entry));
                break;
            }
        }
    }
    fates
}

impl World {
    fn fate(&self, entry: &OutboxEntry, outcome: Result<(), Refusal>) -> Fate {
        let Err(refusal) = outcome else { return Fate::Delivered };
        match refusal.code {
            Code::Overloaded | Code::Unavailable | Code::NotOwner | Code::Unknown => self.later(entry),
            // The target cannot be loaded: its effects wait until it is repaired.
            Code::Internal if refusal.retry_after_ms.is_some() => self.later(entry),
            Code::Internal => Fate::Dead(refusal.message),
            // The receiver has committed the mark; its refusal goes back as an effect of its own.
            _ => Fate::Delivered,
        }
    }

    fn later(&self, entry: &OutboxEntry) -> Fate {
        match entry.at + EFFECT_EXPIRY < self.entities.clock().now() {
            true => Fate::Dead("nobody took it in for 7 days".to_owned()),
            false => Fate::Later,
        }
    }
}
