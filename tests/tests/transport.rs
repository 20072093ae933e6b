//! The transport tools with the real programs: what an agent asks for is done inside its own instance, by its runner,
//! and nowhere else. And what a run has written is there for people, also after its end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use skein_runner::container::{Isolation, confine};
use skein_tests::mcp::Client;
use skein_tests::runner::Place;
use skein_tests::stage::Stage;
use skein_tests::up::{Folder, Up, binary};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

/// The text of a tool's result, and whether it is an error.
fn said(result: &Value) -> (String, bool) {
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    (text.to_owned(), result["isError"] == true)
}

/// Calls a tool, and gives what it says.
async fn call(client: &Client, tool: &str, arguments: Value) -> Result<(String, bool)> {
    let answer = client.request("tools/call", json!({"name": tool, "arguments": arguments})).await?;
    Ok(said(answer.get("result").with_context(|| format!("{tool} gave {answer}"))?))
}

/// The command lines of an instance's processes.
fn commands(stage: &Stage, instance: &str) -> Vec<String> {
    let line = |pid: u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    stage.processes(Some(instance)).iter().map(|process| line(process.pid).replace('\0', " ")).collect()
}

#[tokio::test]
async fn an_agent_works_in_its_own_instance() -> Result<()> {
    let steps = [
        r#"set_env={"name":"COLOUR","value":"red"}"#,
        r#"bash={"command":"id -u; pwd; echo $SKEIN_INSTANCE; echo here > marker; echo $COLOUR"}"#,
        r#"write={"path":"src/main.rs","content":"one\ntwo\n"}"#,
        r#"edit={"path":"src/main.rs","edits":[{"oldText":"two","newText":"2"}]}"#,
        r#"read={"path":"src/main.rs"}"#,
        r#"grep={"pattern":"^one","path":"src"}"#,
        r#"find={"pattern":"*.rs"}"#,
        r#"ls={"path":"src"}"#,
        "hold",
    ];
    let stage = Stage::new(1)?.agent("smith", "", &steps)?.start().await?;
    let smith = stage.run("smith").await?;
    let (printed, failed) = said(&stage.answer("smith", "bash").await?);
    let lines: Vec<&str> = printed.lines().collect();
    ensure!(!failed && lines.len() == 4 && lines[2] == smith && lines[3] == "red", "{printed}");
    let work = stage.data().parent().unwrap().join("data-work/default/smith");
    ensure!(lines[1] == work.to_str().unwrap(), "it worked in {}", lines[1]);
    ensure!(fs::read_to_string(work.join("marker"))? == "here\n");
    if skein_runner::isolation() == Isolation::Users {
        ensure!(confine::USERS.contains(&lines[0].parse()?), "it worked as user {}", lines[0]);
    }
    ensure!(said(&stage.answer("smith", "write").await?) == ("Wrote 8 bytes to src/main.rs".into(), false));
    ensure!(said(&stage.answer("smith", "edit").await?).0.contains("-two\n+2"));
    ensure!(said(&stage.answer("smith", "read").await?) == ("one\n2\n".into(), false));
    ensure!(said(&stage.answer("smith", "grep").await?) == ("main.rs:1: one".into(), false));
    ensure!(said(&stage.answer("smith", "find").await?).0 == "src/main.rs");
    ensure!(said(&stage.answer("smith", "ls").await?).0 == "main.rs");
    Ok(())
}

#[tokio::test]
async fn a_tool_touches_no_more_than_its_instance_may() -> Result<()> {
    ensure!(skein_runner::isolation() != Isolation::None, "{}", Isolation::None.sentence());
    let stage = Stage::new(1)?;
    let secret = stage.data().join("config.toml");
    let read = format!("read={}", json!({"path": secret}));
    let bash = format!("bash={}", json!({"command": format!("cat {}", secret.display())}));
    let write = format!("write={}", json!({"path": stage.data().join("new"), "content": "x"}));
    let stage = stage.agent("thief", "", &[&read, &bash, &write])?.start().await?;
    stage.run("thief").await?;
    for (tool, refusal) in
        [("read", "permission denied"), ("bash", "exit code 1"), ("write", "permission denied")]
    {
        let (text, failed) = said(&stage.answer("thief", tool).await?);
        ensure!(failed && text.contains(refusal), "{tool}: {text}");
    }
    ensure!(!stage.data().join("new").exists());
    Ok(())
}

#[tokio::test]
async fn no_coordinator_runs_a_command() -> Result<()> {
    let up = Up::start().await?;
    let marker = up.folder.path().join("marker");
    let touch = json!({"command": format!("touch {}", marker.display())});
    for (role, sentence) in [("worker", "your token is of none"), ("operator", "name the instance")] {
        let client = Client::new(&up.mcp, &up.token(role, role).await?);
        let (text, failed) = call(&client, "bash", touch.clone()).await?;
        ensure!(failed && text.contains(sentence), "{role}: {text}");
    }
    let operator = Client::new(&up.mcp, &up.token("operator", "boss").await?);
    let mut elsewhere = touch.clone();
    elsewhere["instance"] = json!("nobody-00000001");
    let (text, failed) = call(&operator, "bash", elsewhere).await?;
    ensure!(failed && text.contains("there is no instance"), "{text}");
    ensure!(!marker.exists(), "a coordinator has run a command");
    Ok(())
}

