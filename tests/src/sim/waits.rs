//! What must hold of waits, and of the events that they are for.

use std::collections::{BTreeMap, BTreeSet};

use skein_shared::agent::{Event, Outcome};
use skein_shared::id::InstanceId;
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
        let mut hearing = Hearing::default();
        for event in events::<Event>(world, &agent(number)) {
            if let Event::WaitEnded { wait, .. } = &event
                && !ended.insert(*wait)
            {
                broken.push(format!("waits: {wait} ended twice"));
            }
            let heard = hearing.follow(&event).map(|(receipt, wait)| (receipt, format!("wait {wait}")));
            let used = match event {
                Event::Queued { item, .. } => {
                    item.receipt.map(|receipt| (receipt, format!("run {}", item.instance)))
                }
                Event::DeadLettered(letter) => {
                    letter.receipt.map(|receipt| (receipt, "dead letter".to_owned()))
                }
                _ => heard,
            };
            if let Some((receipt, by)) = used {
                uses.entry(receipt).or_default().push(by);
            }
        }
        broken.extend(rung(world, number, &uses));
    }
    for operation in &world.history {
        // Which one is in the answer: one that was begun late, by a request that was given up, may come before the one
        // that was asked for.
        if let (Call::Wait { .. }, Some(answer)) = (&operation.call, operation.answer())
            && !answer["wait"]["outcome"].is_null()
            && let Some(wait) = answer["wait"]["wait"].as_str().and_then(|text| Uuid::parse_str(text).ok())
            && !ended.contains(&wait)
            && world.failovers == 0
        {
            broken.push(format!("waits: a run was told what {wait} came to, and it came to nothing"));
        }
    }
    broken.extend(left_behind(world));
    broken
}

/// Which events an agent's runs hear of. What ends before it hears of its event gives that back.
#[derive(Default)]
struct Hearing {
    /// Whose wait each is.
    waiters: BTreeMap<Uuid, InstanceId>,
    /// The events that have ended waits and were not handed out.
    woken: BTreeMap<Uuid, Uuid>,
    /// Runs that are to be started again with an event, and the wait that it has ended.
    begins_again: BTreeMap<InstanceId, (Uuid, Uuid)>,
}

impl Hearing {
    /// The event that a run has heard of now, and the wait that it has ended. Who asks again hears of the same. Whoever
    /// is to be started again with it hears of it if that is done, as its runner says, or the run by asking for the
    /// next.
    fn follow(&mut self, event: &Event) -> Option<(Uuid, Uuid)> {
        match event {
            Event::WaitBegun(wait) => {
                self.waiters.insert(wait.id, wait.instance.clone());
                self.begins_again.remove(&wait.instance)
            }
            Event::WaitEnded { wait, outcome } => {
                self.woken.extend(receipt_of(outcome).map(|receipt| (*wait, receipt)));
                None
            }
            Event::WaitDelivered { wait, asked: Some(_) } => Some((self.woken.remove(wait)?, *wait)),
            Event::WaitDelivered { wait, asked: None } => {
                let heard = (self.woken.remove(wait)?, *wait);
                self.begins_again.insert(self.waiters.get(wait)?.clone(), heard);
                None
            }
            Event::Restored { instance, .. } => self.begins_again.remove(instance),
            _ => None,
        }
    }
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
    let (mut at_once, mut given) = (BTreeMap::new(), BTreeMap::new());
    for event in events::<triggers::Event>(world, &bell()) {
        let (receipt, outcome, is_new) = match event {
            triggers::Event::Received { incoming, outcome, .. } => (incoming.receipt, outcome, true),
            triggers::Event::HandedOn { receipt, agent, outcome, .. } if agent == name => {
                (receipt, outcome, false)
            }
            _ => continue,
        };
        let resumed = outcome.resumed.iter().filter(|resumed| resumed.agent == name).count();
        // Those that asked for broadcast have it together, also when it was given back and comes to them late.
        let most = at_once.entry(receipt).or_insert(1);
        *most = resumed.max(*most);
        if is_new {
            given.insert(receipt, resumed > 0 || outcome.started.contains(&name));
        }
    }
    for (receipt, given) in &given {
        let used = uses.get(receipt).map_or(0, Vec::len);
        let certain = number == SUBSCRIBED;
        if used == 0 && *given && certain {
            broken.push(format!("events: {name} never got {receipt}"));
        }
        if used > at_once[receipt] {
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skein_shared::agent::{End, Exit, WaitRecord};
    use skein_shared::time::Timestamp;

    use super::super::ringer;
    use super::super::world::BEGIN;
    use super::*;

    const AT: Timestamp = Timestamp(BEGIN);
    const EVENT: Uuid = Uuid::from_u128(9);

    fn run() -> InstanceId {
        InstanceId("agent-0-0000000a".to_owned())
    }

    fn begun(number: u128) -> Event {
        Event::WaitBegun(WaitRecord {
            id: Uuid::from_u128(number),
            instance: run(),
            filter: ringer::events(),
            registered: AT,
            deadline: AT,
            broadcast: false,
            unacknowledged: BTreeSet::new(),
            outcome: None,
            delivered: false,
            asked: None,
            after: None,
        })
    }

    /// What is heard of an event with which a run is to be started again, once this comes of it.
    fn heard(last: Option<Event>) -> Vec<(Uuid, Uuid)> {
        let wait = Uuid::from_u128(1);
        let payload = serde_json::from_value(json!({ "receiptId": EVENT })).expect("an event");
        let outcome = Outcome::Triggered { payload, receipt: Some(EVENT) };
        let woken =
            [begun(1), Event::WaitEnded { wait, outcome }, Event::WaitDelivered { wait, asked: None }];
        let mut hearing = Hearing::default();
        woken.into_iter().chain(last).filter_map(|event| hearing.follow(&event)).collect()
    }

    /// Else nobody would find out that it was lost.
    #[test]
    fn what_a_run_is_to_be_started_again_with_is_heard_only_once_it_was() {
        let reason = "start failed".to_owned();
        let exit = Exit { end: End::Error, code: None, signal: None, reason, usage: None };
        assert!(heard(None).is_empty());
        assert!(heard(Some(Event::Ended { instance: run(), exit, at: AT })).is_empty());
        for last in [Event::Restored { instance: run(), pid: None }, begun(2)] {
            assert_eq!(heard(Some(last)), [(EVENT, Uuid::from_u128(1))]);
        }
    }
}
