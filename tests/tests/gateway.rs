//! Agents that are shell scripts and use nothing but the commands that their runner puts on their `PATH`; and the
//! routes that it asks, as other programs would ask them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::fs;
use std::process::{Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use skein_tests::stage::Stage;
use skein_tests::up::skein_elsewhere;
use skein_tests::webhook::event;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Runs a command, and prints its name, its exit status and what it printed, in one line.
const TELL: &str = r#"tell() { name=$1; shift; said=$("$@" </dev/null); echo "$name $? $said"; }
hold() { while [ ! -e go ]; do sleep 0.02; done; }
"#;

fn script(lines: &str) -> String {
    format!("{TELL}{lines}")
}

/// The exit status that a run told under a name, and the JSON beside it.
fn told(stage: &Stage, instance: &str, name: &str) -> Option<(i32, Value)> {
    let printed = stage.printed(instance);
    let line = printed.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    let (status, json) = line.split_once(' ')?;
    Some((status.parse().ok()?, serde_json::from_str(json).ok()?))
}

async fn tells(stage: &Stage, instance: &str, name: &str) -> Result<(i32, Value)> {
    stage
        .until(&format!("{instance} tells {name}"), async || Ok(told(stage, instance, name).is_some()))
        .await
        .with_context(|| stage.printed(instance))?;
    told(stage, instance, name).context("it was told a moment ago")
}

#[tokio::test]
async fn two_scripts_want_one_lock_and_one_gets_it() -> Result<()> {
    let holder = script(
        "tell lock rlock TEST://repository/1 --ttl 60; hold; tell keep rlock-heartbeat test://repository/1 --ttl 600
         tell other rlock test://repository/2; tell free runlock test://repository/1; tell twice runlock test://repository/1",
    );
    let rival = script(
        "tell lock rlock test://repository/1; tell free runlock test://repository/1; tell bad rlock repository
         tell usage rlock; hold; tell again rlock test://repository/1",
    );
    let stage = Stage::new(2)?.script("holder", "", &holder)?.script("rival", "", &rival)?.start().await?;
    let holder = stage.ask("holder", "").await?;
    let (status, lock) = tells(&stage, &holder, "lock").await?;
    ensure!(status == 0 && lock["ok"] == true && lock["resourceKey"] == "test://repository/1", "{lock}");
    let token = lock["fencingToken"].as_str().context("no fencing token")?;

    let rival = stage.ask("rival", "").await?;
    let (status, refused) = tells(&stage, &rival, "lock").await?;
    ensure!(status == 1 && refused["ok"] == false && refused["holder"] == holder.as_str(), "{refused}");
    ensure!(refused["heldSince"].is_u64(), "{refused}");
    let (status, foreign) = tells(&stage, &rival, "free").await?;
    ensure!(status == 1 && foreign["reason"] == format!("held by {holder}"), "{foreign}");
    ensure!(tells(&stage, &rival, "bad").await?.0 == 4, "a key that is no URI was taken");
    ensure!(tells(&stage, &rival, "usage").await?.0 == 9, "a lock on nothing was taken");

    stage.go("holder")?;
    let (status, kept) = tells(&stage, &holder, "keep").await?;
    ensure!(status == 0 && kept["expiresAt"].as_u64() > lock["expiresAt"].as_u64(), "{kept}");
    ensure!(tells(&stage, &holder, "other").await?.0 == 1, "it holds two locks");
    ensure!(tells(&stage, &holder, "free").await?.0 == 0, "its lock is not its own");
    let (status, twice) = tells(&stage, &holder, "twice").await?;
    ensure!(status == 2 && twice["reason"] == "lock not found", "{twice}");
    stage.go("rival")?;
    let (status, next) = tells(&stage, &rival, "again").await?;
    ensure!(status == 0 && next["fencingToken"].as_str() > Some(token), "{next} after {lock}");
    ensure!(stage.ends(&rival).await? == "completed");
    stage.until("its lock went with it", async || Ok(stage.list("locks").await?.is_empty())).await
}

#[tokio::test]
async fn a_script_calls_another_and_gets_its_answer() -> Result<()> {
    let lead = script(
        r#"called() { printf 'what is "1 + 2"?\n' | al-subagent "$1" | sed 's/.*"callId":"\([^"]*\)".*/\1/'; }
           call=$(called adder); slow=$(called slow)
           tell wait al-subagent-wait "$call"; tell check al-subagent-check "$call"
           tell late al-subagent-wait "$call" "$slow" --timeout 1
           tell foreign al-subagent-check 0190d3a0-0000-7000-8000-000000000000
           tell nobody al-subagent nobody; tell self al-subagent lead; tell id al-subagent-check ../x"#,
    );
    let adder =
        script(r#"tell status al-status adding; echo "input $SKEIN_INPUT"; printf 3 | al-return; hold"#);
    let stage = Stage::new(3)?
        .script("lead", "", &lead)?
        .script("adder", "", &adder)?
        .script("slow", "", "sleep 1000")?
        .start()
        .await?;
    let lead = stage.ask("lead", "").await?;
    let row = async || -> Result<Option<Value>> {
        Ok(stage.list("instances").await?.into_iter().find(|run| run["agent"] == "adder"))
    };
    stage
        .until("the callee shows what it does", async || {
            Ok(row().await?.is_some_and(|run| run["statusText"] == "adding"))
        })
        .await?;
    stage.go("adder")?;
    let (status, waited) = tells(&stage, &lead, "wait").await?;
    let id = waited.as_object().and_then(|calls| calls.keys().next()).context("no call was waited for")?;
    ensure!(status == 0 && waited[id] == json!({"status": "completed", "returnValue": "3"}), "{waited}");
    let (status, checked) = tells(&stage, &lead, "check").await?;
    ensure!(status == 0 && checked == waited[id], "{checked}");
    let (status, late) = tells(&stage, &lead, "late").await?;
    ensure!(status == 8 && late == waited, "{status}: what is over is told all the same: {late}");
    for (name, wanted) in [("foreign", 2), ("nobody", 1), ("self", 1), ("id", 9)] {
        let (status, said) = tells(&stage, &lead, name).await?;
        ensure!(
            status == wanted && said["ok"] == false && said["reason"].is_string(),
            "{name} {status}: {said}"
        );
    }
    let callee = row().await?.context("the callee is not listed")?;
    let printed = stage.printed(callee["instance"].as_str().unwrap_or_default());
    ensure!(printed.contains(r#"what is \"1 + 2\"?"#), "it was asked something else: {printed}");
    Ok(())
}

#[tokio::test]
async fn a_script_ends_with_the_status_that_it_chooses() -> Result<()> {
    // Whoever goes on after that has not ended, and each has a child that does not end by itself.
    let ending = |command: &str| format!("sleep 1000 & {command}; echo went on");
    let stage = Stage::new(4)?
        .script("fails", "", &ending("al-exit 3"))?
        .script("gives-up", "", &ending("al-exit"))?
        .script("succeeds", "", &ending("al-exit 0"))?
        .script("repeats", "max_reruns = 1", &ending("al-exit 42"))?
        .script("asks", "max_reruns = 1", "al-rerun")?
        .script("stops", "", &ending("al-shutdown the disk is full"))?
        .start()
        .await?;
    for (agent, state, code, reason) in [
        ("fails", "error", json!(3), "the run exited with status 3"),
        ("gives-up", "error", json!(15), "another try"),
        ("succeeds", "completed", json!(0), "completed"),
        ("repeats", "completed", json!(42), "run again"),
        ("asks", "completed", json!(0), "completed"),
        ("stops", "killed", Value::Null, "it shut itself down: the disk is full"),
    ] {
        let instance = stage.ask(agent, "").await?;
        ensure!(stage.ends(&instance).await? == state, "{agent}: {}", stage.instance(&instance).await?);
        let run = stage.instance(&instance).await?;
        let exit = &run["exit"];
        ensure!(state == "killed" || exit["code"] == code, "{agent}: {run}");
        ensure!(exit["reason"].as_str().unwrap_or_default().contains(reason), "{agent}: {run}");
        ensure!(!stage.printed(&instance).contains("went on"), "{agent} went on after its end");
        stage
            .until("its processes are gone", async || Ok(stage.processes(Some(&instance)).is_empty()))
            .await?;
    }
    for (agent, count) in [("repeats", 2), ("asks", 2), ("succeeds", 1)] {
        let runs = async || -> Result<usize> {
            Ok(stage.list("instances").await?.iter().filter(|run| run["agent"] == agent).count())
        };
        stage.until("it has run so often", async || Ok(runs().await? == count)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn without_a_gateway_nothing_succeeds() -> Result<()> {
    let lines = script(
        r#"tell none env -u SKEIN_URL rlock test://a; tell tokenless env SKEIN_TOKEN= rlock test://a
           tell away env SKEIN_URL=http://127.0.0.1:1/mcp rlock test://a; tell wrong env SKEIN_TOKEN=wrong rlock test://a
           tell return env SKEIN_URL=http://127.0.0.1:1/mcp al-return x; tell exit env -u SKEIN_TOKEN al-exit 0
           tell name env SKEIN_URL=http://skein.example/mcp al-status x"#,
    );
    let stage = Stage::new(1)?.script("lonely", "", &lines)?.start().await?;
    let lonely = stage.ask("lonely", "").await?;
    for (name, wanted) in
        [("none", 5), ("tokenless", 5), ("away", 6), ("wrong", 3), ("return", 6), ("exit", 5), ("name", 5)]
    {
        let (status, said) = tells(&stage, &lonely, name).await?;
        let explained = said["reason"].is_string() || said["error"].is_string();
        ensure!(status == wanted && explained, "{name} ended with {status}: {said}");
    }
    ensure!(stage.ends(&lonely).await? == "completed", "{}", stage.printed(&lonely));
    ensure!(stage.list("locks").await?.is_empty(), "something was locked");
    Ok(())
}

#[tokio::test]
async fn an_instance_asks_its_routes_with_its_secret_in_the_header_or_the_body() -> Result<()> {
    let stage = Stage::new(1)?.agent("curious", "", &["environment", "hold"])?.start().await?;
    let instance = stage.run("curious").await?;
    let environment = stage.answer("curious", "environment").await?;
    let text = |name: &str| environment[name].as_str().unwrap().to_owned();
    let (base, secret) = (text("SKEIN_URL").replace("/mcp", ""), text("SKEIN_TOKEN"));
    let http = reqwest::Client::new();
    let post = async |path: &str, body: Value| -> Result<(u16, Value)> {
        let answer = http.post(format!("{base}{path}")).body(body.to_string()).send().await?;
        Ok((answer.status().as_u16(), answer.json().await?))
    };
    let (status, locked) =
        post("/locks/acquire", json!({"secret": secret, "resourceKey": "test://a"})).await?;
    ensure!(status == 200 && locked["ok"] == true, "{locked}");
    let listed = http.get(format!("{base}/locks/list")).bearer_auth(&secret).send().await?;
    let locks: Value = listed.json().await?;
    ensure!(locks[0]["holder"] == instance.as_str(), "{locks}");

    let (status, missing) = post("/locks/release", json!({"resourceKey": "test://a"})).await?;
    ensure!(status == 400 && missing["error"].is_string(), "{missing}");
    let (status, wrong) =
        post("/locks/release", json!({"secret": "wrong", "resourceKey": "test://a"})).await?;
    ensure!(status == 403 && wrong["error"].is_string(), "{wrong}");
    let address = http.get(format!("{base}/locks/list?secret={secret}")).send().await?;
    ensure!(address.status() == 400, "a secret in the address was taken");
    for path in ["/control/status", "/metrics", "/locks/../control/status", "/"] {
        let status = http.get(format!("{base}{path}")).bearer_auth(&secret).send().await?.status();
        ensure!(status == 404, "its endpoint led to {path}: {status}");
    }
    // The secret opens its endpoint and nothing else.
    let node = stage.up().mcp.replace("/mcp", "");
    let direct = http.get(format!("{node}/locks/list")).bearer_auth(&secret).send().await?;
    ensure!(direct.status() == 403, "the secret opens the coordinator");
    Ok(())
}

#[tokio::test]
async fn operators_steer_and_replay_over_http() -> Result<()> {
    let keys = "subscriptions = [{ source = \"github\", event = \"push\" }]\n";
    let stage = Stage::new(2)?.script("worker", keys, "al-status at work; sleep 1000")?.start().await?;
    let token = fs::read_to_string(stage.data().join("operator.token"))?;
    let (http, node) = (reqwest::Client::new(), stage.up().mcp.replace("/mcp", ""));
    let ask = async |method: reqwest::Method, path: &str, body: Value| -> Result<(u16, Value)> {
        let request = http.request(method, format!("{node}{path}")).bearer_auth(token.trim());
        let answer = request.body(body.to_string()).send().await?;
        Ok((answer.status().as_u16(), answer.json().await?))
    };
    let post = async |path: &str| ask(reqwest::Method::POST, path, json!({})).await;
    let get = async |path: &str| ask(reqwest::Method::GET, path, json!({})).await;
    let (_, started) = post("/control/trigger/worker").await?;
    let instance = started["instanceId"].as_str().context("no instance was named")?.to_owned();
    stage.becomes(&instance, "running").await?;
    stage
        .until("its status is shown", async || {
            let (_, shown) = get("/control/instances").await?;
            Ok(shown["instances"][0]["id"] == instance.as_str()
                && shown["instances"][0]["statusText"] == "at work")
        })
        .await?;
    let log = format!("/api/logs/agents/worker/{instance}?lines=5&grep=%22ok%22");
    stage
        .until("its log is shown", async || {
            let (status, shown) = get(&log).await?;
            let line = shown["entries"][0].as_str().unwrap_or_default();
            Ok(status == 200 && line.contains("true") && shown["cursor"].is_string())
        })
        .await?;
    let (_, killed) = post("/control/agents/worker/kill").await?;
    ensure!(killed["killed"] == 1, "{killed}");
    stage.becomes(&instance, "killed").await?;

    let taken = stage.push("d-1", &event(1)).await?;
    let receipt = taken["receipt"].as_str().context("a receipt without an id")?.to_owned();
    let (status, shown) = get(&format!("/api/stats/webhooks/{receipt}")).await?;
    ensure!(status == 200 && shown.to_string().contains("refs/heads/main"), "{taken} {shown}");
    let (status, replayed) = post(&format!("/api/webhooks/{receipt}/replay")).await?;
    ensure!(status == 200 && replayed["ok"] == true && replayed["matched"] == 1, "{replayed}");
    ensure!(replayed["replayReceiptId"] != receipt.as_str(), "{replayed}");
    stage
        .until("both events have their runs", async || {
            let (_, page) = get("/api/stats/agents/worker/runs?limit=10").await?;
            Ok(page["runs"].as_array().is_some_and(|runs| runs.len() == 3))
        })
        .await
}

/// Tells of an event as Claude Code does, and prints what is said to it, in one line.
const HOOKS: &str = r#"hooked() {
    name=$1; shift
    said=$(printf '{"session_id":"one","hook_event_name":"%s","tool_name":"%s","tool_input":{"command":"%s"}}' "$@" |
        skein-hook)
    echo "$name $? $(echo $said)"
}
"#;

/// Has the line of a shell answer an event, where a person has started the client.
async fn answered(stage: &Stage, line: &str, event: &str) -> Result<Output> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).env("TMPDIR", stage.data()).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().context("it has no input")?;
    let event =
        json!({ "session_id": "two", "hook_event_name": event, "tool_name": "Bash", "tool_input": {} });
    stdin.write_all(event.to_string().as_bytes()).await?;
    drop(stdin);
    Ok(child.wait_with_output().await?)
}

#[tokio::test]
async fn a_coding_agent_in_an_instance_is_stopped_at_its_hooks() -> Result<()> {
    let steps = "hooked start SessionStart '' ''; hold; hooked before PreToolUse Bash make
        hooked own PreToolUse mcp__skein__store-progress ''; hooked after PostToolUse Bash make
        for n in 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do hooked call-$n PreToolUse Bash make; done
        echo over";
    let stage = Stage::new(1)?.script("coder", "", &script(&format!("{HOOKS}{steps}")))?.start().await?;
    let run = stage.ask("coder", "").await?;
    let prints = async |text: &str| {
        stage.until(&format!("it prints {text}"), async || Ok(stage.printed(&run).contains(text))).await
    };
    prints("call join-swarm first").await?;
    let as_coder = async |call: &[&str]| {
        stage.up().skein(&[&["tools", "call"], call, &["--role", "worker", "--name", "coder"]].concat()).await
    };
    as_coder(&["join-swarm", "name=coder"]).await?;
    let created = stage.up().skein(&["task", "create", "Count the geese", "--json"]).await?;
    let created: Value = serde_json::from_str(&created)?;
    let task = created["id"].as_str().with_context(|| format!("no task: {created}"))?;
    as_coder(&["task-action", "action=claim", &format!("taskId={task}")]).await?;
    stage.up().skein(&["task", "cancel", task, "--reason", "late"]).await?;
    stage.go("coder")?;
    prints("\nover").await?;

    let denied = async |name: &str, reason: &str| -> Result<()> {
        let (status, said) = tells(&stage, &run, name).await?;
        let said = &said["hookSpecificOutput"];
        let told = said["permissionDecisionReason"].as_str().unwrap_or_default();
        ensure!(
            status == 0 && said["permissionDecision"] == "deny" && told.contains(reason),
            "{name}: {said}"
        );
        Ok(())
    };
    denied("before", task).await?;
    denied("call-14", "late").await?;
    denied("call-15", "round in circles").await?;
    let printed = stage.printed(&run);
    for silent in ["own 0 \n", "after 0 \n"] {
        ensure!(printed.contains(silent), "{silent} is missing in {printed}");
    }
    ensure!(stage.ends(&run).await? == "completed");
    Ok(())
}

#[tokio::test]
async fn a_person_s_coding_agent_asks_at_its_hooks_and_goes_on_without_a_node() -> Result<()> {
    let stage = Stage::new(1)?.script("other", "", "true")?.start().await?;
    let whose = ["--role", "worker", "--name", "coder"];
    let config = stage.up().skein(&[&["mcp-config", "--client", "claude"], &whose[..]].concat()).await?;
    let file = stage.data().join("mcp.json");
    fs::write(&file, config)?;
    let file = file.to_str().context("no text")?;
    let settings = skein_elsewhere(&["hook", "--mcp-config", file, "--settings"]).await?;
    let settings: Value = serde_json::from_str(&settings)?;
    let line = settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"].as_str().context("no command")?;

    let said = answered(&stage, line, "SessionStart").await?;
    let text = String::from_utf8(said.stdout)?;
    ensure!(said.status.success() && text.contains("You are the agent coder ("), "{text}");
    let said = answered(&stage, line, "PreToolUse").await?;
    ensure!(said.status.success() && said.stdout.is_empty(), "{said:?}");

    let stage = stage.terminate().await?;
    let said = answered(&stage, line, "UserPromptSubmit").await?;
    ensure!(said.status.success() && said.stdout.is_empty(), "{said:?}");
    ensure!(String::from_utf8_lossy(&said.stderr).contains("the swarm was not asked"), "{said:?}");
    let mut last = said;
    for _ in 0..15 {
        last = answered(&stage, line, "PreToolUse").await?;
    }
    ensure!(String::from_utf8_lossy(&last.stdout).contains("round in circles"), "{last:?}");
    fs::remove_file(file)?;
    // A status of 2 would stop each step.
    let said = answered(&stage, line, "UserPromptSubmit").await?;
    ensure!(said.status.success() && said.stdout.is_empty(), "{said:?}");
    ensure!(String::from_utf8_lossy(&said.stderr).contains("mcp.json cannot be read"), "{said:?}");
    let said =
        answered(&stage, &line.replacen(" 'hook' ", " 'hook' '--no-such-option' ", 1), "PreToolUse").await?;
    ensure!(said.status.code() == Some(1), "{said:?}");
    Ok(())
}