#[tokio::test]
async fn what_takes_too_long_or_is_not_wanted_any_more_is_ended_whole() -> Result<()> {
    let endless = "trap '' TERM; setsid sleep 1111 & while :; do echo more; sleep 0.01; done";
    // By then it has begun, also if it waits for a processor.
    let late = format!("bash={}", json!({"command": endless, "timeout": 4}));
    let stage = Stage::new(1)?.agent("smith", "", &[&late, "hold"])?.start().await?;
    let smith = stage.run("smith").await?;
    let (text, failed) = said(&stage.answer("smith", "bash").await?);
    ensure!(failed && text.contains("more\n\nThe command was ended after 4 seconds"), "{text}");
    stage.until("only the agent is left", async || Ok(commands(&stage, &smith).len() == 1)).await?;

    let operator = Client::new(&stage.up().mcp, &stage.up().token("operator", "boss").await?);
    let asked = json!({"instance": smith, "command": "setsid sleep 2222; true"});
    let asking = tokio::spawn(async move { call(&operator, "bash", asked).await });
    let sleeps = || commands(&stage, &smith).iter().any(|command| command.contains("sleep 2222"));
    stage.until("the command runs", async || Ok(sleeps())).await?;
    asking.abort();
    stage.until("it ends with who asked for it", async || Ok(!sleeps())).await?;
    stage.until("only the agent is left", async || Ok(commands(&stage, &smith).len() == 1)).await
}

#[tokio::test]
async fn after_waits_in_a_row_the_tools_work_and_files_are_where_they_were() -> Result<()> {
    let wait = r#"wait_for_trigger={"type":"webhook","source":"github","event":"push","timeout":"1s"}"#;
    let look = r#"bash={"command":"pwd; cat marker; cat $TMPDIR/kept; echo ${LOST:-gone}"}"#;
    let make = r#"bash={"command":"export LOST=here; echo kept > marker; echo tmp > $TMPDIR/kept"}"#;
    let stage = Stage::new(1)?.agent("sleeper", "", &[make, wait, wait, look, "hold"])?.start().await?;
    stage.run("sleeper").await?;
    stage.until("it has looked", async || Ok(stage.answers("sleeper", "bash")?.len() == 2)).await?;
    let (text, failed) = said(&stage.answers("sleeper", "bash")?[1].1);
    let work = stage.data().parent().unwrap().join("data-work/default/sleeper");
    ensure!(!failed && text == format!("{}\nkept\ntmp\ngone", work.display()), "{text}");
    let waits = stage.answers("sleeper", "wait_for_trigger")?;
    ensure!(waits.len() == 2 && waits.iter().all(|(_, wait)| wait["code"] == "wait_timeout"), "{waits:?}");
    Ok(())
}

