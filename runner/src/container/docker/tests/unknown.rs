//! Instances of which nobody can say what has become, for their daemon does not answer, or is not there.

use std::os::unix::process::ExitStatusExt;

use skein_shared::Code;
use skein_shared::entity::{Reign, RunnerCommand};
use skein_shared::fence::{Epoch, Token};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::container::Isolation;
use crate::credentials::Credentials;
use crate::definition;
use crate::endpoint::Upstreams;
use crate::instance::folders::{Folders, Lock};
use crate::instance::ledger::{Ledger, Report, Row, State, What};
use crate::instance::{self, Shared};

/// A runner whose ledger has these instances from an earlier start, before it has looked what has become of them.
async fn runner(folder: &TempDir, engine: Arc<Engines>, rows: Vec<Row>) -> (Arc<instance::Instances>, Lock) {
    let agent = folder.path().join("agents/worker");
    std::fs::create_dir_all(&agent).unwrap();
    std::fs::write(agent.join("agent.toml"), "image = 'my/agent:1'\n").unwrap();
    let agents = definition::load(&folder.path().join("agents"), &[]).unwrap();
    let (data, work) = (folder.path().join("data"), folder.path().join("work"));
    let (folders, lock) = Folders::open(&data, Some(&work), Isolation::None).unwrap();
    let ledger = Ledger::open(&folders.ledger()).unwrap();
    for row in rows {
        ledger.save(row, None).await.unwrap();
    }
    let shared = Shared {
        mark: "r1".to_owned(),
        engine,
        users: None,
        ledger,
        folders,
        closed: Vec::new(),
        credentials: Credentials::new(folder.path().join("credentials")),
        agent_commands: None,
        definitions: channel::Sender::new(agents.definitions).subscribe(),
        upstreams: Upstreams::default(),
        reported: channel::Sender::new(0),
        silent: channel::Sender::new(true),
        leaving: CancellationToken::new(),
    };
    (instance::Instances::new(shared), lock)
}

fn nth(number: u64) -> Token {
    Token { epoch: Epoch(1), number }
}

fn row(instance: &str, state: State, handle: Option<Handle>) -> Row {
    let row = Row::new(instance.to_owned(), "default".to_owned(), "worker".to_owned(), nth(1), "");
    Row { state, handle, ..row }
}

/// The first report of an instance, once there is one.
async fn report(instances: &instance::Instances, of: &str) -> Report {
    let mut reported = instances.reported();
    loop {
        let reports = instances.ledger().reports(0, 100).await.unwrap();
        if let Some((_, report)) = reports.into_iter().find(|(_, report)| report.instance == of) {
            return report;
        }
        tokio::time::timeout(END_OF_TIME, reported.changed()).await.unwrap().unwrap();
    }
}

async fn stop(instances: &Arc<instance::Instances>, instance: &str) {
    let reign = Reign { source: "agent/default/worker".parse().unwrap(), epoch: Epoch(1) };
    let (instance, reason) = (instance.to_owned(), "not wanted".to_owned());
    let stop = RunnerCommand::Stop { instance, token: nth(2), reason, grace_ms: 0 };
    assert_eq!(instances.command(stop, "", &reign).await.unwrap(), None);
}

/// Of one it cannot say whether it has begun, and another, which is no container, has ended.
#[tokio::test]
async fn a_daemon_that_never_answers_leaves_one_instance_unknown_and_holds_up_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Arc::new(Daemon { made: Mutex::new(true), pauses: true, ..Daemon::default() });
    daemon.hangs.send_replace(true);
    let docker = engine(&daemon, folder.path());
    let engines = Engines::new(ProcessEngine::with_cgroups("r1", Vec::new(), None), Ok(docker));
    let plain = Handle { instance: "worker-2".to_owned(), container: None, ..tool().0 };
    let rows = vec![row("worker-1", State::Starting, None), row("worker-2", State::Running, Some(plain))];
    let (instances, _lock) = runner(&folder, Arc::new(engines), rows).await;

    instances.reconcile_within(Duration::from_millis(100)).await.unwrap();
    let ended = report(&instances, "worker-2").await;
    assert!(matches!(ended.what, What::Exited { .. }), "{ended:?}");
    assert!(instances.follows("worker-1"), "it counts as ended");
    instances.verdict([]);
    let unknown = instances.tool("worker-1", "ls", json!({})).await.unwrap_err();
    assert_eq!(unknown.code, Code::Unavailable);
    assert!(unknown.message.contains("what has become of worker-1 is not known now"), "{unknown}");
    assert_eq!(instances.ledger().reports(0, 100).await.unwrap().len(), 1, "its end was reported");

    daemon.hangs.send_replace(false);
    assert_eq!(report(&instances, "worker-1").await.what, What::Started { pid: 0 });
    assert!(instances.follows("worker-1") && !*lock(&daemon.removed));
}

