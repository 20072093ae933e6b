//! Coding agents as agents of a runner: the real programs, unchanged, with a model that says what a script tells it to.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use skein_tests::coder::Coder;
use skein_tests::language_model::{Model, Say, TOKENS, Talk};
use skein_tests::stage::{Stage, are_frozen};
use skein_tests::up::{Folder, Up};
use skein_tests::webhook;
use tokio::process::Command;

const LOCK: &str = "test://repository/1";
const PROMPT: &str = "prompt = \"Count the geese.\"\n";

/// A client that asks until it has an answer within two seconds by its own clock, which does not stop in its sleep.
const IMPATIENT: &str = r#"
import json, os, time, urllib.request
wait = {"type": "webhook", "source": "github", "event": "push", "timeout": "1h"}
body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
    "name": "wait_for_trigger", "arguments": wait, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "impatient", "version": "1"}}}}
headers = {"Authorization": "Bearer " + os.environ["SKEIN_TOKEN"], "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/call", "Mcp-Name": "wait_for_trigger"}
late = True
while late:
    began = time.monotonic()
    request = urllib.request.Request(os.environ["SKEIN_URL"], json.dumps(body).encode(), headers)
    answer = urllib.request.urlopen(request).read().decode()
    late = time.monotonic() - began > 2
    print("after", "more" if late else "less", "than 2 s:", " ".join(answer.split()), flush=True)
print(json.dumps({"type": "result", "subtype": "success", "is_error": False}))
"#;

/// A task from its claim to its completion, with a lock, a question to another agent and a sleep on the way.
fn a_day(talk: &Talk) -> Result<Say> {
    let call = |tool, arguments| Ok(Say::Call(tool, arguments));
    let task = talk.prompt.split("the task ").nth(1).and_then(|rest| rest.get(..36));
    let task = task.with_context(|| format!("no task is named in {}", talk.prompt))?;
    let Some((tool, result)) = talk.results.last() else {
        ensure!(talk.prompt.contains("Count the geese."), "the instructions are missing: {}", talk.prompt);
        ensure!(talk.prompt.contains("agent `coder` of the swarm `default`"), "{}", talk.prompt);
        return call("join-swarm", json!({"name": "coder"}));
    };
    if gave_up(tool, result) {
        return call("wait_for_trigger", sleep());
    }
    ensure!(
        result.is_object() && result["success"] != false && result["ok"] != false,
        "{tool} came to {result}"
    );
    match tool.as_str() {
        "join_swarm" => call("task-action", json!({"action": "claim", "taskId": task})),
        "task_action" => call("poll-task", json!({})),
        "poll_task" => {
            ensure!(result["task"]["id"] == task, "it was given {result}");
            call("store-progress", json!({"taskId": task, "progress": "half way"}))
        }
        "store_progress" if result["task"]["status"] == "completed" => {
            Ok(Say::Text("The geese are counted."))
        }
        "store_progress" => call("acquire_lock", json!({"resource_key": LOCK})),
        "acquire_lock" => call("call_agent", json!({"target_agent": "counter", "context": "How many?"})),
        "check_call" if result["status"] == "completed" => {
            ensure!(result["return_value"] == "seven", "the other agent said {result}");
            call("wait_for_trigger", sleep())
        }
        "call_agent" | "check_call" => {
            let asked = talk.results.iter().find(|(tool, _)| tool == "call_agent");
            call("check_call", json!({"call_id": asked.context("it asks after no call")?.1["call_id"]}))
        }
        "wait_for_trigger" => {
            ensure!(result["payload"]["payload"]["number"] == 7, "it was woken by {result}");
            call("release_lock", json!({"resource_key": LOCK}))
        }
        "release_lock" => {
            let done = json!({"taskId": task, "status": "completed", "output": "seven geese"});
            call("store-progress", done)
        }
        other => bail!("nobody asked it to call {other}"),
    }
}

fn sleep() -> Value {
    json!({"type": "webhook", "source": "github", "event": "push", "timeout": "1h"})
}

