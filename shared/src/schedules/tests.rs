mod bounds;
mod clock;
mod skipping;

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::caller::Caller;
use crate::code::{Code, Refusal};
use crate::entity::{Effect, Entity};
use crate::id::{EntityKey, Kind, Name};
use crate::pool::{self, Pool};
use crate::testbed::Bench;
use crate::time::Timestamp;
use crate::which::Which;

const MINUTE: Duration = Duration::from_secs(60);
const LEAD: Caller = Caller { agent: Some(Uuid::from_u128(1)), lead: true };

fn bench() -> Bench<Schedules> {
    Bench::new(EntityKey::of(Kind::Schedules, &Name::parse("default").unwrap()))
}

fn cron(name: &str, expression: &str) -> Create {
    Create { cron: Some(expression.to_owned()), ..Create::new(name, "do it") }
}

fn once(name: &str, delay_ms: u64) -> Create {
    Create { one_time: true, delay_ms: Some(delay_ms), ..Create::new(name, "do it") }
}

fn create(bench: &mut Bench<Schedules>, create: Create) -> Result<Value, Refusal> {
    match bench.run(Command::Create(Box::new(create)))? {
        Reply::Schedule(schedule) => Ok(schedule),
        other => panic!("{other:?}"),
    }
}

fn named(name: &str) -> Which {
    Which::Name(name.to_owned())
}

fn update(bench: &mut Bench<Schedules>, update: Update) -> Result<Reply, Refusal> {
    bench.run(Command::Update(Box::new(update)))
}

fn get(bench: &Bench<Schedules>, name: &str) -> Schedule {
    bench.entity.schedules[&bench.entity.ids[name]].clone()
}

fn specs(effects: &[Effect]) -> Vec<Value> {
    let spec = |effect: &Effect| match effect {
        Effect::Entity { command, .. } => command.value()["create"]["spec"].clone(),
        other => panic!("{other:?}"),
    };
    effects.iter().map(spec).collect()
}

#[test]
fn a_schedule_has_the_shape_of_the_wire() {
    let mut bench = bench();
    let schedule = create(&mut bench, cron("nightly", "0 2 * * *")).unwrap();
    assert_eq!(schedule["scheduleType"], "recurring");
    assert_eq!(schedule["nextRunAt"], "2026-09-22T02:00:00.000Z");
    assert_eq!(schedule["timezone"], "UTC");
    assert!(schedule.get("lastRunAt").is_none() && schedule.get("intervalMs").is_none());
    let key = format!("schedule/{}", schedule["id"].as_str().unwrap());
    assert_eq!(Value::Object(bench.body(&key).unwrap().clone()), schedule);
}

#[test]
fn arguments_are_checked() {
    let mut bench = bench();
    create(&mut bench, cron("taken", "@daily")).unwrap();
    for (bad, code) in [
        (Create::new("x", "y"), Code::InvalidArgument),
        (cron("taken", "@daily"), Code::AlreadyExists),
        (cron("", "@daily"), Code::InvalidArgument),
        (cron(&"x".repeat(101), "@daily"), Code::TooLarge),
        (cron("x", "* * *"), Code::InvalidArgument),
        (Create { task: String::new(), ..cron("x", "@daily") }, Code::InvalidArgument),
        (Create { task: " \n".into(), ..cron("x", "@daily") }, Code::InvalidArgument),
        (Create { delay_ms: Some(1), ..cron("x", "@daily") }, Code::InvalidArgument),
        (Create { cron: Some("@daily".into()), ..once("x", 5) }, Code::InvalidArgument),
        (Create { delay_ms: None, ..once("x", 5) }, Code::InvalidArgument),
        (Create { run_at: Some(Timestamp::NEVER), ..once("x", 5) }, Code::InvalidArgument),
        (Create { delay_ms: None, run_at: Some(Timestamp(1)), ..once("x", 5) }, Code::InvalidArgument),
        (Create { interval_ms: Some(0), ..Create::new("x", "y") }, Code::InvalidArgument),
        (Create { interval_ms: Some(999), ..Create::new("x", "y") }, Code::InvalidArgument),
        (Create { interval_ms: Some(u64::MAX), ..Create::new("x", "y") }, Code::InvalidArgument),
        (Create { zone: "Mars/Base".into(), ..cron("x", "@daily") }, Code::InvalidArgument),
        (Create { priority: 101, ..cron("x", "@daily") }, Code::InvalidArgument),
    ] {
        let shown = format!("{bad:?}");
        assert_eq!(create(&mut bench, bad).unwrap_err().code, code, "{shown}");
    }
    let blank = Update { task: Some("\t".into()), ..Update::new(named("taken"), LEAD) };
    assert_eq!(update(&mut bench, blank).unwrap_err().code, Code::InvalidArgument);
    // One from before that was looked at is still to be switched off.
    bench.entity.insert(Schedule { task: " ".into(), ..get(&bench, "taken") });
    bench.run(Command::SetEnabled { which: named("taken"), by: LEAD, enabled: false }).unwrap();
}

