//! What runs before and after an agent.

use skein_proto::v1::report::What;
use skein_proto::v1::{self, Exited};

use crate::bed::{Bed, MCP, id, marked, start, stop};
use crate::coordinator::{Coordinator, LEASE, TOKEN};

/// Runs the agent with these hooks until it has ended, and says how and what its hooks and it have written.
async fn run(script: &str, hooks: &str) -> (Exited, String) {
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let mut bed = Bed::with(script, hooks);
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.say(start(id(1), 1)).await;
    let report = coordinator.reported(id(1), |what| matches!(what, What::Exited(_))).await;
    let started = |report: &&v1::Report| matches!(report.what, Some(What::Started(_)));
    let state = coordinator.until("its start", |state| state.reports.iter().any(|one| started(&one))).await;
    assert_eq!(state.reports.iter().filter(started).count(), 1, "a run starts once, however many processes");
    assert!(marked(id(1)).is_empty(), "something of it still runs");
    bed.leave().await.unwrap();
    let Some(What::Exited(exited)) = report.what else { unreachable!("that was waited for") };
    (exited, bed.log(id(1)))
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_run_in_order_around_the_agent_with_its_environment() {
    let hooks = "hooks = { pre = [\"sleep 1000 & echo $! > child; echo one $SKEIN_AGENT\", \"echo two\"], post = [\"setsid sleep 1000 & echo after; exit 7\", \"echo last\"] }";
    // One that was killed and that nobody has reaped yet has no command line.
    let look = "grep -q sleep /proc/$(cat child)/cmdline 2>&- && echo a hook runs on";
    let (exited, log) = run(&format!("{look}; echo agent $SKEIN_INPUT; exit 3"), hooks).await;
    assert_eq!(log, "one worker\ntwo\nagent {\"prompt\":\"hello\"}\nafter\nlast\n");
    assert_eq!((exited.code, exited.reason.as_str()), (Some(3), ""), "the run ends as the agent did");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_fails_before_the_agent_ends_the_run() {
    let hooks = "hooks = { pre = [\"echo no network; exit 4\", \"echo never\"], post = [\"echo never\"] }";
    let (exited, log) = run("echo never", hooks).await;
    assert_eq!(log, "no network\n");
    assert_eq!(exited.code, Some(4));
    assert!(
        exited.reason.contains("the hook `echo no network; exit 4` ended with exit code 4"),
        "{exited:?}"
    );
}

/// By that status an agent asks to be run again, and is done.
#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_fails_before_the_agent_speaks_for_no_agent() {
    let (exited, _) = run("echo never", "hooks = { pre = [\"exit 42\"] }").await;
    assert_eq!(exited.code, Some(1));
    assert!(exited.reason.contains("the hook `exit 42` ended with exit code 42"), "{exited:?}");
}

/// Its new runner does not know by which definition it began: the one that there is counts, as soon as there is one.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_taken_over_under_a_broken_definition_goes_by_the_mended_one() {
    let script = "echo up > up; while [ ! -e go ]; do sleep 0.02; done";
    let hooks = "hooks = { post = [\"echo after > after\"] }";
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let mut bed = Bed::with(script, hooks);
    let mut first = bed.run_apart(&coordinator);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.say(start(id(1), 1)).await;
    bed.written("up").await;
    coordinator.reported(id(1), |what| matches!(what, What::Started(_))).await;
    first.kill().await.unwrap();
    bed.define("worker", "comand = ['sh']");
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 2).await;
    bed.define("worker", &format!("command = ['sh']\n{hooks}"));
    let has_worker = |state: &v1::Register| state.agents.iter().any(|agent| agent.name == "worker");
    coordinator
        .until("the agent is announced", |state| state.registrations.last().is_some_and(has_worker))
        .await;
    std::fs::write(bed.work("go"), "").unwrap();
    assert_eq!(bed.written("after").await, "after\n");
    coordinator.reported(id(1), |what| matches!(what, What::Exited(_))).await;
    bed.leave().await.unwrap();
}

/// However politely its hook ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_runner_leaves_during_a_hook_is_not_done() {
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let hook = "trap 'exit 0' TERM; echo begun > begun; while :; do sleep 0.02; done";
    let mut bed = Bed::with("echo never", &format!("hooks = {{ pre = [\"{hook}\"] }}"));
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.say(start(id(1), 1)).await;
    bed.written("begun").await;
    bed.leave().await.unwrap();
    let report = coordinator.reported(id(1), |what| matches!(what, What::Exited(_))).await;
    let Some(What::Exited(exited)) = report.what else { unreachable!("that was waited for") };
    assert_eq!((exited.code, exited.reason.as_str()), (Some(1), "the runner was stopped"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_stopped_in_a_hook_ends_there() {
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let mut bed = Bed::with("echo never", "hooks = { pre = [\"echo begun > begun; sleep 1000\"] }");
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.say(start(id(1), 1)).await;
    bed.written("begun").await;
    coordinator.say(stop(id(1), 2)).await;
    let report = coordinator.reported(id(1), |what| matches!(what, What::Exited(_))).await;
    assert!(matches!(report.what, Some(What::Exited(exited)) if exited.reason == "asked to"));
    assert!(marked(id(1)).is_empty(), "the hook still runs");
    bed.leave().await.unwrap();
    assert_eq!(bed.log(id(1)), "");
}
