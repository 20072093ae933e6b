//! `skein serve --redis`: one coordinator whose whole state is in Redis.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use skein_coordinator::cluster::authority::{Authority, Host};
use skein_coordinator::entity::Clock;
use skein_coordinator::store::redis::shard::Shard;
use skein_coordinator::store::redis::{Lost, Options, Redis};
use skein_tests::cluster::{Cluster, all_is_well};
use skein_tests::mcp::Client;
use skein_tests::ports;
use skein_tests::redis::{LASTING, Server};
use skein_tests::redis_cluster::RedisCluster;
use skein_tests::sentinel::Watched;
use skein_tests::stored::{options, wall};
use skein_tests::up::{Folder, Up};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

async fn serve(server: &Server, folder: Folder) -> Result<Up> {
    Up::serve_in(folder, &["--redis", &server.url()]).await
}

/// A node that answers when a replica has what it answers for.
async fn replicated(url: &str) -> Result<Up> {
    Up::serve_in(Folder::new()?.configured("[store]\ndurability = \"replicated\"\n")?, &["--redis", url])
        .await
}

async fn ask(client: &Client, tool: &str, arguments: Value) -> Result<Value> {
    let answer = client.call(tool, arguments).await?;
    ensure!(answer["success"] == json!(true), "{tool}: {answer}");
    Ok(answer)
}

/// Joins, makes a task and claims it, says something, and takes a lock. Gives the task.
async fn work(client: &Client, name: &str) -> Result<String> {
    ask(client, "join-swarm", json!({"name": name})).await?;
    let made = ask(client, "task-action", json!({"action": "create", "task": "count the geese"})).await?;
    let task = made["task"]["id"].as_str().unwrap_or_default().to_owned();
    ask(client, "task-action", json!({"action": "claim", "taskId": task})).await?;
    ask(client, "post-message", json!({"content": "seven of them"})).await?;
    Ok(task)
}

async fn is_all_there(up: &Up, token: &str, task: &str) -> Result<()> {
    let client = Client::new(&up.mcp, token);
    let details = ask(&client, "get-task-details", json!({"taskId": task})).await?;
    ensure!(details["task"]["status"] == json!("in_progress"), "{details}");
    ensure!(details["task"]["task"] == json!("count the geese"), "{details}");
    let events = up.skein(&["events", "--json"]).await?;
    ensure!(events.contains("seven of them"), "{events}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_is_in_redis_and_not_in_the_data_folder() -> Result<()> {
    let server = Server::start().await?;
    let up = serve(&server, Folder::new()?).await?;
    ensure!(!up.data().join("store.db").exists(), "there is a store in the data folder");
    up.has_logged("one Redis without a replica").await.context("nobody is warned of a single Redis")?;
    let refused = up.skein(&["backup", "copy.db"]).await.err().context("a copy was made")?.to_string();
    ensure!(refused.contains("status: 5") && refused.contains("BGSAVE"), "{refused}");
    let token = up.token("worker", "lena").await?;
    let task = work(&Client::new(&up.mcp, &token), "lena").await?;

    let up = serve(&server, up.terminate().await?).await?;
    is_all_there(&up, &token, &task).await?;

    // The crash leaves its leases behind; who has its folder has its name, and need not wait for their end.
    let up = serve(&server, up.kill().await?).await?;
    is_all_there(&up, &token, &task).await?;
    let part = "takes part in the cluster shards=";
    up.has_logged(part).await?;
    let log = up.log()?;
    ensure!(!log.contains(&format!("{part}0")), "it began before it had taken its shards again: {log}");

    // Another machine, which has nothing but Redis and the keys.
    let old = up.terminate().await?;
    let folder = Folder::new()?;
    std::fs::create_dir(folder.data())?;
    for entry in std::fs::read_dir(old.data())? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_string_lossy().contains("key") {
            std::fs::copy(entry.path(), folder.data().join(name))?;
        }
    }
    let up = serve(&server, folder).await?;
    let client = Client::new(&up.mcp, &token);
    is_all_there(&up, &token, &task).await?;
    ask(&client, "store-progress", json!({"taskId": task, "status": "completed", "output": "7"})).await?;
    up.terminate().await?;
    Ok(())
}