/// Nothing of it can be anywhere, so nobody has to be asked.
#[tokio::test]
async fn what_sleeps_outside_of_containers_hears_what_it_is_told_though_a_daemon_never_answers() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Arc::new(Daemon::default());
    daemon.hangs.send_replace(true);
    let docker = engine(&daemon, folder.path());
    let engines = Engines::new(ProcessEngine::with_cgroups("r1", Vec::new(), None), Ok(docker));
    let rows = vec![row("worker-1", State::Spilled, None)];
    let (instances, _lock) = runner(&folder, Arc::new(engines), rows).await;
    instances.reconcile_within(Duration::from_millis(100)).await.unwrap();
    instances.verdict([]);
    stop(&instances, "worker-1").await;
    let ended = report(&instances, "worker-1").await;
    let What::Exited { reason, .. } = &ended.what else { panic!("{ended:?}") };
    assert_eq!(reason, "not wanted");
}

#[tokio::test]
async fn what_lives_in_a_container_waits_for_docker_with_what_it_is_told_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Arc::new(Daemon { made: Mutex::new(true), pauses: true, ..Daemon::default() });
    let missing = Err(Failure("Docker is not there".to_owned()));
    let engines = Arc::new(Engines::new(ProcessEngine::with_cgroups("r1", Vec::new(), None), missing));
    let rows = vec![row("worker-1", State::Running, Some(tool().0))];
    let (instances, _lock) = runner(&folder, Arc::clone(&engines), rows).await;

    instances.reconcile_within(END_OF_TIME).await.unwrap();
    instances.verdict([]);
    stop(&instances, "worker-1").await;
    let unknown = instances.tool("worker-1", "ls", json!({})).await.unwrap_err();
    assert!(unknown.message.contains("Docker is not there"), "{unknown}");
    assert!(instances.follows("worker-1") && instances.ledger().reports(0, 1).await.unwrap().is_empty());

    let docker = engine(&daemon, folder.path());
    engines.has_come(docker, |instance| instances.follows(instance)).await;
    assert!(!*lock(&daemon.removed), "an instance of the runner's was taken for a stray");
    let ended = report(&instances, "worker-1").await;
    let What::Exited { reason, .. } = &ended.what else { panic!("{ended:?}") };
    assert_eq!((ended.token, reason.as_str()), (nth(2), "not wanted"));
    assert!(*lock(&daemon.removed), "its container is there still");
}

#[tokio::test]
async fn a_runner_that_leaves_does_not_wait_for_a_daemon_and_its_next_start_goes_on_with_what_that_holds() {
    let folder = tempfile::tempdir().unwrap();
    let missing = Err(Failure("Docker is not there".to_owned()));
    let engines = Engines::new(ProcessEngine::with_cgroups("r1", Vec::new(), None), missing);
    // As the kernel shows one whose freezer obeys.
    let group = folder.path().join("group");
    std::fs::create_dir(&group).unwrap();
    std::fs::write(group.join("cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
    let handle = Handle { cgroup: Some(group.clone()), ..tool().0 };
    let rows = vec![row("worker-1", State::Running, Some(handle))];
    let (instances, _lock) = runner(&folder, Arc::new(engines), rows).await;
    instances.reconcile_within(END_OF_TIME).await.unwrap();
    tokio::time::timeout(END_OF_TIME, instances.leave()).await.expect("the runner can leave");
    assert!(instances.ledger().reports(0, 1).await.unwrap().is_empty(), "an end was reported");
    let held = instances.ledger().held().await.unwrap();
    assert!(matches!(&held[..], [row] if row.state == State::Running && row.handle.is_some()));
    assert_eq!(
        std::fs::read_to_string(group.join("cgroup.freeze")).unwrap(),
        "1",
        "it runs on without a lease"
    );
}

/// Its runner has no lease any more, say, and another has its place.
#[tokio::test]
async fn a_container_is_killed_though_its_daemon_does_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Arc::new(Daemon::default());
    daemon.hangs.send_replace(true);
    let engine = engine(&daemon, folder.path());
    for is_its_own in [false, true] {
        let mut first = tokio::process::Command::new("sleep").arg("1000").kill_on_drop(true).spawn().unwrap();
        let pid = first.id().unwrap();
        let (born, boot) = (Process::read(pid).unwrap().unwrap().born, tree::boot().unwrap().to_owned());
        let cgroup = is_its_own.then(|| folder.path().to_owned());
        let handle = Handle { pid, born, boot, cgroup, ..tool().0 };
        assert!(engine.kill(&handle).now_or_never().is_none(), "the daemon has answered");
        if is_its_own {
            assert_eq!(first.wait().await.unwrap().signal(), Some(9));
        } else {
            assert_eq!(first.try_wait().unwrap(), None, "what has that number here is another's");
        }
    }
}

#[tokio::test]
async fn a_daemon_that_does_not_answer_keeps_no_instance_that_is_asked_to_end_from_its_kill() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Arc::new(Daemon::default());
    daemon.hangs.send_replace(true);
    let (engine, (handle, _)) = (engine(&daemon, folder.path()), tool());
    // Sooner than the client of this test gives up.
    let asked = tokio::time::timeout(ASK + SOON, engine.ask(&handle)).await.expect("it is waited for");
    assert!(asked.is_err(), "it was asked, by a daemon that hangs");
}

#[tokio::test]
async fn a_daemon_that_does_not_answer_keeps_no_runner_from_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Arc::new(Daemon::default());
    daemon.hangs.send_replace(true);
    let engine = engine(&daemon, folder.path());
    // Sooner than the client of this test gives up.
    tokio::time::timeout(ASK + SOON, engine.close()).await.expect("it is waited for");
}