/// What it sleeps for.
fn push() -> Value {
    json!({"ref": "refs/heads/main", "number": 7, "repository": {"full_name": "acme/geese"}})
}

/// Whether the client ended the call by itself: what it then tells its model is no result of the tool.
fn gave_up(tool: &str, result: &Value) -> bool {
    tool == "wait_for_trigger" && !result.is_object()
}

/// A node with a coding agent, and another agent that it can ask.
async fn stage(coder: Coder, keys: &str, model: &Model) -> Result<Stage> {
    let answer = r#"return_value={"value":"seven"}"#;
    Stage::new(2)?
        .coder("coder", coder, &format!("{PROMPT}{keys}"), model)?
        .agent("counter", "", &[answer])?
        .start()
        .await
}

/// Goes through a day; the event comes `late` after the agent has fallen asleep. Gives how often the client gave up.
async fn day(coder: Coder, keys: &str, late: Duration) -> Result<usize> {
    let model = Model::start(a_day).await?;
    let stage = stage(coder, keys, &model).await?;
    let created = stage.up().skein(&["task", "create", "Count the geese", "--json"]).await?;
    let created: Value = serde_json::from_str(&created)?;
    let task = created["id"].as_str().with_context(|| format!("no task: {created}"))?;
    let instance = stage.ask("coder", &format!("Do the task {task}.")).await?;
    let asleep = stage.becomes(&instance, "frozen").await;
    model.talk()?;
    asleep.with_context(|| stage.output(&instance))?;
    let locks = stage.list("locks").await?;
    ensure!(locks.len() == 1 && locks[0]["holder"].to_string().contains(&instance), "{locks:?}");
    ensure!(are_frozen(&stage.processes(Some(&instance))), "it sleeps and runs");
    // Its client's time runs on while it sleeps.
    tokio::time::sleep(late).await;
    stage.push("d-1", &push()).await?;
    let end = stage.ends(&instance).await;
    let talk = model.talk()?;
    ensure!(end? == "completed", "it ended otherwise: {}", stage.output(&instance));

    let shown = stage.up().skein(&["task", "show", task, "--json"]).await?;
    let shown: Value = serde_json::from_str(&shown)?;
    ensure!(shown["status"] == "completed" && shown["output"] == "seven geese", "{shown}");
    ensure!(stage.list("locks").await?.is_empty(), "its lock outlived it");
    let usage = stage.instance(&instance).await?["exit"]["usage"].clone();
    let asked = u64::try_from(talk.results.len() + 1)?;
    ensure!(usage["input_tokens"] == TOKENS.0 * asked, "{asked} answers of the model came to {usage}");
    ensure!(usage["output_tokens"] == TOKENS.1 * asked, "{asked} answers of the model came to {usage}");
    ensure!(usage["turns"].as_u64() > Some(0), "{usage}");
    let reported = stage.up().until("its cost among the swarm's", async || {
        let printed = stage.up().skein(&["costs", "--each", "--json"]).await?;
        let costs = printed.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        Ok(costs.into_iter().find(|cost| cost["sessionId"] == instance.as_str()))
    });
    let reported = reported.await?;
    ensure!(reported["inputTokens"] == usage["input_tokens"] && reported["source"] == "run", "{reported}");
    let sum: Value = serde_json::from_str(&stage.up().skein(&["costs", "--json"]).await?)?;
    ensure!(sum["agentId"] == reported["agentId"] && sum["inputTokens"] == reported["inputTokens"], "{sum}");
    Ok(talk.results.iter().filter(|(tool, result)| gave_up(tool, result)).count())
}

#[tokio::test]
async fn claude_code_goes_through_a_day() -> Result<()> {
    let given_up = day(Coder::ClaudeCode, "", Duration::ZERO).await?;
    ensure!(given_up == 0, "it noticed its sleep");
    Ok(())
}

