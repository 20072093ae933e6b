//! A whole runner against a coordinator that the test plays, with real processes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod asks;
mod bed;
mod clients;
mod closed;
mod coordinator;
mod doors;
mod egress;
mod hooks;
mod leaks;
mod leases;
mod lengthy;
mod logs;
mod mcp;
mod neighbours;
mod registering;
mod secrets;
mod spec;
mod spill;
mod starts;
mod stubborn;
mod unheard;
mod unwritten;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bed::{
    ACCESS, Bed, MCP, freeze, id, is_frozen, is_running, launcher, marked, stands_still, start, stop, thaw,
    token, until,
};
use coordinator::{Coordinator, LEASE, LIMIT, TOKEN};
use futures::StreamExt;
use mcp::Face;
use skein_proto::v1::coordinator_message::Message;
use skein_proto::v1::report::What;
use skein_proto::v1::{self, Forget};
use skein_runner::Error;
use skein_runner::container::process::ProcessEngine;
use skein_runner::container::tree::{self, Process};
use skein_runner::container::{Engine, Handle, Isolation, Spec};
use spec::spec;

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_starts_freezes_thaws_and_is_reported_once_over_a_broken_stream() {
    let coordinator = Coordinator::open("http://127.0.0.1:1/mcp", LEASE).await;
    let script = "setsid sh -c \"sleep 1000\" & echo \"$SKEIN_INPUT\" > input; env > env; sleep 1000";
    let mut bed = Bed::new(script);
    bed.run(&coordinator, TOKEN);
    let state = coordinator.until("registration", |state| state.registrations.len() == 1).await;
    assert_eq!(state.registrations[0].agents[0].name, "worker");
    assert_eq!(state.registrations[0].incarnation, 1);

    coordinator.say(start(id(1), 5)).await;
    coordinator.reported(id(1), |what| matches!(what, What::Started(_))).await;
    assert_eq!(bed.written("input").await, "{\"prompt\":\"hello\"}\n");
    let environment = bed.written("env").await;
    assert!(environment.contains("SKEIN_AGENT=worker") && !environment.contains(ACCESS));
    assert!(!environment.contains("CARGO"), "the runner's environment leaked");

    // Its last process begins after all that it writes.
    until(|| (marked(id(1)).len() >= 3).then_some(())).await;
    coordinator.say(freeze(id(1), 4)).await;
    coordinator.say(freeze(id(1), 6)).await;
    let frozen = coordinator.reported(id(1), |what| matches!(what, What::Frozen(_))).await;
    assert_eq!(frozen.token, token(6), "the lower token was followed");
    let tree = marked(id(1));
    assert!(tree.len() >= 3, "the tree is {tree:?}");
    assert!(tree.iter().all(stands_still), "{tree:?}");

    coordinator.say(thaw(id(1), 7)).await;
    coordinator.reported(id(1), |what| matches!(what, What::Thawed(_))).await;
    assert!(is_running(id(1)), "{:?}", marked(id(1)));

    // The report of the end is not acknowledged before the stream breaks: it comes again, as the same.
    coordinator.behave(|behaviour| behaviour.acknowledge = false);
    coordinator.say(stop(id(1), 8)).await;
    let exited = coordinator.reported(id(1), |what| matches!(what, What::Exited(_))).await;
    assert!(marked(id(1)).is_empty(), "something of it still runs");
    coordinator.behave(|behaviour| behaviour.acknowledge = true);
    coordinator.hang_up().await;
    let state = coordinator
        .until("repeat", |state| state.reports.iter().filter(|report| **report == exited).count() == 2)
        .await;
    assert_eq!(state.registrations[1].held[0].state, "ended");
    let ends = state.reports.iter().filter(|report| matches!(report.what, Some(What::Exited(_))));
    assert!(ends.into_iter().all(|report| report.sequence == exited.sequence));

    coordinator.say(Message::Forget(Forget { instance: id(1).into(), token: token(9) })).await;
    coordinator.say(start(id(1), 5)).await;
    coordinator.say(start(id(2), 1)).await;
    coordinator.reported(id(2), |what| matches!(what, What::Started(_))).await;
    assert!(marked(id(1)).is_empty(), "a forgotten instance was started again");
    bed.leave().await.unwrap();
    assert!(marked(id(2)).is_empty(), "the runner left an instance behind");
    let last = coordinator.reported(id(2), |what| matches!(what, What::Exited(_))).await;
    assert!(matches!(last.what, Some(What::Exited(exited)) if exited.reason == "the runner was stopped"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_program_gives_an_agent_more_rights_than_it_was_started_with() {
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let mut bed = Bed::new("grep NoNewPrivs /proc/self/status > rights");
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.say(start(id(1), 1)).await;
    assert_eq!(bed.written("rights").await, "NoNewPrivs:\t1\n");
    bed.leave().await.unwrap();
}

/// An instance (the third) that has told where its endpoint is, and what opens it.
struct Indoors {
    face: Face,
    coordinator: Coordinator,
    bed: Bed,
    url: String,
    secret: String,
}

impl Indoors {
    async fn new() -> Self {
        let face = Face::open().await;
        let coordinator = Coordinator::open(&face.url(), LEASE).await;
        let mut bed = Bed::new("echo $SKEIN_URL $SKEIN_TOKEN > door; echo ready; sleep 1000");
        bed.run(&coordinator, TOKEN);
        coordinator.until("registration", |state| state.registrations.len() == 1).await;
        coordinator.say(start(id(3), 1)).await;
        let door = bed.written("door").await;
        let (url, secret) = door.trim().split_once(' ').unwrap();
        Self { face, coordinator, bed, url: url.to_owned(), secret: secret.to_owned() }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_endpoint_demands_the_secret_and_shows_the_access_token() {
    let Indoors { face, coordinator, mut bed, url, secret } = Indoors::new().await;

    let client = reqwest::Client::new();
    let call =
        || client.post(format!("{url}/full")).body(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#);
    for wrong in ["", "Bearer ", "Bearer wrong", ACCESS] {
        let refused = call().header("authorization", wrong).send().await.unwrap();
        assert_eq!(refused.status(), 401);
    }
    let answer = call().header("mcp-session-id", "s").bearer_auth(secret).send().await.unwrap();
    let seen = face.requests(1).await.remove(0);
    assert_eq!(seen.path, "/mcp/full");
    assert_eq!(seen.headers["authorization"], format!("Bearer {ACCESS}"));
    assert_eq!(seen.headers["mcp-session-id"], "s");
    assert!(seen.body.contains("tools/call"));

    // The stream breaks before the answer: it is asked for again with the same key, and the client sees one.
    face.write("data: {\"method\":\"notifications/message\"}\n\n").await;
    face.end();
    let again = face.requests(2).await.remove(1);
    assert_eq!(again.headers["idempotency-key"], seen.headers["idempotency-key"]);
    assert_eq!(again.body, seen.body);

    // While it is frozen the answer waits at the endpoint; the thaw lets it through first.
    coordinator.say(freeze(id(3), 2)).await;
    coordinator.reported(id(3), |what| matches!(what, What::Frozen(_))).await;
    face.write("data: {\"id\":1,\"result\":{}}\n\n").await;
    face.end();
    coordinator.say(thaw(id(3), 3)).await;
    let mut body = answer.bytes_stream();
    let mut text = String::new();
    while let Some(piece) = body.next().await {
        text.push_str(std::str::from_utf8(&piece.unwrap()).unwrap());
    }
    assert!(text.ends_with("data: {\"id\":1,\"result\":{}}\n\n"), "{text}");
    coordinator.reported(id(3), |what| matches!(what, What::Thawed(_))).await;

    bed.leave().await.unwrap();
    let log = fs::read_to_string(bed.data().join(format!("logs/{}.log", id(3)))).unwrap();
    assert_eq!(log, "ready\n", "the log holds what the agent wrote and nothing else");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_without_renewal_freezes_and_obeys_the_verdict() {
    let coordinator = Coordinator::open("http://127.0.0.1:1/mcp", 1000).await;
    let mut bed = Bed::new("sleep 1000");
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    for instance in [id(4), id(5)] {
        coordinator.say(start(instance, 1)).await;
        coordinator.reported(instance, |what| matches!(what, What::Started(_))).await;
    }
    coordinator.until("heartbeats", |state| state.heartbeats >= 5).await;
    // A machine that stands still for a second has it freeze, and rightly; it goes on then.
    until(|| is_running(id(4)).then_some(())).await;
    coordinator.behave(|behaviour| behaviour.renew = false);
    for instance in [id(4), id(5)] {
        until(|| is_frozen(instance).then_some(())).await;
    }

    coordinator.behave(|behaviour| {
        behaviour.renew = true;
        behaviour.lost = vec![id(4).into()];
    });
    coordinator.hang_up().await;
    coordinator.reported(id(4), |what| matches!(what, What::Exited(_))).await;
    assert!(marked(id(4)).is_empty());
    until(|| is_running(id(5)).then_some(())).await;
    bed.leave().await.unwrap();
}

/// The coordinators `a` and `b`, as either tells of both.
fn list(first: &Coordinator, second: &Coordinator) -> v1::Coordinators {
    let at = |node: &str, coordinator: &Coordinator| v1::Coordinator {
        node: node.to_owned(),
        url: format!("http://{}", coordinator.address),
    };
    v1::Coordinators { coordinators: vec![at("a", first), at("b", second)] }
}

/// Two coordinators of one cluster.
async fn two() -> (Coordinator, Coordinator) {
    let (first, second) =
        (Coordinator::named("a", MCP, LEASE).await, Coordinator::named("b", MCP, LEASE).await);
    let all = list(&first, &second);
    for coordinator in [&first, &second] {
        coordinator.behave(|behaviour| behaviour.coordinators = Some(all.clone()));
    }
    (first, second)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_has_a_stream_to_every_coordinator_and_refuses_a_former_owner() {
    let (first, second) = two().await;
    let mut bed = Bed::new("sleep 1000");
    bed.run(&first, TOKEN);
    let known = second.until("a stream to the other", |state| state.registrations.len() == 1).await;
    assert!(known.registrations[0].attaches, "it registered twice");
    let instance = id(6);
    first.say_under(5, start(instance, 1)).await;
    first.reported(instance, |what| matches!(what, What::Started(_))).await;

    // The agent gets another owner, and what the former one still says is not heard any more.
    second.say_under(7, freeze(instance, 2)).await;
    first.reported(instance, |what| matches!(what, What::Frozen(_))).await;
    first.say_under(6, thaw(instance, 3)).await;
    first.say_under(6, start(id(7), 1)).await;
    let told = first.until("that it was refused", |state| state.outranked.len() == 2).await;
    let of = |outranked: &v1::Outranked| (outranked.source.clone(), outranked.epoch);
    assert_eq!(of(&told.outranked[0]), ("agent/default/worker".to_owned(), 7));
    first.hang_up().await;
    second.say_under(7, stop(instance, 4)).await;
    until(|| marked(instance).is_empty().then_some(())).await;
    let told = first.until("it comes back", |state| state.registrations.len() == 2).await;
    assert!(!told.registrations[0].attaches && told.registrations[1].attaches);
    assert!(!told.reports.iter().any(|report| matches!(report.what, Some(What::Thawed(_)))), "it was thawed");
    assert!(marked(id(7)).is_empty(), "a former owner has started it");
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_takes_over_what_runs_after_its_own_crash() {
    let face = Face::open().await;
    let coordinator = Coordinator::open(&face.url(), LEASE).await;
    let mut bed = Bed::new("echo $SKEIN_URL $SKEIN_TOKEN > door; sleep 1000");
    let mut first = bed.run_apart(&coordinator);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.say(start(id(6), 1)).await;
    let started = coordinator.reported(id(6), |what| matches!(what, What::Started(_))).await;
    let door = bed.written("door").await;
    first.kill().await.unwrap();

    bed.run(&coordinator, TOKEN);
    let state = coordinator.until("registration", |state| state.registrations.len() == 2).await;
    assert_eq!(state.registrations[1].incarnation, 2);
    assert_eq!(state.registrations[1].held[0].instance, id(6));
    let Some(What::Started(started)) = started.what else { unreachable!() };
    until(|| Process::read(started.pid).unwrap().filter(|process| !stands_still(process))).await;

    let (url, secret) = door.trim().split_once(' ').unwrap();
    let call = reqwest::Client::new().post(url).bearer_auth(secret).body(r#"{"id":1,"method":"ping"}"#);
    call.send().await.unwrap();
    assert_eq!(face.requests(1).await[0].headers["authorization"], format!("Bearer {ACCESS}"));

    coordinator.say(stop(id(6), 2)).await;
    coordinator.reported(id(6), |what| matches!(what, What::Exited(_))).await;
    assert!(marked(id(6)).is_empty());
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_start_is_reported_with_what_to_mend() {
    let coordinator = Coordinator::open("http://127.0.0.1:1/mcp", LEASE).await;
    let mut bed = Bed::new("true");
    let file = bed.folder.path().join("agents/worker/agent.toml");
    fs::write(file, "command = ['no-such-program']").unwrap();
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.say(start(id(7), 1)).await;
    let report = coordinator.reported(id(7), |what| matches!(what, What::StartFailed(_))).await;
    let Some(What::StartFailed(failed)) = report.what else { unreachable!() };
    assert!(failed.reason.contains("`no-such-program` was not found"), "{}", failed.reason);
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_ends_the_runner_with_the_reason() {
    let coordinator = Coordinator::open("http://127.0.0.1:1/mcp", LEASE).await;
    let mut bed = Bed::new("true");
    bed.run(&coordinator, "wrong");
    let result = tokio::time::timeout(LIMIT, bed.running.take().unwrap()).await.unwrap().unwrap();
    assert!(matches!(result, Err(Error::Refused { message, .. }) if message == "show the runner's token"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_cannot_read_the_runners_files() {
    assert_ne!(skein_runner::isolation(), Isolation::None, "{}", Isolation::None.sentence());
    let coordinator = Coordinator::open("http://127.0.0.1:1/mcp", LEASE).await;
    let mut bed = Bed::new(
        "cat ../../../data/ledger.sqlite && echo read >> $HOME/seen; ls ../../../data/logs && echo listed >> $HOME/seen; echo done >> $HOME/seen; sleep 1000",
    );
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.say(start(id(8), 1)).await;
    assert_eq!(bed.written("seen").await, "done\n");
    bed.leave().await.unwrap();
}

fn is_called(process: &Process, name: &str) -> bool {
    fs::read_to_string(format!("/proc/{}/comm", process.pid)).is_ok_and(|found| found.trim_end() == name)
}

/// Without control groups: the tree is stopped by signals, with those that broke away from it.
#[tokio::test(flavor = "multi_thread")]
async fn signals_freeze_the_whole_tree_too() {
    let folder = tempfile::tempdir().unwrap();
    // Another run of this test on the machine must not be taken for this one.
    let own = std::process::id();
    let mark = format!("signals-{own}");
    let engine = ProcessEngine::with_cgroups(&mark, launcher(), None);
    let script = "(setsid sh -c 'sleep 1000; true' &); (sleep 1000 &); echo up; sleep 1000";
    let mut spec = spec(folder.path(), &format!("signals-1-{own}"), script);
    spec.env.insert("SKEIN_RUNNER".to_owned(), mark);
    let handle: Handle = engine.start(&spec).await.unwrap();
    // The shim, two shells, and what they wait for; a shell that has only begun the others is gone then.
    let whole = until(|| {
        let tree = tree::members(&handle).unwrap();
        let waited_for = tree.iter().filter(|process| is_called(process, "sleep")).count();
        (waited_for == 3 && tree.len() == 6).then_some(tree)
    })
    .await;
    assert_eq!(engine.list().await, [format!("signals-1-{own}")]);
    engine.freeze(&handle).await.unwrap();
    let tree = tree::members(&handle).unwrap();
    assert_eq!(tree.len(), whole.len());
    assert!(tree.iter().all(Process::is_stopped), "{tree:?}");
    engine.thaw(&handle).await.unwrap();
    until(|| (!tree::members(&handle).unwrap().iter().any(Process::is_stopped)).then_some(())).await;
    engine.freeze(&handle).await.unwrap();
    engine.kill(&handle).await.unwrap();
    assert_eq!(engine.wait(&handle).await.signal, Some(9));
    assert!(tree::members(&handle).unwrap().is_empty());
}
