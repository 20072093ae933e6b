//! Agents in containers with the real programs and a real Docker daemon: the whole life of an instance, what its
//! container is closed to, and that nothing is left of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use skein_tests::docker::{Image, docker};
use skein_tests::mcp::status_at;
use skein_tests::stage::{Stage, are_frozen, are_running};

const JOIN: &str = r#"join-swarm={"name":"sleeper"}"#;
const CLAIM: &str = "task_claim_next={}";
const DONE: &str = r#"store-progress={"taskId":"$TASK","status":"completed","output":"seen"}"#;
const LOCK: &str = r#"acquire_lock={"resource_key":"test://repository/1"}"#;
/// The marker is on no machine but in the container, and the user is not the runner's.
const BASH: &str =
    r#"bash={"command":"id --user; pwd; cat shared/notes; echo here > /tmp/marker; cat /tmp/marker"}"#;
const READ: &str = r#"read={"path":"/tmp/marker"}"#;
const RELEASE: &str = r#"release_lock={"resource_key":"test://repository/1"}"#;
const WAIT: &str = r#"wait_for_trigger={"type":"webhook","source":"github","event":"push","timeout":"1h"}"#;

fn event(number: u64) -> Value {
    json!({"ref": "refs/heads/main", "number": number, "repository": {"full_name": "acme/app"}})
}

/// The containers of a runner, ended ones too.
async fn containers(runner: &str) -> Result<String> {
    docker(&["ps", "--all", "--quiet", "--filter", &format!("label=skein.runner={runner}")]).await
}

async fn nothing_is_left_of(runner: &str) -> Result<()> {
    let networks =
        docker(&["network", "ls", "--quiet", "--filter", &format!("label=skein.runner={runner}")]).await?;
    let left = containers(runner).await?;
    ensure!(left.is_empty() && networks.is_empty(), "left: containers {left:?}, networks {networks:?}");
    Ok(())
}

