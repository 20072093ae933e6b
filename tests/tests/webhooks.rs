//! Webhooks over the real ingress: signed, written down before the answer, and taken in once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use skein_tests::mcp::Client;
use skein_tests::stage::Stage;
use skein_tests::up::{Folder, Up, binary};
use skein_tests::webhook::{self, SECRET, receipts, signature};

fn configured() -> Result<Folder> {
    Folder::new()?.configured(&webhook::configuration())
}

async fn push(up: &Up, delivery: &str, body: &str, signature: &str) -> Result<(u16, Value)> {
    webhook::push(&up.ingress, delivery, body, signature).await
}

#[tokio::test]
async fn a_delivery_is_taken_in_once_over_a_crash() -> Result<()> {
    let up = Up::start_in(configured()?, &["--no-runner"]).await?;
    let body = r#"{"ref":"refs/heads/main","repository":{"full_name":"acme/app"}}"#;
    let (status, first) = push(&up, "d-1", body, &signature(body)).await?;
    ensure!((200..300).contains(&status), "{status} {first}");
    let (status, again) = push(&up, "d-1", body, &signature(body)).await?;
    ensure!((200..300).contains(&status) && again["duplicate"] == true, "{status} {again}");

    let up = Up::start_in(up.kill().await?, &["--no-runner"]).await?;
    let (status, replayed) = push(&up, "d-1", body, &signature(body)).await?;
    ensure!((200..300).contains(&status) && replayed["duplicate"] == true, "{status} {replayed}");
    let (status, fresh) = push(&up, "d-2", body, &signature(body)).await?;
    ensure!((200..300).contains(&status) && fresh["duplicate"] != true, "{status} {fresh}");
    Ok(())
}

/// An agent that no runner has started: somebody's own client, whose lid is shut while it waits.
#[tokio::test]
async fn a_client_that_went_away_in_its_wait_gets_what_came_meanwhile_when_it_asks_again() -> Result<()> {
    let up = Up::start_in(configured()?, &["--no-runner"]).await?;
    let laptop = Client::new(&up.mcp, &up.token("worker", "ada").await?);
    laptop.call("join-swarm", json!({"name": "ada"})).await?;
    let wait = json!({"type": "webhook", "source": "github", "event": "push", "timeout": "1h"});
    let (asker, asked) = (laptop.clone(), wait.clone());
    let waiting = tokio::spawn(async move { asker.call("wait_for_trigger", asked).await });
    let waits = async || Ok(up.skein(&["waits", "list", "--json"]).await?.contains("push").then_some(()));
    up.until("it waits", waits).await?;
    waiting.abort();
    ensure!(waiting.await.is_err(), "it had an answer before anything had happened");

    // Neither the other's end nor ours keeps a wait alive.
    let up = Up::start_in(up.kill().await?, &["--no-runner"]).await?;
    for number in [1, 2] {
        let body = webhook::event(number).to_string();
        let (status, answer) = push(&up, &format!("d-{number}"), &body, &signature(&body)).await?;
        ensure!((200..300).contains(&status), "{status} {answer}");
    }
    let laptop = laptop.at(&up.mcp);
    let woken = laptop.call("wait_for_trigger", wait.clone()).await?;
    ensure!(woken["payload"]["payload"]["number"] == 1, "{woken}");
    let mut short = wait;
    short["timeout"] = json!("1s");
    let next = laptop.call("wait_for_trigger", short).await?;
    ensure!(next["code"] == "wait_timeout", "it got an event again: {next}");
    Ok(())
}

/// An agent's tasks that a list shows, once there are so many.
async fn tasks(up: &Up, agent: &Client, list: Value, count: usize) -> Result<Vec<Value>> {
    up.until("what came in becomes tasks", async || {
        let found = agent.call("get-tasks", list.clone()).await?;
        let tasks = found["tasks"].as_array().cloned().unwrap_or_default();
        Ok((tasks.len() >= count).then_some(tasks))
    })
    .await
}

