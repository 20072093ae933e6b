//! `skein-runner` as a process of its own beside `skein up --no-runner`.

#[path = "runner/doors.rs"]
mod doors;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use skein_coordinator::store::redis::shard::Shard;
use skein_shared::id::{EntityKey, Kind, Name};
use skein_tests::cluster::{Cluster, Status};
use skein_tests::mcp::Client;
use skein_tests::ports;
use skein_tests::process::{Signal, signal};
use skein_tests::runner::{Place, terminate};
use skein_tests::up::{Folder, Up};
use skein_tests::webhook;
use tokio::process::Child;

/// A free address, for a node that has to come back to it.
fn free_address() -> Result<String> {
    Ok(format!("127.0.0.1:{}", ports::free()?))
}

#[tokio::test]
async fn a_runner_of_its_own_keeps_its_instance_over_the_nodes_restart() -> Result<()> {
    let place = Place::new("far")?;
    place.define("idle", "command = [\"sleep\", \"600\"]\n")?;
    let grpc = free_address()?;
    let arguments = ["--no-runner", "--grpc", &grpc];
    let up = Up::start_in(Folder::new()?, &arguments).await?;
    let runner = place.start(&[&up.grpc], &up.token("runner", "far").await?)?;
    let row = up.row("runners", |runner| runner["state"] == "ready").await?;
    ensure!(row["runner"] == "far" && row["slots"] == 2 && row["swarms"] == json!(["default"]), "{row}");

    let run: Value = serde_json::from_str(&up.skein(&["agent", "run", "idle", "--json"]).await?)?;
    let running = |row: &Value| row["instance"] == run["instance"] && row["state"] == "running";
    up.row("instances", running).await?;
    logs_once(&up, &place, "started instance").await?;

    let up = Up::start_in(up.kill().await?, &arguments).await?;
    up.until("the runner comes back", async || {
        let status: Value = serde_json::from_str(&up.skein(&["status", "--json"]).await?)?;
        Ok((status["runners"] == json!(["far"])).then_some(()))
    })
    .await?;
    up.row("instances", running).await?;
    ensure!(place.log().matches("started instance").count() == 1, "it ran twice: {}", place.log());
    ensure!(!place.log().contains("ended instance"), "it was ended: {}", place.log());

    // The runner takes its instance along when it goes.
    terminate(runner).await?;
    up.row("instances", |row| row["instance"] == run["instance"] && row["state"] != "running").await?;
    Ok(())
}

/// An operator who asks again does not want to wait for the agents.
#[tokio::test]
async fn a_runner_that_is_asked_twice_ends_at_once_and_its_next_start_takes_over_what_runs() -> Result<()> {
    let place = Place::new("far")?;
    place.agent("deaf", "grace = \"1h\"\n", &["deaf", "hold"])?;
    let up = Up::start_in(Folder::new()?, &["--no-runner"]).await?;
    let token = up.token("runner", "far").await?;
    let mut runner = place.start(&[&up.grpc], &token)?;
    up.row("runners", |runner| runner["state"] == "ready").await?;
    let run: Value = serde_json::from_str(&up.skein(&["agent", "run", "deaf", "--json"]).await?)?;
    let running = |row: &Value| row["instance"] == run["instance"] && row["state"] == "running";
    up.row("instances", running).await?;
    let deaf = async || Ok(place.journal("deaf")?.iter().any(|line| line["step"] == "deaf").then_some(()));
    up.until("the agent is deaf", deaf).await?;

    let id = runner.id().context("the runner has ended")?;
    signal(id, Signal::TERM)?;
    up.row("runners", |runner| runner["state"] == "draining").await?;
    ensure!(runner.try_wait()?.is_none(), "it did not wait for its agent: {}", place.log());
    signal(id, Signal::INT)?;
    let status = runner.wait().await?;
    ensure!(status.code() == Some(130), "it ended with {status}: {}", place.log());
    ensure!(place.log().contains("asked again: the agents"), "it does not say why: {}", place.log());
    let instance = run["instance"].as_str().context("no instance")?;
    ensure!(!place.commands(instance).is_empty(), "its agent ended with it");

    let _runner = place.start(&[&up.grpc], &token)?;
    up.row("runners", |runner| runner["state"] == "ready").await?;
    up.row("instances", running).await?;
    ensure!(place.log().matches("started instance").count() == 1, "it ran twice: {}", place.log());
    Ok(())
}

