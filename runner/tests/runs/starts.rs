//! Starts that take for ever, are cut short or cannot be written down, and what becomes of what they were given.

use std::path::PathBuf;

use serde_json::json;
use skein_runner::instance::Instances;
use skein_runner::instance::ledger::{State, What};
use skein_shared::entity::RunnerCommand;

use super::*;
use crate::stubborn::{
    begin, has_exited, instances, mute, nth, reign, started_by, stubborn, tired, told, unsure, unswept,
};

/// As one whose image comes from far away: it says nothing, and is given up.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_takes_for_ever_is_given_up_by_a_stop_and_by_the_runners_end() {
    let bed = Bed::new("exec sleep 1000");
    let (instances, ledger, _lock) = instances(&bed, "endless", stubborn("endless", 0, true));
    let reign = reign();
    let mut reported = instances.reported();
    for number in [1, 2] {
        instances.command(started_by(number), ACCESS, &reign).await.unwrap();
    }
    let reason = "not wanted".to_owned();
    let stop = RunnerCommand::Stop { instance: id(1).to_owned(), token: nth(2), reason, grace_ms: 100_000 };
    instances.command(stop, "", &reign).await.unwrap();
    tokio::time::timeout(LIMIT, reported.changed()).await.expect("its end").unwrap();
    tokio::time::timeout(LIMIT, instances.leave()).await.expect("the runner can leave");
    let ends: Vec<_> = ledger.reports(0, 10).await.unwrap().into_iter().map(|(_, report)| report).collect();
    let told: Vec<_> = ends.iter().map(|end| (end.instance.as_str(), end.token, end.what.clone())).collect();
    let failed = |reason: &str| What::StartFailed { reason: reason.to_owned(), usage: None };
    assert_eq!(
        told,
        [(id(1), nth(2), failed("not wanted")), (id(2), nth(1), failed("the runner was stopped"))]
    );
}