/// What came of letters, as its worker sees it.
async fn letters(up: &Up, worker: &Client, count: usize) -> Result<Vec<Value>> {
    tasks(up, worker, json!({"mineOnly": true}), count).await
}

#[tokio::test]
async fn a_letter_by_webhook_reaches_its_agent_once() -> Result<()> {
    let folder = Folder::new()?.configured(&webhook::mail_configuration())?;
    let up = Up::start_in(folder, &["--no-runner"]).await?;
    let worker = Client::new(&up.mcp, &up.token("worker", "worker").await?);
    worker.call("join-swarm", json!({"name": "worker"})).await?;
    let inbox = json!({"action": "register", "inboxId": "dev@agentmail.to"});
    ensure!(worker.call("register-agentmail-inbox", inbox).await?["success"] == true);
    let (status, answer) = webhook::write(&up.ingress, "e1", "dev@agentmail.to", "it fails").await?;
    ensure!((status, &answer) == (200, &json!({"received": true})), "{status} {answer}");

    let up = Up::start_in(up.kill().await?, &["--no-runner"]).await?;
    let worker = worker.at(&up.mcp);
    let (status, _) = webhook::write(&up.ingress, "e1", "dev@agentmail.to", "it fails").await?;
    ensure!(status == 200, "{status}");
    webhook::write(&up.ingress, "e2", "dev@agentmail.to", "it fails again").await?;
    let tasks = letters(&up, &worker, 2).await?;
    let kinds: Vec<&str> = tasks.iter().filter_map(|task| task["taskType"].as_str()).collect();
    ensure!(tasks.len() == 2 && kinds.contains(&"agentmail-message"), "{tasks:?}");
    ensure!(kinds.contains(&"agentmail-reply"), "{tasks:?}");

    let listed = up.skein(&["webhooks", "list", "--json"]).await?;
    let first: Value = serde_json::from_str(listed.lines().last().unwrap_or_default())?;
    ensure!(first["status"] == "processed", "{listed}");
    let receipt = first["receiptId"].as_str().unwrap_or_default();
    up.skein(&["webhooks", "replay", receipt]).await?;
    letters(&up, &worker, 3).await?;
    Ok(())
}

/// The lead's tasks of a kind that came from GitHub, once there are so many.
async fn asked(up: &Up, lead: &Client, kind: &str, count: usize) -> Result<Vec<Value>> {
    tasks(up, lead, json!({"taskType": kind}), count).await
}