/// Its runs were granted while it was away: nothing starts them, and nothing keeps their slots.
#[tokio::test]
async fn runs_of_agents_that_a_runner_comes_back_without_end_and_free_their_slots() -> Result<()> {
    let place = Place::new("far")?;
    for agent in ["gone", "spoilt", "stays"] {
        place.define(agent, "command = [\"sleep\", \"600\"]\ninstances = 2\n")?;
    }
    let up = Up::start_in(Folder::new()?, &["--no-runner"]).await?;
    let token = up.token("runner", "far").await?;
    let mut runner = place.start(&[&up.grpc], &token)?;
    up.row("runners", |runner| runner["state"] == "ready").await?;
    runner.kill().await?;
    let mut granted = Vec::new();
    for agent in ["gone", "spoilt"] {
        let run: Value = serde_json::from_str(&up.skein(&["agent", "run", agent, "--json"]).await?)?;
        up.row("instances", |row| row["instance"] == run["instance"] && row["state"] == "starting").await?;
        granted.push(run["instance"].clone());
    }
    std::fs::remove_dir_all(place.path().join("agents/gone"))?;
    place.define("spoilt", "comand = [\"sleep\", \"600\"]\n")?;
    let _runner = place.start(&[&up.grpc], &token)?;
    for (instance, end) in granted.iter().zip(["killed", "error"]) {
        up.row("instances", |row| row["instance"] == *instance && row["state"] == end).await?;
    }
    let history = up.skein(&["agent", "history", "spoilt", "--json"]).await?;
    ensure!(history.contains("has no agent `spoilt`"), "{history}");
    for _ in 0..2 {
        let run: Value = serde_json::from_str(&up.skein(&["agent", "run", "stays", "--json"]).await?)?;
        up.row("instances", |row| row["instance"] == run["instance"] && row["state"] == "running").await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_runner_needs_a_runners_token_of_its_own_name() -> Result<()> {
    let place = Place::new("far")?;
    let up = Up::start().await?;
    let mut expected = Vec::new();
    for (role, name, word) in
        [("worker", "far", "role"), ("runner", "near", "issue one with --name far"), ("", "", "token")]
    {
        let token = if role.is_empty() { "a.b.c".to_owned() } else { up.token(role, name).await? };
        let status = place.start(&[&up.grpc], &token)?.wait().await?;
        ensure!(status.code() == Some(3), "{role} {name}: the runner ended with {status}: {}", place.log());
        expected.push(word);
    }
    for word in expected {
        ensure!(place.log().contains(word), "the log does not say {word:?}: {}", place.log());
    }
    ensure!(up.skein(&["runners", "list", "--json"]).await?.is_empty(), "a runner was taken in");
    Ok(())
}

#[tokio::test]
async fn a_node_that_stops_knows_the_end_of_its_agents() -> Result<()> {
    let folder = Folder::new()?;
    let agent = folder.data().join("agents").join("idle");
    std::fs::create_dir_all(&agent)?;
    std::fs::write(agent.join("agent.toml"), "command = [\"sleep\", \"600\"]\nautostart = true\n")?;
    let up = Up::start_in(folder, &[]).await?;
    let row = up.row("instances", |instance| instance["state"] == "running").await?;
    let up = Up::start_in(up.terminate().await?, &["--no-runner"]).await?;
    // No runner is there to tell it afterwards: it was reported and written down before the node was gone.
    let ended = up.row("instances", |instance| instance["instance"] == row["instance"]).await?;
    ensure!(ended["state"] != "running", "{ended}");
    Ok(())
}

/// The log of a run is on its runner alone, if there is one at all. Whoever follows it must not wait for a runner that
/// may never come back.
#[tokio::test]
async fn how_a_run_ended_is_told_without_its_log_and_its_runner() -> Result<()> {
    let place = Place::new("far")?;
    place.define("lost", "command = [\"no-such-program\"]\n")?;
    place.define("brief", "command = [\"sh\", \"-c\", \"echo one; exit 3\"]\n")?;
    let up = Up::start_in(Folder::new()?, &["--no-runner"]).await?;
    let runner = place.start(&[&up.grpc], &up.token("runner", "far").await?)?;
    up.row("runners", |runner| runner["state"] == "ready").await?;
    for agent in ["brief", "lost"] {
        up.skein(&["agent", "run", agent]).await?;
        up.row("instances", |row| row["agent"] == agent && row["endedAt"].is_string()).await?;
    }
    let unstarted = String::from_utf8(up.run(&["agent", "logs", "lost"]).await?.stderr)?;
    ensure!(
        unstarted.contains("it never started") && unstarted.contains("not found on this runner"),
        "{unstarted}"
    );
    let logs = ["agent", "logs", "brief", "--follow"];
    ensure!(up.skein(&logs).await? == "one\n", "it has other lines");
    terminate(runner).await?;
    let followed = tokio::time::timeout(Duration::from_secs(30), up.run(&logs)).await;
    let followed = followed.context("it is followed still")??;
    let note = String::from_utf8(followed.stderr)?;
    ensure!(note.contains("no coordinator has a connection") && note.contains("exit code 3"), "{note}");
    Ok(())
}

/// Waits until a runner has logged something once: a thread of its own writes what was logged a moment ago.
async fn logs_once(up: &Up, place: &Place, text: &str) -> Result<()> {
    let once = async || Ok((place.log().matches(text).count() == 1).then_some(()));
    up.until(&format!("the runner logs `{text}` once"), once).await.with_context(|| place.log())
}

/// Waits until the runner has a stream to a node.
async fn has_a_stream(up: &Up) -> Result<()> {
    up.until("the runner has a stream to it", async || {
        let status: Value = serde_json::from_str(&up.skein(&["status", "--json"]).await?)?;
        Ok((status["runners"] == json!(["far"])).then_some(()))
    })
    .await
}

/// The second coordinator tells runners of a door that leads nowhere: no runner has a stream to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_reaches_its_instance_through_a_coordinator_without_a_stream_to_its_runner() -> Result<()> {
    let (cluster, first) = Cluster::start("lease = \"4s\"\nsettle = \"1s\"").await?;
    let nowhere = format!("[listen]\nrunner_url = \"http://{}\"\n", free_address()?);
    let second = cluster.serve(cluster.folder(&nowhere)?).await?;
    let place = Place::new("far")?;
    place.agent("idle", "", &["hold"])?;
    let _runner = place.start(&[&first.grpc], &first.token("runner", "far").await?)?;
    has_a_stream(&first).await?;
    let run: Value = serde_json::from_str(&first.skein(&["agent", "run", "idle", "--json"]).await?)?;
    let instance = run["instance"].as_str().context("no instance")?.to_owned();
    first.row("instances", |row| row["instance"] == *instance && row["state"] == "running").await?;

    let operator = Client::new(&second.mcp, &first.token("operator", "boss").await?);
    let bash = json!({"name": "bash", "arguments": {"instance": instance, "command": "echo $SKEIN_INSTANCE; exit 3"}});
    let answer = operator.request("tools/call", bash).await?;
    let said = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
    ensure!(said.contains(&instance) && said.contains("exit code 3"), "{answer}");
    let status: Value = serde_json::from_str(&second.skein(&["status", "--json"]).await?)?;
    ensure!(status["runners"] == json!([]), "it has a stream of its own after all: {status}");

    // Whoever asked goes away: that reaches the runner by the same detour.
    let endless = json!({"name": "bash", "arguments": {"instance": instance, "command": "sleep 3333; true"}});
    let asking = tokio::spawn(async move { operator.request("tools/call", endless).await });
    let sleeps = || place.commands(&instance).iter().any(|command| command.contains("sleep 3333"));
    first.until("the command runs", async || Ok(sleeps().then_some(()))).await?;
    asking.abort();
    first.until("it ends with who asked for it", async || Ok((!sleeps()).then_some(()))).await?;

    // Without the one that has the stream nobody can ask, and that is said.
    let operator = Client::new(&second.mcp, &second.token("operator", "boss").await?);
    first.kill().await?;
    let refused = second.until("the instance has an owner again", async || {
        let ls = json!({"name": "ls", "arguments": {"instance": instance}});
        let answer = operator.request("tools/call", ls).await?;
        let said = answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        Ok(said.contains("no coordinator has a connection to the runner").then_some(answer))
    });
    ensure!(refused.await?["result"]["isError"] == true);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_keeps_its_instances_through_the_death_of_any_coordinator() -> Result<()> {
    let (cluster, first) = Cluster::start("lease = \"4s\"\nsettle = \"1s\"").await?;
    let (second, third) = (cluster.join().await?, cluster.join().await?);
    let place = Place::new("far")?;
    place.define("idle", "command = [\"sleep\", \"600\"]\n")?;
    let go = place.path().join("go");
    let wait = format!("while [ ! -e {} ]; do sleep 0.05; done", go.display());
    place.define("brief", &format!("command = [\"sh\", \"-c\", \"{wait}\"]\n"))?;
    // It is told of one and learns of the others, also of one that comes later.
    let _runner = place.start(&[&first.grpc], &first.token("runner", "far").await?)?;
    for node in [&first, &second, &third] {
        has_a_stream(node).await?;
    }
    let fourth = cluster.join().await?;
    has_a_stream(&fourth).await?;
    let mut runs = Vec::new();
    for (node, agent) in [(&first, "idle"), (&third, "brief")] {
        let run: Value = serde_json::from_str(&node.skein(&["agent", "run", agent, "--json"]).await?)?;
        let instance = run["instance"].as_str().context("no instance")?.to_owned();
        node.row("instances", |row| row["instance"] == *instance && row["state"] == "running").await?;
        runs.push(instance);
    }

    first.kill().await?;
    fourth.terminate().await?;
    // What ends is reported through those that are left, and what is ordered reaches it through any of them.
    std::fs::write(&go, "")?;
    let over = |instance: &str| {
        let instance = instance.to_owned();
        move |row: &Value| row["instance"] == *instance && row["endedAt"].is_string()
    };
    second.row("instances", over(&runs[1])).await?;
    logs_once(&second, &place, "ended instance").await.context("the other did not go on")?;
    second.row("instances", |row| row["instance"] == *runs[0] && row["state"] == "running").await?;
    third.skein(&["agent", "kill", &runs[0]]).await?;
    second.row("instances", over(&runs[0])).await?;
    let log = place.log();
    ensure!(log.matches("started instance").count() == 2, "something ran twice: {log}");
    ensure!(log.matches("attaches=false").count() == 1, "it registered more than once: {log}");
    Ok(())
}

/// Pauses all agents, of which there are so many. Says whether all were told; if not, the refusal has to say why.
async fn pauses_all(node: &Up, agents: usize) -> Result<bool> {
    let output = node.run(&["agent", "pause", "--all", "--json"]).await?;
    if output.status.success() {
        let told: Value = serde_json::from_slice(&output.stdout)?;
        ensure!(told["agents"] == json!(agents), "{told}");
        return Ok(true);
    }
    let problem = String::from_utf8_lossy(&output.stderr);
    ensure!(problem.contains("not all agents can be listed yet"), "{problem}");
    Ok(false)
}

/// The place of a node that has some of the agents, and nothing of what their swarm has but once.
async fn owner_of_agents_alone(nodes: &[Up], agents: &[String]) -> Result<usize> {
    let mut addresses = Vec::new();
    for node in nodes {
        addresses.push(Status::of(node).await?.address()?);
    }
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let status = nodes[0]
        .until("the shards are shared", async || {
            let status = Status::of(&nodes[0]).await?;
            Ok(status.is_shared_by(&addresses).then_some(status))
        })
        .await?;
    let owner = |key: &EntityKey| status.owner(Shard::of(key).number()).context("it has no owner");
    let swarm = Name::parse("default")?;
    let of_the_rest = owner(&EntityKey::of(Kind::Pool, &swarm))?;
    for agent in agents {
        let owner = owner(&EntityKey::agent(&swarm, &Name::parse(agent)?))?;
        if owner != of_the_rest {
            return addresses.iter().position(|address| *address == owner).context("nobody is that");
        }
    }
    bail!("one node has everything")
}

/// From its death on, and until its agents have been brought in elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_of_all_misses_no_agent_of_a_dead_coordinator_without_saying_so() -> Result<()> {
    // The command is there before its end, also if it waits for a processor.
    let (cluster, first) = Cluster::start("lease = \"12s\"\nsettle = \"1s\"").await?;
    let mut nodes = vec![first, cluster.join().await?, cluster.join().await?];
    let place = Place::new("far")?;
    let names: Vec<String> = (0..24).map(|number| format!("idle-{number}")).collect();
    for name in &names {
        place.define(name, "command = [\"sleep\", \"600\"]\n")?;
    }
    let _runner = started(&nodes[0], &place, "far").await?;
    let doomed = owner_of_agents_alone(&nodes, &names).await?;
    let all = async || Ok(pauses_all(&nodes[0], names.len()).await?.then_some(()));
    nodes[0].until("all agents are told", all).await?;

    drop(nodes.remove(doomed).kill().await?);
    let mut refusals = 0;
    while !pauses_all(&nodes[0], names.len()).await? {
        refusals += 1;
        // The command would take a processor from the nodes that take over.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    ensure!(refusals > 0, "nobody noticed that a coordinator had died");
    Ok(())
}

/// Starts a runner, and waits until it can be given work.
async fn started(up: &Up, place: &Place, name: &str) -> Result<Child> {
    let runner = place.start(&[&up.grpc], &up.token("runner", name).await?)?;
    up.row("runners", |row| row["runner"] == name && row["state"] == "ready").await?;
    Ok(runner)
}

/// A machine that is gone: its runner ends without a word, and so does what ran there. Nothing of it is left.
async fn lose(place: Place, mut runner: Child) -> Result<()> {
    runner.kill().await?;
    drop(place);
    Ok(())
}

/// Asks for a run, and gives its instance.
async fn asked(up: &Up, agent: &str) -> Result<String> {
    let run: Value = serde_json::from_str(&up.skein(&["agent", "run", agent, "--json"]).await?)?;
    Ok(run["instance"].as_str().context("no instance")?.to_owned())
}

/// Waits until an instance is in a state, and gives its row.
async fn becomes(up: &Up, instance: &str, state: &str) -> Result<Value> {
    let row = up.row("instances", |row| row["instance"] == instance && row["state"] == state).await;
    row.with_context(|| format!("{instance} is not {state}"))
}

/// Waits for the answer that an agent's run got in a step.
async fn answer(up: &Up, place: &Place, agent: &str, step: &str) -> Result<Value> {
    up.until(&format!("{agent} is through with {step}"), async || {
        let mut lines = place.journal(agent)?.into_iter();
        Ok(lines.find(|line| line["step"] == step).map(|mut line| line["answer"].take()))
    })
    .await
}

async fn no_locks(up: &Up) -> Result<()> {
    let locks = async || Ok(up.skein(&["locks", "list", "--json"]).await?.is_empty().then_some(()));
    up.until("all locks are free", locks).await
}

/// How many slots the swarm has, and how many runners there are.
async fn slots(up: &Up) -> Result<Value> {
    let shown: Value = serde_json::from_str(&up.skein(&["swarm", "scale", "default", "--json"]).await?)?;
    Ok(json!([shown["running"], shown["runners"]]))
}

#[tokio::test]
async fn the_runs_of_a_runner_that_never_comes_back_end_with_its_lease_and_others_go_on() -> Result<()> {
    let wait = r#"wait_for_trigger={"type":"webhook","source":"github","event":"push","timeout":"1h"}"#;
    let lock = |number: u32| format!(r#"acquire_lock={{"resource_key":"test://repository/{number}"}}"#);
    let up = Up::start_in(Folder::new()?.configured(&webhook::configuration())?, &["--no-runner"]).await?;
    let (far, near) = (Place::new("far")?, Place::new("near")?);
    far.agent("worker", "", &[lock(1).as_str(), "hold"])?;
    far.agent("sleeper", "", &[lock(2).as_str(), wait])?;
    near.agent("steady", "", &["hold"])?;
    let runner = started(&up, &far, "far").await?;
    let _near = started(&up, &near, "near").await?;
    let (worker, sleeper) = (asked(&up, "worker").await?, asked(&up, "sleeper").await?);
    let steady = asked(&up, "steady").await?;
    for agent in ["worker", "sleeper"] {
        let lock = answer(&up, &far, agent, "acquire_lock").await?;
        ensure!(lock["ok"] == true, "{agent}: {lock}");
    }
    becomes(&up, &sleeper, "frozen").await?;
    becomes(&up, &worker, "running").await?;
    answer(&up, &near, "steady", "start").await?;
    let given = async || Ok((slots(&up).await? == json!([2, 2])).then_some(()));
    up.until("only those that run have slots", given).await?;
    let locks = up.skein(&["locks", "list", "--json"]).await?;
    ensure!(locks.lines().count() == 2, "{locks}");

    lose(far, runner).await?;
    for instance in [&worker, &sleeper] {
        let row = becomes(&up, instance, "error").await?;
        ensure!(row["exit"]["reason"] == "runner lost: far", "{row}");
    }
    no_locks(&up).await?;
    let waits = up.skein(&["waits", "list", "--json"]).await?;
    ensure!(waits.is_empty(), "a wait outlived its instance: {waits}");
    let left = slots(&up).await?;
    ensure!(left == json!([1, 1]), "slots and runners: {left}");

    becomes(&up, &steady, "running").await?;
    near.go("steady")?;
    becomes(&up, &steady, "completed").await?;
    let starts = near.journal("steady")?.iter().filter(|line| line["step"] == "start").count();
    ensure!(starts == 1, "it ran {starts} times");
    Ok(())
}

#[tokio::test]
async fn the_task_and_the_lock_of_a_run_that_is_lost_go_to_one_later_run_elsewhere() -> Result<()> {
    let join = r#"join-swarm={"name":"worker"}"#;
    let lock = r#"acquire_lock={"resource_key":"test://repository/1"}"#;
    let done = r#"store-progress={"taskId":"$TASK","status":"completed","output":"seven geese"}"#;
    let up = Up::start().await?;
    let made: Value =
        serde_json::from_str(&up.skein(&["task", "create", "Count the geese", "--json"]).await?)?;
    let task = made["id"].as_str().context("a task has an id")?;
    let shown = async || -> Result<Value> {
        Ok(serde_json::from_str(&up.skein(&["task", "show", task, "--json"]).await?)?)
    };
    let claim = format!(r#"task-action={{"action":"claim","taskId":"{task}"}}"#);
    let (far, near) = (Place::new("far")?, Place::new("near")?);
    far.agent("worker", "", &[join, lock, claim.as_str(), "hold"])?;
    // What its agent has lost is kept for its next run, which does not have to know of it.
    near.agent("worker", "", &[join, lock, "poll-task={}", "hold", done])?;
    let runner = started(&up, &far, "far").await?;
    let first = asked(&up, "worker").await?;
    let claimed = answer(&up, &far, "worker", "task-action").await?;
    ensure!(claimed["success"] == true, "{claimed}");
    let locked = answer(&up, &far, "worker", "acquire_lock").await?;
    ensure!(locked["ok"] == true, "{locked}");
    // Only now, so that the first run is where it is to be.
    let _near = started(&up, &near, "near").await?;

    lose(far, runner).await?;
    becomes(&up, &first, "error").await?;
    let lost = up.until("its task is given back", async || {
        let task = shown().await?;
        Ok((task["status"] == "pending").then_some(task))
    });
    let lost = lost.await?;
    ensure!(lost["returnReason"] == "runner lost: far" && lost["generation"] == 1, "{lost}");
    no_locks(&up).await?;

    let second = asked(&up, "worker").await?;
    let polled = answer(&up, &near, "worker", "poll-task").await?;
    ensure!(polled["task"]["id"] == task && polled["redelivered"] == false, "{polled}");
    let locked = answer(&up, &near, "worker", "acquire_lock").await?;
    ensure!(locked["ok"] == true, "{locked}");
    let rival = Client::new(&up.mcp, &up.token("worker", "rival").await?);
    rival.call("join-swarm", json!({"name": "rival"})).await?;
    let refused = rival.call("task-action", json!({"action": "claim", "taskId": task})).await?;
    ensure!(refused["success"] == false && refused["code"] == "wrong_state", "{refused}");
    near.go("worker")?;
    becomes(&up, &second, "completed").await?;
    let ended = shown().await?;
    ensure!(ended["status"] == "completed" && ended["output"] == "seven geese", "{ended}");
    ensure!(ended["generation"] == 1, "it was given back again: {ended}");
    Ok(())
}
