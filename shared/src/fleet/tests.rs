mod offers;
mod scale;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::agent::{self, Class};
use crate::code::Code;
use crate::entity::{Effect, RunnerCommand};
use crate::fence::{Epoch, Token};
use crate::id::{InstanceId, Name};
use crate::testbed::Bench;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn fleet() -> Bench<Fleet> {
    Bench::new(EntityKey::fleet(&name("default")))
}

fn registration(runner: &str, slots: u32) -> Registration {
    Registration {
        runner: runner.to_owned(),
        identity: String::new(),
        slots,
        labels: BTreeSet::new(),
        engines: BTreeSet::new(),
        agents: ["a", "b"].map(|agent| Offer::new(&name("s"), &name(agent))).into(),
        swarms: BTreeSet::new(),
        held: Vec::new(),
    }
}

fn held(instance: &str) -> HeldInstance {
    HeldInstance {
        instance: InstanceId(instance.to_owned()),
        swarm: name("s"),
        agent: name("a"),
        state: "running".to_owned(),
        token: Token { epoch: Epoch(1_790_000_000_000), number: 3 },
    }
}

fn bid(number: u128, instance: &str, class: Class) -> Command {
    Command::Bid {
        bid: Uuid::from_u128(number),
        swarm: name("s"),
        agent: name("a"),
        instance: InstanceId(instance.to_owned()),
        class,
        scale: 100,
        needs: BTreeSet::new(),
        affinity: None,
        prefers: None,
    }
}

fn register(bench: &mut Bench<Fleet>, runner: &str, slots: u32) {
    bench.run(Command::Register(registration(runner, slots))).unwrap();
}

fn freed(bench: &mut Bench<Fleet>, instance: &str, held: bool) {
    bench.run(Command::SlotFreed { instance: InstanceId(instance.to_owned()), held }).unwrap();
}

/// The bids granted so far, with the runner of each.
fn grants(bench: &Bench<Fleet>) -> Vec<(u128, String)> {
    let granted = |event: &Event| match event {
        Event::Granted { bid, runner } => Some((bid.as_u128(), runner.clone())),
        _ => None,
    };
    bench.events.iter().filter_map(granted).collect()
}

fn to_agents(bench: &Bench<Fleet>) -> Vec<agent::Command> {
    let command = |effect: &Effect| match effect {
        Effect::Entity { command, .. } => Some(command.read().unwrap()),
        Effect::Runner { .. } | Effect::Slack { .. } => None,
    };
    bench.effects.iter().filter_map(command).collect()
}

fn numbers(bench: &Bench<Fleet>) -> Vec<u128> {
    grants(bench).into_iter().map(|(bid, _)| bid).collect()
}

#[test]
fn bids_are_served_by_class_and_then_by_age() {
    let mut bench = fleet();
    let asked = [Class::Schedule, Class::Manual, Class::Call, Class::Webhook, Class::Manual, Class::Resumed];
    for (number, class) in (1..).zip(asked) {
        bench.run(bid(number, &format!("i{number}"), class)).unwrap();
        bench.now = bench.now + Duration::from_millis(1);
    }
    register(&mut bench, "r", 6);
    assert_eq!(numbers(&bench), [6, 3, 2, 5, 4, 1]);
}

#[test]
fn a_bid_rises_a_class_each_minute() {
    let mut bench = fleet();
    bench.run(bid(1, "old", Class::Schedule)).unwrap();
    bench.advance(Duration::from_secs(180));
    bench.run(bid(2, "new", Class::Call)).unwrap();
    let Reply::Overview(all) = bench.run(Command::List).unwrap() else { panic!() };
    assert_eq!(all.bids[0].rank, Class::Call);
    register(&mut bench, "r", 1);
    assert_eq!(numbers(&bench), [1]);
    assert_eq!(Class::Schedule.aged(Duration::from_secs(59), AGEING), Class::Schedule);
    assert_eq!(Class::Schedule.aged(Duration::from_secs(60), AGEING), Class::Webhook);
    assert_eq!(Class::Schedule.aged(Duration::from_secs(180), AGEING), Class::Call);
    assert_eq!(Class::Schedule.aged(Duration::from_secs(86_400), AGEING), Class::Resumed);
    assert_eq!(Class::Resumed.aged(Duration::from_secs(86_400), AGEING), Class::Resumed);
}