#[test]
fn an_occurrence_makes_one_task() {
    let mut bench = bench();
    let agent = Uuid::from_u128(9);
    let tags = vec!["mine".to_owned()];
    create(&mut bench, Create { target: Some(agent), tags, ..cron("hourly", "@hourly") }).unwrap();
    let nominal = get(&bench, "hourly").next_run.unwrap();
    bench.advance(nominal.since(bench.now));
    let specs = specs(&bench.effects);
    assert_eq!(specs.len(), 1);
    assert_eq!(specs[0]["tags"], json!(["mine", "scheduled", "schedule:hourly"]));
    assert_eq!(get(&bench, "hourly").next_run, Some(nominal + 60 * MINUTE));
    let Effect::Entity { key, command } = &bench.effects[0] else { panic!("a pool's effect") };
    assert_eq!(key.kind, Kind::Pool);
    assert_eq!(command.value()["create"]["target"], json!({"assign": {"agent": agent}}));
}

#[test]
fn the_pool_takes_the_task_of_a_schedule_with_a_long_name() {
    let mut bench = bench();
    let mut pool: Bench<Pool> = Bench::new(EntityKey::of(Kind::Pool, &bench.key.swarm));
    create(&mut bench, cron(&"ä".repeat(100), "@hourly")).unwrap();
    bench.advance(60 * MINUTE);
    let Effect::Entity { command, .. } = &bench.effects[0] else { panic!("a pool's effect") };
    let reply = pool.run(command.read().unwrap()).unwrap();
    assert!(matches!(reply, pool::Reply::Created { .. }), "{reply:?}");
}

#[test]
fn what_was_missed_runs_once() {
    let mut bench = bench();
    create(&mut bench, cron("often", "* * * * *")).unwrap();
    bench.advance(100 * MINUTE);
    let specs = specs(&bench.effects);
    assert_eq!(specs.len(), 1);
    assert!(specs[0]["tags"].as_array().unwrap().contains(&json!("recovered")));
    assert!(get(&bench, "often").next_run.unwrap() > bench.now);
}

#[test]
fn a_one_time_schedule_is_consumed() {
    let mut bench = bench();
    create(&mut bench, once("soon", 5000)).unwrap();
    bench.advance(Duration::from_secs(5));
    assert_eq!(bench.effects.len(), 1);
    let schedule = get(&bench, "soon");
    assert!(schedule.is_done() && !schedule.enabled && schedule.next_run.is_none());
    assert_eq!(
        update(&mut bench, Update { enabled: Some(true), ..Update::new(named("soon"), LEAD) })
            .unwrap_err()
            .code,
        Code::WrongState
    );
    let list = |hide_completed| Command::List {
        enabled: None,
        name: None,
        one_time: None,
        hide_completed,
        soonest: false,
        after: String::new(),
    };
    assert_eq!(bench.run(list(true)).unwrap(), Reply::List { schedules: vec![], left_out: 0 });
    assert!(matches!(bench.run(list(false)).unwrap(), Reply::List { schedules, .. } if schedules.len() == 1));
}