/// Lets an instance sleep without a process, and wakes it.
async fn sleep_and_wake(instances: &Arc<Instances>, number: u32) {
    let instance = || id(number).to_owned();
    let freeze = RunnerCommand::Freeze { instance: instance(), token: nth(2) };
    let spill = RunnerCommand::Spill { instance: instance(), token: nth(3) };
    let input = json!({"type": "resumed"});
    let restore = RunnerCommand::Restore { instance: instance(), token: nth(4), input };
    for command in [freeze, spill, restore] {
        instances.command(command, "", &reign()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_after_a_long_sleep_that_takes_for_ever_is_given_up_as_any_other() {
    let bed = Bed::new("exec sleep 1000");
    let (engine, stuck) = tired("tired", 2);
    let (instances, ledger, _lock) = instances(&bed, "tired", engine);
    for number in [1, 2] {
        begin(&instances, number).await;
    }
    for number in [1, 2] {
        sleep_and_wake(&instances, number).await;
        tokio::time::timeout(LIMIT, stuck.notified()).await.expect("its start");
    }
    let (instance, reason) = (id(1).to_owned(), "not wanted".to_owned());
    let stop = RunnerCommand::Stop { instance, token: nth(5), reason, grace_ms: 100_000 };
    instances.command(stop, "", &reign()).await.unwrap();
    told(&instances, has_exited).await;
    tokio::time::timeout(LIMIT, instances.leave()).await.expect("the runner can leave");
    let ends =
        ledger.reports(0, 100).await.unwrap().into_iter().filter_map(|(_, report)| match report.what {
            What::Exited { reason, .. } => Some((report.instance, report.token, reason)),
            _ => None,
        });
    let stopped = (id(2).to_owned(), nth(4), "the runner was stopped".to_owned());
    assert_eq!(ends.collect::<Vec<_>>(), [(id(1).to_owned(), nth(5), "not wanted".to_owned()), stopped]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_whose_start_takes_for_ever_is_given_up_and_a_freeze_meanwhile_is_not_forgotten() {
    let bed = Bed::with("exit 0", "hooks = { post = [\"true\"] }");
    let (engine, stuck) = tired("hooked", 1);
    let (instances, _, _lock) = instances(&bed, "hooked", engine);
    begin(&instances, 1).await;
    tokio::time::timeout(LIMIT, stuck.notified()).await.expect("the hook");
    let instance = || id(1).to_owned();
    let freeze = RunnerCommand::Freeze { instance: instance(), token: nth(3) };
    let stop = |token, reason: &str| {
        let (instance, reason) = (instance(), reason.to_owned());
        RunnerCommand::Stop { instance, token: nth(token), reason, grace_ms: 100_000 }
    };
    for command in [freeze, stop(2, "older than the freeze"), stop(4, "not wanted")] {
        instances.command(command, "", &reign()).await.unwrap();
    }
    let end = told(&instances, has_exited).await;
    let What::Exited { reason, .. } = end.what else { unreachable!("that was waited for") };
    assert_eq!((end.token, reason.as_str()), (nth(4), "not wanted"));
    instances.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_run_was_given_goes_with_it_also_if_it_never_began() {
    let bed = Bed::with("exec sleep 1000", "hooks = { pre = [\"sleep 1000\"] }");
    let (engine, stuck) = tired("given", 1);
    let (instances, ledger, _lock) = instances(&bed, "given", engine);
    begin(&instances, 1).await;
    instances.command(started_by(2), ACCESS, &reign()).await.unwrap();
    tokio::time::timeout(LIMIT, stuck.notified()).await.expect("its start");
    let kept = async || {
        let held = ledger.held().await.unwrap();
        held.into_iter().map(|row| row.input).collect::<Vec<_>>()
    };
    assert_eq!(kept().await, ["{}", "{}"], "no agent has begun yet");
    for number in [1, 2] {
        let (instance, reason) = (id(number).to_owned(), "not wanted".to_owned());
        let stop = RunnerCommand::Stop { instance, token: nth(2), reason, grace_ms: 0 };
        instances.command(stop, "", &reign()).await.unwrap();
    }
    told(&instances, has_exited).await;
    told(&instances, |report| matches!(report.what, What::StartFailed { .. })).await;
    assert_eq!(kept().await, ["", ""]);
    instances.leave().await;
}

/// Stands in the middle of a start for ever and does nothing more, as a runner that has crashed. Gives the file that is
/// there until the instance begins.
async fn crash_in_the_middle(bed: &Bed, mark: &str) -> PathBuf {
    let (former, ledger, _lock) = instances(bed, mark, stubborn(mark, 0, true));
    former.command(started_by(1), ACCESS, &reign()).await.unwrap();
    let starting = async {
        while ledger.row(id(1)).await.unwrap().unwrap().state != State::Starting {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, starting).await.expect("it is about to begin");
    let unbegun = bed.data().join("unbegun").join(id(1));
    assert!(unbegun.exists(), "nothing has begun");
    unbegun
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_the_runner_was_in_the_middle_of_when_it_crashed_is_made_again_if_nothing_has_begun() {
    let bed = Bed::new("exec sleep 1000");
    let unbegun = crash_in_the_middle(&bed, "middle").await;
    let (instances, ledger, _lock) = instances(&bed, "middle", stubborn("middle", 0, false));
    instances.reconcile().await.unwrap();
    assert!(ledger.row(id(1)).await.unwrap().is_none() && !unbegun.exists());

    begin(&instances, 1).await;
    until(|| (!unbegun.exists()).then_some(())).await;
    assert_eq!(marked(id(1)).len(), 1);
    instances.leave().await;
}

/// Its program may have begun, and nothing of it is left: it is not begun again.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_the_runner_was_in_the_middle_of_when_it_crashed_fails_if_it_may_have_begun() {
    let bed = Bed::new("exec sleep 1000");
    let reign = reign();
    // As what becomes the program does.
    fs::remove_file(crash_in_the_middle(&bed, "begun").await).unwrap();
    let (instances, ledger, _lock) = instances(&bed, "begun", stubborn("begun", 0, false));
    instances.reconcile().await.unwrap();
    instances.command(started_by(1), ACCESS, &reign).await.unwrap();
    let reason = "the runner ended while it started this instance".to_owned();
    let failed = What::StartFailed { reason, usage: None };
    let told: Vec<_> =
        ledger.reports(0, 10).await.unwrap().into_iter().map(|(_, report)| report.what).collect();
    assert_eq!(told, [failed.clone(), failed], "once by itself, and once for the start that came again");
    assert!(instances.live().is_empty() && marked(id(1)).is_empty());
    instances.leave().await;
}

/// Lives with a runner for some time, and lets it crash: all that it has open is shut, and what it has started runs on.
pub(crate) fn crash_after(life: impl AsyncFnOnce() + Send) {
    let live = || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(life());
        runtime.shutdown_timeout(LIMIT);
    };
    // A test's instances are told by the name of its thread.
    let name = std::thread::current().name().unwrap().to_owned();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name).spawn_scoped(scope, live);
        thread.unwrap().join().unwrap();
    });
}

/// Crashes once a start has begun that nothing was written down of. Gives the instance's first process.
fn crash_once_begun(
    bed: &Bed,
    (mark, starts): (&str, u32),
    life: impl AsyncFnOnce(Arc<Instances>) + Send,
) -> u32 {
    crash_after(async || {
        let (engine, stuck) = mute(mark, starts);
        let (former, _, _lock) = instances(bed, mark, engine);
        life(former).await;
        tokio::time::timeout(LIMIT, stuck.notified()).await.expect("its start");
        let unbegun = bed.data().join("unbegun").join(id(1));
        until(|| (!unbegun.exists()).then_some(())).await;
    });
    marked(id(1))[0].pid
}

#[tokio::test(flavor = "multi_thread")]
async fn what_had_begun_when_its_runner_crashed_goes_on_though_nothing_of_it_was_written_down() {
    let bed = Bed::new("exec sleep 1000");
    let begun = crash_once_begun(&bed, ("found", 0), async |former| {
        former.command(started_by(1), ACCESS, &reign()).await.unwrap();
    });
    let (instances, ledger, _lock) = instances(&bed, "found", stubborn("found", 0, false));
    instances.reconcile().await.unwrap();
    // It comes again, for nobody has heard of it.
    begin(&instances, 1).await;
    let reports = ledger.reports(0, 10).await.unwrap();
    assert!(reports.iter().all(|(_, report)| report.what == What::Started { pid: begun }), "{reports:?}");
    assert_eq!(marked(id(1)).len(), 1, "it was begun twice");
    let (instance, reason) = (id(1).to_owned(), "not wanted".to_owned());
    let stop = RunnerCommand::Stop { instance, token: nth(2), reason, grace_ms: 0 };
    instances.command(stop, "", &reign()).await.unwrap();
    told(&instances, has_exited).await;
    assert!(marked(id(1)).is_empty());
    instances.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_can_say_of_an_instance_that_may_have_begun_is_asked_again_and_not_decided() {
    let bed = Bed::new("exec sleep 1000");
    let begun = crash_once_begun(&bed, ("unsure", 0), async |former| {
        former.command(started_by(1), ACCESS, &reign()).await.unwrap();
    });
    // It is asked again after the start of the runner has gone on.
    let (instances, _, _lock) = instances(&bed, "unsure", unsure("unsure", 2));
    instances.reconcile().await.unwrap();
    assert!(instances.follows(id(1)), "it counts as ended");
    let first = told(&instances, |report| report.instance == id(1)).await;
    assert_eq!(first.what, What::Started { pid: begun });
    // It is followed as any other.
    let (instance, reason) = (id(1).to_owned(), "not wanted".to_owned());
    let stop = RunnerCommand::Stop { instance, token: nth(2), reason, grace_ms: 0 };
    instances.command(stop, "", &reign()).await.unwrap();
    assert_eq!(told(&instances, has_exited).await.token, nth(2));
    assert!(marked(id(1)).is_empty(), "it runs on");
    instances.leave().await;
}

/// The ledger knows nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_stray_that_cannot_be_ended_at_the_start_is_ended_once_it_can() {
    let bed = Bed::new("exec sleep 1000");
    crash_after(async || {
        let (former, ledger, _lock) = instances(&bed, "astray", stubborn("astray", 0, false));
        begin(&former, 1).await;
        ledger.remove(id(1)).await.unwrap();
        // That it had begun.
        ledger.acknowledge(1).await.unwrap();
    });
    let left = marked(id(1))[0].pid;
    let (instances, _, _lock) = instances(&bed, "astray", unswept("astray", 2));
    instances.reconcile().await.unwrap();
    // A start of that name waits until then.
    begin(&instances, 1).await;
    let pids: Vec<u32> = marked(id(1)).iter().map(|process| process.pid).collect();
    assert!(pids.len() == 1 && pids[0] != left, "{left} and {pids:?}");
    instances.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_had_woken_when_its_runner_crashed_goes_on_though_nothing_of_it_was_written_down() {
    let bed = Bed::new("exec sleep 1000");
    let begun = crash_once_begun(&bed, ("awake", 1), async |former| {
        begin(&former, 1).await;
        sleep_and_wake(&former, 1).await;
    });
    let (instances, _, _lock) = instances(&bed, "awake", stubborn("awake", 0, false));
    instances.reconcile().await.unwrap();
    let woke = told(&instances, |report| matches!(report.what, What::Restored { .. })).await;
    assert_eq!(woke.what, What::Restored { pid: begun });
    assert_eq!(marked(id(1)).len(), 1, "it was woken twice");
    instances.leave().await;
}

/// Stands in the middle of waking an instance for ever, as a runner that has crashed. Gives the file that is there
/// until the instance begins.
async fn crash_while_it_wakes(bed: &Bed, mark: &str) -> PathBuf {
    let (engine, stuck) = tired(mark, 1);
    let (former, _, _lock) = instances(bed, mark, engine);
    begin(&former, 1).await;
    sleep_and_wake(&former, 1).await;
    tokio::time::timeout(LIMIT, stuck.notified()).await.expect("its start");
    let unbegun = bed.data().join("unbegun").join(id(1));
    assert!(unbegun.exists(), "nothing has begun");
    unbegun
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_whose_runner_crashed_while_it_woke_is_woken_again_if_it_had_not_begun() {
    let bed = Bed::new("exec sleep 1000");
    crash_while_it_wakes(&bed, "waking").await;
    let (instances, _, _lock) = instances(&bed, "waking", stubborn("waking", 0, false));
    instances.reconcile().await.unwrap();
    told(&instances, |report| matches!(report.what, What::Restored { .. })).await;
    assert_eq!(marked(id(1)).len(), 1);
    instances.leave().await;
}

/// What woke it is shown to it once.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_whose_runner_crashed_while_it_woke_fails_if_it_may_have_begun() {
    let bed = Bed::new("exec sleep 1000");
    fs::remove_file(crash_while_it_wakes(&bed, "woken").await).unwrap();
    let (instances, _, _lock) = instances(&bed, "woken", stubborn("woken", 0, false));
    instances.reconcile().await.unwrap();
    let end = told(&instances, |report| matches!(report.what, What::StartFailed { .. })).await;
    let reason = "the runner ended while it started this instance again".to_owned();
    assert_eq!(end.what, What::StartFailed { reason, usage: None });
    assert!(marked(id(1)).is_empty());
    instances.leave().await;
}

/// After a crash it would be begun a second time.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_cannot_be_written_down_does_not_begin() {
    let bed = Bed::new("exec sleep 1000");
    let reign = reign();
    let (instances, ledger, _lock) = instances(&bed, "unwritten", stubborn("unwritten", 0, false));
    let full = "CREATE TRIGGER full BEFORE UPDATE ON instance WHEN NEW.data ->> 'state' = 'starting'
                BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    rusqlite::Connection::open(bed.data().join("ledger.sqlite")).unwrap().execute_batch(full).unwrap();
    let mut reported = instances.reported();
    instances.command(started_by(1), ACCESS, &reign).await.unwrap();
    tokio::time::timeout(LIMIT, reported.changed()).await.expect("its end").unwrap();
    let reports = ledger.reports(0, 10).await.unwrap();
    let [(_, report)] = &reports[..] else { panic!("{reports:?}") };
    let What::StartFailed { reason, .. } = &report.what else { panic!("{report:?}") };
    assert!(reason.contains("could not be written down") && reason.contains("the disk is full"), "{reason}");
    assert!(marked(id(1)).is_empty(), "it began");
    instances.leave().await;
}

/// Each coordinator has a stream of its own, and may start something at the same moment.
#[tokio::test(flavor = "multi_thread")]
async fn instances_that_start_at_one_moment_have_users_of_their_own() {
    let bed = Bed::new("exec sleep 1000");
    let (instances, ledger, _lock) = instances(&bed, "moment", stubborn("moment", 0, false));
    let reign = reign();
    let starts = (1..=8).map(|number| {
        let (instances, reign) = (Arc::clone(&instances), reign.clone());
        let command = started_by(number);
        tokio::spawn(async move { instances.command(command, ACCESS, &reign).await })
    });
    for start in starts.collect::<Vec<_>>() {
        start.await.unwrap().unwrap();
    }
    let users: Vec<_> = ledger.held().await.unwrap().into_iter().map(|row| row.user).collect();
    instances.leave().await;
    let mut different: Vec<u32> = users.iter().map(|user| user.expect("the tests run as root").uid).collect();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), 8, "{users:?}");
}
