//! The life of instances with the real programs: frozen while they wait, woken by webhooks, taken over after a
//! crash, closed off from what is not theirs, and gone when the node ends.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use skein_runner::container::Isolation;
use skein_shared::limits;
use skein_tests::mcp::{Client, status_at};
use skein_tests::process::{Signal, signal};
use skein_tests::stage::{Stage, are_frozen, are_running};
use skein_tests::up::binary;
use skein_tests::webhook::event;
use tokio::process::Command;

const WAIT: &str = r#"wait_for_trigger={"type":"webhook","source":"github","event":"push","timeout":"1h"}"#;
const LOCK: &str = r#"acquire_lock={"resource_key":"test://repository/1"}"#;

/// The number of the event that an agent was woken with.
fn number(answer: &Value) -> &Value {
    &answer["payload"]["payload"]["number"]
}

/// The runs of an agent that began, by instance.
fn starts(stage: &Stage, agent: &str) -> Result<Vec<String>> {
    Ok(stage.answers(agent, "start")?.into_iter().map(|(instance, _)| instance).collect())
}

#[tokio::test]
async fn a_frozen_tree_gives_its_slot_away_and_wakes_with_the_whole_payload() -> Result<()> {
    let stage =
        Stage::new(1)?.agent("sleeper", "", &["tree", WAIT])?.agent("other", "", &[])?.start().await?;
    let sleeper = stage.run("sleeper").await?;
    stage.becomes(&sleeper, "frozen").await?;
    let family = stage.processes(Some(&sleeper));
    let sessions: BTreeSet<u32> = family.iter().map(|process| process.session).collect();
    ensure!(family.len() == 3 && sessions.len() == 2, "{family:?}");
    ensure!(are_frozen(&family), "{:?}", stage.processes(Some(&sleeper)));

    // There is one slot: the other can only run if the frozen one has given it up.
    stage.run("other").await?;
    stage.answer("other", "end").await?;
    ensure!(are_frozen(&stage.processes(Some(&sleeper))), "another run woke it");

    let mut body = event(1);
    body["commits"] = (0..2000).map(|commit| json!({"message": format!("commit {commit} – ü")})).collect();
    stage.push("d-1", &body).await?;
    let woken = stage.answer("sleeper", "wait_for_trigger").await?;
    ensure!(woken["payload"]["payload"] == body, "the payload is not the body that was sent");
    stage.answer("sleeper", "end").await?;
    stage.becomes(&sleeper, "completed").await?;
    stage.until("its tree is gone", async || Ok(stage.processes(Some(&sleeper)).is_empty())).await?;
    ensure!(starts(&stage, "sleeper")? == [sleeper], "it ran more than once");
    Ok(())
}

