//! What must hold of a whole run: of what clients were told, and of what was committed.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use skein_shared::fence::Token;
use skein_shared::id::{EntityKey, InstanceId};
use skein_shared::{agent as agents, fleet, inboxes, pool, schedules};
use uuid::Uuid;

use super::clients::{self, INTERVAL_MS, agent, inbox, plans, tasks};
use super::history::{Call, Operation, Outcome};
use super::runner::{UNKNOWN, group};
use super::waits;
use super::world::{AGENTS, BEGIN, World};

/// Everything that is wrong.
pub fn check(world: &World) -> Vec<String> {
    let mut broken = locks(world);
    broken.extend(claims(world));
    broken.extend(firings(world));
    broken.extend(messages(world));
    broken.extend((0..AGENTS).flat_map(|number| runs(world, number)));
    broken.extend(waits::check(world));
    broken
}

pub fn events<E: DeserializeOwned>(world: &World, key: &EntityKey) -> Vec<E> {
    let read = |event| serde_json::from_value(event).expect("an event can be read");
    world.witness.events(key).map(read).collect()
}

/// A lock that was granted.
struct Grant<'a> {
    client: usize,
    key: &'a str,
    token: Token,
    ttl: u64,
    refreshed: bool,
    operation: &'a Operation,
}

fn grants(world: &World) -> Vec<Grant<'_>> {
    let mut grants = Vec::new();
    for operation in &world.history {
        let Call::Acquire { key, ttl_ms } = &operation.call else { continue };
        let Some(token) = operation.answer().and_then(|answer| answer["acquired"]["token"].as_str()) else {
            continue;
        };
        let token = token.parse().expect("a token");
        let refreshed = operation.answer().is_some_and(|answer| answer["acquired"]["refreshed"] == true);
        let ttl = ttl_ms * 1_000;
        grants.push(Grant { client: operation.client, key, token, ttl, refreshed, operation });
    }
    grants
}

/// L1 tokens, L2 fenced exclusion, L3 exclusion in time. That no lock is stuck (L4) is seen by the end of the run: each
/// client gets each lock once after all was healed.
fn locks(world: &World) -> Vec<String> {
    let grants = grants(world);
    let mut broken = Vec::new();
    let mut owners: BTreeMap<Token, (usize, &str)> = BTreeMap::new();
    for grant in &grants {
        let owner = *owners.entry(grant.token).or_insert((grant.client, grant.key));
        if owner != (grant.client, grant.key) {
            broken.push(format!(
                "L1: token {} was given to {owner:?} and to client {}",
                grant.token, grant.client
            ));
        }
    }
    for a in &grants {
        for b in grants.iter().filter(|b| b.key == a.key && a.operation.returned < b.operation.invoked) {
            // A failover may bring back a lock that its holder then refreshes, under its old token.
            let brought_back = world.failovers > 0 && b.refreshed;
            if (b.token < a.token && !brought_back) || (b.token == a.token && b.client != a.client) {
                broken.push(format!("L1: {} was granted with {} after {}", a.key, b.token, a.token));
            }
        }
    }
    let mut last: BTreeMap<&str, (Token, usize)> = BTreeMap::new();
    for write in &world.writes {
        let token: Token = write.token.parse().expect("a token");
        if let Some((before, client)) = last.insert(&write.key, (token, write.client))
            && (token < before || (token == before && client != write.client))
        {
            broken.push(format!("L2: {} took {write:?} after {before} of client {client}", write.key));
        }
    }
    // A failover may have dropped a grant that its holder was told of.
    if world.failovers == 0 {
        broken.extend(exclusion(world, &grants));
    }
    broken
}

/// A holder has a lock from when it was told until it begins to release it or to take it anew (for a shorter time
/// perhaps), or its time is over by the fastest clock.
///
/// A release names no token. So one that was never answered can still be on its way when its sender takes the lock
/// again, and ends that one, in the same commit perhaps: such a grant promises nothing, nor does one that an earlier
/// try for it cut short.
fn exclusion(world: &World, grants: &[Grant]) -> Vec<String> {
    let ends = |grant: &Grant, operation: &Operation| {
        operation.client == grant.client
            && matches!(&operation.call, Call::Release { key } | Call::Acquire { key, .. } if key == grant.key)
    };
    let space = clients::locks();
    let version = |operation: &Operation| world.witness.version_of(&space, operation.request);
    let overtaken = |grant: &Grant| {
        let earlier =
            world.history.iter().take_while(|operation| operation.request != grant.operation.request);
        let mut open =
            earlier.filter(|operation| operation.outcome == Outcome::Unknown && ends(grant, operation));
        open.any(|operation| version(operation) >= version(grant.operation))
    };
    let until = |grant: &Grant| {
        if overtaken(grant) {
            return 0;
        }
        let own = world.history.iter().filter(|operation| ends(grant, operation));
        let released =
            own.map(|operation| operation.invoked).filter(|at| *at >= grant.operation.returned).min();
        let rate = u64::try_from(world.config.faults.rate).unwrap_or(0);
        let over = grant.operation.invoked + grant.ttl * (1_000 - 2 * rate) / 1_000;
        released.unwrap_or(u64::MAX).min(over)
    };
    let mut broken = Vec::new();
    for (place, a) in grants.iter().enumerate() {
        for b in grants[place + 1..].iter().filter(|b| b.key == a.key && b.client != a.client) {
            let (from_a, from_b) = (a.operation.returned, b.operation.returned);
            if from_a < until(b) && from_b < until(a) {
                broken.push(format!("L3: clients {} and {} had {} at a time", a.client, b.client, a.key));
            }
        }
    }
    broken
}

