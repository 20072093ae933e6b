//! Schedules and a wall clock that is set: ahead, back, or both.

use super::*;
use crate::entity::{Changes, Ctx, DocumentChange};

#[test]
fn a_wall_clock_that_went_back_is_waited_for() {
    let mut bench = bench();
    create(&mut bench, Create { interval_ms: Some(60_000), ..Create::new("i", "t") }).unwrap();
    let due = get(&bench, "i").next_run.unwrap();
    let tick = |bench: &Bench<Schedules>, now: Timestamp, wall: Timestamp| {
        let mut ctx = Ctx::new(now, wall, bench.serving_since, bench.epoch, Uuid::nil());
        bench.entity.decide(&Command::Tick, &mut ctx).unwrap()
    };
    let behind = tick(&bench, due, due - Duration::from_secs(20));
    assert!(behind.effects.is_empty());
    assert_eq!(behind.events, vec![Event::ClockBehind { look_again: due + Duration::from_secs(20) }]);
    // A firing is never repeated, wherever the wall clock stands.
    bench.advance(MINUTE);
    assert!(get(&bench, "i").next_run.unwrap() > due);
    let again = tick(&bench, bench.now, due - 10 * MINUTE);
    assert!(again.effects.is_empty());
}

#[test]
fn what_is_made_or_moved_while_the_wall_clock_is_behind_comes_in_its_time() {
    let mut bench = bench();
    create(&mut bench, Create { interval_ms: Some(3_600_000), ..Create::new("later", "t") }).unwrap();
    let wall = bench.now;
    let now = wall + 60 * MINUTE;
    let decide = |bench: &mut Bench<Schedules>, command: &Command| {
        let mut ctx = Ctx::new(now, wall, bench.serving_since, bench.epoch, Uuid::nil());
        let decision = bench.entity.decide(command, &mut ctx).unwrap();
        let mut changes = Changes::default();
        decision.events.iter().for_each(|event| bench.entity.apply(event, &mut changes));
        changes
    };
    let soon = Create { interval_ms: Some(5000), ..Create::new("soon", "t") };
    let sooner = Update { interval_ms: Some(2000), ..Update::new(named("later"), LEAD) };
    let mut waits = MINUTE;
    let commands = [Command::Create(Box::new(soon)), Command::Update(Box::new(sooner))];
    for (command, due) in commands.into_iter().zip([5, 2].map(Duration::from_secs)) {
        decide(&mut bench, &Command::Tick);
        assert_eq!(bench.entity.next_wake(), Some(now + waits));
        let changes = decide(&mut bench, &command);
        let forgotten = DocumentChange::Delete { key: "clock/behind".to_owned() };
        assert!(changes.documents.contains(&forgotten), "{changes:?}");
        assert!(bench.entity.next_wake() <= Some(now));
        waits = due;
    }
    decide(&mut bench, &Command::Tick);
    assert_eq!(bench.entity.next_wake(), Some(now + waits));
}

#[test]
fn a_wall_clock_that_was_ahead_for_a_moment_silences_nothing() {
    let mut bench = bench();
    create(&mut bench, Create { interval_ms: Some(60_000), ..Create::new("i", "t") }).unwrap();
    create(&mut bench, cron("hourly", "@hourly")).unwrap();
    create(&mut bench, once("soon", 120_000)).unwrap();
    let due = get(&bench, "i").next_run.unwrap();
    let tick = |bench: &mut Bench<Schedules>, wall: Timestamp| {
        let mut ctx = Ctx::new(due, wall, bench.serving_since, bench.epoch, Uuid::nil());
        let decision = bench.entity.decide(&Command::Tick, &mut ctx).unwrap();
        decision.events.iter().for_each(|event| bench.entity.apply(event, &mut Changes::default()));
        bench.entity.check().unwrap();
        decision.effects.len()
    };
    let year = Duration::from_secs(365 * 86_400);
    assert_eq!(tick(&mut bench, due + year), 3);
    assert!(get(&bench, "i").next_run.unwrap() > due + year);
    // Back again, and nothing that has fired comes again.
    assert_eq!(tick(&mut bench, due), 0);
    assert_eq!(get(&bench, "i").next_run, Some(due + MINUTE));
    let hourly = get(&bench, "hourly");
    assert!(hourly.next_run > hourly.fired && hourly.next_run.unwrap() < due + 120 * MINUTE, "{hourly:?}");
    assert!(get(&bench, "soon").is_done());
    assert_eq!(tick(&mut bench, due + MINUTE), 1);
}

/// Ticks by this wall clock. Says how many have fired.
fn tick_at(bench: &mut Bench<Schedules>, wall: Timestamp) -> usize {
    let before = bench.effects.len();
    bench.now = wall;
    bench.run(Command::Tick).unwrap();
    assert_eq!(bench.restored(), bench.entity);
    bench.effects.len() - before
}

/// The minutes after `begin` for which the schedule has fired, in their order.
fn minutes_fired(bench: &Bench<Schedules>, name: &str, begin: Timestamp) -> Vec<u64> {
    let id = get(bench, name).id;
    let of_schedule = |event: &Event| match event {
        Event::Fired { schedule, nominal, .. } if *schedule == id => {
            Some(nominal.since(begin).as_secs() / 60)
        }
        _ => None,
    };
    let mut minutes: Vec<u64> = bench.events.iter().filter_map(of_schedule).collect();
    minutes.sort_unstable();
    minutes
}