/// When it wakes, its answer is there and its time is over. It may look at either first: then it has the event, or it
/// gives the call up, and has the event by asking again. It does not have to ask twice.
#[tokio::test]
async fn claude_code_that_sleeps_past_its_own_limit_has_the_event_all_the_same() -> Result<()> {
    let given_up = day(Coder::ClaudeCode, "tool_timeout = \"8s\"\n", Duration::from_secs(9)).await?;
    ensure!(given_up <= 1, "it gave up {given_up} times");
    Ok(())
}

/// Waits, and asks again as often as its client gives a wait up.
fn insists(talk: &Talk) -> Result<Say> {
    match talk.results.last() {
        Some((tool, result)) if !gave_up(tool, result) => {
            ensure!(result["payload"]["payload"]["number"] == 7, "it was woken by {result}");
            Ok(Say::Text("The geese have come."))
        }
        _ => Ok(Say::Call("wait_for_trigger", sleep())),
    }
}

/// Somebody's own client, which no runner freezes: its time for a call runs out while it waits.
async fn gives_its_wait_up_and_has_the_event_by_asking_again(coder: Coder) -> Result<()> {
    let folder = Folder::new()?.configured(&webhook::configuration())?;
    let up = Up::start_in(folder, &["--no-runner"]).await?;
    let model = Model::start(insists).await?;
    let home = Folder::new()?;
    let mut command = Command::new(coder.install(home.path())?);
    command
        .args(["-p", "Wait for the geese."])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home.path())
        .envs(coder.guide(model.address()).env)
        .current_dir(home.path())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let headers = json!({"Authorization": format!("Bearer {}", up.token("worker", "ada").await?)});
    hurry(coder, &mut command, home.path(), &format!("{}/full", up.mcp), &headers)?;
    let client = tokio::spawn(async move { command.output().await });
    let given_up = async || {
        let results = model.talk()?.results;
        Ok(results.iter().any(|(tool, result)| gave_up(tool, result)).then_some(()))
    };
    up.until("its client gives a wait up", given_up).await?;
    // The node has seen by now that nobody listens, and the wait goes on all the same.
    let open = up.skein(&["waits", "list", "--json"]).await?;
    ensure!(open.contains("push"), "the wait is over: {open}");
    let body = push().to_string();
    let (status, answer) = webhook::push(&up.ingress, "d-1", &body, &webhook::signature(&body)).await?;
    ensure!((200..300).contains(&status), "{status} {answer}");
    let output =
        tokio::time::timeout(Duration::from_secs(120), client).await.context("it does not end")???;
    let printed = String::from_utf8_lossy(&output.stdout);
    model.talk()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && printed.contains("The geese have come."), "{printed}{complaint}");
    Ok(())
}

/// Tells a client of the swarm's tools, and to give each of their calls eight seconds: it has no more for its
/// connection.
fn hurry(coder: Coder, command: &mut Command, home: &Path, url: &str, headers: &Value) -> Result<()> {
    const LIMIT: u32 = 8000;
    match coder {
        Coder::ClaudeCode => {
            let server = json!({"type": "http", "url": url, "headers": headers, "timeout": LIMIT});
            let servers = json!({"mcpServers": {"skein": server}}).to_string();
            command
                .args(["--strict-mcp-config", "--mcp-config", &servers])
                .args(["--allowedTools", "mcp__skein__wait_for_trigger"])
                .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
        }
        Coder::Gemini => {
            let settings = json!({
                "general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false},
                "privacy": {"usageStatisticsEnabled": false},
                "security": {"auth": {"useExternal": true}},
                "model": {"name": coder.guide("").model},
                "mcpServers": {"skein": {"httpUrl": url, "headers": headers, "timeout": LIMIT, "trust": true}},
            });
            fs::create_dir(home.join(".gemini"))?;
            fs::write(home.join(".gemini/settings.json"), settings.to_string())?;
            command.arg("--skip-trust");
        }
        other => bail!("nobody has tried {other:?} so"),
    }
    Ok(())
}