#[test]
fn a_disabled_one_time_schedule_keeps_its_moment() {
    let mut bench = bench();
    create(&mut bench, Create { enabled: false, ..once("later", 60_000) }).unwrap();
    assert_eq!(bench.entity.next_wake(), None);
    bench.run(Command::SetEnabled { which: named("later"), by: LEAD, enabled: true }).unwrap();
    assert!(get(&bench, "later").next_run.is_some());
    bench.run(Command::SetEnabled { which: named("later"), by: LEAD, enabled: false }).unwrap();
    bench.advance(2 * MINUTE);
    let late = bench.run(Command::SetEnabled { which: named("later"), by: LEAD, enabled: true });
    assert_eq!(late.unwrap_err().code, Code::WrongState);
    assert!(bench.effects.is_empty());
}

#[test]
fn a_run_by_hand_leaves_recurring_times_alone() {
    let mut bench = bench();
    create(&mut bench, cron("hourly", "@hourly")).unwrap();
    let next = get(&bench, "hourly").next_run;
    bench.run(Command::RunNow { which: named("hourly"), by: LEAD }).unwrap();
    assert_eq!(get(&bench, "hourly").next_run, next);
    assert!(specs(&bench.effects)[0]["tags"].as_array().unwrap().contains(&json!("manual-run")));
    bench.run(Command::SetEnabled { which: named("hourly"), by: LEAD, enabled: false }).unwrap();
    let refusal = bench.run(Command::RunNow { which: named("hourly"), by: LEAD }).unwrap_err();
    assert_eq!(refusal.code, Code::Disabled);

    create(&mut bench, once("soon", 5000)).unwrap();
    bench.run(Command::RunNow { which: named("soon"), by: LEAD }).unwrap();
    assert!(get(&bench, "soon").is_done());
}

#[test]
fn refusals_back_off_and_disable() {
    let mut bench = bench();
    create(&mut bench, cron("bad", "* * * * * *")).unwrap();
    let id = get(&bench, "bad").id;
    for minutes in [1, 5, 15, 30] {
        let before = bench.now;
        bench.run(Command::RunFailed { schedule: id, message: "e".repeat(600), by_hand: false }).unwrap();
        let schedule = get(&bench, "bad");
        assert_eq!(schedule.next_run, Some(before + minutes * MINUTE));
        assert_eq!(schedule.last_error.as_ref().unwrap().len(), 500);
        bench.advance(schedule.next_run.unwrap().since(bench.now));
    }
    bench.run(Command::RunFailed { schedule: id, message: "e".into(), by_hand: false }).unwrap();
    assert!(!get(&bench, "bad").enabled);
    assert_eq!(get(&bench, "bad").errors, 5);

    create(&mut bench, once("once", 5000)).unwrap();
    let once = get(&bench, "once").id;
    bench.run(Command::RunFailed { schedule: once, message: "e".into(), by_hand: false }).unwrap();
    assert!(!get(&bench, "once").enabled);
    let gone = Command::RunFailed { schedule: Uuid::nil(), message: "e".into(), by_hand: false };
    assert_eq!(bench.run(gone).unwrap(), Reply::Done);
}

#[test]
fn a_success_resets_the_errors() {
    let mut bench = bench();
    create(&mut bench, Create { interval_ms: Some(60_000), ..Create::new("i", "t") }).unwrap();
    let id = get(&bench, "i").id;
    bench.run(Command::RunFailed { schedule: id, message: "no".into(), by_hand: false }).unwrap();
    bench.advance(MINUTE);
    assert_eq!(get(&bench, "i").errors, 1, "this occurrence may still be refused");
    bench.advance(MINUTE);
    assert_eq!(get(&bench, "i").errors, 0);
}

