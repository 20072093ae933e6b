//! How operators steer the agents of a runner, and what becomes of the work meanwhile, with the real programs.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use skein_tests::stage::{Stage, are_running};
use skein_tests::webhook::event;

const SUBSCRIBED: &str = "subscriptions = [{ source = \"github\", event = \"push\" }]\n";

/// The document that a command prints.
async fn printed(stage: &Stage, arguments: &[&str]) -> Result<Value> {
    let printed = stage.up().skein(&[arguments, &["--json"]].concat()).await?;
    serde_json::from_str(&printed).with_context(|| format!("{arguments:?} printed {printed}"))
}

/// The rows that a command prints.
async fn rows(stage: &Stage, arguments: &[&str]) -> Result<Vec<Value>> {
    let printed = stage.up().skein(&[arguments, &["--json"]].concat()).await?;
    printed.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// Expects a command to be refused with this exit status, in a sentence with this word.
async fn refused(stage: &Stage, arguments: &[&str], code: i32, word: &str) -> Result<()> {
    let output = stage.up().run(arguments).await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(code) && said.contains(word), "{arguments:?}: {output:?}");
    Ok(())
}

/// Waits for so many ends of the agent's runs.
async fn ends(stage: &Stage, agent: &str, count: usize) -> Result<()> {
    stage
        .until(&format!("{agent} has ended {count} times"), async || {
            let runs = rows(stage, &["agent", "history", agent]).await?;
            Ok(runs.iter().filter(|run| run["endedAt"].is_string()).count() == count)
        })
        .await
}

#[tokio::test]
async fn a_disabled_agent_stays_so_over_a_restart_and_what_it_missed_is_replayed_once() -> Result<()> {
    let stage = Stage::new(1)?.agent("worker", SUBSCRIBED, &[])?.start().await?;
    stage.up().skein(&["agent", "disable", "worker"]).await?;
    stage.push("d-1", &event(7)).await?;
    // The runner registers again and says anew what the agent is.
    let stage = stage.terminate().await?.start().await?;
    let listed = rows(&stage, &["agent", "list"]).await?;
    ensure!(listed.len() == 1 && listed[0]["state"] == "disabled", "{listed:?}");
    refused(&stage, &["agent", "run", "worker"], 5, "disabled").await?;

    let of_worker = ["dead-letters", "list", "--agent", "worker"];
    stage
        .until("the push is a dead letter", async || Ok(!rows(&stage, &of_worker).await?.is_empty()))
        .await?;
    let letters = rows(&stage, &of_worker).await?;
    ensure!(letters.len() == 1 && letters[0]["reason"] == "agent_disabled", "{letters:?}");
    ensure!(letters[0].get("input").is_none(), "a list holds no events: {letters:?}");
    let letter = letters[0]["id"].as_str().context("it has no id")?;
    let shown = printed(&stage, &["dead-letters", "show", letter]).await?;
    ensure!(shown["input"]["payload"]["number"] == 7, "{shown}");
    refused(&stage, &["dead-letters", "replay", letter], 5, "disabled").await?;
    stage.up().skein(&["agent", "enable", "worker"]).await?;
    let replayed = printed(&stage, &["dead-letters", "replay", letter]).await?;
    let input = stage.answer("worker", "start").await?;
    ensure!(input["payload"]["number"] == 7, "{input}");
    refused(&stage, &["dead-letters", "replay", letter], 5, "replayed already").await?;
    let shown = printed(&stage, &["dead-letters", "show", letter]).await?;
    ensure!(shown["replayedAs"] == replayed["instance"], "{shown} {replayed}");
    refused(&stage, &["agent", "disable", "nobody"], 4, "not defined").await
}