#[test]
fn slots_are_given_once_and_again_when_free() {
    let mut bench = fleet();
    register(&mut bench, "r", 1);
    bench.run(bid(1, "i1", Class::Manual)).unwrap();
    bench.run(bid(1, "i1", Class::Manual)).unwrap();
    bench.run(bid(2, "i2", Class::Manual)).unwrap();
    assert_eq!(numbers(&bench), [1]);
    freed(&mut bench, "i1", false);
    assert_eq!(numbers(&bench), [1, 2]);
    let before = bench.events.len();
    freed(&mut bench, "i1", false);
    assert_eq!(bench.events.len(), before, "a repeat changes nothing");
}

fn scale(bench: &mut Bench<Fleet>, swarm: &str, scale: Option<u32>) {
    let scale = scale.and_then(NonZeroU32::new);
    bench.run(Command::Scale { swarm: name(swarm), scale }).unwrap();
}

#[test]
fn runs_go_where_they_are_allowed_and_the_emptiest_runner_first() {
    let mut bench = fleet();
    register(&mut bench, "small", 1);
    register(&mut bench, "large", 3);
    let mut gpu = registration("gpu", 9);
    gpu.labels.insert("gpu".to_owned());
    gpu.swarms.insert(name("other"));
    gpu.agents.insert(Offer::new(&name("other"), &name("a")));
    bench.run(Command::Register(gpu)).unwrap();
    let mut without = registration("without", 9);
    without.agents.clear();
    bench.run(Command::Register(without)).unwrap();
    for number in 1..=5 {
        bench.run(bid(number, &format!("i{number}"), Class::Manual)).unwrap();
    }
    let runners: Vec<_> = grants(&bench).into_iter().map(|(_, runner)| runner).collect();
    assert_eq!(runners, ["large", "large", "large", "small"], "the swarm may not use the third");
    let Command::Bid { bid, agent, instance, class, scale, affinity, prefers, .. } =
        bid(6, "i6", Class::Manual)
    else {
        panic!()
    };
    let needs = BTreeSet::from(["gpu".to_owned()]);
    bench
        .run(Command::Bid {
            bid,
            swarm: name("other"),
            agent,
            instance,
            class,
            scale,
            needs,
            affinity,
            prefers,
        })
        .unwrap();
    assert_eq!(grants(&bench).last().unwrap(), &(6, "gpu".to_owned()));
}

fn resume(number: u128, instance: &str) -> Command {
    match bid(number, instance, Class::Resumed) {
        Command::Bid { bid, swarm, agent, instance, class, scale, needs, prefers, .. } => {
            let affinity = Some("r".to_owned());
            Command::Bid { bid, swarm, agent, instance, class, scale, needs, affinity, prefers }
        }
        other => other,
    }
}

#[test]
fn a_new_run_goes_where_its_agents_files_are_if_there_is_room() {
    let mut bench = fleet();
    register(&mut bench, "r", 1);
    register(&mut bench, "z", 9);
    for number in 1..=3 {
        let mut bid = bid(number, &format!("i{number}"), Class::Manual);
        if let Command::Bid { prefers, .. } = &mut bid {
            *prefers = Some(if number == 3 { "gone" } else { "r" }.to_owned());
        }
        bench.run(bid).unwrap();
    }
    assert_eq!(grants(&bench), [(1, "r".to_owned()), (2, "z".to_owned()), (3, "z".to_owned())]);
}

#[test]
fn a_resumed_instance_goes_back_to_its_runner_even_while_that_drains() {
    let mut bench = fleet();
    register(&mut bench, "r", 1);
    bench.run(bid(1, "i1", Class::Manual)).unwrap();
    freed(&mut bench, "i1", true);
    register(&mut bench, "z", 9);
    bench.run(Command::Drain { runner: "r".to_owned() }).unwrap();
    bench.run(bid(2, "i2", Class::Manual)).unwrap();
    bench.run(resume(3, "i1")).unwrap();
    let expected = [(1, "r".to_owned()), (2, "z".to_owned()), (3, "r".to_owned())];
    assert_eq!(grants(&bench), expected);
    let unknown = bench.run(Command::Drain { runner: "nobody".to_owned() }).unwrap_err();
    assert_eq!(unknown.code, Code::NotFound);
}

