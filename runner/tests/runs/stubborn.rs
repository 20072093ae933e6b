//! An engine that cannot freeze, thaw or kill at first, as one whose instance waits for the disk, or whose daemon does
//! not answer.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use serde_json::json;
use skein_runner::container::{Container, Exec, Executed, Exit, Failure, User};
use skein_runner::credentials::Credentials;
use skein_runner::definition;
use skein_runner::endpoint::Upstreams;
use skein_runner::instance::folders::{Folders, Lock};
use skein_runner::instance::ledger::{Ledger, Report, What};
use skein_runner::instance::{Instances, Shared, users};
use skein_shared::entity::{Reign, RunnerCommand};
use skein_shared::fence::{Epoch, Token};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::starts::crash_after;

/// Refuses so often, and after `starts` of them a start takes for ever.
struct Stubborn {
    engine: ProcessEngine,
    refuses: Refuses,
    starts: AtomicU32,
    /// Told of each start that takes for ever.
    stuck: Arc<Notify>,
    /// What takes for ever has started all the same.
    starts_then: bool,
    slow: Option<Arc<Slow>>,
}

/// Starts of an engine none of which takes for ever.
const ANY: u32 = u32::MAX;

/// What an engine refuses, and how often still.
#[derive(Default)]
struct Refuses {
    freezes: AtomicU32,
    thaws: AtomicU32,
    kills: AtomicU32,
    sweeps: AtomicU32,
    finds: AtomicU32,
    /// It panics instead.
    panics: bool,
}

/// A freeze that takes as long as a test wants.
#[derive(Default)]
struct Slow {
    begun: Notify,
    go_on: Notify,
}

pub(crate) fn stubborn(mark: &str, refuses: u32, idle: bool) -> Arc<dyn Engine> {
    let refuses = Refuses { freezes: refuses.into(), ..Refuses::default() };
    engine(mark, refuses, if idle { 0 } else { ANY })
}

/// Starts so many times, and then takes for ever.
pub(crate) fn tired(mark: &str, starts: u32) -> (Arc<dyn Engine>, Arc<Notify>) {
    stuck(Stubborn { starts: starts.into(), ..Stubborn::new(mark) })
}

/// The same, but the next one starts too, and nobody hears of it.
pub(crate) fn mute(mark: &str, starts: u32) -> (Arc<dyn Engine>, Arc<Notify>) {
    stuck(Stubborn { starts: starts.into(), starts_then: true, ..Stubborn::new(mark) })
}

fn stuck(engine: Stubborn) -> (Arc<dyn Engine>, Arc<Notify>) {
    let stuck = Arc::clone(&engine.stuck);
    (Arc::new(engine), stuck)
}

fn engine(mark: &str, refuses: Refuses, starts: u32) -> Arc<dyn Engine> {
    Arc::new(Stubborn { refuses, starts: starts.into(), ..Stubborn::new(mark) })
}

/// Refuses its first kill, and so many freezes and thaws before.
fn unreached(mark: &str, freezes: u32, thaws: u32) -> Arc<dyn Engine> {
    let (freezes, thaws) = (freezes.into(), thaws.into());
    refusing(mark, Refuses { freezes, thaws, kills: 1.into(), ..Refuses::default() })
}

/// So many times it cannot say whether there is an instance.
pub(crate) fn unsure(mark: &str, finds: u32) -> Arc<dyn Engine> {
    refusing(mark, Refuses { finds: finds.into(), ..Refuses::default() })
}

/// So many times it cannot end what is left of an instance.
pub(crate) fn unswept(mark: &str, sweeps: u32) -> Arc<dyn Engine> {
    refusing(mark, Refuses { sweeps: sweeps.into(), ..Refuses::default() })
}

fn refusing(mark: &str, refuses: Refuses) -> Arc<dyn Engine> {
    engine(mark, refuses, ANY)
}

/// Counts down what is refused.
fn refused(left: &AtomicU32, problem: &str) -> Result<(), Failure> {
    match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
        Ok(_) => Err(Failure(problem.to_owned())),
        Err(_) => Ok(()),
    }
}

