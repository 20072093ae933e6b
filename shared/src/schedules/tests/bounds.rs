//! How many schedules there may be, how long they are kept, and how much of them one tick does.

use super::*;
use crate::limits;

#[test]
fn a_tick_fires_so_many_and_the_next_one_the_others() {
    let mut bench = bench();
    for number in 0..1100 {
        create(&mut bench, once(&format!("soon {number:04}"), 5000 + number)).unwrap();
    }
    // By their names this one is the last, and by its time the first.
    create(&mut bench, once("xylophone", 4000)).unwrap();
    let list = |soonest| Command::List {
        enabled: None,
        name: None,
        one_time: None,
        hide_completed: true,
        soonest,
        after: String::new(),
    };
    let Reply::List { schedules, left_out } = bench.run(list(false)).unwrap() else { panic!("a list") };
    assert_eq!((schedules.len(), left_out), (1000, 101));
    assert_eq!(schedules[0]["name"], "soon 0000");
    let after = schedules[999]["name"].as_str().unwrap().to_owned();
    let (enabled, name, one_time, hide_completed, soonest) = (None, Some("0".to_owned()), None, true, false);
    let behind = Command::List { enabled, name, one_time, hide_completed, soonest, after };
    let Reply::List { schedules, left_out } = bench.run(behind).unwrap() else { panic!("a list") };
    assert_eq!((schedules.len(), left_out), (100, 0), "those that are wanted of them");
    assert_eq!((&schedules[0]["name"], &schedules[99]["name"]), (&json!("soon 1000"), &json!("soon 1099")));
    let Reply::List { schedules, left_out } = bench.run(list(true)).unwrap() else { panic!("a list") };
    assert_eq!((schedules.len(), left_out), (1000, 101));
    assert_eq!((&schedules[0]["name"], &schedules[1]["name"]), (&json!("xylophone"), &json!("soon 0000")));
    bench.run(Command::Delete { which: named("xylophone"), by: LEAD }).unwrap();
    bench.now = bench.now + MINUTE;
    bench.run(Command::Tick).unwrap();
    assert_eq!(bench.effects.len(), 256);
    assert!(bench.entity.next_wake().unwrap() <= bench.now, "the others are still due");
    for _ in 0..4 {
        bench.run(Command::Tick).unwrap();
    }
    assert_eq!(bench.effects.len(), 1100);
    assert_eq!(bench.entity.next_wake(), Some(bench.now + limits::SCHEDULE_KEEP), "when they are forgotten");
}

#[test]
fn a_tick_fires_as_many_as_one_commit_takes_however_long_their_texts_are() {
    let mut bench = bench();
    // A text takes more as JSON than it does in memory.
    let longest = "\"".repeat(limits::TEXT);
    for number in 0..27 {
        let long = Create { task: longest.clone(), ..once(&format!("long {number}"), 5000) };
        create(&mut bench, long).unwrap();
    }
    bench.now = bench.now + MINUTE;
    let mut ticks = 0;
    while bench.effects.len() < 27 {
        let written = bench.weight(&Command::Tick);
        assert!(written < limits::DECISION / 2, "{written} bytes");
        bench.run(Command::Tick).unwrap();
        ticks += 1;
        let due = bench.entity.next_wake().unwrap() <= bench.now;
        assert_eq!(due, bench.effects.len() < 27, "what is left is due at once");
    }
    assert_eq!(ticks, 3);
}

#[test]
fn a_clock_that_was_ahead_is_made_up_for_by_as_many_ticks_as_it_takes() {
    let mut bench = bench();
    let longest = "x".repeat(limits::TEXT);
    for number in 0..30 {
        let long = Create { task: longest.clone(), ..cron(&format!("long {number}"), "@hourly") };
        create(&mut bench, long).unwrap();
    }
    let begin = bench.now;
    bench.now = begin + Duration::from_secs(365 * 86_400);
    while bench.effects.len() < 30 {
        bench.run(Command::Tick).unwrap();
    }
    bench.now = begin + MINUTE;
    let ahead = |bench: &Bench<Schedules>| bench.entity.planned_after(bench.now + MINUTE, 100).count();
    let mut ticks = 0;
    while ahead(&bench) > 0 {
        let written = bench.weight(&Command::Tick);
        assert!(written < limits::DECISION / 2, "{written} bytes");
        bench.run(Command::Tick).unwrap();
        ticks += 1;
    }
    assert_eq!(ticks, 2);
}

