//! Schedules that make no task while another one of theirs has not ended.

use std::mem;

use super::*;

fn careful(name: &str) -> Create {
    Create { interval_ms: Some(60_000), skip_if_active: true, ..Create::new(name, "sweep") }
}

/// Hands what was fired to the pool, and its refusals back. Gives the tasks that were made.
fn hand_over(bench: &mut Bench<Schedules>, pool: &mut Bench<Pool>) -> Vec<Uuid> {
    let mut made = Vec::new();
    for effect in mem::take(&mut bench.effects) {
        let Effect::Entity { key, command } = effect else { panic!("{effect:?}") };
        match pool.run(command.read().unwrap()) {
            Ok(pool::Reply::Created { task, .. }) => made.push(task.id),
            Ok(other) => panic!("{other:?}"),
            Err(refusal) => {
                bench.run(Schedules::refused(&key, &command, &refusal).unwrap()).unwrap();
            }
        }
    }
    made
}

#[test]
fn what_skips_makes_no_task_while_one_of_its_own_has_not_ended() {
    let mut bench = bench();
    let mut pool: Bench<Pool> = Bench::new(EntityKey::of(Kind::Pool, &bench.key.swarm));
    let schedule = create(&mut bench, careful("careful")).unwrap();
    assert_eq!((&schedule["skipIfActive"], schedule.get("lastSkippedAt")), (&json!(true), None));
    bench.advance(MINUTE);
    let first = hand_over(&mut bench, &mut pool);
    assert_eq!(first.len(), 1);
    for _ in 0..6 {
        bench.advance(MINUTE);
        assert!(hand_over(&mut bench, &mut pool).is_empty());
    }
    let skipped = get(&bench, "careful");
    assert!(skipped.enabled && skipped.errors == 0, "it is no failure: {skipped:?}");
    assert_eq!(skipped.view()["lastSkippedAt"], json!(bench.now.iso()));
    assert_eq!(bench.restored(), bench.entity);

    // Whoever runs it by hand wants the task, and that one counts as well.
    bench.run(Command::RunNow { which: named("careful"), by: LEAD }).unwrap();
    let by_hand = hand_over(&mut bench, &mut pool);
    assert_eq!(by_hand.len(), 1);
    let end = |pool: &mut Bench<Pool>, task: Uuid| {
        pool.run(pool::Command::Cancel { task, by: None, reason: None }).unwrap();
    };
    end(&mut pool, first[0]);
    bench.advance(MINUTE);
    assert!(hand_over(&mut bench, &mut pool).is_empty());
    end(&mut pool, by_hand[0]);
    bench.advance(MINUTE);
    assert_eq!(hand_over(&mut bench, &mut pool).len(), 1);

    // Without it they pile up, as ever.
    let plain = Update { skip_if_active: Some(false), ..Update::new(named("careful"), LEAD) };
    update(&mut bench, plain).unwrap();
    bench.advance(MINUTE);
    assert_eq!(hand_over(&mut bench, &mut pool).len(), 1);
    assert!(get(&bench, "careful").view().get("skipIfActive").is_none());
}

#[test]
fn what_runs_once_has_nothing_to_skip() {
    let mut bench = bench();
    let once = |skip_if_active| Create { skip_if_active, ..once("soon", 5000) };
    assert_eq!(create(&mut bench, once(true)).unwrap_err().code, Code::InvalidArgument);
    create(&mut bench, once(false)).unwrap();
    let skips = Update { skip_if_active: Some(true), ..Update::new(named("soon"), LEAD) };
    assert_eq!(update(&mut bench, skips).unwrap_err().code, Code::InvalidArgument);
}

#[test]
fn a_schedule_that_is_gone_was_not_skipped() {
    let mut bench = bench();
    assert_eq!(bench.run(Command::RunSkipped { schedule: Uuid::nil() }).unwrap(), Reply::Done);
    assert!(bench.events.is_empty());
}