#[test]
fn withdrawing_takes_back_a_grant_and_leaves_a_frozen_instance_where_it_is() {
    let mut bench = fleet();
    register(&mut bench, "r", 1);
    let instance = InstanceId("i1".to_owned());
    bench.run(bid(1, "i1", Class::Manual)).unwrap();
    freed(&mut bench, "i1", true);
    bench.run(resume(2, "i1")).unwrap();
    bench.run(Command::Withdraw { bid: Uuid::from_u128(2), instance: instance.clone() }).unwrap();
    assert!(!bench.entity.places.get(&instance).unwrap().slot);
    bench.run(bid(3, "i3", Class::Manual)).unwrap();
    bench.run(Command::Withdraw { bid: Uuid::from_u128(3), instance: InstanceId("i3".to_owned()) }).unwrap();
    assert_eq!(bench.entity.places.len(), 1, "a first start leaves nothing behind");
}

#[test]
fn a_silent_runner_is_lost_at_the_end_of_its_lease() {
    let mut bench = fleet();
    register(&mut bench, "r", 2);
    bench.run(bid(1, "i1", Class::Manual)).unwrap();
    bench.advance(Duration::from_secs(20));
    let alive = Signal::RunnerAlive { runner: "r".to_owned(), instances: Vec::new() };
    bench.entity.observe(&alive, bench.now);
    bench.advance(Duration::from_secs(29));
    assert_eq!(bench.entity.runners.len(), 1, "the heartbeat counts");
    bench.run(bid(2, "i2", Class::Manual)).unwrap();
    bench.advance(Duration::from_secs(1));
    assert!(bench.entity.runners.is_empty() && bench.entity.places.is_empty());
    let lost = to_agents(&bench).into_iter().last().unwrap();
    let instances = vec![InstanceId("i1".to_owned()), InstanceId("i2".to_owned())];
    assert_eq!(lost, agent::Command::RunnerLost { runner: "r".to_owned(), instances });
}

#[test]
fn after_a_takeover_every_runner_has_its_lease_time_to_come_back() {
    let mut bench = fleet();
    register(&mut bench, "r", 1);
    bench.now = bench.now + Duration::from_secs(3600);
    bench.restart();
    let documents = bench.restored();
    bench.advance(Duration::from_secs(29));
    assert_eq!(bench.entity.runners.len(), 1);
    assert!(bench.entity == documents, "waiting for it changed no document");
    bench.advance(Duration::from_secs(1));
    assert!(bench.entity.runners.is_empty());
}

#[test]
fn registering_again_compares_ledgers() {
    let mut bench = fleet();
    register(&mut bench, "r", 3);
    for number in 1..=2 {
        bench.run(bid(number, &format!("i{number}"), Class::Manual)).unwrap();
    }
    let mut again = registration("r", 3);
    again.held = vec![held("i2"), held("stranger")];
    let Reply::Registered { session, stopped } = bench.run(Command::Register(again)).unwrap() else {
        panic!()
    };
    assert!(session > bench.now.millis(), "sessions rise");
    assert_eq!(stopped, [InstanceId("stranger".to_owned())]);
    let runner_told = bench.effects.iter().find_map(|effect| match effect {
        Effect::Runner { command: RunnerCommand::Stop { instance, token, .. }, .. } => {
            Some((instance.as_str(), *token))
        }
        _ => None,
    });
    let (instance, token) = runner_told.unwrap();
    assert!(instance == "stranger" && token == held("stranger").token);
    let own =
        vec![(InstanceId("i1".to_owned()), None), (InstanceId("i2".to_owned()), Some(held("i2").token))];
    let told = agent::Command::RunnerHolds { runner: "r".to_owned(), held: own };
    assert!(to_agents(&bench).contains(&told));
    assert_eq!(bench.entity.places.len(), 2, "its start may be on the way");
    freed(&mut bench, "i1", false);
    assert_eq!(bench.entity.places.len(), 1);
}