#[tokio::test]
async fn one_event_wakes_all_that_asked_for_it_together() -> Result<()> {
    let together = WAIT.replacen('{', r#"{"broadcast":true,"#, 1);
    let stage = Stage::new(2)?.agent("sleeper", "instances = 2", &[&together])?.start().await?;
    let runs = [stage.run("sleeper").await?, stage.run("sleeper").await?];
    for run in &runs {
        stage.becomes(run, "frozen").await?;
    }
    stage.push("d-1", &event(1)).await?;
    for run in &runs {
        stage.becomes(run, "completed").await?;
    }
    let woken = stage.answers("sleeper", "wait_for_trigger")?;
    let who: BTreeSet<&str> = woken.iter().map(|(instance, _)| instance.as_str()).collect();
    ensure!(who == runs.iter().map(String::as_str).collect(), "{woken:?}");
    ensure!(woken.len() == 2 && woken.iter().all(|(_, answer)| number(answer) == 1), "{woken:?}");
    Ok(())
}

#[tokio::test]
async fn runs_that_may_hold_two_locks_are_told_of_the_circle_that_they_would_close() -> Result<()> {
    const SECOND: &str = r#"acquire_lock={"resource_key":"test://repository/2"}"#;
    let stage = Stage::new(2)?
        .agent("first", "", &[LOCK, "hold", SECOND])?
        .agent("second", "", &[SECOND, LOCK, "hold"])?
        .start()
        .await?;
    let two =
        ["swarm", "locks", "default", "--per-instance", "2", "--ttl", "1h", "--max-ttl", "2d", "--json"];
    let shown: Value = serde_json::from_str(&stage.up().skein(&two).await?)?;
    let wanted = json!({"swarm": "default", "perInstance": 2, "ttlMs": 3_600_000, "maxTtlMs": 172_800_000, "normalize": true});
    ensure!(shown == wanted, "{shown}");
    let tries = async |agent: &str, wanted: usize| -> Result<Vec<Value>> {
        stage
            .until("it has tried", async || Ok(stage.answers(agent, "acquire_lock")?.len() == wanted))
            .await?;
        Ok(stage.answers(agent, "acquire_lock")?.into_iter().map(|(_, answer)| answer).collect())
    };
    stage.run("first").await?;
    tries("first", 1).await?;
    stage.run("second").await?;
    let second = tries("second", 2).await?;
    ensure!(second[1]["code"] == "lock_held", "the first one has it: {second:?}");
    stage.go("first")?;
    let first = tries("first", 2).await?;
    ensure!(first[1]["code"] == "deadlock", "each waits for the other: {first:?}");
    stage.go("second")?;
    for agent in ["first", "second"] {
        stage.answer(agent, "end").await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_webhook_as_long_as_they_may_be_starts_one_run_and_wakes_another() -> Result<()> {
    let subscribed = "subscriptions = [{ source = \"github\", event = \"push\" }]\n";
    let counts = "wc -c < \"$SKEIN_INPUT_FILE\"";
    let stage = Stage::new(2)?.agent("sleeper", "", &[WAIT])?.script("reader", subscribed, counts)?;
    let stage = stage.start().await?;
    let sleeper = stage.run("sleeper").await?;
    stage.becomes(&sleeper, "frozen").await?;

    let mut body = event(1);
    body["filler"] = json!("");
    let room = limits::WEBHOOK - body.to_string().len();
    body["filler"] = json!("x".repeat(room));
    let taken = stage.push("d-1", &body).await?;
    ensure!(taken["matched"] == 2, "{taken}");
    let woken = stage.answer("sleeper", "wait_for_trigger").await?;
    ensure!(woken["payload"]["payload"] == body, "the payload is not the body that was sent");
    stage.becomes(&sleeper, "completed").await?;
    let reads = |run: &Value| run["agent"] == "reader" && run["state"] == "completed";
    stage
        .until("the other one is through", async || Ok(stage.list("instances").await?.iter().any(reads)))
        .await?;
    let runs = stage.list("instances").await?;
    let reader = runs.iter().find(|run| reads(run)).and_then(|run| run["instance"].as_str()).unwrap();
    let counted: usize = stage.output(reader).trim().parse()?;
    ensure!(counted > limits::WEBHOOK, "its input has {counted} bytes");
    ensure!(!stage.log().contains("the control stream broke"), "its runner was cut off by a long message");
    // Operators see it too.
    let receipt = taken["receipt"].as_str().unwrap_or_default();
    let shown: Value =
        serde_json::from_str(&stage.up().skein(&["webhooks", "show", receipt, "--json"]).await?)?;
    ensure!(shown["incoming"]["payload"] == body, "not what was sent");
    let events = stage.up().skein(&["events", "--json"]).await?;
    ensure!(events.len() > limits::WEBHOOK, "the events end before it: {} bytes", events.len());
    Ok(())
}

#[tokio::test]
async fn each_event_wakes_the_longest_waiting_instance_alone() -> Result<()> {
    let keys = "instances = 2\nsubscriptions = [{ source = \"github\", event = \"push\" }]\n";
    let stage = Stage::new(2)?.agent("sleeper", keys, &[WAIT])?.start().await?;
    let first = stage.run("sleeper").await?;
    stage.becomes(&first, "frozen").await?;
    let second = stage.run("sleeper").await?;
    stage.becomes(&second, "frozen").await?;

    stage.push("d-1", &event(1)).await?;
    stage.becomes(&first, "completed").await?;
    ensure!(stage.state(&second).await? == "frozen", "both were woken");
    stage.push("d-2", &event(2)).await?;
    stage.becomes(&second, "completed").await?;
    ensure!(starts(&stage, "sleeper")? == [first.as_str(), second.as_str()], "an event was used twice");

    // Nobody waits any more, so the agent's subscription starts a run.
    stage.push("d-3", &event(3)).await?;
    stage.until("a third run starts", async || Ok(starts(&stage, "sleeper")?.len() == 3)).await?;
    let (third, input) = stage.answers("sleeper", "start")?.remove(2);
    ensure!(input.to_string().contains(r#""number":3"#), "it was started with {input}");
    stage.becomes(&third, "frozen").await?;
    let woken = stage.answers("sleeper", "wait_for_trigger")?;
    let woken: Vec<(&str, &Value)> = woken.iter().map(|(by, answer)| (by.as_str(), number(answer))).collect();
    ensure!(woken == [(first.as_str(), &json!(1)), (second.as_str(), &json!(2))], "{woken:?}");
    Ok(())
}

#[tokio::test]
async fn a_call_thaws_the_run_that_waits_for_one_and_has_its_answer() -> Result<()> {
    let wait = r#"wait_for_trigger={"type":"agent_trigger","source_agent":"lead","timeout":"1h"}"#;
    let value = r#"return_value={"value":"seven geese"}"#;
    let call = r#"call_agent={"target_agent":"counter","context":"How many?"}"#;
    let stage = Stage::new(2)?
        .agent("counter", "", &["tree", wait, value])?
        .agent("lead", "", &[call, "result"])?
        .start()
        .await?;
    let counter = stage.run("counter").await?;
    stage.becomes(&counter, "frozen").await?;
    let family = stage.processes(Some(&counter));
    ensure!(family.len() == 3 && are_frozen(&family), "{family:?}");

    let lead = stage.run("lead").await?;
    let woken = stage.answer("counter", "wait_for_trigger").await?;
    ensure!(woken["payload"]["sourceAgent"] == "lead" && woken.to_string().contains("How many?"), "{woken}");
    let result = stage.answer("lead", "result").await?;
    ensure!(result["status"] == "completed" && result["return_value"] == "seven geese", "{result}");
    stage.becomes(&counter, "completed").await?;
    stage.becomes(&lead, "completed").await?;
    ensure!(starts(&stage, "counter")? == [counter], "the call started a run");
    Ok(())
}

#[tokio::test]
async fn everything_is_there_after_kill_9_and_nothing_runs_twice() -> Result<()> {
    let call = r#"call_agent={"target_agent":"callee","context":"hello"}"#;
    let done = r#"return_value={"value":"done"}"#;
    let release = r#"release_lock={"resource_key":"test://repository/1"}"#;
    let stage = Stage::new(3)?
        .agent("sleeper", "", &["tree", WAIT, done])?
        .agent("worker", "", &[LOCK, call, "hold", "result", release, done])?
        .agent("blocker", "", &["hold"])?
        .agent("victim", "", &["hold"])?
        .agent("callee", "", &[done])?
        .start()
        .await?;
    let sleeper = stage.run("sleeper").await?;
    stage.becomes(&sleeper, "frozen").await?;
    let (blocker, victim) = (stage.run("blocker").await?, stage.run("victim").await?);
    let worker = stage.run("worker").await?;
    let lock = stage.answer("worker", "acquire_lock").await?;
    ensure!(lock["ok"] == true, "{lock}");
    // All slots are taken, so the call waits.
    let called = stage.answer("worker", "call_agent").await?;
    ensure!(called["status"] == "pending", "{called}");
    let (writer, reader) =
        (stage.up().token("worker", "writer").await?, stage.up().token("worker", "reader").await?);
    for (token, name) in [(&writer, "writer"), (&reader, "reader")] {
        Client::new(&stage.up().mcp, token).call("join-swarm", json!({"name": name})).await?;
    }
    let client = Client::new(&stage.up().mcp, &writer);
    client.call("post-message", json!({"content": "read this after the crash"})).await?;

    let stage = stage.kill().await?;
    let lost = stage.processes(Some(&victim));
    ensure!(!lost.is_empty(), "the runs end with their node");
    for process in lost {
        // It may have ended by itself.
        let _ = signal(process.pid, Signal::KILL);
    }
    let stage = stage.start().await?;

    ensure!(stage.ends(&victim).await? == "error", "it completed");
    for (instance, state) in [(&worker, "running"), (&blocker, "running"), (&sleeper, "frozen")] {
        stage.becomes(instance, state).await?;
    }
    let running = async || Ok(are_running(&stage.processes(Some(&worker))));
    stage.until("the running ones run on", running).await?;
    ensure!(are_frozen(&stage.processes(Some(&sleeper))), "the frozen one runs");
    let locks = stage.list("locks").await?;
    ensure!(locks.len() == 1 && locks[0]["holder"].to_string().contains(&worker), "{locks:?}");
    let messages = Client::new(&stage.up().mcp, &reader).call("read-messages", json!({})).await?;
    ensure!(messages.to_string().contains("read this after the crash"), "{messages}");

    stage.push("d-1", &event(1)).await?;
    let woken = stage.answer("sleeper", "wait_for_trigger").await?;
    ensure!(number(&woken) == 1, "{woken}");
    stage.becomes(&sleeper, "completed").await?;
    stage.go("blocker")?;
    stage.go("worker")?;
    let result = stage.answer("worker", "result").await?;
    ensure!(result["status"] == "completed" && result["return_value"] == "done", "{result}");
    ensure!(stage.answer("worker", "release_lock").await?["ok"] == true, "the lock was lost");
    stage.becomes(&worker, "completed").await?;
    stage.ends(&blocker).await?;
    for (agent, instance) in
        [("sleeper", sleeper), ("worker", worker), ("blocker", blocker), ("victim", victim)]
    {
        ensure!(starts(&stage, agent)? == [instance], "{agent} ran more than once");
    }
    ensure!(starts(&stage, "callee")?.len() == 1, "the call was served more than once");
    Ok(())
}

#[tokio::test]
async fn no_more_runs_of_a_swarm_are_under_way_than_its_scale_allows() -> Result<()> {
    let agents = ["first", "second", "third"];
    let mut stage = Stage::new(3)?;
    for agent in agents {
        stage = stage.agent(agent, "", &["hold"])?;
    }
    let stage = stage.start().await?;
    let scale = async |scale: &str| -> Result<Value> {
        let shown = stage.up().skein(&["swarm", "scale", "default", scale, "--json"]).await?;
        Ok(serde_json::from_str(&shown)?)
    };
    ensure!(scale("1").await?["scale"] == 1);
    let first = stage.run("first").await?;
    let waiting = [stage.ask("second", "").await?, stage.ask("third", "").await?];
    let shown = scale("2").await?;
    ensure!(shown["scale"] == 2 && shown["group"] == "default", "{shown}");
    let started = async || -> Result<usize> {
        let states = [stage.state(&waiting[0]).await?, stage.state(&waiting[1]).await?];
        Ok(states.iter().filter(|state| *state == "running").count())
    };
    stage.until("one more runs", async || Ok(started().await? == 1)).await?;
    ensure!(
        scale("2").await?["running"] == 2 && started().await? == 1,
        "more run than may, with a slot left"
    );
    // Less than there are: what runs goes on.
    scale("1").await?;
    ensure!(stage.state(&first).await? == "running" && started().await? == 1);
    let shown: Value =
        serde_json::from_str(&stage.up().skein(&["swarm", "scale", "default", "--json"]).await?)?;
    ensure!(shown["scale"] == 1 && shown["running"] == 2 && shown["runners"] == 1, "{shown}");
    scale("unlimited").await?;
    stage.until("all run", async || Ok(started().await? == 2)).await?;
    Ok(())
}

#[tokio::test]
async fn what_an_operator_says_of_an_agents_scale_holds_over_a_crash() -> Result<()> {
    let stage = Stage::new(3)?.agent("worker", "", &["hold"])?.start().await?;
    stage.run("worker").await?;
    let waiting = [stage.ask("worker", "").await?, stage.ask("worker", "").await?];
    stage.up().skein(&["agent", "scale", "worker", "2"]).await?;
    stage.becomes(&waiting[0], "running").await?;
    let stage = stage.kill().await?;
    let stage = stage.start().await?;
    let shown = async || -> Result<(Value, Value)> {
        let shown: Value =
            serde_json::from_str(&stage.up().skein(&["agent", "show", "worker", "--json"]).await?)?;
        Ok((shown["scale"].clone(), shown["scaleOverride"].clone()))
    };
    ensure!(shown().await? == (Value::from(2), Value::from(2)), "{:?}", shown().await?);
    ensure!(stage.state(&waiting[1]).await? == "queued", "more run than may, with a slot left");
    stage.up().skein(&["agent", "scale", "worker", "defined"]).await?;
    ensure!(shown().await? == (Value::from(1), Value::Null), "{:?}", shown().await?);
    Ok(())
}

#[tokio::test]
async fn an_instance_is_closed_to_others_and_the_data_folder_to_it() -> Result<()> {
    let stage = Stage::new(2)?;
    let data = stage.data();
    let looks: Vec<String> = ["", "operator.token", "store.db", "runner", "runner/ledger.sqlite"]
        .iter()
        .map(|path| format!("look={}", data.join(path).display()))
        .collect();
    let mut steps = vec!["environment"];
    steps.extend(looks.iter().map(String::as_str));
    steps.push("hold");
    let stage =
        stage.agent("curious", "", &steps)?.agent("other", "", &["environment", "hold"])?.start().await?;
    stage.run("curious").await?;
    stage.run("other").await?;
    let seen = stage.answer("curious", "environment").await?;
    let other = stage.answer("other", "environment").await?;
    let value = |environment: &Value, name: &str| environment[name].as_str().unwrap().to_owned();
    let (url, secret) = (value(&seen, "SKEIN_URL"), value(&seen, "SKEIN_TOKEN"));

    let operator = std::fs::read_to_string(data.join("operator.token"))?.trim().to_owned();
    let worker = stage.up().token("worker", "curious").await?;
    let neighbour = value(&other, "SKEIN_TOKEN");
    for wrong in [None, Some(""), Some(operator.as_str()), Some(&worker), Some(&neighbour)] {
        ensure!(status_at(&url, wrong).await? == 401, "its endpoint took {wrong:?}");
    }
    ensure!(status_at(&stage.up().mcp, Some(&secret)).await? == 401, "the secret opens the coordinator");
    // What it has of a token is its own secret, and that is none of a coordinator's.
    let known: BTreeSet<&str> = seen.as_object().unwrap().keys().map(String::as_str).collect();
    for name in known.iter().filter(|name| name.starts_with("SKEIN_")) {
        let expected = [
            "SKEIN_URL",
            "SKEIN_TOKEN",
            "SKEIN_SWARM",
            "SKEIN_AGENT",
            "SKEIN_INSTANCE",
            "SKEIN_RUNNER",
            "SKEIN_INPUT",
            "SKEIN_INSTRUCTIONS",
            "SKEIN_PARAMS",
            "SKEIN_OUTPUTS",
        ];
        ensure!(expected.contains(name), "its environment has {name}");
    }
    ensure!(!seen.to_string().contains(&operator), "its environment has the operator's token");
    for (name, text) in seen.as_object().unwrap() {
        let status = status_at(&stage.up().mcp, text.as_str()).await;
        // What is no header at all cannot be a token.
        ensure!(status.is_err() || status? == 401, "{name} opens the coordinator");
    }

    ensure!(skein_runner::isolation() != Isolation::None, "{}", Isolation::None.sentence());
    stage.until("it has looked", async || Ok(stage.answers("curious", "look")?.len() == looks.len())).await?;
    for (look, (_, found)) in looks.iter().zip(stage.answers("curious", "look")?) {
        ensure!(found == json!({"refused": "PermissionError"}), "{look} gave {found}");
    }
    Ok(())
}

#[tokio::test]
async fn sigterm_ends_every_run_and_the_data_folder_is_private_and_taken() -> Result<()> {
    let stage = Stage::new(4)?
        .agent("polite", "", &[r#"join-swarm={"name":"polite"}"#, "polite", "hold"])?
        .agent("holder", "", &["tree", "hold"])?
        .agent("deaf", "grace = \"1s\"", &["deaf", "tree", "hold"])?
        .agent("sleeper", "", &["tree", WAIT])?
        .start()
        .await?;
    let mode = |name: &str| -> Result<u32> {
        Ok(std::fs::metadata(stage.data().join(name))?.permissions().mode() & 0o777)
    };
    ensure!(mode("")? == 0o700, "the data folder has mode {:o}", mode("")?);
    for file in ["operator.token", "store.db", "config.toml", "endpoint.json"] {
        let found = mode(file)?;
        ensure!(found & 0o077 == 0 || file == "config.toml", "{file} has mode {found:o}");
    }
    ensure!(std::fs::read_to_string(stage.data().join(".gitignore"))? == "*\n", "git would pick it up");

    let second = Command::new(binary("skein"))
        .arg("up")
        .arg("--data")
        .arg(stage.data())
        .args(["--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--ingress", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .output()
        .await?;
    let said = String::from_utf8_lossy(&second.stderr);
    ensure!(second.status.code() == Some(5), "a second node ended with {}: {said}", second.status);
    ensure!(said.contains("in use by another skein") && said.contains("--data"), "{said}");

    let sleeper = stage.run("sleeper").await?;
    stage.becomes(&sleeper, "frozen").await?;
    let (holder, deaf) = (stage.run("holder").await?, stage.run("deaf").await?);
    let polite = stage.run("polite").await?;
    stage.answer("polite", "polite").await?;
    stage.answer("holder", "tree").await?;
    stage.answer("deaf", "tree").await?;
    stage.until("all are there", async || Ok(stage.processes(None).len() == 10)).await?;
    let stage = stage.terminate().await?;
    ensure!(stage.processes(None).is_empty(), "left behind: {:?}", stage.processes(None));
    ensure!(!stage.log().contains("did not finish in time"), "it gave work up: {}", stage.log());

    let farewell = stage.answer("polite", "farewell").await?;
    ensure!(farewell["success"] == true, "it could not call any more: {farewell}");

    let stage = stage.start().await?;
    ensure!(stage.state(&polite).await? == "completed", "its end was not written down");
    for instance in [&sleeper, &holder, &deaf] {
        stage.ends(instance).await?;
    }
    ensure!(stage.list("waits").await?.is_empty(), "a wait outlived its instance");
    Ok(())
}

#[tokio::test]
async fn a_wait_that_times_out_thaws_and_says_so() -> Result<()> {
    let wait = r#"wait_for_trigger={"type":"webhook","source":"github","timeout":"3s"}"#;
    let stage = Stage::new(1)?.agent("sleeper", "", &["tree", wait, "hold"])?.start().await?;
    let sleeper = stage.run("sleeper").await?;
    let answer = stage.answer("sleeper", "wait_for_trigger").await?;
    ensure!(answer["ok"] == false && answer["code"] == "wait_timeout", "{answer}");
    stage.becomes(&sleeper, "running").await?;
    ensure!(are_running(&stage.processes(Some(&sleeper))), "it was answered and stands still");
    let events = stage.up().skein(&["events"]).await?;
    ensure!(events.contains("frozen"), "it never was frozen: {events}");
    stage.go("sleeper")?;
    stage.becomes(&sleeper, "completed").await
}

#[tokio::test]
async fn a_killed_waiter_ends_and_frees_its_lock() -> Result<()> {
    let stage = Stage::new(1)?.agent("sleeper", "", &[LOCK, "tree", WAIT])?.start().await?;
    let sleeper = stage.run("sleeper").await?;
    stage.becomes(&sleeper, "frozen").await?;
    ensure!(stage.list("locks").await?.len() == 1, "it waits without its lock");
    stage.up().skein(&["agent", "kill", &sleeper, "--reason", "not needed"]).await?;
    stage.becomes(&sleeper, "killed").await?;
    stage.until("its lock is free", async || Ok(stage.list("locks").await?.is_empty())).await?;
    ensure!(stage.list("waits").await?.is_empty(), "it still waits");
    ensure!(stage.processes(Some(&sleeper)).is_empty(), "its processes are left");
    ensure!(starts(&stage, "sleeper")? == [sleeper.as_str()], "it ran again");

    let again = stage.up().skein(&["agent", "kill", &sleeper]).await.unwrap_err().to_string();
    ensure!(again.contains("exit status: 4"), "{again}");
    let unknown = stage.up().skein(&["agent", "kill", "nobody-00000000"]).await.unwrap_err().to_string();
    ensure!(unknown.contains("exit status: 4") && unknown.contains("skein instances list"), "{unknown}");
    Ok(())
}

#[tokio::test]
async fn a_node_that_is_ready_knows_its_agents_but_the_wrong_ones() -> Result<()> {
    let wrong = "timeout = \"soon\"";
    let stage = Stage::new(1)?.agent("wrong", wrong, &[])?.agent("right", "", &[])?.start().await?;
    stage.run("right").await?;
    let refused = stage.run("wrong").await.unwrap_err().to_string();
    ensure!(refused.contains("exit status: 4"), "{refused}");
    stage.has_logged("wrong/agent.toml: timeout").await
}