#[derive(Default)]
struct Task {
    holder: Option<Uuid>,
    /// The instance that it was given to last.
    instance: Option<InstanceId>,
    attempt: u32,
    done: bool,
}

/// C1 to C4 and C7: by the events that were committed, and by what clients were told.
fn claims(world: &World) -> Vec<String> {
    let mut broken = Vec::new();
    let mut all: BTreeMap<Uuid, Task> = BTreeMap::new();
    let mut started: BTreeSet<(Uuid, Uuid)> = BTreeSet::new();
    let mut scheduled = BTreeSet::new();
    let living = world.living();
    for event in events::<pool::Event>(world, &tasks()) {
        match event {
            pool::Event::Created(created) => {
                if created.spec.schedule.is_some() {
                    scheduled.insert(created.task);
                }
                if all.insert(created.task, Task::default()).is_some() {
                    broken.push(format!("C7: {} was created twice", created.task));
                }
            }
            pool::Event::Started { task, agent, instance, attempt, .. } => {
                started.insert((task, agent));
                let state = all.entry(task).or_default();
                if state.holder.is_some() || state.done {
                    broken.push(format!("C1: {task} was started by {agent} while {:?} had it", state.holder));
                }
                if attempt != state.attempt + 1 {
                    broken.push(format!("C2: attempt {attempt} of {task} came after {}", state.attempt));
                }
                (state.holder, state.instance, state.attempt) = (Some(agent), Some(instance), attempt);
            }
            pool::Event::Released { task, .. } => all.entry(task).or_default().holder = None,
            pool::Event::LeaseLost { task, .. } => {
                let state = all.entry(task).or_default();
                if let Some(instance) = state.instance.as_ref().filter(|instance| living.contains(*instance))
                {
                    broken.push(format!("C1: the lease of {task} ended, and {instance} lives"));
                }
                state.holder = None;
            }
            pool::Event::Finished { task, .. } => {
                let state = all.entry(task).or_default();
                if state.done {
                    broken.push(format!("C2: {task} ended twice"));
                }
                (state.done, state.holder) = (true, None);
            }
            _ => {}
        }
    }
    let lossy = world.failovers > 0;
    let mut asked = BTreeSet::new();
    for operation in &world.history {
        match &operation.call {
            Call::Create { task } => {
                if operation.may_have_happened() {
                    asked.insert(*task);
                }
                if operation.answer().is_some() && !all.contains_key(task) && !lossy {
                    broken.push(format!("C3: {task} was created and is gone"));
                }
                if !all.get(task).is_none_or(|state| state.done) {
                    broken.push(format!("C3: {task} was never done"));
                }
            }
            Call::Finish { task }
                if operation.answer().is_some()
                    && !lossy
                    && !all.get(task).is_some_and(|state| state.done) =>
            {
                broken.push(format!("C3: {task} was done and is not"));
            }
            Call::ClaimNext | Call::Poll if !lossy => {
                if let Some(task) = clients::given(&operation.outcome)
                    && !started.iter().any(|(other, _)| *other == task)
                {
                    broken.push(format!("C1: {task} was told to be claimed and never was"));
                }
            }
            _ => {}
        }
    }
    for task in all.keys().filter(|task| !asked.contains(*task) && !scheduled.contains(*task)) {
        broken.push(format!("C4: nobody asked for {task}"));
    }
    broken
}

/// Each occurrence of a schedule fires once, makes one task, and none is missing in the end.
fn firings(world: &World) -> Vec<String> {
    let mut broken = Vec::new();
    let mut fired: BTreeSet<(Uuid, u64)> = BTreeSet::new();
    let mut tasks_of: BTreeSet<Uuid> = BTreeSet::new();
    let mut latest: BTreeMap<Uuid, u64> = BTreeMap::new();
    for event in events::<schedules::Event>(world, &plans()) {
        match event {
            schedules::Event::Created { schedule } => {
                latest.insert(schedule.id, schedule.created.0);
            }
            schedules::Event::Fired { schedule, nominal, at, task, .. } => {
                if !fired.insert((schedule, nominal.0)) {
                    broken.push(format!("schedules: {schedule} fired twice for {nominal}"));
                }
                tasks_of.insert(task);
                latest.insert(schedule, at.0);
            }
            _ => {}
        }
    }
    let made = events::<pool::Event>(world, &tasks()).into_iter().filter_map(|event| match event {
        pool::Event::Created(created) if created.spec.schedule.is_some() => Some(created.task),
        _ => None,
    });
    let made: BTreeSet<Uuid> = made.collect();
    if world.failovers == 0 && made != tasks_of {
        broken.push(format!("schedules: {} occurrences made {} tasks", tasks_of.len(), made.len()));
    }
    let slack = 2 * INTERVAL_MS + 15_000 + u64::try_from(world.config.faults.offset).unwrap_or(0) * 2;
    for (schedule, at) in latest {
        if at + slack < BEGIN + world.now / 1_000 + world.slept {
            broken.push(format!("schedules: {schedule} has not fired since {at}"));
        }
    }
    broken
}

