//! Questions to a runner: worked on once, answered in parts, and given up with whoever asked.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use skein_proto::v1::ask::What as Asked;
use skein_proto::v1::{Answer, Ask, UseTool, Withdraw};

use super::*;

/// A runner with one instance that does nothing.
async fn begun() -> (Coordinator, Bed) {
    begun_with("").await
}

/// The same with more settings.
async fn begun_with(settings: &str) -> (Coordinator, Bed) {
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let mut bed = Bed::with("sleep 1000", settings);
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.say(start(id(0xa), 1)).await;
    coordinator.reported(id(0xa), |what| matches!(what, What::Started(_))).await;
    (coordinator, bed)
}

pub(crate) fn ask(
    number: u64,
    id: u128,
    instance: &str,
    tool: &str,
    arguments: &serde_json::Value,
) -> Message {
    let tool = UseTool { name: tool.to_owned(), arguments: arguments.to_string() };
    Message::Ask(Ask {
        number,
        id: uuid::Uuid::from_u128(id).to_string(),
        instance: instance.to_owned(),
        timeout_ms: 60_000,
        what: Some(Asked::Tool(tool)),
    })
}

fn bash(number: u64, question: u128, command: &str) -> Message {
    ask(number, question, id(0xa), "bash", &serde_json::json!({"command": command}))
}

/// The parts of an answer, once the last one is there.
pub(crate) async fn answer(coordinator: &Coordinator, number: u64) -> Vec<Answer> {
    let of = |answer: &&Answer| answer.number == number;
    let state = coordinator
        .until("the answer", |state| state.answers.iter().filter(of).any(|answer| answer.last))
        .await;
    state.answers.iter().filter(of).cloned().collect()
}