/// Asks until the node has found its feet again.
async fn patiently(up: &Up, client: &Client, tool: &str, arguments: Value) -> Result<Value> {
    let again = async || Ok(ask(client, tool, arguments.clone()).await.ok());
    up.until("the node works again", again).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_redis_was_restarted_loads_everything_anew() -> Result<()> {
    let mut server = Server::start().await?;
    let up = serve(&server, Folder::new()?).await?;
    let token = up.token("worker", "lena").await?;
    let client = Client::new(&up.mcp, &token);
    let task = work(&client, "lena").await?;
    server.crash_and_restart().await?;
    let done = json!({"taskId": task, "status": "completed", "output": "7"});
    patiently(&up, &client, "store-progress", done).await?;
    let details = ask(&client, "get-task-details", json!({"taskId": task})).await?;
    ensure!(details["task"]["status"] == json!("completed"), "{details}");
    up.has_logged("Redis was restarted or replaced").await
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_lead_a_node_to_the_next_primary() -> Result<()> {
    let mut redis = Watched::start().await?;
    // What was acknowledged is on a replica, and the sentinel takes the one that has most.
    let up = replicated(&redis.url()).await?;
    let token = up.token("worker", "lena").await?;
    let client = Client::new(&up.mcp, &token);
    let task = work(&client, "lena").await?;
    redis.kill_the_primary().await?;
    patiently(&up, &client, "post-message", json!({"content": "eight, now"})).await?;
    is_all_there(&up, &token, &task).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nodes_of_a_redis_cluster_lead_to_the_one_that_took_over() -> Result<()> {
    let mut redis = RedisCluster::start().await?;
    let up = replicated(&redis.url()).await?;
    let token = up.token("worker", "lena").await?;
    let client = Client::new(&up.mcp, &token);
    let task = work(&client, "lena").await?;
    // The old node is still there, and has none of the keys.
    redis.change_places().await?;
    patiently(&up, &client, "post-message", json!({"content": "eight, then"})).await?;
    redis.kill_the_owner().await?;
    patiently(&up, &client, "post-message", json!({"content": "eight, now"})).await?;
    is_all_there(&up, &token, &task).await
}

/// It takes connections, as one that stands still does.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_a_redis_cluster_that_says_nothing_holds_nobody_up() -> Result<()> {
    let (redis, silent) = (RedisCluster::start().await?, TcpListener::bind("127.0.0.1:0").await?);
    let first = format!("redis-cluster://{},", silent.local_addr()?);
    let url = redis.url().replacen("redis-cluster://", &first, 1);
    let patience = Duration::from_secs(3600);
    let options = Options { connect: patience, answer: patience, ..options(&url) };
    let joined = tokio::time::timeout(Duration::from_secs(60), Redis::join(&options, wall())).await;
    joined.context("it is waited for")??;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_redis_lost_everything_writes_nothing_into_what_is_left() -> Result<()> {
    let server = Server::start().await?;
    let up = serve(&server, Folder::new()?).await?;
    let client = Client::new(&up.mcp, &up.token("worker", "lena").await?);
    work(&client, "lena").await?;
    let mut connection = server.connection().await?;
    let () = redis::cmd("FLUSHALL").query_async(&mut connection).await?;
    up.until("it has noticed", async || Ok(up.log()?.contains("Redis has lost the store").then_some(())))
        .await?;
    let create = json!({"action": "create", "task": "count the ducks"});
    let refused = ask(&client, "task-action", create).await.err().context("it was taken")?;
    ensure!(format!("{refused:#}").contains("unavailable"), "{refused:#}");
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await?;
    ensure!(keys.iter().all(|key| key == "{skein}:members"), "{keys:?}");

    let Err(refused) = serve(&server, up.kill().await?).await else { bail!("it began with nothing") };
    ensure!(format!("{refused:#}").contains("restore Redis from a copy"), "{refused:#}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ingress_makes_no_store_and_waits_for_a_coordinator_that_does() -> Result<()> {
    let (cluster, first) = Cluster::start("lease = \"3s\"").await?;
    first.kill().await?;
    let mut connection = cluster.server.connection().await?;
    let () = redis::cmd("FLUSHALL").query_async(&mut connection).await?;
    let refused = cluster.ingress("").await.err().context("it made a store of its own")?;
    ensure!(format!("{refused:#}").contains("no coordinator has set up a store"), "{refused:#}");
    let keys: u64 = redis::cmd("DBSIZE").query_async(&mut connection).await?;
    ensure!(keys == 0, "it has written {keys} keys");

    // Whoever starts both at once need not mind which is first.
    let folder = cluster.folder("")?;
    let log = folder.path().join("log");
    let coordinator = async {
        while !std::fs::read_to_string(&log).is_ok_and(|said| said.contains("one is waited for")) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        cluster.join().await
    };
    let (ingress, _coordinator) = tokio::try_join!(cluster.ingress_in(folder), coordinator)?;
    all_is_well(&ingress).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_get_ready_gives_its_shards_back() -> Result<()> {
    let server = Server::start().await?;
    let taken = TcpListener::bind("127.0.0.1:0").await?;
    let address = taken.local_addr()?.to_string();
    // Of the doors that open when the store is there.
    let arguments = ["--redis", &server.url(), "--grpc", &address];
    let refused = Up::serve_in(Folder::new()?, &arguments).await.err().context("it listens there too")?;
    ensure!(
        format!("{refused:#}").contains("with --listen, --grpc or --ingress, or stop what listens there"),
        "{refused:#}"
    );
    let mut connection = server.connection().await?;
    for shard in Shard::all() {
        let ask = redis::cmd("HGET").arg(shard.key("lease")).arg("state").to_owned();
        let state: Option<String> = ask.query_async(&mut connection).await?;
        ensure!(state.as_deref() == Some("free"), "shard {} is {state:?}", shard.number());
    }
    let members: u64 = redis::cmd("HLEN").arg("{skein}:members").query_async(&mut connection).await?;
    ensure!(members == 0, "it passes for one that lives");
    Ok(())
}

/// What has a store for itself, as `skein export` and `skein import` have.
struct Alone {
    keeping: JoinHandle<Result<(), Lost>>,
    stop: CancellationToken,
}

impl Alone {
    async fn open(server: &Server) -> Result<Self> {
        let (store, stop) = (Redis::open(&options(&server.url()), wall()).await?, CancellationToken::new());
        let keeping = tokio::spawn({
            let stop = stop.clone();
            async move { store.keep(stop).await }
        });
        Ok(Self { keeping, stop })
    }

    async fn end(self) -> Result<()> {
        self.stop.cancel();
        Ok(self.keeping.await??)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_not_ready_before_whoever_has_the_store_for_itself_has_ended() -> Result<()> {
    let server = Server::in_memory().await?;
    let (alone, folder) = (Alone::open(&server).await?, Folder::new()?);
    let log = folder.path().join("log");
    let http = format!("127.0.0.1:{}", ports::free()?);
    let waits = async {
        while !std::fs::read_to_string(&log).is_ok_and(|said| said.contains("has the store for itself")) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let url = server.url();
    let arguments = ["--redis", &url, "--listen", &http];
    let mut starting = pin!(Up::serve_in(folder, &arguments));
    let asked = async {
        waits.await;
        // It lives, says why it is not ready, and leaves all others to other nodes.
        let alive = reqwest::get(format!("http://{http}/healthz")).await?.status();
        let ready = reqwest::get(format!("http://{http}/readyz")).await?;
        let (status, said) = (ready.status(), ready.text().await?);
        ensure!(
            alive == 200 && status == 503 && said.contains("has the store for itself"),
            "{status}: {said}"
        );
        let dropped = reqwest::Client::new().post(format!("http://{http}/mcp")).body("{}").send().await;
        ensure!(dropped.is_err(), "it answers what it cannot do yet: {dropped:?}");
        anyhow::Ok(())
    };
    tokio::select! {
        started = &mut starting => bail!("it did not wait: {:?}", started.map(|up| up.mcp.clone())),
        asked = asked => asked?,
    }
    alone.end().await?;
    all_is_well(&starting.await?).await
}

/// What a node says at `/readyz`, as soon as that is with this status.
async fn readiness(node: &Up, status: u16) -> Result<String> {
    let url = node.mcp.replace("/mcp", "/readyz");
    node.until(&format!("`/readyz` is {status}"), async || {
        let answer = reqwest::get(&url).await?;
        Ok(if answer.status().as_u16() == status { Some(answer.text().await?) } else { None })
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_shards_an_export_has_says_what_it_waits_for_and_is_not_ready() -> Result<()> {
    let (cluster, node) = Cluster::start("lease = \"2s\"").await?;
    node.freeze().await?;
    let alone = Alone::open(&cluster.server).await?;
    node.thaw()?;
    let said = readiness(&node, 503).await?;
    ensure!(said.contains("export or skein import has the store for itself"), "{said}");
    let status = node.run(&["cluster", "status"]).await?;
    let said = String::from_utf8(status.stderr)?;
    ensure!(status.status.success() && said.contains("has the store for itself"), "{said}");
    alone.end().await?;
    readiness(&node, 200).await?;
    all_is_well(&node).await
}

/// An authority, and what it has signed for Redis and for us.
fn certificates(folder: &Path) -> Result<()> {
    let now = Clock::start().wall();
    let (authority, _) = Authority::create(now)?;
    std::fs::write(folder.join("ca.pem"), authority.certificate())?;
    for name in ["redis", "skein"] {
        let issued = authority.issue(&[Host::parse("127.0.0.1")?], now, 1)?;
        std::fs::write(folder.join(format!("{name}.pem")), &issued.certificate)?;
        std::fs::write(folder.join(format!("{name}.key")), issued.key.expose_secret())?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_spoken_to_by_tls_and_both_sides_know_one_another() -> Result<()> {
    let files = Folder::new()?;
    let file = |name: &str| files.path().join(name).display().to_string();
    certificates(files.path())?;
    let port = ports::free()?.to_string();
    let (ca, certificate, key) = (file("ca.pem"), file("redis.pem"), file("redis.key"));
    let mut settings = [LASTING, &["--tls-port", &port]].concat();
    settings.extend(["--tls-ca-cert-file", &ca, "--tls-cert-file", &certificate, "--tls-key-file", &key]);
    let _server = Server::start_with(&settings).await?;
    let url = format!("rediss://127.0.0.1:{port}/");
    let trusts = format!("[store]\nredis_ca = \"{ca}\"\n");
    let Err(refused) = Up::serve_in(Folder::new()?.configured(&trusts)?, &["--redis", &url]).await else {
        bail!("it came in unknown")
    };
    ensure!(format!("{refused:#}").contains("does not take the connection"), "{refused:#}");

    let (certificate, key) = (file("skein.pem"), file("skein.key"));
    let known = format!("redis_certificate = \"{certificate}\"\nredis_key = \"{key}\"\n");
    // Redis would take it in, and it does not know whose this Redis is.
    let others = Folder::new()?;
    certificates(others.path())?;
    let misled = format!("[store]\nredis_ca = \"{}\"\n{known}", others.path().join("ca.pem").display());
    let Err(refused) = Up::serve_in(Folder::new()?.configured(&misled)?, &["--redis", &url]).await else {
        bail!("it trusts a Redis that its authority does not know")
    };
    ensure!(format!("{refused:#}").contains("invalid peer certificate"), "{refused:#}");

    let known = format!("{trusts}{known}");
    let up = Up::serve_in(Folder::new()?.configured(&known)?, &["--redis", &url]).await?;
    let token = up.token("worker", "lena").await?;
    let task = work(&Client::new(&up.mcp, &token), "lena").await?;
    is_all_there(&up, &token, &task).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_redis_is_refused_without_its_password() -> Result<()> {
    let refused = Up::serve_in(Folder::new()?, &["--redis", "redis://:hush-hush@127.0.0.1:1/"]).await;
    let said = format!("{:#}", refused.err().unwrap());
    ensure!(said.contains("127.0.0.1:1") && said.contains("correct the URL"), "{said}");
    ensure!(!said.contains("hush-hush"), "{said}");
    Ok(())
}
