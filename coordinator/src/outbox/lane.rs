//! Delivers effects of one lane, and tells what became of them.

use std::sync::Arc;
use std::time::Duration;

use skein_proto::trace::{self, TRACES};
use skein_shared::Refusal;
use skein_shared::entity::{Effect, Reign};
use skein_shared::id::{EntityKey, Name as SwarmName};
use skein_shared::mutation::{self, Mutation};
use skein_shared::slack::Note;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{Instrument, debug_span, error};

use super::lanes::{Fate, Name};
use super::{Delivery, Runners, not_offered};
use crate::alarms::Kind as Alarm;
use crate::entity::Entities;
use crate::slack::{Error, SETTLED, Workspaces};
use crate::store::{Mark, OutboxEntry};

/// What the lanes need of the node.
#[derive(Clone)]
pub(super) struct World {
    pub(super) entities: Entities,
    pub(super) runners: Arc<dyn Runners>,
    pub(super) slack: Workspaces,
    /// Since when this node has all the shards of which it delivers effects.
    pub(super) since: Instant,
    /// Changes when a runner has connected.
    pub(super) connected: watch::Receiver<u64>,
}

impl World {
    /// What became of an effect to which its target said this.
    pub(super) fn fate(&self, entry: &OutboxEntry, outcome: Result<(), Refusal>) -> Fate {
        Fate::of(entry, outcome, self.entities.clock().now(), self.since.elapsed())
    }

    /// What becomes of an effect whose target is away.
    pub(super) fn later(&self, entry: &OutboxEntry) -> Fate {
        Fate::later(entry, self.entities.clock().now(), self.since.elapsed())
    }
}

/// What one stretch of work came to.
pub(super) struct Report {
    pub(super) lane: Name,
    /// Knows since when the lane has been looking out for runners.
    pub(super) world: World,
    pub(super) fates: Vec<Fate>,
}

/// Tries effects, after a pause that ends early when a runner connects.
pub(super) async fn work(
    mut world: World,
    lane: Name,
    entries: Vec<Arc<OutboxEntry>>,
    pause: Duration,
) -> Report {
    if !pause.is_zero() {
        let connected = world.connected.changed();
        // The pump outlives its lanes, so an error cannot happen; were it to, trying again is harmless.
        let _ = tokio::time::timeout(pause, connected).await;
    }
    world.connected.mark_unchanged();
    let fates = deliver(&world, &entries).await;
    for (entry, fate) in entries.iter().zip(&fates) {
        if let Fate::Dead(reason) = fate {
            error!(source = %entry.source, sequence = entry.sequence, reason, "an effect became a dead letter");
        }
    }
    Report { lane, world, fates }
}

/// Tries effects of one lane, in their order. Those that it says nothing of were not tried.
async fn deliver(world: &World, entries: &[Arc<OutboxEntry>]) -> Vec<Fate> {
    match entries.first().map(|first| &first.effect) {
        Some(Effect::Entity { key, .. }) => hand_over(world, key, entries).await,
        Some(Effect::Runner { runner, .. }) => command(world, runner, entries).await,
        Some(Effect::Slack { swarm, .. }) => tell(world, swarm, entries).await,
        None => Vec::new(),
    }
}

/// All at once: an entity that gets many decides and commits them together.
async fn hand_over(world: &World, target: &EntityKey, entries: &[Arc<OutboxEntry>]) -> Vec<Fate> {
    // Before it is asked whether the shards are held still: they are lost before another life is relied on.
    let life = world.entities.life();
    if !entries.iter().all(|entry| world.entities.reign_over(entry).is_some()) {
        return Vec::new();
    }
    let commands = entries.iter().filter_map(|entry| {
        let Effect::Entity { command, .. } = &entry.effect else { return None };
        let mark = Mark { source: entry.source.clone(), epoch: entry.epoch, sequence: entry.sequence };
        Some((mark, command))
    });
    let commands: Vec<_> = commands.collect();
    if mutation::is_on(Mutation::DeliverTwice) {
        world.entities.deliver(target, life, commands.clone()).await;
    }
    let outcomes = world.entities.deliver(target, life, commands).await;
    entries.iter().zip(outcomes).map(|(entry, outcome)| world.fate(entry, outcome)).collect()
}