#[tokio::test]
async fn a_frozen_instance_lends_no_hand() -> Result<()> {
    let wait = r#"wait_for_trigger={"type":"webhook","source":"github","event":"push","timeout":"1h"}"#;
    let stage = Stage::new(1)?.agent("sleeper", "", &[wait])?.start().await?;
    let sleeper = stage.run("sleeper").await?;
    stage.becomes(&sleeper, "frozen").await?;
    let operator = Client::new(&stage.up().mcp, &stage.up().token("operator", "boss").await?);
    let (text, failed) = call(&operator, "ls", json!({"instance": sleeper})).await?;
    ensure!(failed && text.contains("is frozen while it waits"), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_failing_agents_last_words_are_there_for_people() -> Result<()> {
    let stage = Stage::new(1)?.agent("clumsy", "", &["hold", "bash=no json"])?.start().await?;
    let clumsy = stage.run("clumsy").await?;
    let up = stage.up();
    // It follows a run that goes on, and ends with it.
    let (followed, ()) = tokio::join!(up.run(&["agent", "logs", "clumsy", "--follow"]), async {
        stage.go("clumsy").unwrap();
    });
    let followed = followed?;
    let (words, note) =
        (String::from_utf8_lossy(&followed.stdout), String::from_utf8_lossy(&followed.stderr));
    ensure!(followed.status.success() && words.contains("JSONDecodeError"), "{words}{note}");
    ensure!(note.contains("exit code 1"), "{note}");
    let last = up.skein(&["agent", "logs", &clumsy, "-n", "1"]).await?;
    ensure!(last.lines().count() == 1 && last.starts_with("json.decoder.JSONDecodeError"), "{last}");
    let found = up.skein(&["agent", "logs", "clumsy", "--since", "1h", "--grep", "^Traceback"]).await?;
    ensure!(found.lines().count() == 1, "{found}");
    let unknown = up.run(&["agent", "logs", "nobody"]).await?;
    ensure!(unknown.status.code() == Some(4), "{unknown:?}");
    Ok(())
}

/// What `skein agent logs` prints of a run, and what it says of it.
async fn logs(stage: &Stage, instance: &str) -> Result<(String, String)> {
    let output = stage.up().run(&["agent", "logs", instance]).await?;
    Ok((String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?))
}

#[tokio::test]
async fn a_hook_that_keeps_its_agent_from_running_is_told_with_its_status() -> Result<()> {
    let hooks = "hooks = { pre = [\"echo no network; exit 4\"], post = [\"echo never\"] }\n";
    let stage = Stage::new(1)?.script("worker", hooks, "echo never")?.start().await?;
    let worker = stage.ask("worker", "").await?;
    ensure!(stage.ends(&worker).await? == "error", "{}", stage.instance(&worker).await?);
    let (words, note) = logs(&stage, &worker).await?;
    ensure!(words == "no network\n", "{words}");
    let told = "error, exit code 4: the hook `echo no network; exit 4` ended with exit code 4";
    ensure!(note.contains(told), "{note}");
    Ok(())
}

/// A run has one status, which is that of its agent.
#[tokio::test]
async fn a_hook_that_fails_after_its_agent_changes_no_status_and_its_words_are_in_the_log() -> Result<()> {
    let hooks = "hooks = { post = [\"echo not sent; exit 7\", \"echo last\"] }\n";
    let stage = Stage::new(1)?.script("worker", hooks, "echo done")?.start().await?;
    let worker = stage.ask("worker", "").await?;
    ensure!(stage.ends(&worker).await? == "completed", "{}", stage.instance(&worker).await?);
    let (words, note) = logs(&stage, &worker).await?;
    ensure!(words == "done\nnot sent\nlast\n", "{words}");
    ensure!(note.contains("completed, exit code 0"), "{note}");
    let told = "the hook `echo not sent; exit 7` ended with exit code 7";
    stage.has_logged(told).await
}

/// Follows something, and gives the first line of it too.
async fn following(up: &Up, arguments: &[&str]) -> Result<(Child, BufReader<ChildStdout>, String)> {
    let mut command = Command::new(binary("skein"));
    command.args(arguments).arg("--data").arg(up.data()).stdin(Stdio::null()).kill_on_drop(true);
    let mut follower = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(follower.stdout.take().context("it has no output")?);
    let mut first = String::new();
    ensure!(lines.read_line(&mut first).await? > 0, "{arguments:?} has ended");
    Ok((follower, lines, first))
}

/// Waits until somebody who follows something has to try again, and gives what they have read and what they are told.
async fn told_to_try_again(
    (follower, mut lines, mut read): (Child, BufReader<ChildStdout>, String),
) -> Result<(String, String)> {
    let ended = async { tokio::try_join!(follower.wait_with_output(), lines.read_to_string(&mut read)) };
    let (ended, _) =
        tokio::time::timeout(Duration::from_secs(60), ended).await.context("it is followed still")??;
    let note = String::from_utf8(ended.stderr)?;
    ensure!(ended.status.code() == Some(6), "{}: {note}", ended.status);
    Ok((read, note))
}

/// A node with a run that goes on, whatever becomes of the node.
async fn running() -> Result<(Place, Child, Up)> {
    let place = Place::new("far")?;
    place.define("idle", "command = [\"sh\", \"-c\", \"echo one; sleep 600\"]\n")?;
    let up = Up::start_in(Folder::new()?, &["--no-runner"]).await?;
    let runner = place.start(&[&up.grpc], &up.token("runner", "far").await?)?;
    up.row("runners", |runner| runner["state"] == "ready").await?;
    up.skein(&["agent", "run", "idle"]).await?;
    up.row("instances", |row| row["agent"] == "idle" && row["state"] == "running").await?;
    Ok((place, runner, up))
}

/// The run goes on, and so may what happens: who follows them would else take what they have for all there is.
#[tokio::test]
async fn who_follows_what_a_stopping_node_tells_is_told_to_try_again() -> Result<()> {
    let (_place, _runner, up) = running().await?;
    let logs = following(&up, &["agent", "logs", "idle", "--follow"]).await?;
    let events = following(&up, &["events", "--follow"]).await?;
    let _folder = up.terminate().await?;
    for (follower, advice) in [(logs, "call again"), (events, "--after ")] {
        let (_, note) = told_to_try_again(follower).await?;
        ensure!(note.contains(advice), "{note}");
    }
    Ok(())
}

/// A node that dies says nothing. Its connections break, and that is no failure of whoever followed.
#[tokio::test]
async fn who_follows_a_node_that_dies_is_told_to_try_again() -> Result<()> {
    let (_place, _runner, up) = running().await?;
    let logs = following(&up, &["agent", "logs", "idle", "--follow"]).await?;
    let events = following(&up, &["events", "--follow", "--json"]).await?;
    let _folder = up.kill().await?;
    let (_, note) = told_to_try_again(logs).await?;
    ensure!(note.contains("the connection to the node broke") && note.contains("call again"), "{note}");
    let (read, note) = told_to_try_again(events).await?;
    let last: Value = serde_json::from_str(read.lines().last().context("no event was told")?)?;
    ensure!(note.trim_end().ends_with(&format!("--after {}", last["position"])), "{note} after {last}");
    Ok(())
}