#[test]
fn the_texts_of_all_schedules_have_a_bound() {
    let mut bench = bench();
    let longest = "x".repeat(limits::TEXT);
    let mut number = 0;
    let refusal = loop {
        let long = Create { task: longest.clone(), ..cron(&format!("long {number}"), "@daily") };
        if let Err(refusal) = create(&mut bench, long) {
            break refusal;
        }
        number += 1;
    };
    assert_eq!(refusal.code, Code::QueueFull);
    assert!(bench.entity.bytes <= 64 << 20 && bench.entity.bytes + 2 * longest.len() > 64 << 20);
    let shorter = Update { task: Some("less".to_owned()), ..Update::new(named("long 0"), LEAD) };
    update(&mut bench, shorter).unwrap();
    create(&mut bench, cron("short", "@daily")).unwrap();
}

#[test]
fn a_one_time_schedule_that_ran_is_forgotten_after_a_week() {
    let mut bench = bench();
    create(&mut bench, cron("daily", "@daily")).unwrap();
    create(&mut bench, Create { enabled: false, ..once("never", 5000) }).unwrap();
    for number in 0..600 {
        create(&mut bench, once(&format!("soon {number:03}"), 5000)).unwrap();
    }
    create(&mut bench, once("by hand", 30 * 86_400_000)).unwrap();
    bench.advance(MINUTE);
    bench.advance(MINUTE);
    bench.run(Command::RunNow { which: named("by hand"), by: LEAD }).unwrap();
    let (gone, kept) = (get(&bench, "soon 001").id, get(&bench, "by hand").id);
    bench.restart();
    bench.advance(limits::SCHEDULE_KEEP - 2 * MINUTE);
    assert_eq!(bench.entity.schedules.len(), 603, "they can be looked up for as long");
    bench.now = bench.now + MINUTE;
    bench.run(Command::Tick).unwrap();
    assert_eq!(bench.entity.schedules.len(), 603 - 256, "so many at a time");
    bench.advance(Duration::ZERO);
    assert_eq!(bench.entity.ids.keys().collect::<Vec<_>>(), ["by hand", "daily", "never"]);
    assert!(bench.head(&format!("schedule/{gone}")).is_none());
    assert!(bench.head(&format!("schedule/{kept}")).is_some());
    bench.advance(MINUTE);
    assert_eq!(bench.entity.ids.keys().collect::<Vec<_>>(), ["daily", "never"], "its week began later");
    assert_eq!(bench.restored(), bench.entity);
    create(&mut bench, once("soon 001", 5000)).unwrap();
}

#[test]
fn what_ran_gives_way_where_there_is_no_more_room() {
    let mut bench = bench();
    let longest = "x".repeat(limits::TEXT);
    for number in 0..255 {
        let long = Create { task: longest.clone(), ..once(&format!("long {number:03}"), 1000 + number) };
        create(&mut bench, long).unwrap();
    }
    create(&mut bench, Create { description: Some("kept".into()), ..cron("daily", "@daily") }).unwrap();
    let more = |name: &str| Create { task: longest.clone(), ..cron(name, "@daily") };
    create(&mut bench, more("first")).unwrap_err();
    for millis in [1000, 1, 1] {
        bench.advance(Duration::from_millis(millis));
    }
    create(&mut bench, more("first")).unwrap();
    assert!(!bench.entity.ids.contains_key("long 000"), "the oldest of those that ran");
    assert!(bench.entity.ids.contains_key("long 001"));
    let longer = Update { task: Some(longest.clone()), ..Update::new(named("daily"), LEAD) };
    update(&mut bench, longer).unwrap();
    assert!(!bench.entity.ids.contains_key("long 001") && bench.entity.ids.contains_key("long 002"));
    create(&mut bench, more("second")).unwrap();
    assert_eq!(
        create(&mut bench, more("third")).unwrap_err().code,
        Code::QueueFull,
        "the others are to come"
    );
    assert_eq!(bench.restored(), bench.entity);
}