#[test]
fn creator_and_lead_may_change() {
    let mut bench = bench();
    let creator = Uuid::from_u128(5);
    create(&mut bench, Create { creator: Some(creator), ..cron("mine", "@daily") }).unwrap();
    let other = Caller::agent(Uuid::from_u128(6));
    let delete = |by| Command::Delete { which: named("mine"), by };
    assert_eq!(bench.run(delete(other)).unwrap_err().code, Code::Forbidden);
    let run = |by| Command::RunNow { which: named("mine"), by };
    assert_eq!(bench.run(run(other)).unwrap_err().code, Code::Forbidden);
    assert!(bench.effects.is_empty());
    bench.run(run(Caller::agent(creator))).unwrap();
    bench.run(run(LEAD)).unwrap();
    update(
        &mut bench,
        Update { new_name: Some("ours".into()), ..Update::new(named("mine"), Caller::agent(creator)) },
    )
    .unwrap();
    assert_eq!(bench.run(delete(LEAD)).unwrap_err().code, Code::NotFound);
    let deleted = bench.run(Command::Delete { which: named("ours"), by: LEAD }).unwrap();
    assert!(matches!(deleted, Reply::Deleted { name, .. } if name == "ours"));
}

#[test]
fn an_interval_from_before_there_was_a_shortest_goes_on() {
    let mut bench = bench();
    create(&mut bench, Create { interval_ms: Some(1000), ..Create::new("i", "t") }).unwrap();
    bench.entity.insert(Schedule { interval_ms: Some(700), ..get(&bench, "i") });
    bench.advance(Duration::from_secs(1));
    bench.advance(Duration::from_millis(700));
    assert_eq!(bench.effects.len(), 2);
    let of = || Update::new(named("i"), LEAD);
    update(&mut bench, Update { priority: Some(60), ..of() }).unwrap();
    let refusal = update(&mut bench, Update { interval_ms: Some(700), ..of() }).unwrap_err();
    assert_eq!(refusal.code, Code::InvalidArgument);
    assert!(refusal.message.contains("1000"), "{refusal}");
    assert_eq!(get(&bench, "i").interval_ms, Some(700));
}

#[test]
fn an_interval_beside_a_cron_expression_changes_no_time_and_is_refused() {
    let mut bench = bench();
    create(&mut bench, cron("nightly", "0 2 * * *")).unwrap();
    let before = get(&bench, "nightly");
    let of = || Update { interval_ms: Some(60_000), ..Update::new(named("nightly"), LEAD) };
    let refusal = update(&mut bench, of()).unwrap_err();
    assert_eq!(refusal.code, Code::InvalidArgument);
    assert!(refusal.message.contains("cronExpression"), "{refusal}");
    assert_eq!(get(&bench, "nightly"), before);
    // Both at once are taken as when a schedule is made.
    update(&mut bench, Update { cron: Some("0 3 * * *".to_owned()), ..of() }).unwrap();
    let after = get(&bench, "nightly");
    assert_eq!(after.next_run, before.next_run.map(|at| at + 60 * MINUTE));
}

#[test]
fn an_update_tells_cleared_from_absent() {
    let read: Update =
        serde_json::from_value(json!({"which": {"name": "x"}, "by": {"agent": null}, "target": null}))
            .unwrap();
    assert_eq!(read.target, Some(None));
    assert_eq!(read.model, None);
}

fn follow(bench: &mut Bench<Schedules>, cron: Option<&str>) -> Result<Reply, Refusal> {
    let agent = Name::parse("dev").unwrap();
    bench.run(Command::Follow { agent, cron: cron.map(str::to_owned), zone: "UTC".to_owned() })
}

#[test]
fn an_agent_runs_at_the_times_of_its_definition() {
    let mut bench = bench();
    follow(&mut bench, Some("* * * * *")).unwrap();
    bench.advance(MINUTE);
    let [Effect::Entity { key, command }] = bench.effects.as_slice() else { panic!("{:?}", bench.effects) };
    assert_eq!(key, &EntityKey::agent(&Name::parse("default").unwrap(), &Name::parse("dev").unwrap()));
    let command = command.value();
    assert_eq!(command["enqueue"]["class"], "schedule");
    assert_eq!(command["enqueue"]["input"]["schedule"], "agent dev");
    // The same definition again moves nothing.
    let before = get(&bench, "agent dev");
    follow(&mut bench, Some("* * * * *")).unwrap();
    assert_eq!(get(&bench, "agent dev"), before);
    follow(&mut bench, Some("0 9 * * *")).unwrap();
    assert!(get(&bench, "agent dev").next_run > before.next_run);
    assert_eq!(follow(&mut bench, Some("never")).unwrap_err().code, Code::InvalidArgument);
    follow(&mut bench, None).unwrap();
    assert!(bench.entity.schedules.is_empty());
    follow(&mut bench, None).unwrap();
}

