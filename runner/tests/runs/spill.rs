//! Long sleeps: the processes of a frozen instance end, and it is started again with what woke it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use skein_proto::v1::coordinator_message::Message;
use skein_proto::v1::report::What;
use skein_proto::v1::{HeldInstance, Restore, Spill};
use skein_runner::instance::folders::LOG;

use crate::bed::{Bed, MCP, freeze, id, marked, start, stop, token, until};
use crate::coordinator::{Coordinator, LEASE, TOKEN};

/// Has a child of its own session, writes down what it gets, and says goodbye when it is asked to end.
const SLEEPER: &str = r#"echo "$SKEIN_INPUT" >> inputs; echo "$SKEIN_URL" >> doors
echo kept >> "$TMPDIR/kept"; echo "$(wc -l < "$TMPDIR/kept") in $TMPDIR" >> temporary
trap "echo asked >> goodbye; exit 3" TERM
setsid sh -c "trap : TERM; while :; do sleep 0.02; done" &
echo up > up-$SKEIN_INSTANCE
while :; do sleep 0.02; done"#;

fn spill(instance: &str, number: u32) -> Message {
    Message::Spill(Spill { instance: instance.into(), token: token(number) })
}

fn restore(instance: &str, number: u32) -> Message {
    let input = json!({"type": "resumed", "outcome": "triggered", "payload": {"event": "push"}}).to_string();
    Message::Restore(Restore { instance: instance.into(), token: token(number), input })
}

fn is_spilled(what: &What) -> bool {
    matches!(what, What::Spilled(_))
}

fn is_restored(what: &What) -> bool {
    matches!(what, What::Restored(_))
}

/// A runner whose agent sleeps without a process.
async fn asleep(script: &str, settings: &str, instance: &'static str) -> (Coordinator, Bed) {
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let mut bed = Bed::with(script, settings);
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    begin(&coordinator, &bed, instance).await;
    (coordinator, bed)
}

/// Starts an instance of some processes, freezes it once it is up, and has it spilled.
async fn begin(coordinator: &Coordinator, bed: &Bed, instance: &'static str) {
    coordinator.say(start(instance, 1)).await;
    coordinator.reported(instance, |what| matches!(what, What::Started(_))).await;
    bed.written(&format!("up-{instance}")).await;
    until(|| (marked(instance).len() >= 2).then_some(())).await;
    coordinator.say(freeze(instance, 2)).await;
    coordinator.reported(instance, |what| matches!(what, What::Frozen(_))).await;
    coordinator.say(spill(instance, 3)).await;
    coordinator.reported(instance, is_spilled).await;
}

/// What the second start of an instance has added to a file.
async fn second_line(bed: &Bed, file: &str) -> String {
    let twice = |text: &String| text.lines().count() == 2 && text.ends_with('\n');
    let text = until(|| fs::read_to_string(bed.work(file)).ok().filter(twice)).await;
    text.lines().last().unwrap().to_owned()
}

async fn second_input(bed: &Bed) -> Value {
    serde_json::from_str(&second_line(bed, "inputs").await).unwrap()
}