#[tokio::test]
async fn people_ask_the_bot_at_github_and_the_lead_hears_what_becomes_of_it() -> Result<()> {
    let folder = Folder::new()?.configured(&webhook::bot_configuration("skein"))?;
    let up = Up::start_in(folder, &["--no-runner"]).await?;
    let (lead, worker) = (up.token("lead", "lea").await?, up.token("worker", "wim").await?);
    let (lead, worker) = (Client::new(&up.mcp, &lead), Client::new(&up.mcp, &worker));
    lead.call("join-swarm", json!({"name": "lea", "lead": true})).await?;
    worker.call("join-swarm", json!({"name": "wim"})).await?;
    let happens = async |up: &Up, delivery: &str, event: &str, body: Value| -> Result<()> {
        let mut all = json!({"repository": {"full_name": "acme/app"}, "sender": {"login": "ada"}});
        all.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        let (status, answer) = webhook::report(&up.ingress, delivery, event, &all).await?;
        ensure!((200..300).contains(&status), "{status} {answer}");
        Ok(())
    };
    let request = json!({"number": 7, "title": "Mend it", "body": "@skein, look at this", "merged": false});
    let act = |action: &str| json!({"action": action, "pull_request": request});
    let failed = json!({"action": "completed", "check_run": {"name": "ci", "conclusion": "failure",
        "head_sha": "abc", "pull_requests": [{"number": 7}]}});

    happens(&up, "d-1", "check_run", failed).await?;
    happens(&up, "d-2", "pull_request", act("opened")).await?;
    let task = asked(&up, &lead, "github-pr", 1).await?[0].clone();
    let whole = lead.call("get-task-details", json!({"taskId": task["id"]})).await?["task"].clone();
    ensure!((&whole["githubRepo"], &whole["githubNumber"]) == (&json!("acme/app"), &json!(7)), "{whole}");
    let words = whole["task"].as_str().unwrap_or_default();
    ensure!(words.contains("@skein, look") && words.contains("gh pr view 7 -R acme/app"), "{words}");

    // The lead passes it on and ends its own; over a crash and a repeat its worker's part is still known.
    let part = json!({"task": "review it", "agentId": "wim", "parentTaskId": task["id"]});
    let part = lead.call("send-task", part).await?["task"].clone();
    let done = json!({"taskId": task["id"], "status": "completed", "output": "passed on"});
    lead.call("store-progress", done).await?;
    let up = Up::start_in(up.kill().await?, &["--no-runner"]).await?;
    let (lead, worker) = (lead.at(&up.mcp), worker.at(&up.mcp));
    happens(&up, "d-2", "pull_request", act("opened")).await?;
    let mut suite = json!({"action": "completed", "check_run": {"name": "ci", "conclusion": "failure",
        "head_sha": "def", "pull_requests": [{"number": 7}]}});
    happens(&up, "d-3", "check_run", suite.clone()).await?;
    suite["check_suite"] = suite["check_run"].clone();
    happens(&up, "d-4", "check_suite", suite).await?;
    happens(&up, "d-5", "pull_request", act("closed")).await?;
    asked(&up, &lead, "github-pr-status", 1).await?;
    let broken = asked(&up, &lead, "github-ci", 1).await?;
    ensure!(broken.len() == 1 && asked(&up, &lead, "github-pr", 1).await?.len() == 1, "{broken:?}");

    let mut taken_away = act("review_request_removed");
    taken_away["requested_reviewer"] = json!({"login": "skein[bot]"});
    happens(&up, "d-6", "pull_request", taken_away).await?;
    let ended = up.until("the worker's part ends", async || {
        let found = worker.call("get-task-details", json!({"taskId": part["id"]})).await?;
        Ok((found["task"]["status"] == "failed").then(|| found["task"].clone()))
    });
    let ended = ended.await?;
    ensure!(ended["failureReason"].as_str().is_some_and(|why| why.contains("acme/app#7")), "{ended}");
    Ok(())
}

#[tokio::test]
async fn forged_and_foreign_deliveries_are_refused() -> Result<()> {
    let up = Up::start_in(configured()?, &["--no-runner"]).await?;
    let body = r#"{"ref":"refs/heads/main"}"#;
    let (status, said) = push(&up, "d-1", "{\"ref\":\"x\"}", &signature(body)).await?;
    ensure!(status == 401, "a tampered body gave {status}");
    ensure!(!said.to_string().contains(SECRET), "the secret came back");
    let (status, _) = push(&up, "d-1", "{", &signature("{")).await?;
    ensure!(status == 400, "malformed JSON gave {status}");
    let unknown =
        reqwest::Client::new().post(format!("{}/webhooks/nobody", up.ingress)).body("{}").send().await?;
    ensure!(unknown.status() == 404, "an unknown source gave {}", unknown.status());
    Ok(())
}