#[test]
fn an_agent_with_the_longest_name_runs_at_its_times_though_somebody_has_a_schedule_of_that_name() {
    let mut bench = bench();
    let agent = Name::parse(&"a".repeat(Name::MAX)).unwrap();
    create(&mut bench, cron(&format!("agent {agent}"), "0 0 1 1 *")).unwrap();
    let times = Command::Follow { agent, cron: Some("* * * * *".to_owned()), zone: "UTC".to_owned() };
    bench.run(times.clone()).unwrap();
    let of_agent = |schedule: &&Schedule| schedule.runs.is_some();
    let made = bench.entity.schedules.values().find(of_agent).unwrap().clone();
    assert_eq!(made.name.chars().count(), 100);
    assert!(made.name.ends_with(&format!(" {}", made.id)), "{}", made.name);
    bench.advance(MINUTE);
    assert_eq!(bench.effects.len(), 1);
    bench.run(times).unwrap();
    assert_eq!(bench.entity.schedules.len(), 2, "it is found again");
}

#[test]
fn an_agent_that_refuses_its_run_leaves_word_and_keeps_its_times() {
    let mut bench = bench();
    follow(&mut bench, Some("* * * * *")).unwrap();
    let agent = Name::parse("dev").unwrap();
    let ran = bench.run(Command::RunNow { which: named("agent dev"), by: LEAD }).unwrap();
    assert!(matches!(&ran, Reply::Ran { task: None, agent: Some(asked), .. } if *asked == agent), "{ran:?}");
    let [Effect::Entity { key, command }] = bench.effects.as_slice() else { panic!("{:?}", bench.effects) };
    let refusal = Refusal::new(Code::Disabled, "agent dev is disabled");
    let told = Schedules::refused(key, command, &refusal).unwrap();
    let before = get(&bench, "agent dev");
    for _ in 0..10 {
        bench.run(told.clone()).unwrap();
    }
    let after = get(&bench, "agent dev");
    assert_eq!((after.enabled, after.next_run), (true, before.next_run));
    assert_eq!(after.last_error.as_deref(), Some("agent dev is disabled"));
    follow(&mut bench, None).unwrap();
    assert_eq!(bench.run(told).unwrap(), Reply::Done);
}

#[test]
fn a_run_by_hand_that_the_pool_refuses_leaves_word_and_keeps_the_times() {
    fn refuse_last(bench: &mut Bench<Schedules>) {
        let Some(Effect::Entity { key, command }) = bench.effects.last().cloned() else { panic!("a task") };
        let refusal = Refusal::new(Code::QueueFull, "there is no room");
        bench.run(Schedules::refused(&key, &command, &refusal).unwrap()).unwrap();
    }
    let mut bench = bench();
    create(&mut bench, cron("hourly", "@hourly")).unwrap();
    let before = get(&bench, "hourly");
    for _ in 0..10 {
        bench.run(Command::RunNow { which: named("hourly"), by: LEAD }).unwrap();
        refuse_last(&mut bench);
    }
    let after = get(&bench, "hourly");
    assert_eq!((after.enabled, after.next_run), (true, before.next_run));
    assert_eq!(after.last_error.as_deref(), Some("there is no room"));
    bench.advance(before.next_run.unwrap().since(bench.now));
    refuse_last(&mut bench);
    let rests = get(&bench, "hourly");
    assert_eq!((rests.enabled, rests.errors), (true, 1), "its occurrences alone are counted");
    assert_eq!(rests.next_run, Some(bench.now + MINUTE));
}