/// The control groups of an instance, on machines that have such.
fn groups(instance: &str) -> Vec<PathBuf> {
    let roots =
        ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].into_iter().filter_map(|root| fs::read_dir(root).ok());
    let runners = roots.flatten().flatten().map(|entry| entry.path().join(instance));
    runners.filter(|group| group.exists()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spilled_instance_has_no_process_and_is_started_again_with_what_woke_it() {
    let instance = id(1);
    let (coordinator, mut bed) = asleep(SLEEPER, "", instance).await;
    assert!(marked(instance).is_empty(), "{:?}", marked(instance));
    assert!(groups(instance).is_empty(), "{:?}", groups(instance));
    assert_eq!(bed.written("goodbye").await, "asked\n", "it could not write down what it had");

    coordinator.say(restore(instance, 4)).await;
    let restored = coordinator.reported(instance, is_restored).await;
    assert_eq!(restored.token, token(4));
    let woken = second_input(&bed).await;
    assert_eq!(woken, json!({"type": "resumed", "outcome": "triggered", "payload": {"event": "push"}}));

    let temporary = second_line(&bed, "temporary").await;
    let folder = temporary.strip_prefix("2 in ").expect("what it had kept aside is gone");

    coordinator.say(stop(instance, 5)).await;
    coordinator
        .reported(instance, |what| matches!(what, What::Exited(exited) if exited.code == Some(3)))
        .await;
    assert!(!Path::new(folder).exists(), "it outlived its instance: {folder}");
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_goes_on_in_its_conversation_with_the_answer_to_its_call() {
    let script = r#"echo "{\"type\":\"system\",\"session_id\":\"s-1\"}"
cat > prompt.part; mv prompt.part prompt-$(ls | grep -c prompt); echo "$*" >> arguments
case "$*" in *--resume*) exit 0 ;; esac
sleep 1000 & echo up > up-$SKEIN_INSTANCE; sleep 1000"#;
    let instance = id(2);
    let (coordinator, mut bed) = asleep(script, "harness = 'claude-code'\nprompt = 'Count.'", instance).await;
    coordinator.say(restore(instance, 4)).await;
    coordinator.reported(instance, is_restored).await;
    let prompt = bed.written("prompt-2").await;
    assert!(prompt.starts_with("You slept in `wait_for_trigger`"), "{prompt}");
    assert_eq!(prompt.matches("\"event\":\"push\"").count(), 1, "{prompt}");
    assert!(!prompt.contains("Where you run") && !prompt.contains("Count."), "it was told before: {prompt}");
    let arguments = second_line(&bed, "arguments").await;
    assert!(arguments.contains("--resume s-1"), "{arguments}");
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_first_line_has_gone_is_spilled_by_the_next_process_of_its_runner() {
    let script = r#"echo "$*" >> arguments
case "$*" in *s-1*) exit 0 ;; esac
echo "{\"type\":\"thread.started\",\"thread_id\":\"s-1\"}"
yes "$(head -c 60000 /dev/zero | tr '\0' g)" | head -c 20000000
sleep 1000 & echo up > up-$SKEIN_INSTANCE; sleep 1000"#;
    let instance = id(9);
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let mut bed = Bed::with(script, "harness = 'codex'\nprompt = 'Count.'");
    let mut first = bed.run_apart(&coordinator);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.say(start(instance, 1)).await;
    bed.written(&format!("up-{instance}")).await;
    let log = bed.data().join(format!("logs/{instance}.log"));
    let is_cut =
        || log.with_extension("log.1").exists() && fs::metadata(&log).is_ok_and(|log| log.len() < LOG);
    until(|| is_cut().then_some(())).await;
    first.kill().await.unwrap();

    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 2).await;
    coordinator.say(freeze(instance, 2)).await;
    coordinator.reported(instance, |what| matches!(what, What::Frozen(_))).await;
    coordinator.say(spill(instance, 3)).await;
    coordinator.reported(instance, is_spilled).await;
    coordinator.say(restore(instance, 4)).await;
    coordinator.reported(instance, is_restored).await;
    let arguments = second_line(&bed, "arguments").await;
    assert!(arguments.contains("resume") && arguments.contains(" s-1 "), "{arguments}");
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_has_no_conversation_yet_sleeps_on_frozen() {
    let instance = id(3);
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let mut bed = Bed::with("sleep 1000", "harness = 'codex'");
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.say(start(instance, 1)).await;
    coordinator.reported(instance, |what| matches!(what, What::Started(_))).await;
    coordinator.say(freeze(instance, 2)).await;
    coordinator.reported(instance, |what| matches!(what, What::Frozen(_))).await;
    coordinator.say(spill(instance, 3)).await;
    let still = |report: &skein_proto::v1::Report| {
        report.token == token(3) && matches!(report.what, Some(What::Frozen(_)))
    };
    coordinator.until("it says that it is frozen still", |state| state.reports.iter().any(still)).await;
    assert!(!marked(instance).is_empty(), "it was ended");
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spilled_instance_sleeps_through_a_crash_of_its_runner() {
    let instance = id(4);
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let mut bed = Bed::new(SLEEPER);
    let mut first = bed.run_apart(&coordinator);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    begin(&coordinator, &bed, instance).await;
    first.kill().await.unwrap();

    bed.run(&coordinator, TOKEN);
    let state = coordinator.until("registration", |state| state.registrations.len() == 2).await;
    let [HeldInstance { state: held, .. }] = state.registrations[1].held.as_slice() else {
        panic!("one is held")
    };
    assert_eq!(held, "frozen");
    assert!(marked(instance).is_empty());
    coordinator.say(restore(instance, 4)).await;
    coordinator.reported(instance, is_restored).await;
    assert_eq!(second_input(&bed).await["type"], "resumed");
    coordinator.say(stop(instance, 5)).await;
    coordinator.reported(instance, |what| matches!(what, What::Exited(_))).await;
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_started_again_is_over_and_says_why() {
    let instance = id(5);
    let (coordinator, mut bed) = asleep(SLEEPER, "", instance).await;
    bed.define("worker", "command = ['no-such-program']");
    // The runner looks at its folder of agents by itself.
    coordinator.until("the change is announced", |state| state.registrations.len() == 2).await;
    coordinator.say(restore(instance, 4)).await;
    let report = coordinator.reported(instance, |what| matches!(what, What::StartFailed(_))).await;
    let Some(What::StartFailed(failed)) = report.what else { unreachable!("that was waited for") };
    assert!(failed.reason.contains("`no-such-program` was not found"), "{}", failed.reason);
    assert_eq!(failed.usage, None);
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_run_cost_until_it_slept_is_told_if_it_cannot_be_started_again() {
    let script = r#"echo "{\"type\":\"thread.started\",\"thread_id\":\"s-1\"}"
echo "{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":7,\"output_tokens\":3}}"
sleep 1000 & echo up > up-$SKEIN_INSTANCE; sleep 1000"#;
    let (instance, settings) = (id(8), "harness = 'codex'\nprompt = 'Count.'");
    let (coordinator, mut bed) = asleep(script, settings, instance).await;
    bed.define("worker", &format!("command = ['true']\n{settings}\ncredentials = ['nothing']"));
    coordinator.until("the change is announced", |state| state.registrations.len() == 2).await;
    coordinator.say(restore(instance, 4)).await;
    let report = coordinator.reported(instance, |what| matches!(what, What::StartFailed(_))).await;
    let Some(What::StartFailed(failed)) = report.what else { unreachable!("that was waited for") };
    let usage = failed.usage.map(|usage| (usage.input_tokens, usage.output_tokens, usage.turns));
    assert_eq!(usage, Some((7, 3, 1)), "{}", failed.reason);
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spilled_instance_ends_by_order_and_with_its_runner() {
    let (first, second) = (id(6), id(7));
    let (coordinator, mut bed) = asleep(SLEEPER, "", first).await;
    begin(&coordinator, &bed, second).await;
    coordinator.say(stop(first, 4)).await;
    coordinator.reported(first, |what| matches!(what, What::Exited(_))).await;
    bed.leave().await.unwrap();
    let report = coordinator.reported(second, |what| matches!(what, What::Exited(_))).await;
    let Some(What::Exited(exited)) = report.what else { unreachable!("that was waited for") };
    assert_eq!(exited.reason, "the runner was stopped");
}