pub(crate) fn text(parts: &[Answer]) -> String {
    let json: Vec<u8> = parts.iter().flat_map(|answer| answer.part.clone()).collect();
    let outcome: serde_json::Value = serde_json::from_slice(&json).unwrap();
    outcome["text"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_asked_again_after_the_stream_broke_is_worked_on_once() {
    let (coordinator, mut bed) = begun().await;
    let command = "echo begun >> begun; while [ ! -e go ]; do sleep 0.01; done; echo answered";
    coordinator.say(bash(1, 7, command)).await;
    bed.written("begun").await;
    coordinator.hang_up().await;
    coordinator.until("it comes back", |state| state.registrations.len() == 2).await;
    coordinator.say(bash(2, 7, command)).await;
    fs::write(bed.folder.path().join("data-work/default/worker/go"), "").unwrap();
    assert_eq!(text(&answer(&coordinator, 2).await), "answered");
    // It is known for a while, to whoever lost the answer too.
    coordinator.say(bash(3, 7, command)).await;
    assert_eq!(text(&answer(&coordinator, 3).await), "answered");
    assert_eq!(bed.written("begun").await, "begun\n");
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_waits_for_is_ended_and_what_is_not_here_is_refused() {
    let (coordinator, mut bed) = begun().await;
    coordinator.say(bash(1, 1, "echo begun > begun; setsid sleep 4321; true")).await;
    bed.written("begun").await;
    coordinator.say(Message::Withdraw(Withdraw { number: 1 })).await;
    let command = |process: &Process| fs::read_to_string(format!("/proc/{}/cmdline", process.pid));
    let sleeps = |process: &Process| command(process).is_ok_and(|line| line.contains("4321"));
    until(|| (!marked(id(0xa)).iter().any(sleeps)).then_some(())).await;
    assert!(!marked(id(0xa)).is_empty(), "the instance was ended with it");

    let nothing = serde_json::json!({});
    coordinator.say(ask(2, 2, id(0xb), "ls", &nothing)).await;
    let refused = answer(&coordinator, 2).await.remove(0).refused.unwrap();
    assert_eq!(refused.code, "not_found");
    coordinator.say(ask(3, 3, id(0xa), "dance", &nothing)).await;
    let refused = answer(&coordinator, 3).await.remove(0).refused.unwrap();
    assert_eq!(refused.code, "invalid_argument");
    coordinator.say(freeze(id(0xa), 2)).await;
    coordinator.reported(id(0xa), |what| matches!(what, What::Frozen(_))).await;
    coordinator.say(ask(4, 4, id(0xa), "ls", &nothing)).await;
    let refused = answer(&coordinator, 4).await.remove(0).refused.unwrap();
    assert_eq!(refused.code, "wrong_state");
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variable_that_was_set_is_there_for_commands_until_the_instance_waits() {
    let (coordinator, mut bed) = begun().await;
    let set = |number, question, arguments| ask(number, question, id(0xa), "set_env", &arguments);
    let show = "echo ${COLOUR-none} ${PATH##*:}";
    let ask_for = async |number: u64, message| {
        coordinator.say(message).await;
        text(&answer(&coordinator, number).await)
    };
    let said = ask_for(1, set(1, 1, serde_json::json!({"name": "COLOUR", "value": "red blue"}))).await;
    assert!(said.starts_with("COLOUR is set"), "{said}");
    ask_for(2, set(2, 2, serde_json::json!({"name": "PATH", "value": "/usr/bin:/bin:/nowhere"}))).await;
    assert_eq!(ask_for(3, bash(3, 3, show)).await, "red blue /nowhere");
    ask_for(4, set(4, 4, serde_json::json!({"name": "PATH"}))).await;
    let shown = ask_for(5, bash(5, 5, show)).await;
    assert!(shown.starts_with("red blue") && !shown.contains("nowhere"), "{shown}");
    let refused = ask_for(6, set(6, 6, serde_json::json!({"name": "SKEIN_TOKEN", "value": "x"}))).await;
    assert!(refused.contains("set by the runner"), "{refused}");

    coordinator.say(freeze(id(0xa), 2)).await;
    coordinator.reported(id(0xa), |what| matches!(what, What::Frozen(_))).await;
    coordinator.say(set(7, 7, serde_json::json!({"name": "COLOUR", "value": "green"}))).await;
    assert_eq!(answer(&coordinator, 7).await.remove(0).refused.unwrap().code, "wrong_state");
    coordinator.say(thaw(id(0xa), 3)).await;
    coordinator.reported(id(0xa), |what| matches!(what, What::Thawed(_))).await;
    assert!(ask_for(8, bash(8, 8, show)).await.starts_with("none"));
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_prints_more_than_a_file_of_its_run_may_have_is_answered() {
    let (coordinator, mut bed) = begun_with("file_size = '32m'").await;
    coordinator.say(bash(1, 1, "yes | head -c 40000000; echo the end")).await;
    let told = text(&answer(&coordinator, 1).await);
    assert!(told.contains("\nthe end\n") && told.contains("The first 32 MB are in "), "{told}");
    bed.leave().await.unwrap();
}

/// It counts for the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_changes_during_a_run_takes_no_tool_from_it() {
    let (coordinator, mut bed) = begun().await;
    // The image is another's only where there is Docker; with the variable it is everywhere.
    for (number, settings) in [(1, "command = ['sh']"), (2, "image = 'my/agent:1'")] {
        bed.define("worker", &format!("{settings}\nenv = {{ COLOUR = 'red' }}"));
        let other = format!("other-{number}");
        bed.define(&other, "command = ['true']");
        coordinator
            .until("the change is announced", |state| {
                let agents = state.registrations.last().map(|one| one.agents.as_slice()).unwrap_or_default();
                agents.iter().any(|agent| agent.name == other)
            })
            .await;
        coordinator.say(bash(number, number.into(), "echo \"${COLOUR-none} $(basename $HOME)\"")).await;
        assert_eq!(text(&answer(&coordinator, number).await), "none worker");
    }
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_leaves_in_the_background_goes_on_though_it_prints() {
    let (coordinator, mut bed) = begun().await;
    let printing = "(while [ ! -e go ]; do sleep 0.01; done; echo x; echo y; echo $1 >> alive) &";
    coordinator.say(bash(1, 1, &format!("set -- short; {printing} echo ok"))).await;
    assert_eq!(text(&answer(&coordinator, 1).await), "ok");
    coordinator.say(bash(2, 2, &format!("set -- long; seq 100000; {printing} true"))).await;
    let told = text(&answer(&coordinator, 2).await);
    let (_, file) = told.trim_end_matches(']').rsplit_once("The full output is in ").expect(&told);
    fs::write(bed.work("go"), "").unwrap();
    let both = |text: &String| text.contains("short\n") && text.contains("long\n");
    until(|| fs::read_to_string(bed.work("alive")).ok().filter(both)).await;
    until(|| fs::read_to_string(file).ok().filter(|all| all.ends_with("\n100000\nx\ny\n"))).await;
    let command = |process: &Process| fs::read_to_string(format!("/proc/{}/cmdline", process.pid));
    let reads = |process: &Process| command(process).is_ok_and(|line| line.contains("transport"));
    until(|| (!marked(id(0xa)).iter().any(reads)).then_some(())).await;
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_is_kept_in_a_file_is_the_instances_alone_and_goes_with_it() {
    let (coordinator, mut bed) = begun().await;
    coordinator.say(bash(1, 1, "seq 100000")).await;
    let told = text(&answer(&coordinator, 1).await);
    let (_, file) = told.trim_end_matches(']').rsplit_once("The full output is in ").expect(&told);
    let outputs = bed.folder.path().join("data-work/.outputs").join(id(0xa));
    assert!(Path::new(file).starts_with(&outputs), "{file}");
    assert!(fs::read_to_string(file).unwrap().ends_with("\n100000\n"));
    assert_eq!(fs::metadata(&outputs).unwrap().permissions().mode() & 0o777, 0o700);
    coordinator.say(stop(id(0xa), 2)).await;
    coordinator.reported(id(0xa), |what| matches!(what, What::Exited(_))).await;
    assert!(!outputs.exists());
    bed.leave().await.unwrap();
}

/// Answers are kept for a while, and that must not keep others from asking.
#[tokio::test(flavor = "multi_thread")]
async fn many_questions_one_after_the_other_are_all_worked_on() {
    let (coordinator, mut bed) = begun().await;
    for number in 0..300_u64 {
        let gone = ask(number, 1000 + u128::from(number), "worker-ffffffff", "ls", &serde_json::json!({}));
        coordinator.say(gone).await;
        let refused = answer(&coordinator, number).await.remove(0).refused.unwrap();
        assert_eq!(refused.code, "not_found", "the {number}th: {}", refused.message);
    }
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_answer_comes_in_parts() {
    let (coordinator, mut bed) = begun().await;
    coordinator.say(bash(1, 1, r"{ printf '\211PNG'; head -c 2000000 /dev/zero; } > picture")).await;
    answer(&coordinator, 1).await;
    coordinator.say(ask(2, 2, id(0xa), "read", &serde_json::json!({"path": "picture"}))).await;
    let parts = answer(&coordinator, 2).await;
    assert!(parts.len() > 8 && parts.iter().all(|part| part.part.len() <= 256 * 1024), "{}", parts.len());
    assert!(text(&parts).starts_with("The image picture"));
    bed.leave().await.unwrap();
}

/// Without control groups nothing but the engine holds up what begins in an instance that stands still.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_begins_in_an_instance_that_was_frozen_or_ended() {
    let folder = tempfile::tempdir().unwrap();
    let engine = ProcessEngine::with_cgroups("closed", launcher(), None);
    let mut spec = spec(folder.path(), id(0xd), "exec sleep 1000");
    spec.env.insert("SKEIN_RUNNER".into(), "closed".into());
    let handle = engine.start(&spec).await.unwrap();
    let input = serde_json::json!({"tool": "write", "arguments": {"path": "there", "content": "x"}});
    let exec = skein_runner::container::Exec {
        spec,
        arguments: vec![skein_runner::transport::SUBCOMMAND.to_owned()],
        input: input.to_string().into(),
        limit: LIMIT,
        most: 1000,
    };
    engine.freeze(&handle).await.unwrap();
    let frozen = engine.exec(&handle, &exec).await;
    let all_stand = is_frozen(&handle.instance);
    engine.thaw(&handle).await.unwrap();
    let thawed = engine.exec(&handle, &exec).await;
    engine.kill(&handle).await.unwrap();
    let ended = engine.exec(&handle, &exec).await;
    assert!(frozen.is_err() && all_stand, "{frozen:?}");
    assert_eq!(thawed.unwrap().exit.code, Some(0));
    assert!(ended.is_err(), "{ended:?}");
    assert!(tree::members(&handle).unwrap().is_empty());
}

/// Without control groups: what a tool left behind is known by its environment.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_does_not_end_is_killed_without_control_groups_too() {
    let folder = tempfile::tempdir().unwrap();
    let engine = ProcessEngine::with_cgroups("tools", launcher(), None);
    let mut spec = spec(folder.path(), id(0xc), "exec sleep 1000");
    spec.env.insert("SKEIN_RUNNER".into(), "tools".into());
    let handle = engine.start(&spec).await.unwrap();
    let input = serde_json::json!({"tool": "bash", "arguments": {"command": "setsid sleep 1000; true"}});
    let exec = skein_runner::container::Exec {
        spec,
        arguments: vec![skein_runner::transport::SUBCOMMAND.to_owned()],
        input: input.to_string().into(),
        limit: Duration::from_millis(500),
        most: 1000,
    };
    let executed = engine.exec(&handle, &exec).await.unwrap();
    let left = tree::members(&handle).unwrap();
    engine.kill(&handle).await.unwrap();
    assert!(executed.timed_out);
    assert_eq!(left.len(), 2, "the program and what watches over it alone go on");
}