#[test]
fn a_schedule_of_a_definition_is_only_switched_on_and_off() {
    let mut bench = bench();
    follow(&mut bench, Some("* * * * *")).unwrap();
    let which = named("agent dev");
    let moved = Update { cron: Some("0 9 * * *".to_owned()), ..Update::new(which.clone(), LEAD) };
    assert_eq!(update(&mut bench, moved).unwrap_err().code, Code::WrongState);
    let deleted = bench.run(Command::Delete { which: which.clone(), by: LEAD });
    assert_eq!(deleted.unwrap_err().code, Code::WrongState);
    bench.run(Command::SetEnabled { which, by: LEAD, enabled: false }).unwrap();
    // The agent is defined anew whenever its runner comes back: what a person has switched off stays off.
    follow(&mut bench, Some("*/5 * * * *")).unwrap();
    let schedule = get(&bench, "agent dev");
    assert!(!schedule.enabled && schedule.next_run.is_none());
}

#[derive(Clone, Debug)]
enum Step {
    Run(Command),
    Advance(u64),
    SetBack(u64),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = || prop::sample::select(vec!["a", "b", "c"]);
    let create = prop_oneof![
        (name(), prop::sample::select(vec!["* * * * *", "*/20 * * * * *", "0 3 * * *"]))
            .prop_map(|(name, expression)| cron(name, expression)),
        (name(), 1u64..200_000).prop_map(|(name, ms)| once(name, ms)),
        (name(), 1000u64..200_000)
            .prop_map(|(name, ms)| Create { interval_ms: Some(ms), ..Create::new(name, "t") }),
    ];
    let step = prop_oneof![
        create.prop_map(|create| Step::Run(Command::Create(Box::new(create)))),
        (name(), name()).prop_map(|(from, to)| Step::Run(Command::Update(Box::new(Update {
            new_name: Some(to.into()),
            cron: Some("*/2 * * * *".into()),
            ..Update::new(named(from), LEAD)
        })))),
        (name(), any::<bool>()).prop_map(|(name, enabled)| Step::Run(Command::SetEnabled {
            which: named(name),
            by: LEAD,
            enabled
        })),
        name().prop_map(|name| Step::Run(Command::Delete { which: named(name), by: LEAD })),
        name().prop_map(|name| Step::Run(Command::RunNow { which: named(name), by: LEAD })),
        (0u128..4).prop_map(|n| Step::Run(Command::RunFailed {
            schedule: Uuid::from_u128(n),
            message: "no".into(),
            by_hand: n % 2 == 0,
        })),
        Just(Step::Run(Command::Tick)),
        prop_oneof![6 => 0u64..300_000, 1 => 0u64..900_000_000].prop_map(Step::Advance),
        prop_oneof![6 => 0u64..300_000, 1 => 0u64..900_000_000].prop_map(Step::SetBack),
        Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #[test]
    fn each_occurrence_fires_at_most_once(steps in steps()) {
        let mut bench = bench();
        for step in steps {
            match step {
                Step::Run(command) => { let _ = bench.run(command); }
                Step::Advance(ms) => bench.advance(Duration::from_millis(ms)),
                Step::SetBack(ms) => {
                    bench.now = bench.now - Duration::from_millis(ms);
                    bench.run(Command::Tick).unwrap();
                }
                Step::Restart => bench.restart(),
            }
            prop_assert_eq!(&bench.restored(), &bench.entity);
        }
        let mut fired = BTreeSet::new();
        for event in &bench.events {
            if let Event::Fired { schedule, nominal, at, .. } = event {
                prop_assert!(nominal <= at);
                prop_assert!(fired.insert((*schedule, *nominal)), "{:?} fired twice", event);
            }
        }
        let tasks: BTreeSet<String> =
            specs(&bench.effects).iter().map(|spec| spec["id"].to_string()).collect();
        prop_assert_eq!(tasks.len(), bench.effects.len());
    }
}
