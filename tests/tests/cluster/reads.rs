//! What the other nodes of a cluster read from the store.

use anyhow::{Result, ensure};
use serde_json::json;
use skein_tests::cluster::Cluster;
use skein_tests::mcp::Client;

use super::{agent, ask, owner_of_the_pool, three};

/// Commands that are noted: more than nodes send in a test, of which most look at the leases.
const NOTED: u32 = 1_000_000;

/// Has the store note each command from now on.
async fn note_commands(cluster: &Cluster) -> Result<()> {
    let mut redis = cluster.server.connection().await?;
    for (setting, value) in [("slowlog-max-len", NOTED), ("slowlog-log-slower-than", 0)] {
        redis::cmd("CONFIG").arg("SET").arg(setting).arg(value).exec_async(&mut redis).await?;
    }
    Ok(redis::cmd("SLOWLOG").arg("RESET").exec_async(&mut redis).await?)
}

/// How often bodies of documents were read from the store since it notes each command.
async fn bodies_read(cluster: &Cluster) -> Result<usize> {
    // Its number, when it was, how long it took, the command, and who sent it.
    type Noted = (u64, u64, u64, Vec<Vec<u8>>, String, String);
    let mut redis = cluster.server.connection().await?;
    let noted: Vec<Noted> = redis::cmd("SLOWLOG").arg("GET").arg(NOTED).query_async(&mut redis).await?;
    let reads_bodies = |words: &[Vec<u8>]| {
        let word =
            |place: usize| String::from_utf8_lossy(words.get(place).map(Vec::as_slice).unwrap_or_default());
        word(0) == "HMGET" && word(1).contains(":bodies:")
    };
    Ok(noted.iter().filter(|(_, _, _, words, _, _)| reads_bodies(words)).count())
}

/// The owner gives them along with its answer, as they are after the change, and knows the words of what is finished.
#[tokio::test(flavor = "multi_thread")]
async fn changes_through_another_node_are_shown_and_remembered_without_a_read_of_the_store() -> Result<()> {
    const ROUNDS: usize = 20;
    let (cluster, nodes) = three().await?;
    let far = &nodes[(owner_of_the_pool(&nodes).await? + 1) % nodes.len()];
    let lena = agent(far, &far.token("worker", "lena").await?, "lena").await?;
    let remembered = async |flock: &str| {
        let found = ask(&lena, "memory-search", json!({"query": "flock geese"})).await?;
        Ok(found.to_string().contains(flock).then_some(()))
    };
    // A read side that was given the pool just now reads it from the store, until it is where its entity is.
    count(&lena, "flock first").await?;
    far.until("the read side is there", async || remembered("flock first").await).await?;
    note_commands(&cluster).await?;
    for round in 0..ROUNDS {
        count(&lena, &format!("flock {round}")).await?;
    }
    let read = bodies_read(&cluster).await?;
    ensure!(read < ROUNDS, "bodies of documents were read {read} times in {ROUNDS} rounds");
    far.until("the task is remembered with its words", async || remembered("flock 1").await).await
}

/// Makes a task, claims it and does it; each answer shows what was changed.
async fn count(lena: &Client, flock: &str) -> Result<()> {
    let text = format!("count {flock}");
    let made = ask(lena, "task-action", json!({"action": "create", "task": text})).await?;
    ensure!(made["task"]["task"] == json!(text), "{made}");
    let id = made["task"]["id"].clone();
    let claimed = ask(lena, "task-action", json!({"action": "claim", "taskId": id})).await?;
    ensure!(claimed["task"]["status"] == json!("in_progress"), "{claimed}");
    let done = json!({"taskId": id, "status": "completed", "output": "nineteen geese"});
    let done = ask(lena, "store-progress", done).await?;
    ensure!(done["task"]["output"] == json!("nineteen geese"), "{done}");
    Ok(())
}
