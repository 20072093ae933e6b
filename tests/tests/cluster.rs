//! Several coordinators that share one Redis: each is a process of its own, and any may die.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

#[path = "cluster/reads.rs"]
mod reads;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use skein_coordinator::cluster::member::FORMAT;
use skein_coordinator::store::redis::shard::Shard;
use skein_shared::id::{EntityKey, Kind, Name};
use skein_tests::cluster::{Cluster, Status, alarm, all_is_well, number};
use skein_tests::link::Link;
use skein_tests::mcp::Client;
use skein_tests::process::{self, Signal};
use skein_tests::up::Up;
use skein_tests::webhook;
use tokio::time::Instant;

/// Short, so that the tests are: everything below is counted in leases.
const SETTINGS: &str = "lease = \"4s\"\nsettle = \"1s\"";
const LEASE: Duration = Duration::from_secs(4);
/// What a takeover may take beyond the lease.
const TAKEOVER: Duration = Duration::from_secs(2);
/// A lease that ends in no test, also on a busy machine: whoever waits for its end is noticed.
const LONG: &str = "lease = \"20s\"\nsettle = \"1s\"";
const LONG_LEASE: Duration = Duration::from_secs(20);

/// Three nodes that have shared the shards.
async fn three() -> Result<(Cluster, [Up; 3])> {
    three_with(SETTINGS).await
}

async fn three_with(settings: &str) -> Result<(Cluster, [Up; 3])> {
    let (cluster, first) = Cluster::start(settings).await?;
    let nodes = [first, cluster.join().await?, cluster.join().await?];
    shared(&nodes[0], &[&nodes[0], &nodes[1], &nodes[2]]).await?;
    Ok((cluster, nodes))
}

/// Waits until one node sees that all shards are with these, and each has some.
async fn shared(seen_by: &Up, nodes: &[&Up]) -> Result<()> {
    let mut addresses = Vec::new();
    for node in nodes {
        addresses.push(Status::of(node).await?.address()?);
    }
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let all = async || {
        let status = Status::of(seen_by).await?;
        Ok(status.is_shared_by(&addresses).then_some(()))
    };
    seen_by.until("the shards are shared", all).await
}

/// The place of the node that has the pool of the default swarm.
async fn owner_of_the_pool(nodes: &[Up]) -> Result<usize> {
    let shard = Shard::of(&EntityKey::of(Kind::Pool, &Name::parse("default").unwrap())).number();
    let owner = Status::of(&nodes[0]).await?.owner(shard).context("the pool's shard has no owner")?;
    for (place, node) in nodes.iter().enumerate() {
        if Status::of(node).await?.address()? == owner {
            return Ok(place);
        }
    }
    bail!("nobody is {owner}")
}

async fn ask(client: &Client, tool: &str, arguments: Value) -> Result<Value> {
    let answer = client.call(tool, arguments).await?;
    ensure!(answer["success"] == json!(true), "{tool}: {answer}");
    Ok(answer)
}

async fn agent(node: &Up, token: &str, name: &str) -> Result<Client> {
    let client = Client::new(&node.mcp, token);
    ask(&client, "join-swarm", json!({"name": name, "maxTasks": 20})).await?;
    Ok(client)
}

async fn create(client: &Client, text: &str) -> Result<String> {
    let made = ask(client, "task-action", json!({"action": "create", "task": text})).await?;
    Ok(made["task"]["id"].as_str().context("no id")?.to_owned())
}

async fn claim(client: &Client, task: &str) -> Result<Value> {
    client.call("task-action", json!({"action": "claim", "taskId": task})).await
}