#[tokio::test]
async fn what_a_full_queue_drops_is_listed_with_its_reason_and_replayed() -> Result<()> {
    let keys = format!("workQueueSize = 1\n{SUBSCRIBED}");
    let stage = Stage::new(1)?.agent("busy", "", &["hold"])?.agent("worker", &keys, &[])?.start().await?;
    let busy = stage.run("busy").await?;
    // One event bids for the slot that is taken, and one waits behind it; the third has no room but that of the oldest.
    for number in 1..=3 {
        stage.push(&format!("d-{number}"), &event(number)).await?;
    }
    let of_worker = ["dead-letters", "list", "--agent", "worker"];
    stage.until("an event found no room", async || Ok(!rows(&stage, &of_worker).await?.is_empty())).await?;
    let letters = rows(&stage, &of_worker).await?;
    ensure!(letters.len() == 1 && letters[0]["reason"] == "queue_overflow", "{letters:?}");
    let letter = letters[0]["id"].as_str().context("it has no id")?;
    let dropped =
        printed(&stage, &["dead-letters", "show", letter]).await?["input"]["payload"]["number"].clone();

    let done = |number: &Value| -> Result<usize> {
        let inputs = stage.answers("worker", "start")?;
        Ok(inputs.iter().filter(|(_, input)| input["payload"]["number"] == *number).count())
    };
    stage.go("busy")?;
    stage.becomes(&busy, "completed").await?;
    stage.until("what had room is done", async || Ok(stage.answers("worker", "start")?.len() == 2)).await?;
    ensure!(done(&dropped)? == 0, "what was dropped ran");
    printed(&stage, &["dead-letters", "replay", letter]).await?;
    stage.until("it is done after all", async || Ok(done(&dropped)? == 1)).await
}

#[tokio::test]
async fn a_paused_swarm_keeps_its_work_over_a_restart_and_does_it_at_the_end_of_the_pause() -> Result<()> {
    let wait = r#"wait_for_trigger={"type":"webhook","source":"github","event":"push"}"#;
    // Its exit status reaches nobody after the crash, so it is done by its word.
    let done = r#"return_value={"value":"awake"}"#;
    let stage = Stage::new(2)?.agent("sleeper", "", &[wait, done])?.agent("worker", "", &[])?.start().await?;
    let sleeper = stage.run("sleeper").await?;
    stage.becomes(&sleeper, "frozen").await?;
    let paused = printed(&stage, &["agent", "pause", "--all"]).await?;
    ensure!(paused["agents"] == 2, "{paused}");
    let queued = printed(&stage, &["agent", "run", "worker"]).await?;
    let queued = queued["instance"].as_str().context("no instance was named")?.to_owned();
    stage.push("d-1", &event(7)).await?;

    let stage = stage.kill().await?.start().await?;
    let listed = rows(&stage, &["agent", "list"]).await?;
    ensure!(listed.len() == 2 && listed.iter().all(|agent| agent["state"] == "paused"), "{listed:?}");
    ensure!(stage.state(&queued).await? == "queued" && stage.state(&sleeper).await? == "frozen");
    ensure!(stage.journal("worker")?.is_empty(), "a run was started in the pause");
    stage.up().skein(&["agent", "resume", "--all"]).await?;
    stage.becomes(&queued, "completed").await?;
    let woken = stage.answer("sleeper", "wait_for_trigger").await?;
    ensure!(woken["payload"]["payload"]["number"] == 7, "{woken}");
    stage.becomes(&sleeper, "completed").await
}

#[tokio::test]
async fn an_agent_that_is_paused_by_name_ends_its_run_and_starts_none_until_it_is_resumed() -> Result<()> {
    let stage = Stage::new(3)?.agent("worker", "instances = 2\n", &["hold"])?.agent("other", "", &[])?;
    let stage = stage.start().await?;
    let first = stage.run("worker").await?;
    let paused = printed(&stage, &["agent", "pause", "worker"]).await?;
    ensure!(paused["agent"] == "worker" && paused["order"] == "pause", "{paused}");
    let second = stage.ask("worker", "").await?;
    ensure!(are_running(&stage.processes(Some(&first))), "what runs stands still");

    // There is room for it, and more when the first has ended; another agent takes what it wants of that.
    stage.go("worker")?;
    stage.becomes(&first, "completed").await?;
    let other = stage.ask("other", "").await?;
    stage.becomes(&other, "completed").await?;
    ensure!(stage.state(&second).await? == "queued", "it was started in the pause");
    let listed = rows(&stage, &["agent", "list"]).await?;
    let is_paused = |agent: &Value| (agent["state"] == "paused") == (agent["agent"] == "worker");
    ensure!(listed.len() == 2 && listed.iter().all(is_paused), "{listed:?}");

    stage.up().skein(&["agent", "resume", "worker"]).await?;
    stage.becomes(&second, "completed").await?;
    refused(&stage, &["agent", "pause", "nobody"], 4, "not defined").await
}