/// What a node writes down for its operator, and what only those may see who have it.
#[tokio::test]
async fn secrets_and_tokens_stay_out_of_the_log_and_the_answers() -> Result<()> {
    let folder = configured()?;
    let agent = folder.data().join("agents").join("idle");
    std::fs::create_dir_all(&agent)?;
    std::fs::write(agent.join("agent.toml"), "command = [\"sleep\", \"600\"]\nautostart = true\n")?;
    let up = Up::start_in(folder, &[]).await?;
    let token = up.token("worker", "worker").await?;
    let client = Client::new(&up.mcp, &token);
    client.call("join-swarm", json!({"name": "worker"})).await?;
    up.row("instances", |instance| instance["state"] == "running").await?;
    let body = r#"{"ref":"refs/heads/main","repository":{"full_name":"acme/app"}}"#;
    push(&up, "d-1", body, &signature(body)).await?;
    let (_, unsigned) = push(&up, "d-2", body, "sha256=00").await?;
    let foreign = reqwest::Client::new().post(&up.mcp).bearer_auth(format!("{token}x")).body("{}");
    let refusals = format!("{unsigned}{}", foreign.send().await?.text().await?);
    ensure!(refusals.matches("unauthenticated").count() == 2, "{refusals}");
    let numbers = reqwest::get(up.mcp.replace("/mcp", "/metrics")).await?.text().await?;
    let operator = std::fs::read_to_string(up.data().join("operator.token"))?;
    let folder = up.terminate().await?;
    let log = std::fs::read_to_string(folder.path().join("log"))?;
    ensure!(log.contains("started"), "the log does not tell of the agent: {log}");
    for text in [&log, &numbers, &refusals] {
        // Every token starts with this; a part of one would be enough for nobody, but has no place there either.
        for secret in [SECRET, token.trim(), operator.trim(), "eyJ", "a secret"] {
            ensure!(!text.contains(secret), "{secret} stands in the log or the numbers:\n{text}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn every_lack_of_a_delivery_is_named() -> Result<()> {
    let up = Up::start_in(configured()?, &["--no-runner"]).await?;
    let body = r#"{"ref":"refs/heads/main","repository":{"full_name":"acme/app"}}"#;
    let send = async |without: &str, body: String, signature: String, event: &str| -> Result<(u16, String)> {
        let form = body.contains('=');
        let headers = [
            ("x-github-event", event),
            ("x-github-delivery", "d-1"),
            ("x-hub-signature-256", &signature),
            ("content-type", if form { "application/x-www-form-urlencoded" } else { "application/json" }),
        ];
        let mut request = reqwest::Client::new().post(format!("{}/webhooks/github", up.ingress));
        for (name, value) in headers.into_iter().filter(|(name, _)| *name != without) {
            request = request.header(name, value);
        }
        let response = request.body(body).send().await?;
        Ok((response.status().as_u16(), response.text().await?))
    };
    for (without, status) in
        [("x-hub-signature-256", 401), ("x-github-delivery", 400), ("x-github-event", 400)]
    {
        let (got, said) = send(without, body.to_owned(), signature(body), "push").await?;
        ensure!(got == status && said.contains(without), "without {without}: {got} {said}");
    }
    let form = "body=%7B%7D";
    let (got, said) = send("", form.to_owned(), signature(form), "push").await?;
    ensure!(got == 400 && said.contains("`payload`"), "a form without payload: {got} {said}");
    let form = "payload=%7B%7D";
    let (got, said) = send("", form.to_owned(), signature(form), "ping").await?;
    ensure!(got == 200 && said.contains("ping"), "a form: {got} {said}");
    let (got, said) = send("", "{}".to_owned(), signature("{}"), "ping").await?;
    ensure!(got == 200 && said.contains("ping"), "GitHub's ping: {got} {said}");
    let large = "x".repeat(11 * 1024 * 1024);
    let (got, said) = send("", large.clone(), signature(&large), "push").await?;
    ensure!(got == 413 && said.contains("larger than"), "11 MiB: {got} {said}");
    // None of them has used up the delivery's id.
    let (got, said) = send("", body.to_owned(), signature(body), "push").await?;
    ensure!(got == 200, "the delivery itself: {got} {said}");
    Ok(())
}

#[tokio::test]
async fn an_event_stays_in_the_swarm_of_its_source() -> Result<()> {
    let folder = Folder::new()?;
    std::fs::create_dir_all(folder.data())?;
    let source = |name: &str, swarm: &str| {
        format!(
            "[[ingress.source]]\nname = \"{name}\"\nprovider = \"github\"\nsecret = \"{SECRET}\"\nswarm = \"{swarm}\"\n"
        )
    };
    // No agent and no command has made the swarm `build`: its first event does.
    let config = source("github", "build") + &source("other", "default");
    std::fs::write(folder.data().join("config.toml"), config)?;
    let agent = folder.data().join("agents").join("watcher");
    std::fs::create_dir_all(&agent)?;
    let definition = "command = [\"sleep\", \"600\"]\nsubscriptions = [{ source = \"github\" }]\n";
    std::fs::write(agent.join("agent.toml"), definition)?;
    let up = Up::start_in(folder, &[]).await?;
    up.row("runners", |runner| runner["state"] == "ready").await?;
    let body = r#"{"ref":"refs/heads/main","repository":{"full_name":"acme/app"}}"#;
    let (status, taken) = push(&up, "d-1", body, &signature(body)).await?;
    ensure!(status == 200 && taken["matched"] == 0, "an agent of another swarm was started: {taken}");
    let events = up.skein(&["events", "--swarm", "build", "--json"]).await?;
    ensure!(events.contains("\"received\""), "the event is not in its swarm: {events}");
    let events = up.skein(&["events", "--json"]).await?;
    ensure!(!events.contains("\"received\""), "the event is in another swarm: {events}");
    Ok(())
}

/// A list, an event and a replay as their operator sees them, of an event that was signed.
#[tokio::test]
async fn what_nobody_took_is_listed_with_its_reason_and_replayed() -> Result<()> {
    let folder = configured()?;
    let agents = folder.data().join("agents");
    std::fs::create_dir_all(agents.join("watcher"))?;
    let definition = "command = [\"true\"]\n[[subscriptions]]\nsource = \"github\"\nrepos = [\"acme/app\"]\n";
    std::fs::write(agents.join("watcher").join("agent.toml"), definition)?;
    let up = Up::start_in(folder, &[]).await?;
    up.row("runners", |runner| runner["state"] == "ready").await?;
    let body =
        |repo: &str| format!("{{\"ref\":\"refs/heads/main\",\"repository\":{{\"full_name\":\"{repo}\"}}}}");
    let (ours, others) = (body("acme/app"), body("acme/other"));
    let (_, taken) = push(&up, "d-1", &ours, &signature(&ours)).await?;
    ensure!(taken["matched"] == 1, "{taken}");
    let (_, unmatched) = push(&up, "d-2", &others, &signature(&others)).await?;
    ensure!(unmatched["matched"] == 0, "{unmatched}");
    push(&up, "d-3", "{", &signature("{")).await?;
    push(&up, "d-4", &ours, &signature("forged")).await?;

    let mut expected: Vec<(Value, Value)> = vec![
        (json!("dead_letter"), json!("parse_error")),
        (json!("dead_letter"), json!("no_match")),
        (json!("processed"), Value::Null),
    ];
    let rows = receipts(&up).await?;
    let standing: Vec<_> = rows.iter().map(|row| (row["status"].clone(), row["reason"].clone())).collect();
    ensure!(standing == expected, "a forged one is not kept, the others are: {rows:?}");
    ensure!(rows.iter().all(|row| row.get("incoming").is_none()), "a list holds no bodies");

    let receipt = taken["receipt"].as_str().unwrap_or_default();
    let replayed: Value = serde_json::from_str(&up.skein(&["webhooks", "replay", receipt, "--json"]).await?)?;
    ensure!(replayed["matched"] == 1 && replayed["replayOf"] == receipt, "{replayed}");
    let new = replayed["receipt"].as_str().unwrap_or_default();
    let shown: Value = serde_json::from_str(&up.skein(&["webhooks", "show", new, "--json"]).await?)?;
    ensure!(shown["incoming"]["payload"]["ref"] == "refs/heads/main" && shown["signed"] == true, "{shown}");
    expected.insert(0, (json!("processed"), Value::Null));
    ensure!(receipts(&up).await?.len() == expected.len(), "the replay has a receipt of its own");
    let unreadable = rows[0]["receiptId"].as_str().unwrap_or_default();
    let refused = up.skein(&["webhooks", "replay", unreadable]).await;
    ensure!(refused.is_err_and(|error| error.to_string().contains("could not be read")), "nothing to replay");
    Ok(())
}

#[tokio::test]
async fn what_is_taken_unsigned_starts_a_run_and_wakes_one_that_waits() -> Result<()> {
    let open = "[[ingress.source]]\nname = \"open\"\nprovider = \"sentry\"\nallow_unsigned = true\n";
    let wait = r#"wait_for_trigger={"type":"webhook","source":"sentry","event":"issue","timeout":"1h"}"#;
    let keys = "subscriptions = [{ source = \"open\", resources = [\"issue\"] }]\n";
    let stage = Stage::new(2)?
        .with_settings(open)?
        .agent("waiter", "", &[wait])?
        .agent("fixer", keys, &[])?
        .start()
        .await?;
    let waiter = stage.run("waiter").await?;
    stage.becomes(&waiter, "frozen").await?;
    let body = json!({"action": "created", "data": {"issue": {"title": "it fails"}}});
    let response = reqwest::Client::new()
        .post(format!("{}/webhooks/open", stage.up().ingress))
        .header("sentry-hook-resource", "issue")
        .header("content-type", "application/json")
        .body(body.to_string())
        .send()
        .await?;
    let (status, taken): (_, Value) = (response.status(), response.json().await?);
    ensure!(status == 200 && taken["matched"] == 2, "{status} {taken}");

    let woken = stage.answer("waiter", "wait_for_trigger").await?;
    ensure!(woken["payload"]["title"] == "it fails", "{woken}");
    let input = stage.answer("fixer", "start").await?;
    ensure!(input["sourceName"] == "open" && input["payload"] == body, "{input}");
    // Whoever looks at it later sees that anybody may have sent it.
    let receipt = taken["receipt"].as_str().unwrap_or_default();
    let shown: Value =
        serde_json::from_str(&stage.up().skein(&["webhooks", "show", receipt, "--json"]).await?)?;
    ensure!(shown["signed"] == false && shown["status"] == "processed", "{shown}");
    Ok(())
}

/// Without a node: what somebody who writes a subscription wants to know.
#[tokio::test]
async fn a_simulated_event_says_why_a_subscription_does_not_match() -> Result<()> {
    let folder = Folder::new()?;
    let agents = folder.path().join("agents");
    for (agent, repo) in [("ours", "acme/app"), ("other", "acme/site")] {
        std::fs::create_dir_all(agents.join(agent))?;
        let definition =
            format!("command = [\"true\"]\n[[subscriptions]]\nsource = \"github\"\nrepos = [\"{repo}\"]\n");
        std::fs::write(agents.join(agent).join("agent.toml"), definition)?;
    }
    let fixture = folder.path().join("push.json");
    let sent = json!({
        "headers": {"X-GitHub-Event": "push", "X-GitHub-Delivery": "d-1"},
        "body": {"ref": "refs/heads/main", "repository": {"full_name": "acme/app"}},
    });
    std::fs::write(&fixture, sent.to_string())?;
    let simulate = |provider: &str| {
        std::process::Command::new(binary("skein"))
            .args(["webhooks", "simulate", "--json", "--provider", provider, "--agents"])
            .args([&agents, &fixture])
            .output()
    };
    let output = simulate("github")?;
    let rows = String::from_utf8(output.stdout)?;
    let rows: Vec<Value> = rows.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let verdict = |agent: &str| rows.iter().find(|row| row["agent"] == agent).cloned().unwrap_or_default();
    ensure!(verdict("ours")["matches"] == true, "{rows:?}");
    ensure!(verdict("other")["because"] == "`repos` has no value that is the event's", "{rows:?}");
    let refused = simulate("githup")?;
    ensure!(String::from_utf8_lossy(&refused.stderr).contains("it is one of"), "{refused:?}");
    Ok(())
}
