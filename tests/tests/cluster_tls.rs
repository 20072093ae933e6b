//! What coordinators do about others that they cannot trust, cannot understand or cannot reach.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use skein_coordinator::cluster::authority::{Authority, Host};
use skein_coordinator::cluster::identity::{CA, CERTIFICATE, KEY};
use skein_coordinator::cluster::member::{FORMAT, Member};
use skein_coordinator::entity::Clock;
use skein_shared::time::Timestamp;
use skein_tests::cluster::{Certificates, Cluster, Status, alarm, all_is_well, number, pretender};
use skein_tests::mcp::Client;
use skein_tests::redis::Server;
use skein_tests::up::{Folder, Up, binary};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use uuid::Uuid;

const SETTINGS: &str = "lease = \"4s\"\nsettle = \"1s\"";
/// How long a start that cannot succeed may take to say so.
const START: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}

/// A first node that has a certificate, and its Redis.
async fn secured(certificates: &Certificates) -> Result<(Cluster, Up)> {
    let folder = certificates.of("127.0.0.1");
    Cluster::start_with(SETTINGS, &["--cluster-tls", text(&folder)?]).await
}

/// Why a node did not start.
async fn refusal(cluster: &Cluster, folder: Folder, arguments: &[&str]) -> Result<String> {
    let refused = cluster.serve_with(folder, arguments).await.err().context("it was let in")?;
    Ok(format!("{refused:#}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_with_certificates_of_one_authority_work_together() -> Result<()> {
    let certificates = Certificates::init(&["127.0.0.1"]).await?;
    let (cluster, first) = secured(&certificates).await?;
    let second =
        cluster.serve_with(Folder::new()?, &["--cluster-tls", text(&certificates.of("127.0.0.1"))?]).await?;
    let addresses = [Status::of(&first).await?.address()?, Status::of(&second).await?.address()?];
    first
        .until("the shards are shared", async || {
            let status = Status::of(&first).await?;
            Ok(status.is_shared_by(&[&addresses[0], &addresses[1]]).then_some(()))
        })
        .await?;
    // The keys came with the certificates: a token of one is good for the other.
    let token = first.token("worker", "lena").await?;
    let (near, far) = (Client::new(&first.mcp, &token), Client::new(&second.mcp, &token));
    for client in [&near, &far] {
        let joined = client.call("join-swarm", json!({"name": "lena"})).await?;
        ensure!(joined["success"] == json!(true), "{joined}");
        let made = client.call("task-action", json!({"action": "create", "task": "count the geese"})).await?;
        ensure!(made["success"] == json!(true), "{made}");
    }
    for node in [&first, &second] {
        all_is_well(node).await?;
        ensure!(number(node, "skein_alarms{kind=\"distrusted\"}").await? == 0.0);
        let left = number(node, "skein_cluster_certificate_expires_seconds").await?;
        ensure!(left > 364.0 * DAY.as_secs_f64() && left <= 365.0 * DAY.as_secs_f64(), "{left}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_this_machine_nobody_listens_in_plain_text() -> Result<()> {
    let server = Server::start().await?;
    let arguments = ["--redis", &server.url(), "--node-addr", "0.0.0.0:0"];
    let refused = Up::serve_in(Folder::new()?, &arguments).await.err().context("it listens")?;
    let said = format!("{refused:#}");
    ensure!(said.contains("0.0.0.0:0") && said.contains("skein cluster init"), "{said}");
    is_untouched(&server).await
}

/// Nothing was written into this Redis.
async fn is_untouched(server: &Server) -> Result<()> {
    let keys: u64 = redis::cmd("DBSIZE").query_async(&mut server.connection().await?).await?;
    ensure!(keys == 0, "{keys} keys were written");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_not_trusted_takes_no_part_and_is_shown() -> Result<()> {
    let (ours, theirs) =
        (Certificates::init(&["127.0.0.1"]).await?, Certificates::init(&["127.0.0.1"]).await?);
    let (cluster, node) = secured(&ours).await?;
    let before = Status::of(&node).await?;

    let stranger = theirs.of("127.0.0.1");
    let said = refusal(&cluster, Folder::new()?, &["--cluster-tls", text(&stranger)?]).await?;
    ensure!(said.contains("from another authority") && said.contains("skein cluster init"), "{said}");
    alarm(&node, "turned_away", "127.0.0.1").await?;
    ensure!(number(&node, "skein_alarms{kind=\"turned_away\"}").await? == 1.0);

    let said = refusal(&cluster, cluster.folder("")?, &[]).await?;
    ensure!(said.contains("speaks mutual TLS, and this node plain text"), "{said}");

    // What speaks plain text all the same gets no answer in it.
    let mut plain = TcpStream::connect(Status::of(&node).await?.address()?).await?;
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await?;
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    ensure!(answer.len() < 16, "it was answered: {answer:?}");
    alarm(&node, "turned_away", "plain text").await?;

    let after = Status::of(&node).await?;
    ensure!(after.epochs() == before.epochs(), "a shard or an epoch has changed");
    Ok(())
}

/// A node's folder with a certificate of one's own making.
fn issued(authority: &Authority, host: &str, now: Timestamp) -> Result<TempDir> {
    let folder = TempDir::with_prefix("skein-node-")?;
    let issued = authority.issue(&[Host::parse(host)?], now, 1)?;
    for (name, content) in
        [(CA, authority.certificate()), (CERTIFICATE, &issued.certificate), (KEY, issued.key.expose_secret())]
    {
        std::fs::write(folder.path().join(name), content)?;
    }
    std::fs::set_permissions(folder.path().join(KEY), std::fs::Permissions::from_mode(0o600))?;
    Ok(folder)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_not_good_keeps_its_node_from_starting() -> Result<()> {
    let server = Server::start().await?;
    let now = Clock::start().wall();
    let (authority, _) = Authority::create(now - 10 * DAY)?;
    for (folder, problem) in [
        (issued(&authority, "127.0.0.1", now - 2 * DAY)?, "the certificate ended on"),
        (issued(&authority, "127.0.0.1", now + 2 * DAY)?, "set the clock of this machine"),
        (
            issued(&authority, "10.0.0.7", now)?,
            "is for 10.0.0.7, and the others reach this node as 127.0.0.1",
        ),
        (TempDir::new()?, "make the files with `skein cluster init`"),
    ] {
        let url = server.url();
        let arguments = ["--redis", &url, "--node-addr", "127.0.0.1:0", "--cluster-tls"];
        let arguments = [&arguments[..], &[text(folder.path())?]].concat();
        let refused = Up::serve_in(Folder::new()?, &arguments).await.err().context("it has started")?;
        let said = format!("{refused:#}");
        ensure!(said.contains(problem), "{said}");
    }
    is_untouched(&server).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_without_a_usable_certificate_leaves_no_keys_that_keep_the_clusters_out() -> Result<()> {
    let certificates = Certificates::init(&["127.0.0.1"]).await?;
    let good = certificates.of("127.0.0.1");
    let server = Server::start().await?;
    let (url, folder) = (server.url(), Folder::new()?);
    let (mistyped, file) = (folder.path().join("mistyped"), folder.path().join("file"));
    std::fs::write(&file, "")?;
    for (more, problem) in [
        (
            ["--node-addr", "127.0.0.1:0", "--redis", &url, "--cluster-tls", text(&mistyped)?].as_slice(),
            "mistyped",
        ),
        (&["--node-addr", "127.0.0.1:0", "--redis", &url, "--cluster-tls", text(&file)?], "no such folder"),
        (&["--node-addr", "0.0.0.0:0", "--redis", &url], "skein cluster init"),
        // It would share no store.
        (&["--cluster-tls", text(&good)?], "`cluster.tls`"),
    ] {
        let mut command = Command::new(binary("skein"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]);
        command.args(["--ingress", "127.0.0.1:0", "--data"]).arg(folder.data()).args(more);
        let ended = tokio::time::timeout(START, command.kill_on_drop(true).output()).await??;
        let said = String::from_utf8_lossy(&ended.stderr);
        ensure!(!ended.status.success() && said.contains(problem), "{more:?}: {said}");
        for name in ["keys.json", "secrets.json"] {
            ensure!(!folder.data().join(name).exists(), "{more:?} has left {name}");
        }
    }
    let arguments = ["--node-addr", "127.0.0.1:0", "--redis", &url, "--cluster-tls", text(&good)?];
    let node = Up::serve_in(folder, &arguments).await?;
    for name in ["keys.json", "secrets.json"] {
        ensure!(
            std::fs::read(node.data().join(name))? == std::fs::read(good.join(name))?,
            "{name} is its own"
        );
    }
    Ok(())
}

/// A node that has started with a certificate which ends soon after that, however long the start takes.
async fn soon_over(cluster: &Cluster, authority: &Authority) -> Result<(Up, TempDir)> {
    let mut lasts = Duration::from_secs(5);
    loop {
        let ending = issued(authority, "127.0.0.1", Clock::start().wall() - DAY + lasts)?;
        let started = cluster.serve_with(cluster.folder("")?, &["--cluster-tls", text(ending.path())?]).await;
        match started {
            Ok(node) => return Ok((node, ending)),
            Err(late) if ["ended on", "expired"].iter().any(|over| format!("{late:#}").contains(over)) => {
                lasts *= 2;
            }
            Err(other) => return Err(other),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_ends_at_work_is_an_alarm_and_lets_nobody_new_in() -> Result<()> {
    let now = Clock::start().wall();
    let (authority, _) = Authority::create(now - 10 * DAY)?;
    let good = issued(&authority, "127.0.0.1", now)?;
    let (cluster, second) = Cluster::start_with(SETTINGS, &["--cluster-tls", text(good.path())?]).await?;
    let (first, _ending) = soon_over(&cluster, &authority).await?;
    let said = alarm(&first, "certificate", "").await?;
    ensure!(said.contains("skein cluster init"), "{said}");
    alarm(&first, "certificate", "ended on").await?;
    ensure!(number(&first, "skein_alarms{kind=\"certificate\"}").await? == 1.0);

    // Those who know one another go on, and whoever comes anew does not trust it any more.
    let folder = second.kill().await?;
    let said = refusal(&cluster, folder, &["--cluster-tls", text(good.path())?]).await?;
    ensure!(said.contains("its certificate has expired"), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_program_is_shown_and_kept_apart() -> Result<()> {
    let (cluster, node) = Cluster::start(SETTINGS).await?;
    let mut redis = cluster.server.connection().await?;
    let member = json!({
        "id": "another", "incarnation": "00000000-0000-0000-0000-000000000000", "address": "127.0.0.1:1",
        "formats": [1, 1], "draining": false, "shards": 256,
    });
    let member: Member = serde_json::from_value(member)?;
    let later = (FORMAT + 1, FORMAT + 3);
    let reads = format!("reads the formats {} to {}", later.0, later.1);
    for (other, problem) in [
        (Member { formats: later, ..member.clone() }, reads.as_str()),
        (Member { formats: later, ..member.clone() }, "stop all nodes, update them, and start them"),
        (Member { shards: 64, incarnation: Uuid::from_u128(1), ..member.clone() }, "into 64 shards"),
    ] {
        let _lives = pretender(&cluster.server, &other).await?;
        alarm(&node, "distrusted", problem).await?;
        ensure!(number(&node, "skein_alarms{kind=\"distrusted\"}").await? == 1.0);
        let said = refusal(&cluster, cluster.folder("")?, &[]).await?;
        ensure!(said.contains(problem) && said.contains("127.0.0.1:1"), "{said}");
    }
    let shards = Status::of(&node).await?.shards();
    ensure!(shards.iter().any(|(_, shards)| *shards == 256), "it gave shards away: {shards:?}");
    redis::cmd("HDEL").arg("{skein}:members").arg("another").exec_async(&mut redis).await?;
    all_is_well(&node).await?;

    // A store that another number of shards was written into is nobody's business.
    redis::cmd("HSET").arg("{skein}:cluster").arg("shards").arg(64).exec_async(&mut redis).await?;
    let said = refusal(&cluster, cluster.folder("")?, &[]).await?;
    ensure!(said.contains("shards 64 and this program 256"), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stands_still_is_off_the_list_soon_and_back_when_it_goes_on() -> Result<()> {
    let certificates = Certificates::init(&["127.0.0.1"]).await?;
    let (cluster, first) = secured(&certificates).await?;
    let second =
        cluster.serve_with(Folder::new()?, &["--cluster-tls", text(&certificates.of("127.0.0.1"))?]).await?;
    all_is_well(&first).await?;
    let listed = async |count| Ok((Status::of(&first).await?.shards().len() == count).then_some(()));
    second.freeze().await?;
    first.until("it is off the list", async || listed(1).await).await?;
    second.thaw()?;
    first.until("it is back", async || listed(2).await).await?;
    all_is_well(&first).await?;
    all_is_well(&second).await
}

/// Takes a step to another signing key on one node, and gives its keys to the others; returns once all have them.
async fn rotate(nodes: &[&Up], step: &[&str]) -> Result<()> {
    let known = async |node: &Up| Ok::<_, anyhow::Error>(node.log()?.matches("keys have changed").count());
    let mut before = Vec::new();
    for node in nodes {
        before.push(known(node).await?);
    }
    nodes[0].skein(&[&["token", "rotate-keys"], step].concat()).await?;
    for other in &nodes[1..] {
        let draft = other.data().join("draft");
        std::fs::copy(nodes[0].data().join("keys.json"), &draft)?;
        std::fs::rename(&draft, other.data().join("keys.json"))?;
    }
    for (node, before) in nodes.iter().zip(before) {
        node.until("it knows them", async || Ok((known(node).await? > before).then_some(()))).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_run_go_on_trusting_one_another_when_their_keys_are_replaced() -> Result<()> {
    let (cluster, first) = Cluster::start(SETTINGS).await?;
    let second = cluster.join().await?;
    let unprepared = first.run(&["token", "rotate-keys"]).await?;
    let said = String::from_utf8_lossy(&unprepared.stderr).into_owned();
    ensure!(!unprepared.status.success() && said.contains("--prepare"), "{said}");
    for step in [&["--prepare"][..], &[], &["--retire"]] {
        rotate(&[&first, &second], step).await?;
    }
    // Each asks the other anew, and both ask the one that knows no other keys.
    let folder = cluster.folder("")?;
    std::fs::copy(first.data().join("keys.json"), folder.data().join("keys.json"))?;
    let third = cluster.serve(folder).await?;
    for node in [&first, &second, &third] {
        let told = node
            .until("three nodes", async || {
                let told: Value = serde_json::from_str(&node.skein(&["cluster", "status", "--json"]).await?)?;
                Ok(told["nodes"].as_array().is_some_and(|all| all.len() == 3).then_some(told))
            })
            .await?;
        let answers = |node: &Value| node["lag"]["oldest_effect_ms"].is_u64();
        ensure!(told["nodes"].as_array().is_some_and(|all| all.iter().all(answers)), "{told}");
        all_is_well(node).await?;
    }
    Ok(())
}