#[test]
fn a_runner_that_attaches_is_compared_with_and_not_judged() {
    let mut bench = fleet();
    register(&mut bench, "r", 2);
    bench.run(bid(1, "i1", Class::Manual)).unwrap();
    bench.run(bid(2, "i2", Class::Manual)).unwrap();
    bench.effects.clear();
    let attach =
        |runner: &str| Command::Attach { runner: runner.to_owned(), held: vec![held("i2"), held("x")] };
    bench.run(attach("r")).unwrap();
    let own =
        vec![(InstanceId("i1".to_owned()), None), (InstanceId("i2".to_owned()), Some(held("i2").token))];
    let told = agent::Command::RunnerHolds { runner: "r".to_owned(), held: own };
    assert_eq!(to_agents(&bench), [told]);
    assert_eq!(bench.effects.len(), 1, "a start that the fleet has not heard of may be on its way");
    assert_eq!(bench.run(attach("q")).unwrap_err().code, Code::NotFound);
}

#[test]
fn a_second_runner_of_a_name_has_to_wait_until_the_first_is_gone() {
    let mut bench = fleet();
    let of = |identity: &str| Registration { identity: identity.to_owned(), ..registration("r", 1) };
    let asked = |identity: &str| Command::Knows { runner: "r".to_owned(), identity: identity.to_owned() };
    bench.run(Command::Register(of("one"))).unwrap();
    bench.run(bid(1, "i1", Class::Manual)).unwrap();
    let refused = bench.run(Command::Register(of("two"))).unwrap_err();
    assert_eq!(refused.code, Code::AlreadyExists);
    assert!(refused.message.contains("another name"), "{refused}");
    assert_eq!(bench.run(asked("two")).unwrap_err(), refused, "it can be told beforehand");
    assert_eq!(bench.run(asked("one")).unwrap(), Reply::Done);
    // As coordinators of earlier releases ask.
    let any = serde_json::from_value(serde_json::json!({"knows": {"runner": "r"}})).unwrap();
    assert_eq!(bench.run(any).unwrap(), Reply::Done);
    assert_eq!(bench.entity.places.len(), 1, "the first keeps what it runs");
    bench.run(Command::Register(of("one"))).unwrap();
    bench.advance(limits::RUNNER_LEASE);
    assert_eq!(bench.run(asked("two")).unwrap_err().code, Code::NotFound);
    bench.run(Command::Register(of("two"))).unwrap();
}

#[test]
fn what_was_granted_to_a_runner_that_leaves_is_told_at_once() {
    let mut bench = fleet();
    register(&mut bench, "r", 1);
    bench.run(Command::Drain { runner: "r".to_owned() }).unwrap();
    bench.run(bid(1, "i1", Class::Manual)).unwrap();
    assert!(grants(&bench).is_empty(), "it takes no new run");
    register(&mut bench, "r", 1);
    assert_eq!(numbers(&bench), [1]);
    bench.run(Command::Leave { runner: "r".to_owned() }).unwrap();
    let instances = vec![InstanceId("i1".to_owned())];
    assert!(to_agents(&bench).contains(&agent::Command::RunnerLost { runner: "r".to_owned(), instances }));
    assert!(bench.entity.runners.is_empty() && bench.entity.places.is_empty());
    let again = bench.run(Command::Leave { runner: "r".to_owned() }).unwrap_err();
    assert_eq!(again.code, Code::NotFound);
}

#[test]
fn a_bid_to_resume_where_nothing_is_frozen_is_refused() {
    let mut bench = fleet();
    register(&mut bench, "r", 1);
    bench.run(resume(1, "gone")).unwrap();
    assert!(bench.entity.bids.is_empty());
    assert!(matches!(&to_agents(&bench)[0], agent::Command::GrantLost { .. }));
}

#[test]
fn a_runner_that_comes_back_smaller_keeps_what_runs() {
    let mut bench = fleet();
    register(&mut bench, "r", 2);
    for number in 1..=3 {
        bench.run(bid(number, &format!("i{number}"), Class::Manual)).unwrap();
    }
    let mut smaller = registration("r", 1);
    smaller.held = vec![held("i1"), held("i2")];
    bench.run(Command::Register(smaller)).unwrap();
    freed(&mut bench, "i1", false);
    assert_eq!(numbers(&bench), [1, 2], "one of one slot is still in use");
    freed(&mut bench, "i2", false);
    assert_eq!(numbers(&bench), [1, 2, 3]);
}

