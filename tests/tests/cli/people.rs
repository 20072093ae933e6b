//! What people do in a swarm from the command line.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use skein_tests::mcp::Client;
use skein_tests::up::{Folder, Up};

use super::refused;

/// It is for others: this machine need not reach it.
#[tokio::test]
async fn people_call_tools_past_the_public_address() -> Result<()> {
    let folder = Folder::new()?.configured("[listen]\npublic_url = \"https://skein.example.com\"\n")?;
    let up = Up::start_in(folder, &["--no-runner"]).await?;
    up.skein(&["tools", "call", "join-swarm", "name=boss", "lead=true"]).await?;
    Ok(())
}

/// Behind a path there is no console, and a cookie for HTTPS alone would never come back to the node's own address.
#[tokio::test]
async fn people_log_in_at_the_node_itself_where_the_public_address_has_a_path() -> Result<()> {
    let folder = Folder::new()?.configured("[listen]\npublic_url = \"https://example.com/skein\"\n")?;
    let up = Up::start_in(folder, &["--no-runner"]).await?;
    let link = up.skein(&["console"]).await?;
    let (base, token) = link.trim().split_once("/login#token=").context("no link was printed")?;
    ensure!(base.starts_with("http://127.0.0.1:"), "{link}");
    up.has_logged(&format!("console at {base}/")).await?;
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
    let entered = client.post(format!("{base}/login")).body(format!("token={token}")).send().await?;
    let cookie = entered.headers().get("set-cookie").context("no session was begun")?.to_str()?;
    ensure!(cookie.starts_with("skein_session=") && !cookie.contains("Secure"), "{cookie}");
    Ok(())
}

/// As Agent Swarm calls the setting.
#[tokio::test]
async fn services_of_agents_lie_below_the_name_that_the_environment_gives() -> Result<()> {
    let folder = Folder::new()?.with_variable("SWARM_URL", "swarm.example.com");
    let up = Up::start_in(folder, &["--no-runner"]).await?;
    let ann = Client::new(&up.mcp, &up.token("worker", "ann").await?);
    ann.call("join-swarm", json!({"name": "ann"})).await?;
    let told = ann.call("register-service", json!({"script": "serve.js"})).await?;
    let url = told["service"]["url"].as_str().with_context(|| format!("no service: {told}"))?;
    ensure!(url.ends_with(".swarm.example.com"), "{url}");
    Ok(())
}

#[tokio::test]
async fn people_see_that_a_runner_which_names_no_swarms_serves_any() -> Result<()> {
    let up = Up::start_in(Folder::new()?, &[]).await?;
    let runner = up.row("runners", |runner| runner["state"] == "ready").await?;
    ensure!(runner["swarms"] == json!([]), "{runner}");
    let table = up.skein(&["runners", "list"]).await?;
    let row = table.lines().nth(1).unwrap_or_default();
    ensure!(row.trim_end().ends_with(" any"), "{table}");
    Ok(())
}

#[tokio::test]
async fn people_act_for_the_member_that_has_the_name() -> Result<()> {
    let up = Up::start().await?;
    let boss = Client::new(&up.mcp, &up.token("worker", "boss").await?);
    let joined = boss.call("join-swarm", json!({"name": "boss"})).await?;
    let shown =
        up.skein(&["tools", "call", "my-agent-info", "--role", "worker", "--name", "boss", "--json"]).await?;
    let shown: Value = serde_json::from_str(&shown)?;
    ensure!(shown["agentId"] == joined["yourAgentId"] && shown["agentId"].is_string(), "{shown} {joined}");
    Ok(())
}