/// One after the other, until Slack takes no more. A note that the next one writes over need not be shown.
async fn tell(world: &World, swarm: &SwarmName, entries: &[Arc<OutboxEntry>]) -> Vec<Fate> {
    let Some(workspace) = world.slack.of(swarm) else {
        let problem =
            format!("no Slack workspace is connected to the swarm {swarm}; name one in the settings");
        return entries.iter().map(|entry| waits(world, swarm, entry, &problem)).collect();
    };
    let notes = entries.iter().map_while(|entry| match &entry.effect {
        Effect::Slack { note, .. } => Some(note),
        _ => None,
    });
    let notes: Vec<&Note> = notes.collect();
    let mut fates = Vec::with_capacity(notes.len());
    for (at, (entry, note)) in entries.iter().zip(&notes).enumerate() {
        let is_outdated = note.edits && notes[at + 1..].iter().any(|later| later.id == note.id);
        if !is_outdated {
            tokio::time::sleep_until(settled(entry, world.since)).await;
        }
        // Asked anew for each, behind every pause: whoever lost the source meanwhile would write over what its next
        // owner has told.
        if world.entities.reign_over(entry).is_none() {
            break;
        }
        if is_outdated {
            fates.push(Fate::Delivered);
            continue;
        }
        fates.push(came_of(world, swarm, entry, workspace.tell(note).await));
        if fates.last() == Some(&Fate::Later) {
            break;
        }
    }
    fates
}

/// Of a note that Slack has taken, or has not.
fn came_of(world: &World, swarm: &SwarmName, entry: &OutboxEntry, told: Result<(), Error>) -> Fate {
    match told {
        Ok(()) => Fate::Delivered,
        Err(problem) if problem.may_be_mended() => waits(world, swarm, entry, &problem.refusal().message),
        Err(problem) if problem.is_passing() => world.later(entry),
        Err(problem) => Fate::Dead(problem.to_string()),
    }
}

/// Of a note that waits for an operator, whom an alarm tells so.
fn waits(world: &World, swarm: &SwarmName, entry: &OutboxEntry, problem: &str) -> Fate {
    let sentence = format!("what people are to be told in Slack waits: {problem}");
    world.entities.shared().alarms.raise(Alarm::Slack, swarm.as_str(), &sentence);
    match world.later(entry) {
        Fate::Dead(reason) => Fate::Dead(format!("{reason}: {problem}")),
        fate => fate,
    }
}

/// From when on it can be seen whether a former owner of the source has told a note: until then what it sent may be on
/// its way.
fn settled(entry: &OutboxEntry, since: Instant) -> Instant {
    if entry.epoch < entry.fence.epoch { since + SETTLED } else { since }
}

/// One after the other, until one is not taken.
async fn command(world: &World, runner: &str, entries: &[Arc<OutboxEntry>]) -> Vec<Fate> {
    let mut fates = Vec::with_capacity(entries.len());
    for entry in entries {
        let Effect::Runner { command, .. } = &entry.effect else { break };
        // Taken anew for each: whoever lost the entity meanwhile commands no more, and a runner that has heard of the
        // next owner refuses what is on its way.
        let Some(epoch) = world.entities.reign_over(entry) else { break };
        let reign = Reign { source: entry.source.clone(), epoch };
        let span = debug_span!(target: TRACES, "deliver", otel.kind = "producer", runner);
        trace::follow(&span, &world.entities.shared().traces.of(&entry.source, entry.sequence));
        let here = world.runners.deliver(runner, command, &reign).instrument(span).await;
        let elsewhere = match here {
            Delivery::Sent => Delivery::Sent,
            _ => world.entities.command_elsewhere(runner, command, &reign).await,
        };
        let fate = match (here, elsewhere) {
            (_, Delivery::Sent) | (Delivery::Sent, _) => Fate::Delivered,
            (Delivery::NotOffered, _) | (_, Delivery::NotOffered) => {
                not_offered::told(world, runner, entry, command).await
            }
            (Delivery::NotConnected, Delivery::NotConnected) => world.later(entry),
        };
        fates.push(fate);
        if fates.last() == Some(&Fate::Later) {
            break;
        }
    }
    fates
}
