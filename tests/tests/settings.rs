//! Secrets of a swarm: what of them lies anywhere, and who can read them with which keys.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use skein_tests::cluster::Cluster;
use skein_tests::mcp::Client;
use skein_tests::up::{Folder, Up, binary, files_with};
use tokio::process::Command;

const HUSH: &str = "hush-hush-7f3a";
/// The file with the keys that seal.
const KEYS: &str = "secrets.json";

async fn ask(client: &Client, tool: &str, arguments: Value) -> Result<Value> {
    let answer = client.call(tool, arguments).await?;
    ensure!(answer["success"] == true, "{tool}: {answer}");
    Ok(answer)
}

async fn leading(up: &Up) -> Result<Client> {
    let lead = Client::new(&up.mcp, &up.token("lead", "lead").await?);
    ask(&lead, "join-swarm", json!({"name": "lead", "lead": true})).await?;
    Ok(lead)
}

fn secret(key: &str) -> Value {
    json!({"scope": "global", "key": key, "value": HUSH, "isSecret": true, "idempotency_key": key})
}

/// The values with their keys, the secrets in plain text.
async fn values(lead: &Client) -> Result<Vec<String>> {
    let found = ask(lead, "get-config", json!({"includeSecrets": true})).await?;
    let text = |config: &Value, field: &str| config[field].as_str().unwrap_or_default().to_owned();
    let configs = found["configs"].as_array().into_iter().flatten();
    Ok(configs.map(|config| format!("{}={}", text(config, "key"), text(config, "value"))).collect())
}

/// The keys with what each does, and how many secrets it has sealed.
async fn keys(up: &Up) -> Result<Vec<(String, String, u64)>> {
    let printed = up.skein(&["secrets", "keys", "--json"]).await?;
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line)?;
        let text = |field: &str| row[field].as_str().map(str::to_owned).context("a field is missing");
        Ok((text("key")?, text("state")?, row["secrets"].as_u64().unwrap_or_default()))
    };
    printed.lines().map(row).collect()
}

fn states(keys: &[(String, String, u64)]) -> Vec<(&str, u64)> {
    keys.iter().map(|(_, state, secrets)| (state.as_str(), *secrets)).collect()
}

async fn told(up: &Up, order: &str) -> Result<Value> {
    Ok(serde_json::from_str(&up.skein(&["secrets", order, "--json"]).await?)?)
}

#[tokio::test]
async fn a_secret_lies_nowhere_in_plain_text_and_outlives_its_node() -> Result<()> {
    let up = Up::start().await?;
    let lead = leading(&up).await?;
    let worker = Client::new(&up.mcp, &up.token("worker", "worker").await?);
    ask(&lead, "set-config", secret("TOKEN")).await?;
    ask(&lead, "set-config", secret("GONE")).await?;
    ask(&lead, "set-config", secret("TOKEN")).await?;
    ensure!(values(&lead).await? == [format!("GONE={HUSH}"), format!("TOKEN={HUSH}")]);
    // What is refused is not written down either.
    let mut reused = secret("TOKEN");
    reused["description"] = json!("other");
    ensure!(lead.call("set-config", reused).await?["code"] == "idempotency_key_reused");
    ensure!(worker.call("set-config", secret("OTHER")).await?["code"] == "forbidden");
    ensure!(lead.call("set-config", secret("API_KEY")).await?["code"] == "invalid_argument");
    let gone = ask(&lead, "list-config", json!({"key": "GONE"})).await?;
    ask(&lead, "delete-config", json!({"id": gone["configs"][0]["id"]})).await?;

    let copy = up.folder.path().join("copy.db").to_string_lossy().into_owned();
    up.skein(&["backup", &copy]).await?;
    let events = up.skein(&["events"]).await?;
    ensure!(events.contains("setting_set") && !events.contains(HUSH), "{events}");
    let metrics = reqwest::get(up.mcp.replace("/mcp", "/metrics")).await?.text().await?;
    ensure!(metrics.contains("skein_") && !metrics.contains(HUSH));

    let folder = up.terminate().await?;
    let exported = folder.path().join("state.jsonl");
    let mut export = Command::new(binary("skein"));
    export.arg("export").arg(&exported).arg("--data").arg(folder.data());
    ensure!(export.status().await?.success());
    ensure!(std::fs::read_to_string(&exported)?.contains("TOKEN"));
    ensure!(files_with(folder.path(), HUSH)?.is_empty());

    let up = Up::start_in(folder, &["--no-runner"]).await?;
    ensure!(values(&lead.at(&up.mcp)).await? == [format!("TOKEN={HUSH}")]);
    Ok(())
}

