//! What Slack sends to the ingress: signed, and again if it has not heard the answer in time.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use skein_tests::slack::event;
use skein_tests::stage::Stage;
use skein_tests::up::{Folder, Up};
use skein_tests::webhook::{self, form, receipts, slack_signature};

/// Slack asks whether somebody is there before it sends anything. Who is not Slack learns nothing by that question.
#[tokio::test]
async fn slack_is_answered_once_its_signature_and_its_time_hold() -> Result<()> {
    let folder = Folder::new()?.configured(&webhook::slack_configuration())?;
    let up = Up::start_in(folder, &["--no-runner"]).await?;
    let body = r#"{"type":"url_verification","challenge":"c-1"}"#;
    let now = webhook::now();
    let good = slack_signature(now, body);
    let mut off = good.clone();
    let last = off.pop();
    off.push(if last == Some('0') { '1' } else { '0' });
    for (what, at, signature) in [
        ("no signature", now, String::new()),
        ("one wrong letter", now, off),
        ("another body's signature", now, slack_signature(now, "{}")),
        ("another time's signature", now - 1, good.clone()),
        ("a recording", now - 301, slack_signature(now - 301, body)),
    ] {
        let (status, said) = webhook::slack_signed(&up.ingress, body, at, &signature, None).await?;
        ensure!(status == 401 && !said.to_string().contains("c-1"), "{what}: {status} {said}");
    }
    let (status, said) = webhook::slack_signed(&up.ingress, body, now, &good, None).await?;
    ensure!((status, &said) == (200, &json!({"challenge": "c-1"})), "{status} {said}");
    ensure!(receipts(&up).await?.is_empty(), "a question is no event");
    Ok(())
}

#[tokio::test]
async fn messages_and_commands_of_slack_start_runs_and_a_retry_starts_none() -> Result<()> {
    let keys = "subscriptions = [{ source = \"slack\", channels = [\"C1\"] }]\n";
    let stage = Stage::new(1)?
        .with_settings(&webhook::slack_configuration())?
        .agent("bot", keys, &[])?
        .start()
        .await?;
    stage.up().row("runners", |runner| runner["state"] == "ready").await?;
    let ingress = &stage.up().ingress;
    let said = |id: &str, channel: &str, text: &str| event(id, channel, "1.0", None, text).to_string();

    let (status, taken) = webhook::slack(ingress, &said("Ev1", "C1", "hello"), None).await?;
    ensure!(status == 200 && taken["matched"] == 1, "{status} {taken}");
    // Slack has not heard the answer in time.
    let (status, again) = webhook::slack(ingress, &said("Ev1", "C1", "hello"), Some(1)).await?;
    ensure!(status == 200 && again["duplicate"] == true, "{status} {again}");
    ensure!(again["receipt"] == taken["receipt"], "{taken} {again}");
    let place = [("team_id", "T1"), ("channel_id", "C1"), ("user_id", "U1")];
    let typed = [("command", "/deploy"), ("text", "api"), ("trigger_id", "t-1")];
    let command = form(&[typed, place].concat());
    let (status, shown) = webhook::slack(ingress, &command, None).await?;
    ensure!((status, &shown) == (200, &Value::Null), "whoever typed it is shown {status} {shown}");
    let (_, elsewhere) = webhook::slack(ingress, &said("Ev2", "C2", "not for it"), None).await?;
    ensure!(elsewhere["matched"] == 0, "{elsewhere}");
    webhook::slack(ingress, &said("Ev3", "C1", "bye"), None).await?;

    // There is one slot and one queue: what came twice would have run before the last.
    stage.until("three runs start", async || Ok(stage.answers("bot", "start")?.len() >= 3)).await?;
    let inputs = stage.answers("bot", "start")?;
    let word = |input: &Value, field: &str| input[field].as_str().unwrap_or_default().to_owned();
    let told: Vec<String> =
        inputs.iter().map(|(_, input)| word(input, "event") + ": " + &word(input, "body")).collect();
    ensure!(told == ["message: hello", "slash_command: api", "message: bye"], "{told:?}");
    ensure!(inputs[0].1["payload"]["event_id"] == "Ev1", "the body is not whole: {inputs:?}");
    Ok(())
}

#[tokio::test]
async fn a_click_in_slack_wakes_the_run_that_waits_for_it() -> Result<()> {
    let wait = json!({"type": "webhook", "source": "slack", "event": "block_actions",
        "match": {"action": "approve"}, "timeout": "1h"});
    let stage = Stage::new(1)?
        .with_settings(&webhook::slack_configuration())?
        .agent("asker", "", &[&format!("wait_for_trigger={wait}")])?
        .start()
        .await?;
    let asker = stage.run("asker").await?;
    stage.becomes(&asker, "frozen").await?;
    // The other button is none that it waits for.
    for (trigger, action) in [("t-1", "reject"), ("t-2", "approve")] {
        let clicked = json!({"type": "block_actions", "trigger_id": trigger, "team": {"id": "T1"},
            "user": {"id": "U1"}, "channel": {"id": "C1"},
            "actions": [{"action_id": action, "value": "release 7"}]});
        let clicked = form(&[("payload", &clicked.to_string())]);
        let (status, shown) = webhook::slack(&stage.up().ingress, &clicked, None).await?;
        ensure!((status, &shown) == (200, &Value::Null), "{action}: {status} {shown}");
    }
    let woken = stage.answer("asker", "wait_for_trigger").await?["payload"].clone();
    ensure!(woken["action"] == "approve" && woken["body"] == "release 7", "{woken}");
    ensure!(woken["author"] == "U1" && woken["payload"]["trigger_id"] == "t-2", "{woken}");
    stage.becomes(&asker, "completed").await
}