#[tokio::test]
async fn an_agent_whose_runner_is_gone_is_removed_by_an_operator() -> Result<()> {
    const RUNNER: &str = "SKEIN_RUNNER__ENABLED";
    let stage = Stage::new(1)?.agent("worker", SUBSCRIBED, &[])?.start().await?;
    refused(&stage, &["agent", "remove", "nobody"], 4, "no agent `nobody`").await?;
    refused(&stage, &["agent", "remove", "worker"], 5, "would be defined again").await?;
    stage.up().skein(&["agent", "pause", "worker"]).await?;
    stage.up().skein(&["agent", "run", "worker"]).await?;

    let stage = stage.terminate().await?.with_variable(RUNNER, "false").start().await?;
    ensure!(rows(&stage, &["agent", "list"]).await?.len() == 1, "nobody has said that it is gone");
    let removed = printed(&stage, &["agent", "remove", "worker"]).await?;
    ensure!(removed["runsEnded"] == 0 && removed["newDeadLetters"] == 1, "{removed}");
    ensure!(rows(&stage, &["agent", "list"]).await?.is_empty(), "it is still listed");
    ensure!(stage.push("d-1", &event(1)).await?["matched"] == 0, "it is started by what it hears");
    let letters = rows(&stage, &["dead-letters", "list"]).await?;
    ensure!(letters.len() == 1 && letters[0]["reason"] == "agent_removed", "{letters:?}");
    refused(&stage, &["agent", "remove", "worker"], 4, "no agent `worker`").await?;

    // A runner that comes back with it defines it again; what was said of it still holds.
    let stage = stage.terminate().await?.with_variable(RUNNER, "true").start().await?;
    let listed = rows(&stage, &["agent", "list"]).await?;
    ensure!(listed.len() == 1 && listed[0]["state"] == "paused", "{listed:?}");
    Ok(())
}

#[tokio::test]
async fn a_run_that_asks_for_it_is_run_again_and_the_history_tells() -> Result<()> {
    let stage = Stage::new(2)?
        .agent("asks", "max_reruns = 1\n", &["request_rerun={}"])?
        .agent("exits", "max_reruns = 2\n", &["exit=42"])?
        .agent("fails", "", &[r#"set_status={"text":"halfway"}"#, "request_rerun={}", "exit=3"])?
        .start()
        .await?;
    for agent in ["asks", "exits", "fails"] {
        stage.up().skein(&["agent", "run", agent, "--prompt", "sweep"]).await?;
    }
    ends(&stage, "asks", 2).await?;
    ends(&stage, "exits", 3).await?;
    ends(&stage, "fails", 1).await?;
    let answers = stage.answers("asks", "request_rerun")?;
    let said: Vec<&Value> = answers.iter().map(|(_, answer)| &answer["ok"]).collect();
    ensure!(said == [true, false], "{answers:?}");
    let inputs = stage.answers("exits", "start")?;
    ensure!(inputs.iter().all(|(_, input)| input["prompt"] == "sweep"), "{inputs:?}");
    let mut sources: Vec<String> = rows(&stage, &["agent", "history", "exits"])
        .await?
        .iter()
        .map(|run| run["source"].to_string())
        .collect();
    sources.sort();
    ensure!(sources == [r#""operator""#, r#""rerun 1/2""#, r#""rerun 2/2""#], "{sources:?}");
    let failed = rows(&stage, &["agent", "history", "fails"]).await?.remove(0);
    ensure!(failed["state"] == "error" && failed["exit"]["code"] == 3, "{failed}");
    ensure!(failed["statusText"] == "halfway" && failed["durationMs"].is_u64(), "{failed}");
    let table = stage.up().skein(&["agent", "history", "fails"]).await?;
    ensure!(table.contains("the run exited with status 3"), "{table}");
    Ok(())
}

#[tokio::test]
async fn a_run_that_looks_back_gets_what_came_before_it_waited_and_each_event_once() -> Result<()> {
    let wait = r#"wait_for_trigger={"type":"webhook","source":"github","since":"run_start","timeout":"1h"}"#;
    let stage = Stage::new(1)?.agent("sleeper", "", &["hold", wait, wait, wait])?.start().await?;
    stage.push("d-0", &event(0)).await?;
    let sleeper = stage.run("sleeper").await?;
    for number in 1..=2 {
        stage.push(&format!("d-{number}"), &event(number)).await?;
    }
    stage.go("sleeper")?;
    stage.becomes(&sleeper, "frozen").await?;
    stage.push("d-3", &event(3)).await?;
    stage.becomes(&sleeper, "completed").await?;
    let got = stage.answers("sleeper", "wait_for_trigger")?;
    let numbers: Vec<&Value> =
        got.iter().map(|(_, answer)| &answer["payload"]["payload"]["number"]).collect();
    ensure!(numbers == [1, 2, 3], "{got:?}");
    Ok(())
}
