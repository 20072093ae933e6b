//! Locks of instances that wait for an event, and may be frozen.

use std::collections::BTreeMap;

use super::*;
use crate::entity::Effect;

fn extend(holder: &str, until: Timestamp, over: bool) -> Command {
    let reply_to = EntityKey::agent(&name("default"), &name("worker"));
    Command::Extend { holder: instance(holder), until, wait: Uuid::from_u128(7), reply_to, over }
}

#[test]
fn locks_outlast_a_wait() {
    let mut bench = bench();
    run(&mut bench, acquire_for("a", X, Some(60_000))).unwrap();
    let until = bench.now + Duration::from_secs(7200);
    let reply_to = EntityKey::agent(&name("default"), &name("worker"));
    let wait = Uuid::from_u128(7);
    let extend = |until| Command::Extend {
        holder: instance("a"),
        until,
        wait,
        reply_to: reply_to.clone(),
        over: false,
    };
    let reply = run(&mut bench, extend(until)).unwrap();
    assert_eq!(reply, Reply::Extended { keys: vec![X.to_owned()] });
    let command = json!({"locks_extended": {"wait": wait}}).into();
    let told = Effect::Entity { key: reply_to.clone(), command };
    assert_eq!(bench.effects, std::slice::from_ref(&told));
    bench.advance(Duration::from_secs(7199));
    assert_eq!(code(run(&mut bench, acquire("b", X))), Code::LockHeld);
    // A lock that lasts long enough already is left alone, and told all the same.
    let again = extend(bench.now);
    assert_eq!(run(&mut bench, again), Ok(Reply::Extended { keys: vec![] }));
    assert_eq!(bench.effects.len(), 2);
    bench.advance(Duration::from_secs(1));
    token(run(&mut bench, acquire("b", X)));
}

#[test]
fn a_lock_has_its_own_time_again_once_the_wait_is_over() {
    let mut bench = bench();
    allow(&mut bench, 2);
    run(&mut bench, acquire_for("a", X, Some(60_000))).unwrap();
    run(&mut bench, acquire_for("a", Y, Some(86_400_000))).unwrap();
    let reply_to = EntityKey::agent(&name("default"), &name("worker"));
    let extend = |until, over| Command::Extend {
        holder: instance("a"),
        until,
        wait: Uuid::from_u128(7),
        reply_to: reply_to.clone(),
        over,
    };
    let start = bench.now;
    run(&mut bench, extend(start + Duration::from_secs(14 * 86_400), false)).unwrap();
    bench.advance(Duration::from_secs(3600));
    let woken = extend(bench.now, true);
    run(&mut bench, woken).unwrap();
    let ends = |bench: &mut Bench<Lockspace>| {
        locks(bench).into_iter().map(|lock| lock.expires_at.since(start).as_secs()).collect::<Vec<_>>()
    };
    assert_eq!(ends(&mut bench), [3600 + 60, 3600 + 86_400]);
    assert_eq!(bench.effects.len(), 1, "nobody waits for the word");
    bench.advance(Duration::from_secs(30));
    let events = bench.events.len();
    let again = extend(bench.now, true);
    run(&mut bench, again).unwrap();
    assert_eq!(bench.events.len(), events, "nothing lasts longer than by itself");
    bench.advance(Duration::from_secs(30));
    assert_eq!(ends(&mut bench), [3600 + 86_400]);
}

#[test]
fn a_lock_whose_end_a_wait_had_fixed_has_its_own_time_again_after_it() {
    let mut bench = bench();
    allow(&mut bench, 2);
    let (start, minute) = (bench.now, Duration::from_secs(60));
    run(&mut bench, acquire_for("a", X, Some(30 * 60_000))).unwrap();
    run(&mut bench, acquire_for("a", Y, Some(120 * 60_000))).unwrap();
    bench.advance(20 * minute);
    run(&mut bench, extend("a", start + 55 * minute, false)).unwrap();
    bench.advance(30 * minute);
    let over = extend("a", bench.now, true);
    run(&mut bench, over).unwrap();
    let ends: Vec<Duration> =
        locks(&mut bench).into_iter().map(|lock| lock.expires_at.since(start)).collect();
    assert_eq!(ends, [80 * minute, 120 * minute], "what lasts beyond the wait is as it was");
    bench.advance(30 * minute);
    token(run(&mut bench, acquire("b", X)));
}

#[test]
fn the_end_of_a_wait_brings_no_lock_back() {
    let mut bench = bench();
    run(&mut bench, acquire_for("a", X, Some(1000))).unwrap();
    let soon = bench.now + Duration::from_secs(60);
    run(&mut bench, extend("a", soon, false)).unwrap();
    // Nobody has swept it yet.
    bench.now = bench.now + Duration::from_secs(61);
    let over = extend("a", bench.now, true);
    run(&mut bench, over).unwrap();
    assert!(locks(&mut bench).is_empty());
}