/// The ids of all tasks, as a node lists them.
async fn listed(node: &Up) -> Result<BTreeSet<String>> {
    let rows = node.skein(&["tasks", "list", "--json", "--limit", "1000"]).await?;
    rows.lines()
        .map(|row| Ok(serde_json::from_str::<Value>(row)?["id"].as_str().unwrap_or_default().to_owned()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_made_through_one_node_is_listed_waited_for_and_claimed_through_another() -> Result<()> {
    let (_cluster, nodes) = three().await?;
    let tells =
        |node: &Value| node["lag"]["oldest_effect_ms"].is_u64() && node["lag"]["unlisted_commits"].is_u64();
    // One that takes more than a second to say it is shown without.
    let all_tell = async || {
        let status: Value = serde_json::from_str(&nodes[0].skein(&["cluster", "status", "--json"]).await?)?;
        let all = status["nodes"].as_array().is_some_and(|all| all.len() == 3 && all.iter().all(tells));
        Ok(all.then_some(status))
    };
    let status = nodes[0].until("all nodes say how far they are", all_tell).await?;
    ensure!(status["generation"]["run"].as_str().is_some_and(|run| run.len() == 40), "{status}");
    let all = status["nodes"].as_array().context("no nodes")?;
    ensure!(all.iter().all(|node| node["format"] == json!(FORMAT)), "{status}");
    let relies_on = number(&nodes[0], "skein_cluster_generation").await?;
    for node in &nodes {
        ensure!(relies_on > 0.0 && number(node, "skein_cluster_generation").await? == relies_on);
        let own = Status::of(node).await?.address()?;
        let own = all.iter().find(|shown| shown["address"] == json!(own)).context("it is not on the list")?;
        let epochs = own["shards"].as_object().into_iter().flatten().filter_map(|(_, epoch)| epoch.as_u64());
        let highest = epochs.max().context("it has no shard")? as f64;
        ensure!(number(node, "skein_cluster_epoch").await? == highest, "{own}");
    }
    let token = nodes[0].token("worker", "lena").await?;
    let other = nodes[0].token("worker", "otto").await?;
    let lena = agent(&nodes[0], &token, "lena").await?;
    let otto = agent(&nodes[1], &other, "otto").await?;
    let task = create(&lena, "count the geese").await?;
    // A read sees every write acknowledged before it, on whichever node it is asked.
    for node in &nodes {
        ensure!(
            listed(node).await?.contains(&task),
            "a node does not list what another one has acknowledged"
        );
    }
    ask(&otto, "task-action", json!({"action": "claim", "taskId": task})).await?;
    let details =
        ask(&Client::new(&nodes[2].mcp, &token), "get-task-details", json!({"taskId": task})).await?;
    ensure!(details["task"]["status"] == json!("in_progress"), "{details}");

    // Of three who wait, each on a node of its own, one at least is on a node that does not have the pool.
    let cursor = ask_wait(&lena, json!({"for": ["tasks"], "timeout_s": 0})).await?["cursor"].clone();
    let waits = nodes.each_ref().map(|node| {
        let (client, cursor) = (Client::new(&node.mcp, &token), cursor.clone());
        tokio::spawn(async move {
            ask_wait(&client, json!({"for": ["tasks"], "cursor": cursor, "timeout_s": 45})).await
        })
    });
    let second = create(&otto, "count the ducks").await?;
    for wait in waits {
        let seen = tokio::time::timeout(Duration::from_secs(30), wait)
            .await
            .context("nothing woke the wait")???;
        ensure!(seen.to_string().contains(&second), "{seen}");
    }
    Ok(())
}

async fn ask_wait(client: &Client, arguments: Value) -> Result<Value> {
    client.call("wait", arguments).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shards_of_a_killed_node_move_and_nothing_acknowledged_is_lost_or_doubled() -> Result<()> {
    let (_cluster, nodes) = three().await?;
    let token = nodes[0].token("worker", "lena").await?;
    let doomed = owner_of_the_pool(&nodes).await?;
    let mut nodes: Vec<Up> = nodes.into();
    let victim = nodes.remove(doomed);
    let lena = agent(&nodes[0], &token, "lena").await?;
    let mut made = BTreeSet::new();
    for number in 0..20 {
        made.insert(create(&lena, &format!("before {number}")).await?);
    }
    let claimed = made.first().cloned().context("no task")?;
    ask(&lena, "task-action", json!({"action": "claim", "taskId": claimed})).await?;

    victim.kill().await?;
    let died = Instant::now();
    // Answered late, and answered.
    made.insert(create(&lena, "after").await?);
    let silence = died.elapsed();
    ensure!(silence < LEASE + TAKEOVER, "the first write on a moved shard came after {silence:?}");
    shared(&nodes[0], &[&nodes[0], &nodes[1]]).await?;
    for node in &nodes {
        ensure!(listed(node).await? == made, "something acknowledged is missing, or there is too much");
    }
    // Many want each task, through both nodes, and one gets it.
    let rivals = [&nodes[0], &nodes[1], &nodes[0], &nodes[1]];
    let mut clients = Vec::new();
    for (number, node) in rivals.into_iter().enumerate() {
        let name = format!("rival-{number}");
        clients.push(agent(node, &nodes[0].token("worker", &name).await?, &name).await?);
    }
    for task in &made {
        let claims = futures::future::try_join_all(clients.iter().map(|client| claim(client, task))).await?;
        let won = claims.iter().filter(|claim| claim["success"] == json!(true)).count();
        ensure!(won == usize::from(*task != claimed), "task {task} was given out {won} times");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_wakes_up_after_its_lease_writes_nothing_and_serves_again() -> Result<()> {
    let (_cluster, nodes) = three().await?;
    let token = nodes[0].token("worker", "lena").await?;
    let frozen = owner_of_the_pool(&nodes).await?;
    let awake = &nodes[(frozen + 1) % 3];
    let lena = agent(awake, &token, "lena").await?;
    let task = create(&lena, "contested").await?;
    let rival = agent(awake, &awake.token("worker", "otto").await?, "otto").await?;

    nodes[frozen].freeze().await?;
    // It comes to the frozen node, to be read and answered from its memory when that wakes.
    let late = tokio::spawn({
        let client = Client::new(&nodes[frozen].mcp, &token);
        let task = task.clone();
        async move { claim(&client, &task).await }
    });
    ask(&rival, "task-action", json!({"action": "claim", "taskId": task})).await?;
    nodes[frozen].thaw()?;
    let late = late.await??;
    ensure!(late["success"] == json!(false), "a task was given to two: {late}");
    shared(awake, &[&nodes[0], &nodes[1], &nodes[2]]).await?;
    let again = create(&Client::new(&nodes[frozen].mcp, &token), "it serves again").await?;
    ensure!(listed(awake).await?.contains(&again));
    Ok(())
}

/// For less than its lease, and the clients ask by way of another node.
#[tokio::test(flavor = "multi_thread")]
async fn what_clients_give_up_while_its_owner_stands_still_does_not_happen() -> Result<()> {
    const GIVEN_UP: usize = 20;
    let (_cluster, nodes) = three_with(LONG).await?;
    let frozen = owner_of_the_pool(&nodes).await?;
    let awake = &nodes[(frozen + 1) % 3];
    let lena = agent(awake, &awake.token("worker", "lena").await?, "lena").await?;
    // Whoever listens to progress hears that the call is under way.
    let unwanted = |number: usize| {
        let arguments = json!({"task": format!("unwanted {number}")});
        let listens = json!({"progressToken": number});
        lena.begin("tools/call", json!({"name": "send-task", "arguments": arguments, "_meta": listens}))
    };
    nodes[frozen].freeze().await?;
    let under_way = futures::future::try_join_all((0..GIVEN_UP).map(unwanted)).await?;
    for answer in &under_way {
        let kind = answer.headers().get("content-type");
        ensure!(kind.is_some_and(|kind| kind == "text/event-stream"), "it was answered at once: {answer:?}");
    }
    drop(under_way);
    // Each has left a line, whatever came of it: where all this takes seconds, the owner may be missed before.
    let noticed = async || {
        let log = awake.log()?;
        let ended = log.lines().filter(|line| line.contains("tool call") && line.contains("send-task"));
        Ok((ended.count() == GIVEN_UP).then_some(()))
    };
    awake.until("their node has noticed", noticed).await?;
    ensure!(awake.log()?.contains("given_up"), "all of them were answered");
    nodes[frozen].thaw()?;
    ask(&lena, "send-task", json!({"task": "wanted"})).await?;
    let tasks = lena.call("get-tasks", json!({"limit": 100})).await?;
    let made: Vec<_> = tasks["tasks"].as_array().into_iter().flatten().map(|task| &task["task"]).collect();
    ensure!(made == ["wanted"], "{made:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_node_gives_its_shards_away_while_work_goes_on_and_goes_quickly() -> Result<()> {
    let (cluster, nodes) = three_with(LONG).await?;
    let token = nodes[0].token("worker", "lena").await?;
    let lena = agent(&nodes[0], &token, "lena").await?;
    let [first, second, third] = nodes;
    let address = Status::of(&third).await?.address()?;
    first.skein(&["cluster", "drain", &address]).await?;
    shared(&first, &[&first, &second]).await?;
    // Whoever asks again has what was asked for.
    first.skein(&["cluster", "drain", &address]).await?;
    // It has no shard and answers all the same, though nobody new should come.
    ensure!((readiness(&third).await?, readiness(&first).await?) == (503, 200));
    for (node, draining) in [(&first, 0.0), (&third, 1.0)] {
        ensure!(number(node, "skein_cluster_draining").await? == draining);
    }
    ensure!(number(&third, "skein_cluster_epoch").await? == 0.0);
    let made = create(&Client::new(&third.mcp, &token), "through the drained").await?;
    ensure!(listed(&third).await?.contains(&made));
    third.terminate().await?;

    // SIGTERM does the same. Whoever writes meanwhile through another node does not wait for a lease to end.
    let began = Instant::now();
    let leaving = tokio::spawn(second.terminate());
    let mut slowest = Duration::ZERO;
    while !leaving.is_finished() {
        let asked = Instant::now();
        create(&lena, "meanwhile").await?;
        slowest = slowest.max(asked.elapsed());
    }
    leaving.await??;
    ensure!(slowest < LONG_LEASE / 2, "a write waited for {slowest:?}");
    ensure!(began.elapsed() < LEASE * 4, "the drain took {:?}", began.elapsed());
    shared(&first, &[&first]).await?;
    drop(cluster);
    Ok(())
}

/// What a node says to those who ask whether they should send it requests.
async fn readiness(node: &Up) -> Result<u16> {
    Ok(reqwest::get(node.mcp.replace("/mcp", "/readyz")).await?.status().as_u16())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_asked_to_end_is_not_ready_from_then_on_and_answers_what_it_has_taken() -> Result<()> {
    let (cluster, first) = Cluster::start(SETTINGS).await?;
    let redis = cluster.server.link()?;
    let mut second = Cluster::serve_through(cluster.folder("")?, &redis).await?;
    shared(&first, &[&first, &second]).await?;
    let token = first.token("worker", "lena").await?;
    let lena = agent(&second, &token, "lena").await?;
    let cursor = ask_wait(&lena, json!({"for": ["tasks"], "timeout_s": 0})).await?["cursor"].clone();
    let wait = json!({"for": ["tasks"], "cursor": cursor, "timeout_s": 45});
    let wait = lena.begin("tools/call", json!({"name": "wait", "arguments": wait})).await?;
    ensure!(readiness(&second).await? == 200);

    // It cannot give its shards away for the moment, so it drains for as long as this takes.
    redis.hold_back();
    process::signal(second.id().context("it has ended")?, Signal::TERM)?;
    let not_ready = async || Ok((readiness(&second).await? == 503).then_some(()));
    second.until("it says that it drains", not_ready).await?;
    let alive = reqwest::get(second.mcp.replace("/mcp", "/healthz")).await?.status();
    ensure!(alive.is_success(), "it drains and answers {alive}");
    redis.heal();
    ensure!(second.ended().await?.success());
    // Whoever waited has an answer, and not a broken connection.
    let answer = wait.text().await?;
    ensure!(answer.contains("\"result\""), "{answer}");
    Ok(())
}

/// Nothing is asked of the other node meanwhile, so that nothing but the probes of the connection can notice.
#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_is_cut_off_without_a_word_is_an_alarm_until_it_is_heard_again() -> Result<()> {
    let (cluster, first) = Cluster::start(SETTINGS).await?;
    let link = Link::port().await?;
    let folder = cluster.folder(&format!("advertise = \"{}\"", link.address()))?;
    let second = cluster.serve(folder).await?;
    link.leads_to(second.node.as_deref().context("it listens for no other node")?);
    shared(&first, &[&first, &second]).await?;
    all_is_well(&first).await?;
    link.hold_back();
    let raised = async || {
        let raised = number(&first, "skein_alarms{kind=\"unreachable\"}").await?;
        Ok((raised == 1.0).then_some(()))
    };
    first.until("the node is missed", raised).await?;
    alarm(&first, "unreachable", &link.address()).await?;
    link.heal();
    all_is_well(&first).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_joins_takes_its_share_and_one_that_crashed_is_back_at_once() -> Result<()> {
    let (cluster, first) = Cluster::start(LONG).await?;
    shared(&first, &[&first]).await?;
    let second = cluster.join().await?;
    shared(&first, &[&first, &second]).await?;
    let shares: Vec<usize> =
        Status::of(&first).await?.shards().into_iter().map(|(_, shards)| shards).collect();
    ensure!(shares.iter().all(|share| (64..192).contains(share)), "{shares:?}");
    let back = Instant::now();
    let second = cluster.serve(second.kill().await?).await?;
    shared(&second, &[&first, &second]).await?;
    let numbers = reqwest::get(second.mcp.replace("/mcp", "/metrics")).await?.text().await?;
    ensure!(numbers.contains("skein_cluster_nodes 2"), "{numbers}");
    ensure!(back.elapsed() < LONG_LEASE, "it was back after {:?}", back.elapsed());
    Ok(())
}

/// One request of the older revision; gives the session and the body.
async fn in_session(
    node: &Up,
    token: &str,
    session: Option<&str>,
    body: &Value,
) -> Result<(Option<String>, String)> {
    let mut request = reqwest::Client::new()
        .post(&node.mcp)
        .bearer_auth(token)
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2025-11-25");
    if let Some(session) = session {
        request = request.header("mcp-session-id", session);
    }
    let response = request.json(body).send().await?;
    let session = response.headers().get("mcp-session-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    let status = response.status();
    let text = response.text().await?;
    ensure!(status.is_success(), "{status}: {text}");
    Ok((session, text))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_at_another_node_when_its_own_has_died() -> Result<()> {
    let (cluster, first) = Cluster::start(SETTINGS).await?;
    let second = cluster.join().await?;
    let token = first.token("worker", "lena").await?;
    let begin = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"},
    }});
    let (session, _) = in_session(&first, &token, None, &begin).await?;
    let session = session.context("no session was begun")?;
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    in_session(&first, &token, Some(&session), &ready).await?;
    let join = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "join-swarm", "arguments": {"name": "lena"},
    }});
    in_session(&first, &token, Some(&session), &join).await?;
    first.kill().await?;
    let me = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {
        "name": "my-agent-info", "arguments": {},
    }});
    let (_, answer) = in_session(&second, &token, Some(&session), &me).await?;
    ensure!(answer.contains("lena"), "{answer}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ingress_of_its_own_has_no_shards_and_writes_through_the_owners() -> Result<()> {
    let (cluster, first) = Cluster::start(SETTINGS).await?;
    let second = cluster.join().await?;
    let [near, far] = [
        cluster.ingress(&webhook::configuration()).await?,
        cluster.ingress(&webhook::configuration()).await?,
    ];
    shared(&first, &[&first, &second]).await?;
    let status = Status::of(&near).await?;
    let own = status.address()?;
    ensure!(
        status.shards().into_iter().all(|(address, shards)| (address == own) <= (shards == 0)),
        "it has shards"
    );

    let body = r#"{"ref":"refs/heads/main","repository":{"full_name":"acme/app"}}"#;
    let push = async |up: &Up, delivery: &str| {
        webhook::push(&up.ingress, delivery, body, &webhook::signature(body)).await
    };
    let (status, taken) = push(&near, "d-1").await?;
    ensure!(status == 200 && taken["duplicate"] != json!(true), "{status} {taken}");
    let (status, again) = push(&far, "d-1").await?;
    ensure!(
        status == 200 && again["duplicate"] == json!(true),
        "another ingress took it for a new one: {again}"
    );

    // Agents are none of its business.
    let answer = reqwest::Client::new().post(&near.mcp).send().await?.status();
    ensure!(answer.as_u16() == 404, "MCP at the ingress: {answer}");

    // Whoever owned the sources dies: the delivery is answered by the next owner.
    second.kill().await?;
    let (status, late) = push(&near, "d-1").await?;
    ensure!(status == 200 && late["duplicate"] == json!(true), "{status} {late}");
    Ok(())
}
