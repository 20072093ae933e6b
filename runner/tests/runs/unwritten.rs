//! A ledger that cannot be written for a while, as on a disk that is full, and what would be lost of an instance by
//! that.

use serde_json::json;
use skein_runner::instance::ledger::{Report, Row, State, What};
use skein_shared::Code;
use skein_shared::entity::{Reign, RunnerCommand};
use skein_shared::fence::{Epoch, Token};

use crate::stubborn::{begin, has_exited, instances, nth, reign, started_by, stubborn, told};

use super::*;

/// Has the ledger take no end of an instance, or take it again.
fn refuse_ends(bed: &Bed, refuse: bool) {
    let full = "CREATE TRIGGER full BEFORE UPDATE ON instance WHEN NEW.data ->> 'state' = 'ended'
                BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    let change = if refuse { full } else { "DROP TRIGGER full" };
    rusqlite::Connection::open(bed.data().join("ledger.sqlite")).unwrap().execute_batch(change).unwrap();
}

/// Otherwise its agent would take it for alive for ever.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_cannot_be_written_down_is_reported_once_it_can() {
    let bed = Bed::new("while [ ! -e end ]; do sleep 0.02; done; exit 3");
    let (instances, _, _lock) = instances(&bed, "late", stubborn("late", 0, false));
    begin(&instances, 1).await;
    refuse_ends(&bed, true);
    fs::write(bed.work("end"), "").unwrap();
    let is_there = async || {
        let told = instances.tool(id(1), "ls", json!({})).await;
        !told.is_err_and(|refusal| refusal.code == Code::NotFound)
    };
    let is_over = async { while is_there().await {} };
    tokio::time::timeout(LIMIT, is_over).await.expect("its end");
    assert_eq!(instances.live(), [id(1)], "nobody tries again");
    refuse_ends(&bed, false);
    let end = told(&instances, has_exited).await;
    assert!(matches!(end.what, What::Exited { exit, .. } if exit.code == Some(3)), "{end:?}");
    instances.leave().await;
    assert_eq!(instances.ledger().reports(0, 10).await.unwrap().len(), 2, "it was said more than once");
}

/// Nobody would command it again before the runner registers anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_waited_for_an_earlier_end_comes_once_it_can_be_written_down() {
    let bed = Bed::new("exec sleep 1000");
    let (instances, _, _lock) = instances(&bed, "anew", stubborn("anew", 0, false));
    begin(&instances, 1).await;
    let change = |change: &str| {
        rusqlite::Connection::open(bed.data().join("ledger.sqlite")).unwrap().execute_batch(change).unwrap();
    };
    change(
        "CREATE TRIGGER full BEFORE UPDATE ON instance WHEN NEW.data ->> 'state' = 'accepted'
         BEGIN SELECT RAISE(ABORT, 'the disk is full'); END",
    );
    let RunnerCommand::Start { instance, agent, swarm, input, .. } = started_by(1) else { unreachable!() };
    let anew = RunnerCommand::Start { instance, agent, swarm, token: nth(2), input };
    instances.command(anew, ACCESS, &reign()).await.unwrap();
    told(&instances, has_exited).await;
    until(|| instances.live().is_empty().then_some(())).await;
    // It comes behind the first try.
    let forget = RunnerCommand::Forget { instance: id(2).to_owned(), token: nth(1) };
    instances.command(forget, "", &reign()).await.unwrap();
    change("DROP TRIGGER full");
    let began = |report: &Report| report.token == nth(2) && matches!(report.what, What::Started { .. });
    told(&instances, began).await;
    instances.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_leaves_though_it_cannot_write_an_end_down_and_its_next_start_finds_it_out() {
    let bed = Bed::new("exec sleep 1000");
    let (former, ledger, lock) = instances(&bed, "leaves", stubborn("leaves", 0, false));
    begin(&former, 1).await;
    refuse_ends(&bed, true);
    tokio::time::timeout(LIMIT, former.leave()).await.expect("the runner can leave");
    assert!(marked(id(1)).is_empty());
    drop((former, ledger, lock));

    let (instances, _, _lock) = instances(&bed, "leaves", stubborn("leaves", 0, false));
    let refused = instances.reconcile().await.unwrap_err().to_string();
    assert!(refused.contains("the disk is full"), "{refused}");
    refuse_ends(&bed, false);
    instances.reconcile().await.unwrap();
    let end = told(&instances, has_exited).await;
    assert!(matches!(end.what, What::Exited { reason, .. } if reason.contains("while the runner was away")));
    instances.leave().await;
}

/// What has filled the disk may be what it is told to end.
#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_can_write_nothing_down_of_what_is_said_to_it_does_what_it_is_told() {
    use v1::report::What;

    let coordinator = Coordinator::open(MCP, LEASE).await;
    let mut bed = Bed::new("exec sleep 1000");
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.say(start(id(1), 1)).await;
    coordinator.reported(id(1), |what| matches!(what, What::Started(_))).await;
    let change = |change: &str| {
        rusqlite::Connection::open(bed.data().join("ledger.sqlite")).unwrap().execute_batch(change).unwrap();
    };
    change(
        "CREATE TRIGGER unsaid BEFORE INSERT ON announced BEGIN SELECT RAISE(ABORT, 'the disk is full'); END;
         CREATE TRIGGER unheard BEFORE DELETE ON report BEGIN SELECT RAISE(ABORT, 'the disk is full'); END;
         CREATE TRIGGER unheld BEFORE INSERT ON instance WHEN NEW.id LIKE '%2'
         BEGIN SELECT RAISE(ABORT, 'the disk is full'); END",
    );
    coordinator.say(start(id(2), 1)).await;
    coordinator.say(freeze(id(1), 2)).await;
    coordinator.reported(id(1), |what| matches!(what, What::Frozen(_))).await;
    coordinator.say(thaw(id(1), 3)).await;
    coordinator.reported(id(1), |what| matches!(what, What::Thawed(_))).await;
    let state = coordinator.until("all that was said", |_| true).await;
    assert_eq!(state.registrations.len(), 1, "it has hung up");

    coordinator.hang_up().await;
    coordinator.until("registration", |state| state.registrations.len() == 2).await;
    coordinator.say(stop(id(1), 4)).await;
    coordinator.reported(id(1), |what| matches!(what, What::Exited(_))).await;
    assert!(marked(id(1)).is_empty());
    change("DROP TRIGGER unsaid; DROP TRIGGER unheard; DROP TRIGGER unheld");
    bed.leave().await.unwrap();
}