fn text(environment: &Value, name: &str) -> String {
    environment[name].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_agent_in_a_container_joins_works_locks_sleeps_wakes_and_completes() -> Result<()> {
    let image = Image::agents().await?;
    let steps = ["environment", JOIN, CLAIM, DONE, BASH, READ, LOCK, "tree", WAIT, RELEASE];
    let stage = Stage::new(1)?
        .sharing("notes", "for all\n")?
        .contained(image.name(), "sleeper", "", &steps)?
        .contained(image.name(), "lonely", "network = \"internal\"", &[r#"join-swarm={"name":"lonely"}"#])?
        .start()
        .await?;
    let runners = stage.list("runners").await?;
    ensure!(runners[0]["engines"].to_string().contains("docker"), "{runners:?}");
    stage.up().skein(&["task", "create", "look around"]).await?;
    let sleeper = stage.run("sleeper").await?;
    let environment = stage.answer("sleeper", "environment").await?;
    let runner = text(&environment, "SKEIN_RUNNER");
    let done = stage.answer("sleeper", "store-progress").await?;
    ensure!(done["success"] == true, "{done}");
    let (bash, read) = (stage.answer("sleeper", "bash").await?, stage.answer("sleeper", "read").await?);
    ensure!(bash.to_string().contains("1000\\n/app/static\\nfor all\\nhere"), "{bash}");
    ensure!(read.to_string().contains("here"), "{read}");
    let lock = stage.answer("sleeper", "acquire_lock").await?;
    ensure!(lock["ok"] == true, "{lock}");
    stage.becomes(&sleeper, "frozen").await?;
    let family = stage.processes(Some(&sleeper));
    ensure!(family.len() >= 4 && are_frozen(&family), "{family:?}");
    let locks = stage.list("locks").await?;
    ensure!(locks.len() == 1 && locks[0]["holder"].to_string().contains(&sleeper), "{locks:?}");

    // The only slot is free while it sleeps.
    let lonely = stage.run("lonely").await?;
    ensure!(stage.ends(&lonely).await? == "completed", "{}", stage.log());
    ensure!(stage.answer("lonely", "join-swarm").await?["success"] == true, "it did not reach its endpoint");

    stage.push("d-1", &event(1)).await?;
    let woken = stage.answer("sleeper", "wait_for_trigger").await?;
    ensure!(woken["payload"]["payload"]["number"] == 1, "{woken}");
    ensure!(stage.answer("sleeper", "release_lock").await?["ok"] == true, "the lock was lost");
    stage.becomes(&sleeper, "completed").await?;
    let tasks = stage.list("tasks").await?;
    ensure!(tasks[0]["status"] == "completed", "{tasks:?}");
    stage.until("its container is gone", async || Ok(containers(&runner).await?.is_empty())).await?;
    let _stage = stage.terminate().await?;
    nothing_is_left_of(&runner).await
}

#[tokio::test]
async fn containers_outlive_a_crash_of_the_node_and_are_found_again() -> Result<()> {
    let image = Image::agents().await?;
    let stage = Stage::new(3)?
        .contained(image.name(), "sleeper", "", &["environment", WAIT])?
        .contained(image.name(), "worker", "", &[LOCK, "hold", RELEASE])?
        .contained(image.name(), "victim", "", &["hold"])?
        .start()
        .await?;
    let sleeper = stage.run("sleeper").await?;
    stage.becomes(&sleeper, "frozen").await?;
    let runner = text(&stage.answer("sleeper", "environment").await?, "SKEIN_RUNNER");
    let worker = stage.run("worker").await?;
    stage.answer("worker", "acquire_lock").await?;
    let victim = stage.run("victim").await?;

    let stage = stage.kill().await?;
    let label = format!("label=skein.instance={victim}");
    let container = docker(&["ps", "--quiet", "--filter", &label]).await?;
    docker(&["kill", "--signal", "KILL", &container]).await?;
    let stage = stage.start().await?;
    ensure!(stage.ends(&victim).await? == "error", "it completed");
    for (instance, state) in [(&worker, "running"), (&sleeper, "frozen")] {
        stage.becomes(instance, state).await?;
    }
    let running = async || Ok(are_running(&stage.processes(Some(&worker))));
    stage.until("the running one runs on", running).await?;
    ensure!(are_frozen(&stage.processes(Some(&sleeper))), "the frozen one runs");
    stage.push("d-1", &event(1)).await?;
    stage.becomes(&sleeper, "completed").await?;
    stage.go("worker")?;
    ensure!(stage.answer("worker", "release_lock").await?["ok"] == true, "the lock was lost");
    stage.becomes(&worker, "completed").await?;
    for (agent, instance) in [("sleeper", sleeper), ("worker", worker), ("victim", victim)] {
        let starts = stage.answers(agent, "start")?;
        ensure!(starts.len() == 1 && starts[0].0 == instance, "{agent} ran more than once: {starts:?}");
    }
    let _stage = stage.terminate().await?;
    nothing_is_left_of(&runner).await
}

/// What is outside of it, its tools find as little as it does itself.
#[tokio::test]
async fn its_tools_work_inside_its_container_and_nowhere_else() -> Result<()> {
    let image = Image::agents().await?;
    let stage = Stage::new(1)?;
    let outside = stage.data().join("config.toml");
    let look = format!(r#"ls={{"path":"{}"}}"#, stage.data().display());
    let steps = [
        r#"write={"path":"/tmp/src/main.rs","content":"one\ntwo\n"}"#,
        r#"edit={"path":"/tmp/src/main.rs","edits":[{"oldText":"two","newText":"2"}]}"#,
        r#"grep={"pattern":"^2","path":"/tmp/src"}"#,
        r#"find={"pattern":"*.rs","path":"/tmp"}"#,
        &look,
    ];
    let read = format!(r#"read={{"path":"{}"}}"#, outside.display());
    let refused = [read.as_str(), r#"write={"path":"/usr/x","content":"x"}"#, r#"ls={"path":"/tmp/src"}"#];
    let stage = stage
        .contained(image.name(), "smith", "", &steps)?
        .contained(image.name(), "stray", "", &refused)?
        .start()
        .await?;
    let (smith, stray) = (stage.run("smith").await?, stage.ask("stray", "").await?);
    ensure!(stage.ends(&smith).await? == "completed", "{}", stage.printed(&smith));
    for (step, said) in [
        ("write", "Wrote 8 bytes"),
        ("edit", "-two"),
        ("grep", "main.rs:2: 2"),
        ("find", "src/main.rs"),
        ("ls", "no such"),
    ] {
        let answer = stage.answer("smith", step).await?.to_string();
        ensure!(answer.contains(said), "{step}: {answer}");
    }
    ensure!(stage.ends(&stray).await? == "completed", "{}", stage.printed(&stray));
    for (step, said) in [("read", "no such"), ("write", "read-only"), ("ls", "no such")] {
        let answer = stage.answer("stray", step).await?.to_string();
        ensure!(answer.to_lowercase().contains(said), "{step}: {answer}");
    }
    ensure!(outside.is_file(), "there was nothing to find");
    Ok(())
}

/// What a run keeps of itself is in the folders that an image has for that.
#[tokio::test]
async fn the_files_of_a_container_outlive_it_in_a_long_sleep() -> Result<()> {
    let image = Image::agents().await?;
    let write = r#"bash={"command":"echo t > /tmp/t; echo h > $HOME/h; ls -ld /tmp $HOME"}"#;
    let steps = ["environment", LOCK, write, WAIT, RELEASE, r#"bash={"command":"cat /tmp/t $HOME/h"}"#];
    let stage =
        Stage::new(1)?.contained(image.name(), "sleeper", "spill_after = \"1s\"\n", &steps)?.start().await?;
    let sleeper = stage.run("sleeper").await?;
    let runner = text(&stage.answer("sleeper", "environment").await?, "SKEIN_RUNNER");
    stage.becomes(&sleeper, "spilled").await?;
    ensure!(containers(&runner).await?.is_empty(), "its container takes up room while it sleeps");
    let work = stage.work("sleeper");
    let kept = work.ancestors().nth(2).unwrap().join(".kept").join(&sleeper);
    ensure!(kept.join("tmp/t").is_file() && kept.join("home/h").is_file(), "nothing was kept");

    // It sleeps on whatever becomes of its node.
    let stage = stage.kill().await?.start().await?;
    ensure!(stage.state(&sleeper).await? == "spilled");
    stage.push("d-1", &event(1)).await?;
    ensure!(stage.ends(&sleeper).await? == "completed", "{}", stage.printed(&sleeper));
    let starts = stage.answers("sleeper", "start")?;
    ensure!(starts.len() == 2 && starts[1].1["payload"]["payload"]["number"] == 1, "{starts:?}");
    ensure!(stage.answer("sleeper", "release_lock").await?["ok"] == true, "its lock was another's");
    let said = stage.answers("sleeper", "bash")?;
    ensure!(said[0].1.to_string().contains("drwxrwxrwt"), "its /tmp is like no other: {said:?}");
    ensure!(said[1].1.to_string().contains("t\\nh"), "its files are gone: {said:?}");
    let gone = async || Ok(!kept.exists() && containers(&runner).await?.is_empty());
    stage.until("nothing of it is left", gone).await?;
    let _stage = stage.terminate().await?;
    nothing_is_left_of(&runner).await
}

#[tokio::test]
async fn a_container_that_keeps_no_files_stays_frozen_when_its_definition_has_it_spilled() -> Result<()> {
    let image = Image::agents().await?;
    let write = r#"bash={"command":"echo t > /tmp/t"}"#;
    let steps = [write, WAIT, r#"bash={"command":"cat /tmp/t"}"#];
    let stage = Stage::new(1)?.contained(image.name(), "sleeper", "", &steps)?.start().await?;
    let sleeper = stage.run("sleeper").await?;
    stage.becomes(&sleeper, "frozen").await?;
    let stage = stage.contained(image.name(), "sleeper", "spill_after = \"1s\"\n", &steps)?;
    let refused = async || Ok(stage.log().contains("not spilled"));
    stage.until("it is not spilled", refused).await?;
    ensure!(stage.state(&sleeper).await? == "frozen");
    stage.push("d-1", &event(1)).await?;
    ensure!(stage.ends(&sleeper).await? == "completed", "{}", stage.printed(&sleeper));
    ensure!(stage.answers("sleeper", "start")?.len() == 1, "it began anew");
    Ok(())
}

#[tokio::test]
async fn strangers_do_not_get_in_and_bad_containers_harm_nobody() -> Result<()> {
    let image = Image::agents().await?;
    let small = "memory = \"64m\"";
    let stage = Stage::new(4)?
        .contained(image.name(), "good", "", &["environment", "hold", JOIN])?
        .contained(image.name(), "other", "", &["environment", "hold"])?
        .contained(image.name(), "greedy", small, &["fill=/home/node/file", "fill=/tmp/file"])?
        .contained("skein-test-no-such-image", "lost", "", &["hold"])?
        .start()
        .await?;
    let good = stage.run("good").await?;
    stage.run("other").await?;
    let environment = stage.answer("good", "environment").await?;
    let other = stage.answer("other", "environment").await?;
    let (url, runner) = (text(&environment, "SKEIN_URL"), text(&environment, "SKEIN_RUNNER"));
    // The endpoint is reached from here as from any container; only the secret opens it.
    let neighbour = text(&other, "SKEIN_TOKEN");
    for wrong in [None, Some(""), Some(neighbour.as_str())] {
        ensure!(status_at(&url, wrong).await? == 401, "its endpoint took {wrong:?}");
    }
    ensure!(
        status_at(&url, Some(&text(&environment, "SKEIN_TOKEN"))).await? != 401,
        "it did not take its own"
    );

    let reason = async |instance: &str| -> Result<String> {
        let rows = stage.list("instances").await?;
        let row = rows.iter().find(|row| row["instance"] == *instance);
        Ok(row.map(Value::to_string).unwrap_or_default())
    };
    let printed = stage.up().skein(&["agent", "run", "lost", "--json"]).await?;
    let lost: Value = serde_json::from_str(&printed)?;
    let lost = lost["instance"].as_str().unwrap();
    ensure!(stage.ends(lost).await? == "error");
    ensure!(reason(lost).await?.contains("docker pull skein-test-no-such-image"), "{}", reason(lost).await?);

    let greedy = stage.run("greedy").await?;
    ensure!(stage.ends(&greedy).await? == "error");
    ensure!(reason(&greedy).await?.contains("raise `memory`"), "{}", reason(&greedy).await?);

    stage.go("good")?;
    ensure!(stage.answer("good", "join-swarm").await?["success"] == true, "it was harmed");
    stage.becomes(&good, "completed").await?;
    let _stage = stage.terminate().await?;
    nothing_is_left_of(&runner).await
}

#[tokio::test]
async fn a_script_in_a_container_locks_calls_and_ends_itself() -> Result<()> {
    // An image that sets no PATH, and programs that load no library of the commands'.
    let image = Image::agents().await?;
    let keys = format!("image = \"{}\"\n", image.name());
    let lead = r#"
        rlock test://repository/1 && echo locked
        call=$(echo hello | al-subagent helper); call=${call#*callId\":\"}; call=${call%%\"*}
        al-subagent-wait "$call" && echo answered
        (unset SKEIN_TOKEN; rlock test://repository/2; echo "without $?")
        al-exit 12; echo went on
    "#;
    let stage = Stage::new(2)?
        .script("lead", &keys, lead)?
        .script("helper", &format!("{keys}network = \"internal\"\n"), "al-status thinking; al-return seen")?
        .start()
        .await?;
    let lead = stage.ask("lead", "").await?;
    ensure!(stage.ends(&lead).await? == "error", "{}", stage.printed(&lead));
    let (run, printed) = (stage.instance(&lead).await?, stage.printed(&lead));
    ensure!(run["exit"]["code"] == 12 && run["exit"]["reason"].to_string().contains("rate limited"), "{run}");
    for line in ["locked", "answered", "without 5"] {
        ensure!(printed.lines().any(|printed| printed == line), "{line} is missing: {printed}");
    }
    ensure!(printed.contains(r#""returnValue":"seen""#) && !printed.contains("went on"), "{printed}");
    stage.until("its lock is free", async || Ok(stage.list("locks").await?.is_empty())).await
}
