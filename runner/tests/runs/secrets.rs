//! What an instance is lent is seen in no log and in nothing that its tools give back.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use skein_proto::v1::ask::What as Asked;
use skein_proto::v1::coordinator_message::Message;
use skein_proto::v1::report::What;
use skein_proto::v1::{Ask, ReadLog, UseTool};
use skein_shared::ask::Lines;
use skein_shared::transport::Outcome;

use crate::bed::{Bed, MCP, id, start, stop};
use crate::coordinator::{Coordinator, LEASE, TOKEN};

const VALUE: &str = "s3cret-of-the-geese";
const STARS: &str = "*******************";

fn ask(number: u64, instance: &str, what: Asked) -> Message {
    Message::Ask(Ask {
        number,
        id: uuid::Uuid::from_u128(number.into()).to_string(),
        instance: instance.to_owned(),
        timeout_ms: 60_000,
        what: Some(what),
    })
}

async fn answer(coordinator: &Coordinator, number: u64) -> Vec<u8> {
    let is = |answer: &&skein_proto::v1::Answer| answer.number == number && answer.last;
    let state = coordinator.until("the answer", |state| state.answers.iter().any(|answer| is(&answer))).await;
    let parts = state.answers.iter().filter(|answer| answer.number == number);
    parts.flat_map(|answer| answer.part.clone()).collect()
}

async fn log(coordinator: &Coordinator, number: u64, instance: &str) -> Vec<String> {
    let read = ReadLog { after: None, lines: 10, grep: None, wait_ms: 0 };
    coordinator.say(ask(number, instance, Asked::Log(read))).await;
    serde_json::from_slice::<Lines>(&answer(coordinator, number).await).unwrap().lines
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_that_changes_during_a_run_is_masked_as_it_was_and_as_it_is() {
    let hook = r#"echo "it is $GITHUB_TOKEN"; echo ready > ready; while [ ! -e go ]; do sleep 0.02; done"#;
    let script = r#"echo "now it is $GITHUB_TOKEN"; echo up > up; exec sleep 1000"#;
    let settings = format!("credentials = ['github_token']\nhooks = {{ pre = ['{hook}'] }}");
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let mut bed = Bed::with(script, &settings);
    let folder = bed.folder.path().join("credentials/github_token/default");
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(folder.join("token"), VALUE).unwrap();
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    let instance = id(1);
    coordinator.say(start(instance, 1)).await;
    bed.written("ready").await;
    fs::write(folder.join("token"), "an0ther-one").unwrap();
    fs::write(bed.work("go"), "").unwrap();
    bed.written("up").await;
    let shown = log(&coordinator, 1, instance).await;
    assert_eq!(shown, [format!("it is {STARS}"), "now it is ***********".to_owned()]);

    coordinator.say(stop(instance, 2)).await;
    coordinator.reported(instance, |what| matches!(what, What::Exited(_))).await;
    let kept = bed.log(instance);
    assert!(!kept.contains("s3cret") && !kept.contains("an0ther"), "{kept}");
    bed.leave().await.unwrap();
}

/// A run has what it was lent until it ends, and so have its tools: the mask knows nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn the_tools_of_a_run_have_what_it_was_lent_whatever_has_become_of_that_since() {
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let mut bed = Bed::with("echo up > up; exec sleep 1000", "credentials = ['github_token']");
    let folder = bed.folder.path().join("credentials/github_token/default");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("token"), VALUE).unwrap();
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    let instance = id(1);
    coordinator.say(start(instance, 1)).await;
    bed.written("up").await;
    let env = async |number| {
        let command = r#"{"command": "env | grep GITHUB_TOKEN; env | grep -c OPENAI"}"#;
        let tool = UseTool { name: "bash".to_owned(), arguments: command.to_owned() };
        coordinator.say(ask(number, instance, Asked::Tool(tool))).await;
        serde_json::from_slice::<Outcome>(&answer(&coordinator, number).await).unwrap().text
    };
    fs::write(folder.join("token"), "an0ther-one").unwrap();
    let other = bed.folder.path().join("credentials/openai_key/default");
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("token"), "an0ther-one").unwrap();
    bed.define(
        "worker",
        "command = ['sh']\ncredentials = ['github_token', 'openai_key']\nenv = { COLOUR = 'red' }",
    );
    coordinator.until("the change is announced", |state| state.registrations.len() == 2).await;
    assert!(env(1).await.starts_with(&format!("GITHUB_TOKEN={STARS}\n0\n")), "{}", env(2).await);
    fs::remove_dir_all(&folder).unwrap();
    assert!(env(3).await.starts_with(&format!("GITHUB_TOKEN={STARS}\n0\n")), "{}", env(4).await);
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_instance_is_lent_is_masked_in_its_log_and_in_what_its_tools_say() {
    let script = r#"printf %s "it is ${GITHUB_TOKEN%-the-geese}"; sleep 0.01; echo "-the-geese."; echo "pin 1234"
echo ready > ready; trap "echo bye $GITHUB_TOKEN; exit 0" TERM; while :; do sleep 0.02; done"#;
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let mut bed = Bed::with(script, "credentials = ['github_token', 'pin']");
    for (place, value) in [("github_token/default", VALUE), ("pin/default", "1234")] {
        let folder = bed.folder.path().join("credentials").join(place);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("token"), value).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    }
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    let instance = id(1);
    coordinator.say(start(instance, 1)).await;
    bed.written("ready").await;
    // Short ones are left alone: they are found everywhere.
    assert_eq!(log(&coordinator, 1, instance).await, [format!("it is {STARS}."), "pin 1234".to_owned()]);

    let command =
        r#"{"command": "cat $SKEIN_CREDENTIALS/github_token/default/token; echo; env | grep GITHUB"}"#;
    let tool = UseTool { name: "bash".to_owned(), arguments: command.to_owned() };
    coordinator.say(ask(2, instance, Asked::Tool(tool))).await;
    let said: Outcome = serde_json::from_slice(&answer(&coordinator, 2).await).unwrap();
    assert!(said.text.starts_with(STARS) && said.text.contains(&format!("={STARS}")), "{}", said.text);
    assert!(!said.text.contains("s3cret"), "{}", said.text);

    coordinator.say(stop(instance, 2)).await;
    coordinator.reported(instance, |what| matches!(what, What::Exited(_))).await;
    let kept = bed.log(instance);
    assert!(kept.starts_with(&format!("it is {STARS}.\n")) && !kept.contains("s3cret"), "{kept}");
    assert_eq!(log(&coordinator, 3, instance).await.last().unwrap(), &format!("bye {STARS}"));
    bed.leave().await.unwrap();
}