/// The lead does it with its own token, while the one that it takes out is at work.
#[tokio::test]
async fn a_member_is_taken_out_of_its_swarm_by_its_lead_or_an_operator() -> Result<()> {
    let up = Up::start().await?;
    let join = async |role: &str, name: &str| {
        let (token, file) = (up.token(role, name).await?, up.data().join(format!("{name}.token")));
        std::fs::write(&file, &token)?;
        let client = Client::new(&up.mcp, &token);
        let joined = client.call("join-swarm", json!({"name": name, "lead": role == "lead"})).await?;
        ensure!(joined["success"] == json!(true), "{name}: {joined}");
        Ok::<_, anyhow::Error>((client, file.display().to_string()))
    };
    let ((boss, lead), (ann, _), (_, worker)) =
        (join("lead", "boss").await?, join("worker", "ann").await?, join("worker", "bob").await?);
    let (lead, worker) = (lead.as_str(), worker.as_str());
    let sent = boss.call("send-task", json!({"task": "count", "agentId": "ann"})).await?;
    let task = sent["task"]["id"].as_str().with_context(|| format!("no task: {sent}"))?;
    ann.call("poll-task", json!({})).await?;

    let remove = ["swarm", "remove-member", "ann", "--token-file"];
    refused(&up, &[&remove[..], &[worker]].concat(), 3, "lead or operator").await?;
    refused(&up, &[&remove[..], &[lead, "--swarm", "build"]].concat(), 3, "--swarm default").await?;
    let removed = up.skein(&[&remove[..], &[lead, "--json"]].concat()).await?;
    let removed: Value = serde_json::from_str(&removed)?;
    ensure!(removed["name"] == "ann" && removed["returnedTasks"] == json!([task]), "{removed}");
    let shown: Value = serde_json::from_str(&up.skein(&["task", "show", task, "--json"]).await?)?;
    ensure!(shown["status"] == "unassigned", "{shown}");
    let late = json!({"taskId": task, "status": "completed", "output": "7"});
    let late = ann.call("store-progress", late).await?;
    ensure!(late["success"] == json!(false), "a member that is gone has ended a task: {late}");

    let removed = up.skein(&["swarm", "remove-member", "boss"]).await?;
    ensure!(removed.contains("isLead: true"), "{removed}");
    refused(&up, &["swarm", "remove-member", "boss"], 4, "skein agents list").await?;
    join("lead", "next").await?;
    ensure!(up.skein(&["agents", "list", "--json"]).await?.lines().count() == 2, "who has gone is listed");
    Ok(())
}

/// What agents can do, people can do.
#[tokio::test]
async fn tools_are_listed_found_described_and_called_by_people() -> Result<()> {
    let up = Up::start().await?;
    let core = up.skein(&["tools", "list", "--view", "core", "--json"]).await?;
    ensure!(core.lines().count() > 20 && core.contains("poll-task"), "{core}");
    let found = up.skein(&["tools", "find", "run", "something", "every", "hour", "--json"]).await?;
    ensure!(found.contains("create-schedule"), "{found}");
    let described = up.skein(&["tools", "describe", "send-task"]).await?;
    ensure!(described.contains("needed") && described.contains("allowDuplicate"), "{described}");
    up.skein(&["tools", "call", "join-swarm", "name=boss", "lead=true"]).await?;
    let sent = up.skein(&["tools", "call", "send-task", "task=count = 7", "priority=70", "--json"]).await?;
    let sent: Value = serde_json::from_str(&sent)?;
    ensure!(sent["task"]["task"] == "count = 7" && sent["task"]["priority"] == 70, "{sent}");
    let columns =
        ["tools", "call", "get-tasks", "format=columns", "fields=[\"priority\",\"task\"]", "--json"];
    let listed: Value = serde_json::from_str(&up.skein(&columns).await?)?;
    assert_eq!(listed["tasks"], json!({ "cols": ["priority", "task"], "rows": [[70, "count = 7"]] }));
    let swarm = up.skein(&["tools", "call", "get-swarm", "{}", "--role", "observer"]).await?;
    ensure!(swarm.contains("boss"), "{swarm}");
    let refusals: [(&[&str], i32, &str); 5] = [
        (&["tools", "describe", "send_taks"], 4, "send-task"),
        (&["tools", "call", "send_taks"], 4, "send-task"),
        (&["tools", "call", "send-task", "task=7"], 2, "string"),
        (&["tools", "call", "send-task", "task"], 2, "name=value"),
        (&["tools", "call", "send-task", "task=x", "--role", "observer"], 3, "observer"),
    ];
    for (arguments, code, word) in refusals {
        refused(&up, arguments, code, word).await?;
    }
    Ok(())
}