#[tokio::test]
async fn what_was_exported_opens_where_its_keys_are_and_says_what_is_missing_elsewhere() -> Result<()> {
    let up = Up::start().await?;
    let lead = leading(&up).await?;
    ask(&lead, "set-config", secret("TOKEN")).await?;
    ask(&lead, "set-config", json!({"scope": "global", "key": "MODEL", "value": "opus"})).await?;
    let old = up.terminate().await?;
    let state = old.path().join("state.jsonl");
    let transfer = async |command: &str, folder: &Folder| {
        let mut run = Command::new(binary("skein"));
        run.arg(command).arg(&state).arg("--data").arg(folder.data());
        ensure!(run.status().await?.success(), "{command}");
        anyhow::Ok(())
    };
    transfer("export", &old).await?;
    for (files, wanted) in [
        (&["keys.json", KEYS][..], ["MODEL=opus", "TOKEN=hush-hush-7f3a"]),
        (&["keys.json"][..], ["MODEL=opus", "TOKEN=********"]),
    ] {
        let folder = Folder::new()?;
        std::fs::create_dir(folder.data())?;
        for file in files {
            std::fs::copy(old.data().join(file), folder.data().join(file))?;
        }
        transfer("import", &folder).await?;
        let up = Up::start_in(folder, &["--no-runner"]).await?;
        let lead = lead.at(&up.mcp);
        ensure!(values(&lead).await? == wanted, "{files:?}");
        let found = ask(&lead, "list-config", json!({"key": "TOKEN", "includeSecrets": true})).await?;
        let problem = found["configs"][0]["problem"].as_str();
        ensure!(
            problem.is_some_and(|text| text.contains("put that key back")) == (files.len() == 1),
            "{found}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn keys_are_replaced_while_the_node_works_and_old_ones_dropped() -> Result<()> {
    let up = Up::start().await?;
    let lead = leading(&up).await?;
    ask(&lead, "set-config", secret("A")).await?;
    ask(&lead, "set-config", secret("B")).await?;
    let before = keys(&up).await?;
    ensure!(states(&before) == [("seals", 2)], "{before:?}");
    let rotated = told(&up, "rotate").await?;
    ensure!((&rotated["sealedAnew"], &rotated["unreadable"]) == (&json!(2), &json!(0)), "{rotated}");
    let after = keys(&up).await?;
    ensure!(states(&after) == [("seals", 2), ("opens", 0)] && after[1].0 == before[0].0, "{after:?}");
    ask(&lead, "set-config", secret("C")).await?;
    let both = [format!("A={HUSH}"), format!("B={HUSH}"), format!("C={HUSH}")];
    ensure!(values(&lead).await? == both);
    ensure!(told(&up, "drop").await?["dropped"] == json!([before[0].0]));
    ensure!(states(&keys(&up).await?) == [("seals", 3)]);

    // From now on the environment gives the key, and the file's only opens.
    let folder = up.kill().await?.with_variable("SECRETS_ENCRYPTION_KEY", &"0a".repeat(32));
    let up = Up::start_in(folder, &["--no-runner"]).await?;
    let lead = lead.at(&up.mcp);
    ensure!(values(&lead).await? == both);
    ensure!(states(&keys(&up).await?) == [("seals", 0), ("opens", 3)]);
    ensure!(told(&up, "rotate").await?["sealedAnew"] == 3);
    std::fs::remove_file(up.data().join(KEYS))?;
    let up = Up::start_in(up.kill().await?, &["--no-runner"]).await?;
    ensure!(values(&lead.at(&up.mcp)).await? == both);
    ensure!(!up.data().join(KEYS).exists(), "a key that nobody needs was made");
    let refused = up.run(&["secrets", "add"]).await?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.status.code() == Some(5) && said.contains("SECRETS_ENCRYPTION_KEY"), "{said}");
    ensure!(files_with(up.folder.path(), HUSH)?.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn coordinators_share_keys_and_get_a_new_one_before_it_seals() -> Result<()> {
    let (cluster, first) = Cluster::start("lease = \"2s\"\nsettle = \"1s\"").await?;
    let second = cluster.join().await?;
    let lead = leading(&first).await?;
    ask(&lead, "set-config", secret("A")).await?;
    let elsewhere = lead.at(&second.mcp);
    ensure!(values(&elsewhere).await? == [format!("A={HUSH}")]);
    let refused = first.run(&["secrets", "rotate"]).await?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.status.code() == Some(5) && said.contains("skein secrets add"), "{said}");

    let copy = || std::fs::copy(first.data().join(KEYS), second.data().join(KEYS));
    told(&first, "add").await?;
    copy()?;
    ensure!(told(&first, "rotate").await?["sealedAnew"] == 1);
    ask(&elsewhere, "set-config", secret("B")).await?;
    let both = [format!("A={HUSH}"), format!("B={HUSH}")];
    ensure!(values(&lead).await? == both && values(&elsewhere).await? == both);
    // The other still seals with the old key, until it has the order of the first.
    copy()?;
    told(&first, "drop").await?;
    copy()?;
    ensure!(values(&elsewhere).await? == both);
    ensure!(states(&keys(&second).await?) == [("seals", 2)]);
    Ok(())
}