#[test]
fn a_wall_clock_that_was_ahead_for_some_firings_silences_nothing() {
    let mut bench = bench();
    create(&mut bench, cron("minutely", "* * * * *")).unwrap();
    follow(&mut bench, Some("* * * * *")).unwrap();
    let begin = get(&bench, "minutely").next_run.unwrap();
    let half = Duration::from_secs(30);
    assert_eq!(tick_at(&mut bench, begin + 119 * MINUTE + half), 2, "what the clock has passed by");
    assert_eq!(tick_at(&mut bench, begin + 120 * MINUTE), 2);
    assert_eq!(tick_at(&mut bench, begin + 121 * MINUTE), 2);
    assert_eq!(tick_at(&mut bench, begin + 2 * MINUTE), 0);
    assert_eq!(get(&bench, "minutely").next_run, Some(begin + 3 * MINUTE));
    bench.restart();
    for minute in 3..=124 {
        tick_at(&mut bench, begin + minute * MINUTE);
    }
    let once_each: Vec<u64> = std::iter::once(0).chain(3..=124).collect();
    assert_eq!(minutes_fired(&bench, "minutely", begin), once_each);
    assert_eq!(minutes_fired(&bench, "agent dev", begin), once_each);
}

#[test]
fn what_was_missed_while_the_wall_clock_was_ahead_fires_when_its_time_comes() {
    let mut bench = bench();
    create(&mut bench, cron("minutely", "* * * * *")).unwrap();
    let begin = get(&bench, "minutely").next_run.unwrap();
    // Nobody serves it for three minutes of those in which the clock is ahead, and then the clock leaps once more.
    for minute in [119, 120, 124, 125, 300, 301] {
        tick_at(&mut bench, begin + minute * MINUTE);
    }
    assert_eq!(minutes_fired(&bench, "minutely", begin), [0, 120, 121, 125, 126, 301]);
    for minute in 2..=310 {
        tick_at(&mut bench, begin + minute * MINUTE);
    }
    let once_each: Vec<u64> = std::iter::once(0).chain(3..=310).collect();
    assert_eq!(minutes_fired(&bench, "minutely", begin), once_each);
}

#[test]
fn a_schedule_remembers_so_many_leaps_of_the_wall_clock() {
    let mut bench = bench();
    create(&mut bench, cron("minutely", "* * * * *")).unwrap();
    let begin = get(&bench, "minutely").next_run.unwrap();
    for leap in 0..20_u32 {
        tick_at(&mut bench, begin + (10 * leap + 1) * MINUTE);
    }
    assert_eq!(get(&bench, "minutely").apart.len(), 8);
    tick_at(&mut bench, begin);
    let next = get(&bench, "minutely").next_run.unwrap();
    assert!(next > begin + MINUTE && next < begin + 120 * MINUTE, "{next}");
    let before = minutes_fired(&bench, "minutely", begin).len();
    for minute in 0..=210 {
        tick_at(&mut bench, begin + minute * MINUTE);
    }
    let fired = minutes_fired(&bench, "minutely", begin);
    let apart: BTreeSet<u64> = fired.iter().copied().collect();
    assert_eq!(apart.len(), fired.len(), "{fired:?}");
    assert!(fired.len() > before + 80, "{fired:?}");
}

#[test]
fn a_refusal_that_comes_after_the_wall_clock_was_set_back_is_no_long_rest() {
    let mut bench = bench();
    create(&mut bench, cron("minutely", "* * * * *")).unwrap();
    let begin = get(&bench, "minutely").next_run.unwrap();
    for minute in [119, 120, 121] {
        tick_at(&mut bench, begin + minute * MINUTE);
    }
    bench.now = begin + 2 * MINUTE;
    let schedule = get(&bench, "minutely").id;
    bench.run(Command::RunFailed { schedule, message: "no".into(), by_hand: false }).unwrap();
    assert_eq!(get(&bench, "minutely").next_run, Some(begin + 3 * MINUTE));
    assert_eq!(tick_at(&mut bench, begin + 3 * MINUTE), 1);
}

#[test]
fn what_leaves_the_times_of_a_schedule_alone_hides_no_clock_that_was_ahead() {
    let which = || named("minutely");
    let raised = Update { priority: Some(60), ..Update::new(which(), LEAD) };
    let agent = Name::parse("dev").unwrap();
    for command in [
        Command::RunNow { which: which(), by: LEAD },
        Command::Update(Box::new(raised)),
        Command::RunRefused { agent, message: "it is disabled".to_owned() },
    ] {
        let mut bench = bench();
        create(&mut bench, cron("minutely", "* * * * *")).unwrap();
        follow(&mut bench, Some("* * * * *")).unwrap();
        let begin = get(&bench, "minutely").next_run.unwrap();
        tick_at(&mut bench, begin + 120 * MINUTE);
        bench.now = begin + 2 * MINUTE;
        bench.run(command).unwrap();
        let now = bench.now;
        tick_at(&mut bench, now);
        for name in ["minutely", "agent dev"] {
            assert_eq!(get(&bench, name).next_run, Some(begin + 3 * MINUTE), "{name}");
        }
    }
}
