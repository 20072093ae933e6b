//! Locks and leases outlast the waits of their holders.

use super::*;
use crate::lockspace::{self, Lockspace};

/// What locks and leases were told of waits, in their order: for which, and whether it is over.
fn told_of_waits(world: &World, kind: Kind, command: &str) -> Vec<(Uuid, bool)> {
    let to_kind = world.sent.iter().filter(|(key, _)| key.kind == kind).map(|(_, sent)| &sent[command]);
    let told = to_kind.filter(|sent| !sent.is_null());
    told.map(|sent| (serde_json::from_value(sent["wait"].clone()).unwrap(), sent["over"] == true)).collect()
}

fn assert_told(world: &World, waits: &[(u128, bool)]) {
    let waits: Vec<_> = waits.iter().map(|(wait, over)| (id(*wait), *over)).collect();
    assert_eq!(told_of_waits(world, Kind::Lockspace, "extend"), waits);
    assert_eq!(told_of_waits(world, Kind::Pool, "extend_lease"), waits);
}

#[test]
fn locks_and_leases_are_told_when_a_wait_is_over() {
    let mut world = World::undefined();
    let hand = InstanceId("token-1".to_owned());
    world.must(Command::Attach { instance: hand.clone(), agent_id: id(50) });
    world.wait(&hand, 1, webhook_filter());
    assert_told(&world, &[(1, false)]);
    trigger(&mut world, 1);
    assert_told(&world, &[(1, false), (1, true)]);
    assert!(world.outcome(&hand, 1).is_some());
    // One that takes the place of another begins after that, and one that finds its call in the queue not at all.
    world.wait(&hand, 2, webhook_filter());
    world.wait(&hand, 3, agent_filter(Some("nobody")));
    assert_told(&world, &[(1, false), (1, true), (2, false), (2, true), (3, false)]);
    world.call(1).unwrap();
    world.wait(&hand, 4, agent_filter(None));
    assert!(world.outcome(&hand, 4).is_some());
    assert_told(&world, &[(1, false), (1, true), (2, false), (2, true), (3, false), (3, true)]);
}

#[test]
fn locks_and_leases_of_a_frozen_run_last_until_it_has_its_slot_again() {
    let mut world = World::new(1);
    let sleeper = world.manual();
    world.wait(&sleeper, 1, webhook_filter());
    let works = world.manual();
    world.advance(1800);
    assert_eq!(world.state(&sleeper), State::Resuming);
    assert_told(&world, &[(1, false), (1, false)]);
    world.exit(&works, 0);
    assert_eq!(world.state(&sleeper), State::Running);
    assert_told(&world, &[(1, false), (1, false), (1, true)]);
}

fn acquire(holder: &str) -> lockspace::Command {
    lockspace::Command::Acquire {
        holder: InstanceId(holder.to_owned()),
        agent: name("worker"),
        key: "test://x".to_owned(),
        ttl_ms: Some(1_800_000),
    }
}

fn is_free(locks: &mut Bench<Lockspace>) -> bool {
    locks.run(acquire("another")).and_then(lockspace::Reply::granted).is_ok()
}

/// Moves both clocks, and has the locks hear what they were told meanwhile.
fn pass(world: &mut World, locks: &mut Bench<Lockspace>, seconds: u64) {
    locks.advance(std::time::Duration::from_secs(seconds));
    world.advance(seconds);
    let (told, others) = std::mem::take(&mut world.sent).into_iter().partition(|(key, _)| *key == locks.key);
    world.sent = others;
    for (_, command) in told {
        locks.run(serde_json::from_value(command).unwrap()).unwrap();
    }
}

#[test]
fn a_lock_of_a_frozen_run_lasts_however_late_its_slot_comes() {
    for paused in [false, true] {
        let mut world = World::new(1);
        let mut locks: Bench<Lockspace> = Bench::new(EntityKey::of(Kind::Lockspace, &name("s")));
        let sleeper = world.manual();
        locks.run(acquire(sleeper.as_str())).unwrap();
        world.wait(&sleeper, 1, webhook_filter());
        pass(&mut world, &mut locks, 60);
        let works = world.manual();
        world.must(Command::SetPaused { paused });
        pass(&mut world, &mut locks, 1740);
        pass(&mut world, &mut locks, 1800);
        assert!(!is_free(&mut locks), "its wait is over and it has no slot, paused: {paused}");
        world.must(Command::SetPaused { paused: false });
        world.exit(&works, 0);
        assert_eq!(world.state(&sleeper), State::Running);
        pass(&mut world, &mut locks, 0);
        locks.advance(std::time::Duration::from_secs(1799));
        assert!(!is_free(&mut locks));
        locks.advance(std::time::Duration::from_secs(1));
        assert!(is_free(&mut locks));
    }
}

/// A hand-made instance that has a lock and begins a wait of 14 days.
fn long_waiter() -> (World, Bench<Lockspace>) {
    let mut world = World::undefined();
    let hand = InstanceId("token-1".to_owned());
    world.must(Command::Attach { instance: hand.clone(), agent_id: id(50) });
    let mut locks: Bench<Lockspace> = Bench::new(EntityKey::of(Kind::Lockspace, &name("s")));
    locks.run(acquire("token-1")).unwrap();
    world.must(Command::BeginWait {
        instance: hand,
        wait: id(1),
        filter: webhook_filter(),
        timeout_ms: Some(14 * 86_400_000),
        broadcast: false,
        look_back: false,
        asked: id(1),
    });
    (world, locks)
}

#[test]
fn a_lock_of_who_is_never_heard_of_again_ends_by_the_time_of_its_wait() {
    let (mut world, mut locks) = long_waiter();
    pass(&mut world, &mut locks, 0);
    pass(&mut world, &mut locks, 14 * 86_400 - 1);
    assert!(!is_free(&mut locks), "it may still wait");
    pass(&mut world, &mut locks, 1);
    locks.advance(std::time::Duration::from_secs(1799));
    assert!(!is_free(&mut locks));
    locks.advance(std::time::Duration::from_secs(1));
    assert!(is_free(&mut locks));
}

#[test]
fn a_lock_that_outlasts_a_wait_is_free_by_its_own_time_after_it() {
    let (mut world, mut locks) = long_waiter();
    world.advance(60);
    trigger(&mut world, 1);
    pass(&mut world, &mut locks, 0);
    locks.advance(std::time::Duration::from_secs(1799));
    assert!(!is_free(&mut locks));
    locks.advance(std::time::Duration::from_secs(1));
    assert!(is_free(&mut locks));
}