fn slow(mark: &str, slow: &Arc<Slow>) -> Arc<dyn Engine> {
    Arc::new(Stubborn { slow: Some(Arc::clone(slow)), ..Stubborn::new(mark) })
}

impl Stubborn {
    /// Refuses nothing.
    fn new(mark: &str) -> Self {
        Self {
            engine: ProcessEngine::new(mark, launcher()),
            refuses: Refuses::default(),
            starts: ANY.into(),
            stuck: Arc::default(),
            starts_then: false,
            slow: None,
        }
    }
}

#[async_trait]
impl Engine for Stubborn {
    async fn freeze(&self, handle: &Handle) -> Result<(), Failure> {
        assert!(!self.refuses.panics, "the engine has a mistake");
        if let Some(slow) = &self.slow {
            slow.begun.notify_one();
            slow.go_on.notified().await;
        }
        refused(&self.refuses.freezes, "it waits for the disk")?;
        self.engine.freeze(handle).await
    }

    fn names(&self) -> Vec<&'static str> {
        self.engine.names()
    }

    async fn door(&self, container: Option<&Container>) -> Result<IpAddr, Failure> {
        self.engine.door(container).await
    }

    async fn start(&self, spec: &Spec) -> Result<Handle, Failure> {
        if refused(&self.starts, "").is_ok() {
            if self.starts_then {
                self.engine.start(spec).await?;
            }
            self.stuck.notify_one();
            std::future::pending::<()>().await;
        }
        self.engine.start(spec).await
    }

    async fn find(&self, instance: &str, user: Option<User>) -> Result<Option<Handle>, Failure> {
        refused(&self.refuses.finds, "the daemon does not answer")?;
        self.engine.find(instance, user).await
    }

    async fn adopt(&self, handle: &Handle, log: &Path) -> bool {
        self.engine.adopt(handle, log).await
    }

    async fn thaw(&self, handle: &Handle) -> Result<(), Failure> {
        refused(&self.refuses.thaws, "the daemon does not answer")?;
        self.engine.thaw(handle).await
    }

    async fn ask(&self, handle: &Handle) -> Result<(), Failure> {
        self.engine.ask(handle).await
    }

    async fn kill(&self, handle: &Handle) -> Result<(), Failure> {
        refused(&self.refuses.kills, "the daemon does not answer")?;
        self.engine.kill(handle).await
    }

    async fn exec(&self, handle: &Handle, exec: &Exec) -> Result<Executed, Failure> {
        self.engine.exec(handle, exec).await
    }

    async fn wait(&self, handle: &Handle) -> Exit {
        self.engine.wait(handle).await
    }

    fn let_go(&self, handle: &Handle) {
        self.engine.let_go(handle);
    }

    async fn list(&self) -> Vec<String> {
        self.engine.list().await
    }

    async fn sweep(&self, instance: &str) -> Result<(), Failure> {
        refused(&self.refuses.sweeps, "the daemon does not answer")?;
        self.engine.sweep(instance).await
    }

    async fn close(&self) {
        self.engine.close().await;
    }
}

pub(crate) fn nth(number: u64) -> Token {
    Token { epoch: Epoch(1), number }
}

/// The owner of the agent of a bed.
pub(crate) fn reign() -> Reign {
    Reign { source: "agent/default/worker".parse().unwrap(), epoch: Epoch(1) }
}

/// Waits for a report.
pub(crate) async fn told(instances: &Instances, what: impl Fn(&Report) -> bool) -> Report {
    let mut reported = instances.reported();
    loop {
        let reports = instances.ledger().reports(0, 100).await.unwrap();
        if let Some((_, report)) = reports.into_iter().find(|(_, report)| what(report)) {
            return report;
        }
        tokio::time::timeout(LIMIT, reported.changed()).await.expect("a report").unwrap();
    }
}

/// Starts an instance, and returns when it has begun.
pub(crate) async fn begin(instances: &Arc<Instances>, number: u32) {
    instances.command(started_by(number), ACCESS, &reign()).await.unwrap();
    let began =
        |report: &Report| report.instance == id(number) && matches!(report.what, What::Started { .. });
    told(instances, began).await;
}