/// A class, whether the run wakes from a wait included.
fn any_class() -> impl Strategy<Value = Class> {
    prop_oneof![
        Just(Class::Resumed),
        Just(Class::Call),
        Just(Class::Manual),
        Just(Class::Webhook),
        Just(Class::Schedule)
    ]
}

proptest! {
    /// However urgent what comes later is, it never goes before a bid that has waited as long as it takes to rise
    /// through all classes.
    #[test]
    fn nobody_starves(arrivals in prop::collection::vec((any_class(), 0..3_u8), 1..120)) {
        let mut bench = fleet();
        register(&mut bench, "r", 1);
        let mut placed = Vec::new();
        for (number, (class, freed_slots)) in (1..).zip(arrivals) {
            placed.push(bench.now);
            bench.run(bid(number, &format!("i{number}"), class)).unwrap();
            for _ in 0..freed_slots {
                let Some(last) = numbers(&bench).last().copied() else { continue };
                freed(&mut bench, &format!("i{last}"), false);
                let served = numbers(&bench);
                let Some(next) = served.last().filter(|next| **next != last) else { continue };
                let at = |number: u128| placed[usize::try_from(number).unwrap() - 1];
                let starving = (1..=number).filter(|other| !served.contains(other)).find(|other| {
                    bench.now.since(at(*other)) >= AGEING * 4 && at(*other) < at(*next)
                });
                prop_assert_eq!(starving, None, "passed over for {}", next);
            }
            bench.now = bench.now + Duration::from_secs(25);
            let alive = Signal::RunnerAlive { runner: "r".to_owned(), instances: Vec::new() };
            bench.entity.observe(&alive, bench.now);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_keeps_the_rules(
        steps in prop::collection::vec((0..11u8, 0..6u128, 0..4u32, any::<bool>()), 1..100)
    ) {
        let mut bench = fleet();
        for (number, (kind, which, amount, flag)) in (100..).zip(steps) {
            let instance = format!("i{which}");
            let runner = if flag { "r" } else { "q" };
            let known = bench.entity.places.get(&InstanceId(instance.clone())).cloned();
            let granted = grants(&bench).len();
            match kind {
                0 => register(&mut bench, runner, amount),
                1 => {
                    let mut again = registration(runner, amount);
                    again.held = (0..which).map(|i| held(&format!("i{i}"))).collect();
                    bench.run(Command::Register(again)).unwrap();
                }
                2 | 3 => {
                    let frozen = known.as_ref().filter(|place| !place.slot && place.runner == "r");
                    let command = match frozen {
                        Some(_) => resume(number, &instance),
                        None if known.is_some() => continue,
                        None => bid(number, &instance, Class::Webhook),
                    };
                    bench.run(command).unwrap();
                }
                4 => freed(&mut bench, &instance, flag),
                5 => {
                    let bid = known.map_or(Uuid::from_u128(number - 1), |place| place.bid);
                    bench.run(Command::Withdraw { bid, instance: InstanceId(instance) }).unwrap();
                }
                6 => {
                    let _ = bench.run(Command::Drain { runner: runner.to_owned() });
                }
                7 => {
                    let _ = bench.run(Command::Leave { runner: runner.to_owned() });
                }
                8 => {
                    let held = (0..which).map(|i| held(&format!("i{i}"))).collect();
                    let _ = bench.run(Command::Attach { runner: runner.to_owned(), held });
                }
                9 => scale(&mut bench, "s", Some(amount)),
                _ if flag => bench.restart(),
                _ => bench.advance(Duration::from_secs(u64::from(amount) * 12)),
            }
            prop_assert!(bench.restored() == bench.entity);
            let limit = bench.entity.scales.get(&name("s")).map_or(u32::MAX, |limit| limit.get());
            let taken = bench.entity.slots.of_swarm(&name("s"));
            prop_assert!(taken <= limit || grants(&bench).len() == granted, "{taken} slots of {limit}");
        }
        bench.advance(Duration::from_secs(120));
        prop_assert!(bench.entity.runners.is_empty() && bench.entity.places.is_empty());
    }
}