#[tokio::test]
async fn claude_code_of_a_person_gives_its_wait_up_and_has_the_event_by_asking_again() -> Result<()> {
    gives_its_wait_up_and_has_the_event_by_asking_again(Coder::ClaudeCode).await
}

#[tokio::test]
async fn gemini_of_a_person_gives_its_wait_up_and_has_the_event_by_asking_again() -> Result<()> {
    gives_its_wait_up_and_has_the_event_by_asking_again(Coder::Gemini).await
}

/// As a client does that looks at its time first: an answer that comes after its limit is no answer.
#[tokio::test]
async fn a_client_that_gives_up_a_call_in_its_sleep_gets_the_event_by_asking_again() -> Result<()> {
    let client = format!("python3 -c '{IMPATIENT}'");
    let keys = "harness = \"claude-code\"\ntool_timeout = \"2s\"\n";
    let stage = Stage::new(1)?.script("coder", keys, &client)?.start().await?;
    let instance = stage.ask("coder", "").await?;
    stage.becomes(&instance, "frozen").await?;
    // Its client's time runs on while it sleeps.
    tokio::time::sleep(Duration::from_secs(3)).await;
    stage.push("d-1", &push()).await?;
    ensure!(stage.ends(&instance).await? == "completed", "it ended otherwise: {}", stage.output(&instance));
    let told = stage.printed(&instance);
    let asked: Vec<&str> = told.lines().filter(|line| line.starts_with("after ")).collect();
    ensure!(asked.len() >= 2 && asked[0].starts_with("after more than 2 s"), "{told}");
    ensure!(asked.iter().all(|line| line.contains(r#""number":7"#)), "{told}");
    Ok(())
}

#[tokio::test]
async fn codex_goes_through_a_day() -> Result<()> {
    let given_up = day(Coder::Codex, "", Duration::ZERO).await?;
    ensure!(given_up == 0, "it noticed its sleep");
    Ok(())
}

#[tokio::test]
async fn gemini_goes_through_a_day() -> Result<()> {
    let given_up = day(Coder::Gemini, "", Duration::ZERO).await?;
    ensure!(given_up == 0, "it noticed its sleep");
    Ok(())
}

#[tokio::test]
async fn gemini_that_sleeps_past_its_own_limit_has_the_event_all_the_same() -> Result<()> {
    let given_up = day(Coder::Gemini, "tool_timeout = \"8s\"\n", Duration::from_secs(9)).await?;
    ensure!(given_up <= 1, "it gave up {given_up} times");
    Ok(())
}

/// It would take that for a loop, and end its turn.
#[tokio::test]
async fn gemini_may_make_the_same_call_again_and_again() -> Result<()> {
    const OFTEN: usize = 8;
    let model = Model::start(|talk| match talk.results.len() {
        OFTEN.. => Ok(Say::Text("The geese are counted.")),
        _ => Ok(Say::Call("get-swarm", json!({}))),
    });
    let model = model.await?;
    let stage = stage(Coder::Gemini, "", &model).await?;
    let instance = stage.ask("coder", "Begin.").await?;
    ensure!(stage.ends(&instance).await? == "completed", "it ended otherwise: {}", stage.output(&instance));
    let made = model.talk()?.results.len();
    ensure!(made == OFTEN, "it made {made} calls: {}", stage.output(&instance));
    Ok(())
}

/// It shows its model what a result says as text, and nothing else of it.
#[tokio::test]
async fn opencode_goes_through_a_day() -> Result<()> {
    let given_up = day(Coder::Opencode, "", Duration::ZERO).await?;
    ensure!(given_up == 0, "it noticed its sleep");
    Ok(())
}

/// By a tool of its own, in what the runner keeps its processes to: it needs a place for temporary files there too.
async fn runs_a_command_of_its_own(coder: Coder, shell: &'static str, argument: &'static str) -> Result<()> {
    let command = "echo seven > geese && mktemp && sed s/even/ix/ geese";
    let model = Model::start(move |talk| match talk.results.last() {
        None => Ok(Say::Call(shell, json!({argument: command, "description": "Counts the geese."}))),
        Some((_, result)) => {
            ensure!(result.to_string().contains("six"), "its command came to {result}");
            Ok(Say::Text("The geese are counted."))
        }
    });
    let model = model.await?;
    let stage = stage(coder, "", &model).await?;
    let instance = stage.ask("coder", "Begin.").await?;
    let end = stage.ends(&instance).await;
    ensure!(model.talk()?.results.len() == 1 && end? == "completed", "{}", stage.output(&instance));
    ensure!(fs::read_to_string(stage.work("coder").join("geese"))? == "seven\n", "it worked elsewhere");
    Ok(())
}

#[tokio::test]
async fn claude_code_runs_a_command_of_its_own() -> Result<()> {
    runs_a_command_of_its_own(Coder::ClaudeCode, "Bash", "command").await
}

#[tokio::test]
async fn codex_runs_a_command_of_its_own() -> Result<()> {
    runs_a_command_of_its_own(Coder::Codex, "exec_command", "cmd").await
}

#[tokio::test]
async fn gemini_runs_a_command_of_its_own() -> Result<()> {
    runs_a_command_of_its_own(Coder::Gemini, "run_shell_command", "command").await
}

#[tokio::test]
async fn opencode_runs_a_command_of_its_own() -> Result<()> {
    runs_a_command_of_its_own(Coder::Opencode, "bash", "command").await
}

#[tokio::test]
async fn claude_code_is_told_who_it_is_and_stopped_in_a_circle_by_its_hooks() -> Result<()> {
    let model = Model::start(|talk| {
        ensure!(talk.prompt.contains("call join-swarm first"), "it was told nothing: {}", talk.prompt);
        match talk.results.last() {
            Some((_, result)) if result.to_string().contains("This call was not made") => {
                Ok(Say::Text("I stop."))
            }
            _ if talk.results.len() > 20 => bail!("nothing stops it"),
            _ => Ok(Say::Call("Bash", json!({"command": "echo seven", "description": "Counts the geese."}))),
        }
    });
    let model = model.await?;
    let stage = stage(Coder::ClaudeCode, "", &model).await?;
    let instance = stage.ask("coder", "Begin.").await?;
    let end = stage.ends(&instance).await;
    ensure!(model.talk()?.results.len() == 15 && end? == "completed", "{}", stage.output(&instance));
    Ok(())
}

async fn says_why_its_model_fails_in_its_end(coder: Coder) -> Result<()> {
    let model = Model::start(|_| bail!("the model is on strike")).await?;
    let stage = stage(coder, "", &model).await?;
    let instance = stage.ask("coder", "").await?;
    ensure!(stage.ends(&instance).await? == "error", "it completed: {}", stage.output(&instance));
    let row = stage.instance(&instance).await?;
    ensure!(row["exit"]["reason"].to_string().contains("on strike"), "{row}");
    Ok(())
}

#[tokio::test]
async fn a_client_whose_model_fails_says_why_in_its_end() -> Result<()> {
    says_why_its_model_fails_in_its_end(Coder::ClaudeCode).await
}

#[tokio::test]
async fn gemini_whose_model_fails_says_why_in_its_end() -> Result<()> {
    says_why_its_model_fails_in_its_end(Coder::Gemini).await
}

#[tokio::test]
async fn a_client_that_is_not_there_is_named() -> Result<()> {
    let stage = Stage::new(1)?.agent("coder", "", &[])?;
    let definition = stage.data().join("agents/coder/agent.toml");
    fs::write(definition, "harness = \"codex\"\ncommand = [\"/nowhere/codex\"]\n")?;
    let stage = stage.start().await?;
    let instance = stage.ask("coder", "Begin.").await?;
    ensure!(stage.ends(&instance).await? == "error", "it completed");
    let row = stage.instance(&instance).await?;
    ensure!(row["exit"]["reason"].to_string().contains("not found on this runner"), "{row}");
    Ok(())
}
