//! What must hold of waits, and of the events that they are for.

use std::collections::{BTreeMap, BTreeSet};

use skein_shared::agent::{Event, Outcome};
use skein_shared::triggers;
use uuid::Uuid;

use super::check::events;
use super::clients::{Role, agent, agent_name};
use super::history::Call;
use super::ringer::{SUBSCRIBED, bell};
use super::world::{AGENTS, World};

/// Each wait ends once, each event is heard by one wait of an agent or starts one run of it, and none is lost; and
/// nothing stays on a runner whose agent has ended it.
pub fn check(world: &World) -> Vec<String> {
    let mut broken = Vec::new();
    let mut ended: BTreeSet<Uuid> = BTreeSet::new();
    for number in 0..AGENTS {
        let mut uses: BTreeMap<Uuid, Vec<String>> = BTreeMap::new();
        let mut woken: BTreeMap<Uuid, Uuid> = BTreeMap::new();
        for event in events::<Event>(world, &agent(number)) {
            let used = match event {
                Event::WaitEnded { wait, outcome } => {
                    if !ended.insert(wait) {
                        broken.push(format!("waits: {wait} ended twice"));
                    }
                    woken.extend(receipt_of(&outcome).map(|receipt| (wait, receipt)));
                    None
                }
                // What ends before it hears of its event gives that back. Who asks again hears of the same.
                Event::WaitDelivered { wait, .. } => {
                    woken.remove(&wait).map(|receipt| (receipt, format!("wait {wait}")))
                }
                Event::Queued { item, .. } => {
                    item.receipt.map(|receipt| (receipt, format!("run {}", item.instance)))
                }
                Event::DeadLettered(letter) => {
                    letter.receipt.map(|receipt| (receipt, "dead letter".to_owned()))
                }
                _ => None,
            };
            if let Some((receipt, by)) = used {
                uses.entry(receipt).or_default().push(by);
            }
        }
        broken.extend(rung(world, number, &uses));
    }
    for operation in &world.history {
        if let (Call::Wait { wait, .. }, Some(answer)) = (&operation.call, operation.answer())
            && !answer["wait"]["outcome"].is_null()
            && !ended.contains(wait)
            && world.failovers == 0
        {
            broken.push(format!("waits: a run was told what {wait} came to, and it came to nothing"));
        }
    }
    broken.extend(left_behind(world));
    broken
}

fn receipt_of(outcome: &Outcome) -> Option<Uuid> {
    match outcome {
        Outcome::Triggered { payload, .. } => payload.0.get("receiptId")?.as_str()?.parse().ok(),
        Outcome::WaitTimeout => None,
    }
}

/// What an agent did with the events that were taken in.
fn rung(world: &World, number: usize, uses: &BTreeMap<Uuid, Vec<String>>) -> Vec<String> {
    let mut broken = Vec::new();
    if world.failovers > 0 {
        return broken;
    }
    let name = agent_name(number);
    let (mut shared, mut given) = (BTreeSet::new(), BTreeMap::new());
    for event in events::<triggers::Event>(world, &bell()) {
        if let triggers::Event::Received { incoming, outcome, .. } = event {
            let resumed = outcome.resumed.iter().filter(|resumed| resumed.agent == name).count();
            // Those that asked for broadcast have it together.
            if resumed > 1 {
                shared.insert(incoming.receipt);
            }
            given.insert(incoming.receipt, resumed > 0 || outcome.started.contains(&name));
        }
    }
    for (receipt, given) in &given {
        let used = uses.get(receipt).map_or(0, Vec::len);
        let certain = number == SUBSCRIBED;
        if used == 0 && *given && certain {
            broken.push(format!("events: {name} never got {receipt}"));
        }
        if used > 1 && !shared.contains(receipt) {
            broken.push(format!("events: {name} got {receipt} more than once: {:?}", uses[receipt]));
        }
    }
    for receipt in uses.keys().filter(|receipt| !given.contains_key(*receipt)) {
        broken.push(format!("events: {name} got {receipt}, which nobody has taken in"));
    }
    for operation in &world.history {
        if let (Call::Ring { receipt }, Some(_)) = (&operation.call, operation.answer())
            && !given.contains_key(receipt)
        {
            broken.push(format!("events: {receipt} was taken in and is gone"));
        }
    }
    broken
}

/// All runs have ended, so nothing of them may be left where they ran.
fn left_behind(world: &World) -> Vec<String> {
    let mut broken = Vec::new();
    for role in world.roles() {
        if let Role::Runner(runner) = role {
            let left: Vec<_> = runner.live().collect();
            if !left.is_empty() {
                broken.push(format!("runs: {left:?} are left on {}", runner.name));
            }
        }
    }
    broken
}