pub(crate) fn has_exited(report: &Report) -> bool {
    matches!(report.what, What::Exited { .. })
}

/// The instances of a runner without streams, on a bed's folders.
pub(crate) fn instances(bed: &Bed, mark: &str, engine: Arc<dyn Engine>) -> (Arc<Instances>, Ledger, Lock) {
    let isolation = skein_runner::isolation();
    let (folders, lock) = Folders::open(&bed.data(), None, isolation).unwrap();
    let ledger = Ledger::open(&folders.ledger()).unwrap();
    let agents = definition::load(&bed.folder.path().join("agents"), &[]).unwrap();
    let instances = Instances::new(Shared {
        mark: mark.to_owned(),
        engine,
        users: (isolation == Isolation::Users).then(|| users::claim(&folders, None).unwrap()),
        ledger: ledger.clone(),
        folders,
        closed: Vec::new(),
        credentials: Credentials::new(bed.folder.path().join("credentials")),
        agent_commands: None,
        definitions: watch::Sender::new(agents.definitions).subscribe(),
        upstreams: Upstreams::default(),
        reported: watch::Sender::new(0),
        silent: watch::Sender::new(false),
        leaving: CancellationToken::new(),
    });
    (instances, ledger, lock)
}

pub(crate) fn started_by(number: u32) -> RunnerCommand {
    RunnerCommand::Start {
        instance: id(number).to_owned(),
        agent: "worker".to_owned(),
        swarm: "default".to_owned(),
        token: nth(1),
        input: json!({}),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_freeze_that_fails_is_tried_again() {
    let bed = Bed::new("exec sleep 1000");
    let (instances, _, _lock) = instances(&bed, "stubborn", stubborn("stubborn", 1, false));
    let reign = reign();
    begin(&instances, 1).await;
    let freeze = RunnerCommand::Freeze { instance: id(1).to_owned(), token: nth(2) };
    instances.command(freeze, "", &reign).await.unwrap();
    told(&instances, |report| report.what == What::Frozen).await;
    assert!(is_frozen(id(1)));
    instances.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_comes_during_a_freeze_waits_behind_no_tool_and_is_not_lost() {
    let bed = Bed::new("exec sleep 1000");
    let freezing = Arc::new(Slow::default());
    let (instances, _, _lock) = instances(&bed, "slow", slow("slow", &freezing));
    let reign = reign();
    begin(&instances, 1).await;
    let freeze = RunnerCommand::Freeze { instance: id(1).to_owned(), token: nth(2) };
    instances.command(freeze, "", &reign).await.unwrap();
    tokio::time::timeout(LIMIT, freezing.begun.notified()).await.expect("the freeze");
    // More than there is room for.
    let mut calls: Vec<_> = (0..40).map(|_| Box::pin(instances.tool(id(1), "ls", json!({})))).collect();
    for call in &mut calls {
        assert!(futures::poll!(call.as_mut()).is_pending());
    }
    let reason = "killed".to_owned();
    let stop = RunnerCommand::Stop { instance: id(1).to_owned(), token: nth(3), reason, grace_ms: 100 };
    instances.command(stop, "", &reign).await.unwrap();
    freezing.go_on.notify_one();
    told(&instances, has_exited).await;
    let refused = tokio::time::timeout(LIMIT, futures::future::join_all(calls)).await.expect("answers");
    assert!(refused.iter().all(Result::is_err), "{refused:?}");
    instances.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_of_which_the_task_panics_is_ended() {
    let bed = Bed::new("exec sleep 1000");
    let mistaken = Refuses { panics: true, ..Refuses::default() };
    let (instances, _, _lock) = instances(&bed, "mistaken", refusing("mistaken", mistaken));
    begin(&instances, 1).await;
    let instance = || id(1).to_owned();
    let freeze = RunnerCommand::Freeze { instance: instance(), token: nth(2) };
    let reason = "not wanted".to_owned();
    let stop = RunnerCommand::Stop { instance: instance(), token: nth(3), reason, grace_ms: 0 };
    for command in [freeze, stop] {
        instances.command(command, "", &reign()).await.unwrap();
    }
    let end = told(&instances, has_exited).await;
    assert_eq!(end.token, nth(3));
    assert!(marked(id(1)).is_empty(), "{:?}", marked(id(1)));
    tokio::time::timeout(LIMIT, instances.leave()).await.expect("the runner can leave");
    assert!(instances.live().is_empty());
}

/// Takes no notice of a request to end.
const DEAF: &str = "trap \"\" TERM; echo up > up; exec sleep 1000";

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_that_fails_is_tried_again() {
    let bed = Bed::new(DEAF);
    let (instances, _, _lock) = instances(&bed, "unreached", unreached("unreached", 0, 0));
    begin(&instances, 1).await;
    bed.written("up").await;
    let reason = "killed".to_owned();
    let stop = RunnerCommand::Stop { instance: id(1).to_owned(), token: nth(2), reason, grace_ms: 0 };
    instances.command(stop, "", &reign()).await.unwrap();
    told(&instances, has_exited).await;
    assert!(marked(id(1)).is_empty(), "it runs on");
    instances.leave().await;
}

/// Leaves something behind, in a session of its own.
const FORKED: &str = "(setsid sh -c \"echo up > up; exec sleep 1000\" &); exit 0";

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_has_ended_only_once_what_it_left_behind_has() {
    let bed = Bed::new(FORKED);
    let refuses = Refuses { kills: 2.into(), ..Refuses::default() };
    let (instances, _, _lock) = instances(&bed, "behind", refusing("behind", refuses));
    instances.command(started_by(1), ACCESS, &reign()).await.unwrap();
    told(&instances, has_exited).await;
    assert!(marked(id(1)).is_empty(), "{:?}", marked(id(1)));
    instances.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_runner_that_leaves_cannot_end_is_ended_by_its_next_start_and_has_ended_only_then() {
    let bed = Bed::new(FORKED);
    let never = Refuses { kills: u32::MAX.into(), ..Refuses::default() };
    let (former, ledger, lock) = instances(&bed, "unended", refusing("unended", never));
    former.command(started_by(1), ACCESS, &reign()).await.unwrap();
    bed.written("up").await;
    tokio::time::timeout(LIMIT, former.leave()).await.expect("the runner can leave");
    assert!(!ledger.reports(0, 10).await.unwrap().iter().any(|(_, report)| has_exited(report)));
    assert!(!marked(id(1)).is_empty(), "nothing is left of it");

    drop((ledger, lock));
    let once = Refuses { kills: 1.into(), sweeps: 1.into(), ..Refuses::default() };
    let (instances, _, _lock) = instances(&bed, "unended", refusing("unended", once));
    instances.reconcile().await.unwrap();
    told(&instances, has_exited).await;
    assert!(marked(id(1)).is_empty(), "{:?}", marked(id(1)));
    instances.leave().await;
}

/// Its hook stands still as well: it may be another's turn by now.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_frozen_without_a_lease_is_killed_as_often_as_it_takes() {
    let bed = Bed::with(DEAF, "hooks = { post = [\"echo gone > gone\"] }");
    let (instances, _, _lock) = instances(&bed, "unfrozen", unreached("unfrozen", 1, 0));
    begin(&instances, 1).await;
    bed.written("up").await;
    instances.silence();
    // Its program cannot be frozen.
    until(|| marked(id(1)).is_empty().then_some(())).await;
    assert!(!bed.work("gone").exists());
    instances.verdict([]);
    let end = told(&instances, has_exited).await;
    assert!(bed.work("gone").exists());
    let What::Exited { exit, reason, .. } = end.what else { unreachable!("that was waited for") };
    assert_eq!(exit.signal, Some(9));
    assert!(reason.contains("could not be frozen when the runner's lease ended"), "{reason}");
    instances.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_after_what_has_died_without_a_lease_waits_for_one() {
    let bed = Bed::with(DEAF, "hooks = { post = [\"echo gone > gone\"] }");
    let (instances, _, _lock) = instances(&bed, "unleased", stubborn("unleased", 0, false));
    begin(&instances, 1).await;
    bed.written("up").await;
    instances.silence();
    until(|| is_frozen(id(1)).then_some(())).await;
    let agent: Vec<u32> = marked(id(1)).iter().map(|process| process.pid).collect();
    // As the kernel does for want of memory.
    for pid in &agent {
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    until(|| marked(id(1)).is_empty().then_some(())).await;
    assert!(!bed.work("gone").exists());
    instances.verdict([]);
    told(&instances, has_exited).await;
    assert!(bed.work("gone").exists());
    instances.leave().await;
}

/// The thaw was not written down any more.
#[tokio::test(flavor = "multi_thread")]
async fn what_stood_still_by_the_ledger_is_frozen_again_after_a_crash() {
    let bed = Bed::new("exec sleep 1000");
    crash_after(async || {
        let (former, ledger, _lock) = instances(&bed, "thawed", stubborn("thawed", 0, false));
        begin(&former, 1).await;
        let freeze = RunnerCommand::Freeze { instance: id(1).to_owned(), token: nth(2) };
        former.command(freeze, "", &reign()).await.unwrap();
        told(&former, |report| matches!(report.what, What::Frozen)).await;
        let handle = ledger.row(id(1)).await.unwrap().unwrap().handle.unwrap();
        ProcessEngine::new("thawed", launcher()).thaw(&handle).await.unwrap();
    });
    assert!(is_running(id(1)));
    let (instances, _, _lock) = instances(&bed, "thawed", stubborn("thawed", 0, false));
    instances.reconcile().await.unwrap();
    until(|| is_frozen(id(1)).then_some(())).await;
    instances.leave().await;
}

/// One thread, so that the word that it was given away and the lease are there at one moment.
#[tokio::test]
async fn no_hook_begins_after_what_was_given_away() {
    let bed = Bed::with(DEAF, "hooks = { post = [\"true\"] }");
    let (engine, stuck) = tired("away", 1);
    let (instances, ledger, _lock) = instances(&bed, "away", engine);
    begin(&instances, 1).await;
    bed.written("up").await;
    instances.silence();
    until(|| is_frozen(id(1)).then_some(())).await;
    for process in marked(id(1)) {
        let pid = rustix::process::Pid::from_raw(process.pid.cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    until(|| marked(id(1)).is_empty().then_some(())).await;
    let (instance, token) = (id(1).to_owned(), ledger.row(id(1)).await.unwrap().unwrap().token);
    instances.verdict([(&instance, &token)]);
    let end = told(&instances, has_exited).await;
    let What::Exited { reason, .. } = end.what else { unreachable!("that was waited for") };
    assert!(reason.contains("given to another runner"), "{reason}");
    assert!(futures::poll!(std::pin::pin!(stuck.notified())).is_pending(), "its hook was to begin");
    instances.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_thawed_is_killed_as_often_as_it_takes() {
    let bed = Bed::new(DEAF);
    let (instances, _, _lock) = instances(&bed, "unthawed", unreached("unthawed", 0, 1));
    begin(&instances, 1).await;
    instances.silence();
    until(|| is_frozen(id(1)).then_some(())).await;
    instances.verdict([]);
    let end = told(&instances, has_exited).await;
    let What::Exited { reason, .. } = end.what else { unreachable!("that was waited for") };
    assert!(reason.contains("could not be thawed"), "{reason}");
    assert!(marked(id(1)).is_empty(), "it stands there still");
    instances.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_is_spilled_only_once_its_processes_have_ended() {
    let bed = Bed::new(DEAF);
    bed.define("worker", &format!("command = ['sh', '-c', '{DEAF}']\ngrace = '1ms'\n"));
    let (instances, _, _lock) = instances(&bed, "unspilled", unreached("unspilled", 0, 0));
    begin(&instances, 1).await;
    bed.written("up").await;
    let instance = id(1).to_owned();
    let freeze = RunnerCommand::Freeze { instance: instance.clone(), token: nth(2) };
    for command in [freeze, RunnerCommand::Spill { instance, token: nth(3) }] {
        instances.command(command, "", &reign()).await.unwrap();
    }
    told(&instances, |report| report.what == What::Spilled).await;
    assert!(marked(id(1)).is_empty(), "it is there still");
    instances.leave().await;
}