/// Nobody else can end what has filled the disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_owner_is_obeyed_and_a_former_one_refused_though_it_cannot_be_written_down_who_commands() {
    let bed = Bed::new("exec sleep 1000");
    let (instances, ledger, _lock) = instances(&bed, "reigns", stubborn("reigns", 0, false));
    begin(&instances, 1).await;
    let change = |change: &str| {
        rusqlite::Connection::open(bed.data().join("ledger.sqlite")).unwrap().execute_batch(change).unwrap();
    };
    change(
        "CREATE TRIGGER unruled BEFORE INSERT ON reign BEGIN SELECT RAISE(ABORT, 'the disk is full'); END",
    );
    let second = Reign { epoch: Epoch(2), ..reign() };
    let (instance, token) = (id(1).to_owned(), Token { epoch: Epoch(2), number: 1 });
    let freeze = RunnerCommand::Freeze { instance: instance.clone(), token };
    assert_eq!(instances.command(freeze, "", &second).await.unwrap(), None);
    told(&instances, |report| report.what == What::Frozen).await;
    let thaw = RunnerCommand::Thaw { instance: instance.clone(), token: nth(9) };
    assert_eq!(instances.command(thaw, "", &reign()).await.unwrap(), Some(second.clone()));
    let (reason, token) = ("not wanted".to_owned(), Token { epoch: Epoch(2), number: 2 });
    let stop = RunnerCommand::Stop { instance, token, reason, grace_ms: 0 };
    assert_eq!(instances.command(stop, "", &second).await.unwrap(), None);
    told(&instances, has_exited).await;
    assert!(marked(id(1)).is_empty());
    change("DROP TRIGGER unruled");
    assert_eq!(ledger.reign(&reign()).await.unwrap(), Epoch(2));
    instances.leave().await;
}

/// Its agent would wait for the word for ever.
#[tokio::test(flavor = "multi_thread")]
async fn that_an_instance_sleeps_is_reported_once_it_can_be_written_down() {
    let bed = Bed::new("exec sleep 1000");
    let (instances, ledger, _lock) = instances(&bed, "asleep", stubborn("asleep", 0, false));
    begin(&instances, 1).await;
    let freeze = RunnerCommand::Freeze { instance: id(1).to_owned(), token: nth(2) };
    instances.command(freeze, "", &reign()).await.unwrap();
    told(&instances, |report| matches!(report.what, What::Frozen)).await;

    let change = |change: &str| {
        rusqlite::Connection::open(bed.data().join("ledger.sqlite")).unwrap().execute_batch(change).unwrap();
    };
    change(
        "CREATE TRIGGER full BEFORE INSERT ON report WHEN NEW.data LIKE '%spilled%'
         BEGIN SELECT RAISE(ABORT, 'the disk is full'); END",
    );
    let spill = RunnerCommand::Spill { instance: id(1).to_owned(), token: nth(3) };
    instances.command(spill, "", &reign()).await.unwrap();
    until(|| marked(id(1)).is_empty().then_some(())).await;
    assert_eq!(ledger.reports(0, 10).await.unwrap().len(), 2, "it has begun, and it stands still");
    change("DROP TRIGGER full");
    told(&instances, |report| matches!(report.what, What::Spilled)).await;
    instances.leave().await;
}

/// However that came about.
#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_follows_any_more_ends_with_the_next_command() {
    let bed = Bed::new("true");
    let engine = stubborn("signals", 0, false);
    let (instances, ledger, _lock) = instances(&bed, "signals", Arc::clone(&engine));
    for number in [1, 2] {
        let handle = engine.start(&spec(bed.folder.path(), id(number), "exec sleep 1000")).await.unwrap();
        let row = Row::new(id(number).into(), "default".into(), "worker".into(), nth(2), "");
        ledger.save(Row { state: State::Running, handle: Some(handle), ..row }, None).await.unwrap();
    }
    let forsaken = |number| id(number).to_owned();
    let reason = String::new();
    let stop = RunnerCommand::Stop { instance: forsaken(1), token: nth(3), reason, grace_ms: 0 };
    // Of a former command.
    let late = RunnerCommand::Thaw { instance: forsaken(2), token: nth(1) };
    for command in [late, stop] {
        instances.command(command, "", &reign()).await.unwrap();
    }
    let end = told(&instances, has_exited).await;
    assert_eq!((end.instance.as_str(), end.token), (id(1), nth(3)));
    assert!(marked(id(1)).is_empty(), "it runs on");
    assert!(is_running(id(2)));
    let freeze = RunnerCommand::Freeze { instance: forsaken(2), token: nth(2) };
    instances.command(freeze, "", &reign()).await.unwrap();
    told(&instances, |report| report.instance == id(2) && has_exited(report)).await;
    assert!(marked(id(2)).is_empty(), "it runs on");
    instances.leave().await;
}