/// What one sender wrote comes in its order, once, and is handed out once. The order is that of senders that ask until
/// they hear: what others gave up may come late.
fn messages(world: &World) -> Vec<String> {
    let mut broken = Vec::new();
    let mut next: BTreeMap<String, u64> = BTreeMap::new();
    let mut texts: BTreeSet<String> = BTreeSet::new();
    let mut taken: BTreeSet<Uuid> = BTreeSet::new();
    let (mut came, mut last) = (0, 0);
    for event in events::<inboxes::Event>(world, &inbox()) {
        match event {
            inboxes::Event::Delivered { number, content, .. } => {
                came += 1;
                if number <= last {
                    broken.push(format!("inboxes: message {number} came after {last}"));
                }
                last = number;
                let (sender, place) = content.rsplit_once(' ').expect("a text of a sender");
                let place: u64 = place.parse().expect("a number");
                let wanted = next.entry(sender.to_owned()).or_default();
                if place != *wanted && world.failovers == 0 && !world.config.senders_ask_once {
                    broken.push(format!("inboxes: {content} came where {wanted} was next"));
                }
                *wanted = place + 1;
                if !texts.insert(content.clone()) {
                    broken.push(format!("inboxes: {content} came twice"));
                }
            }
            inboxes::Event::Taken { messages, .. } => {
                for message in messages.into_iter().filter(|message| !taken.insert(*message)) {
                    broken.push(format!("inboxes: {message} was handed out twice"));
                }
            }
            _ => {}
        }
    }
    if taken.len() != came {
        broken.push(format!("inboxes: {came} came, {} were handed out", taken.len()));
    }
    for operation in &world.history {
        if let Call::Deliver { text } = &operation.call
            && operation.answer().is_some()
            && !texts.contains(text)
            && world.failovers == 0
        {
            broken.push(format!("inboxes: {text} was taken in and is gone"));
        }
    }
    broken
}

/// Each run that was asked for begins under one id, has one end, and is where it was granted.
#[allow(clippy::collapsible_match, reason = "a guard that inserts into a set would hide what it does")]
fn runs(world: &World, number: usize) -> Vec<String> {
    let mut broken = Vec::new();
    let mut queued = BTreeSet::new();
    let mut ended = BTreeSet::new();
    let mut started: BTreeSet<String> = BTreeSet::new();
    let given_up: BTreeSet<String> = events::<fleet::Event>(world, &group())
        .into_iter()
        .filter_map(|event| match event {
            fleet::Event::Lost { runner, .. } => Some(runner),
            _ => None,
        })
        .collect();
    for event in events::<agents::Event>(world, &agent(number)) {
        match event {
            agents::Event::Queued { instance, .. } => {
                if !queued.insert(instance.id.0.clone()) {
                    broken.push(format!("runs: {} was queued twice", instance.id));
                }
            }
            agents::Event::Started { instance, .. } => {
                if ended.contains(&instance.0) || !started.insert(instance.0.clone()) {
                    broken.push(format!("runs: {instance} was started again"));
                }
            }
            agents::Event::Requeued { instance, .. } => drop(started.remove(&instance.0)),
            agents::Event::Ended { instance, exit, .. } => {
                if !ended.insert(instance.0.clone()) {
                    broken.push(format!("runs: {instance} ended twice"));
                }
                let lost = exit.reason.strip_prefix("runner lost: ");
                if let Some(runner) = lost.filter(|runner| !given_up.contains(*runner)) {
                    broken.push(format!("runs: {instance} was given up, and {runner} was not"));
                }
                if exit.reason == UNKNOWN {
                    broken.push(format!("runs: {instance} had begun, and its runner never had it"));
                }
            }
            _ => {}
        }
    }
    if queued != ended {
        broken.push(format!("runs: {} were asked for and {} ended", queued.len(), ended.len()));
    }
    for operation in &world.history {
        if let (Call::Run, Some(answer)) = (&operation.call, operation.answer())
            && let Some(instance) = answer["queued"]["instance"].as_str()
            && instance.starts_with(&format!("agent-{number}-"))
            && !queued.contains(instance)
            && world.failovers == 0
        {
            broken.push(format!("runs: {instance} was asked for and is gone"));
        }
    }
    broken
}