#[test]
fn what_is_taken_or_renewed_between_a_wait_and_its_freeze_outlasts_the_wait() {
    let mut bench = bench();
    allow(&mut bench, 3);
    run(&mut bench, acquire_for("a", X, Some(60_000))).unwrap();
    let (start, span) = (bench.now, Duration::from_secs(6 * 3600));
    run(&mut bench, extend("a", start + span, false)).unwrap();
    // What runs in the instance goes on until it is frozen, and nobody knows when that is.
    bench.restart();
    let beat = Command::Heartbeat { holder: instance("a"), key: X.to_owned(), ttl_ms: Some(30_000) };
    let Reply::Acquired { expires_at, .. } = run(&mut bench, beat).unwrap() else { panic!("no answer") };
    assert_eq!(expires_at, start + span);
    run(&mut bench, acquire("a", X)).unwrap();
    run(&mut bench, acquire_for("a", Y, Some(1000))).unwrap();
    run(&mut bench, acquire_for("b", "x:3", Some(1000))).unwrap();
    bench.advance(span - Duration::from_secs(40));
    let left: Vec<(InstanceId, Timestamp)> =
        locks(&mut bench).into_iter().map(|lock| (lock.holder, lock.expires_at)).collect();
    assert_eq!(left, [(instance("a"), start + span), (instance("a"), start + span)]);
    // A time to live that reaches beyond the wait counts.
    run(&mut bench, acquire_for("a", Y, Some(60_000))).unwrap();
    let over = extend("a", bench.now, true);
    run(&mut bench, over).unwrap();
    assert!(bench.head("wait/a").is_none());
    bench.advance(Duration::from_secs(1));
    run(&mut bench, acquire_for("a", Y, Some(2000))).unwrap();
    bench.advance(Duration::from_secs(2));
    assert_eq!(locks(&mut bench).len(), 1, "the wait is over, and each has its own time");
}

#[test]
fn of_a_wait_nothing_is_kept_beyond_its_end_or_that_of_its_instance() {
    let mut bench = bench();
    let soon = bench.now + Duration::from_secs(60);
    run(&mut bench, extend("a", soon, false)).unwrap();
    run(&mut bench, extend("b", soon, false)).unwrap();
    assert!(bench.head("wait/a").is_some() && bench.head("wait/b").is_some());
    run(&mut bench, Command::ReleaseAll { holder: instance("a"), reason: "killed".to_owned() }).unwrap();
    assert!(bench.head("wait/a").is_none());
    assert_eq!(bench.entity.next_wake(), Some(soon));
    bench.advance(Duration::from_secs(60));
    assert!(bench.head("wait/b").is_none());
    assert_eq!(bench.entity.next_wake(), None);
    let late = extend("a", bench.now, false);
    run(&mut bench, late).unwrap();
    assert!(bench.head("wait/a").is_none(), "it is over before it begins");
}

proptest! {
    /// Whatever the holder and its agent ask for meanwhile, and whichever node serves them.
    #[test]
    fn no_lock_ends_while_its_holder_waits(
        steps in prop::collection::vec(
            prop_oneof![
                4 => any_step(),
                1 => (0..4u8, 0..300_000u64).prop_map(|(n, ms)| {
                    Step::Run(extend(&format!("h{n}"), Timestamp(1_790_000_000_000 + ms), false))
                }),
            ],
            1..80,
        )
    ) {
        let mut bench = bench();
        let mut waits: BTreeMap<InstanceId, Timestamp> = BTreeMap::new();
        for step in steps {
            let (before, waiting) = (bench.events.len(), waits.clone());
            match step {
                Step::Run(command) => {
                    let answer = bench.run(command.clone());
                    match command {
                        Command::Extend { holder, over: true, .. } | Command::ReleaseAll { holder, .. } => {
                            waits.remove(&holder);
                        }
                        Command::Extend { holder, until, .. } => {
                            answer.unwrap();
                            let known = waits.entry(holder).or_insert(until);
                            *known = until.max(*known);
                        }
                        _ => {}
                    }
                }
                Step::Sleep(ms) => bench.advance(Duration::from_millis(ms)),
                Step::Stall(ms) => bench.now = bench.now + Duration::from_millis(ms),
                Step::Restart => bench.restart(),
            }
            waits.retain(|_, until| bench.now < *until);
            for event in &bench.events[before..] {
                let Event::Expired { holder, .. } = event else { continue };
                let waits = waiting.get(holder).is_some_and(|until| bench.now < *until);
                prop_assert!(!waits, "{:?} in a wait of {:?}", event, waiting);
            }
            for lock in locks(&mut bench) {
                let until = waits.get(&lock.holder).copied().unwrap_or(Timestamp::ZERO);
                prop_assert!(until <= lock.expires_at, "{:?} in a wait until {:?}", lock, until);
            }
            prop_assert_eq!(&bench.restored(), &bench.entity);
        }
    }
}
