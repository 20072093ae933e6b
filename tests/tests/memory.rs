//! What the swarm remembers is found by what it says and by what it means, with and without an endpoint that knows the
//! latter. Its part a stand-in takes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use skein_tests::embeddings::{Embeddings, KEY, Trouble};
use skein_tests::mcp::Client;
use skein_tests::up::{Folder, Up, binary, files_with};

/// How long something may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// A vector is kept a moment after it was given, which nothing announces.
const LOOK: Duration = Duration::from_millis(20);

/// A node with a lead and two workers.
struct Swarm {
    up: Up,
    lead: Client,
    anna: (Client, Value),
    ben: (Client, Value),
}

impl Swarm {
    async fn start(folder: Folder) -> Result<Self> {
        let up = Up::start_in(folder, &["--no-runner"]).await?;
        let lead = Client::new(&up.mcp, &up.token("lead", "lead").await?);
        lead.call("join-swarm", json!({"name": "lead", "lead": true})).await?;
        let (anna, ben) = (Self::worker(&up, "anna").await?, Self::worker(&up, "ben").await?);
        Ok(Self { up, lead, anna, ben })
    }

    async fn worker(up: &Up, name: &str) -> Result<(Client, Value)> {
        let client = Client::new(&up.mcp, &up.token("worker", name).await?);
        let joined = client.call("join-swarm", json!({"name": name})).await?;
        Ok((client, joined["agent"]["id"].clone()))
    }

    /// The same agents at a node that was started anew.
    async fn restarted(self, configuration: Option<String>) -> Result<Self> {
        let folder = self.up.kill().await?;
        if let Some(configuration) = configuration {
            std::fs::write(folder.data().join("config.toml"), configuration)?;
        }
        let up = Up::start_in(folder, &["--no-runner"]).await?;
        let at = |client: &Client| client.at(&up.mcp);
        let (lead, anna, ben) =
            (at(&self.lead), (at(&self.anna.0), self.anna.1), (at(&self.ben.0), self.ben.1));
        Ok(Self { up, lead, anna, ben })
    }

    async fn teach(&self, whom: &Value, learning: &str) -> Result<Value> {
        let arguments = json!({"agentId": whom, "learning": learning, "category": "preference"});
        self.lead.call("inject-learning", arguments).await
    }
}

fn folder(configuration: &str) -> Result<Folder> {
    Folder::new()?.with_variable("SKEIN_LOG", "debug,hyper_util=trace").configured(configuration)
}

async fn search(client: &Client, query: &str) -> Result<Value> {
    client.call("memory-search", json!({"query": query})).await
}

fn ids(found: &Value) -> Vec<&Value> {
    found["results"].as_array().into_iter().flatten().map(|row| &row["id"]).collect()
}

/// Waits until the best result is known to mean something like the query.
async fn meant(client: &Client, query: &str) -> Result<Value> {
    found_as(client, query, |best| best["similarity"].as_f64() > Some(0.2)).await
}

/// Waits until this learning is the best by its meaning: others may have their vectors sooner.
async fn is_meant(client: &Client, query: &str, learning: &Value) -> Result<()> {
    let is_it = |best: &Value| best["id"] == *learning && best["similarity"].as_f64() > Some(0.2);
    found_as(client, query, is_it).await.map(drop)
}

async fn found_as(client: &Client, query: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let looking = async {
        loop {
            let found = search(client, query).await?;
            if wanted(&found["results"][0]) {
                return anyhow::Ok(found);
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.with_context(|| format!("nothing means {query}"))?
}

fn said(found: &Value) -> &str {
    found["message"].as_str().unwrap_or_default()
}

/// The key is in no log, event or list; in the settings alone.
fn nowhere(up: &Up) -> Result<()> {
    ensure!(!up.log()?.contains(KEY), "the log has the key");
    let shown = files_with(&up.data(), KEY)?;
    let settings = |file: &String| file.ends_with("/config.toml");
    ensure!(shown.iter().all(settings), "{shown:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn learnings_are_found_by_words_without_an_endpoint() -> Result<()> {
    let swarm = Swarm::start(folder("")?).await?;
    let taught = swarm.teach(&swarm.anna.1, "the car needs fuel").await?;
    let again = swarm.teach(&swarm.anna.1, "The  car needs FUEL").await?;
    ensure!(again["memoryId"] == taught["memoryId"] && said(&again).contains("before"), "{again}");
    let bens = swarm.teach(&swarm.ben.1, "the car needs fuel").await?;
    ensure!(bens["memoryId"] != taught["memoryId"], "each is taught for himself");
    let found = search(&swarm.anna.0, "fuel").await?;
    ensure!(ids(&found) == [&taught["memoryId"]] && said(&found).contains("by words;"), "{found}");
    ensure!(found["results"][0].get("similarity").is_none(), "nobody knows what it means: {found}");
    ensure!(ids(&search(&swarm.lead, "fuel").await?).len() == 2, "the lead sees all");
    ensure!(ids(&search(&swarm.anna.0, "gasoline").await?).is_empty());
    let manual = json!({"query": "fuel", "source": "manual", "scope": "agent", "limit": 1});
    ensure!(ids(&swarm.anna.0.call("memory-search", manual).await?).len() == 1);
    let tasks = json!({"query": "fuel", "source": "task_completion"});
    ensure!(ids(&swarm.anna.0.call("memory-search", tasks).await?).is_empty());
    let shared = json!({"query": "fuel", "scope": "swarm"});
    ensure!(ids(&swarm.anna.0.call("memory-search", shared).await?).is_empty());
    for limit in [0, 51] {
        let bad = swarm.anna.0.call("memory-search", json!({"query": "fuel", "limit": limit})).await;
        ensure!(bad.is_err(), "a limit of {limit}: {bad:?}");
    }
    let get = async || swarm.anna.0.call("memory-get", json!({"memoryId": taught["memoryId"]})).await;
    let (first, again) = (get().await?, get().await?);
    let accessed = |read: &Value| read["memory"]["accessedAt"].as_str().map(str::to_owned);
    ensure!(accessed(&first).is_some() && accessed(&again) > accessed(&first), "{first} {again}");
    let hidden = swarm.anna.0.call("memory-get", json!({"memoryId": bens["memoryId"]})).await?;
    ensure!(hidden["success"] == false && hidden["code"] == "not_found", "{hidden}");
    Ok(())
}

/// Whoever got no answer sends it again.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_has_forgotten_is_told_again_under_its_key() -> Result<()> {
    let swarm = Swarm::start(folder("")?).await?;
    let taught = swarm.teach(&swarm.anna.1, "the car needs fuel").await?;
    let others = swarm.teach(&swarm.ben.1, "the boat needs wind").await?;
    let forget = async |memory: &Value, key: &str| {
        let memory = memory["memoryId"].as_str().unwrap_or_default();
        swarm.up.skein(&["memory", "forget", memory, "--idempotency-key", key]).await
    };
    let first = forget(&taught, "one").await?;
    ensure!(ids(&search(&swarm.anna.0, "fuel").await?).is_empty());
    ensure!(forget(&taught, "one").await? == first, "{first}");
    ensure!(forget(&taught, "two").await.is_err(), "it is gone, and this is another request");
    ensure!(forget(&others, "one").await.is_err(), "the key is of another request");
    ensure!(ids(&search(&swarm.ben.0, "wind").await?) == [&others["memoryId"]]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn learnings_are_found_by_what_they_mean_and_by_those_alone_who_may() -> Result<()> {
    let endpoint = Embeddings::start().await?;
    let swarm = Swarm::start(folder(&endpoint.configuration("small"))?).await?;
    let taught = swarm.teach(&swarm.anna.1, "an automobile needs petrol").await?;
    ensure!(ids(&search(&swarm.anna.0, "petrol").await?) == [&taught["memoryId"]], "at once, by its words");
    let found = meant(&swarm.anna.0, "fuel for a car").await?;
    ensure!(ids(&found) == [&taught["memoryId"]] && said(&found).contains("words and meaning"), "{found}");

    ensure!(ids(&search(&swarm.ben.0, "fuel for a car").await?).is_empty(), "it is Anna's");
    ensure!(ids(&search(&swarm.lead, "fuel for a car").await?) == [&taught["memoryId"]]);
    let issue = ["token", "issue", "--role", "lead", "--name", "lead", "--swarm", "other"];
    let token = swarm.up.skein(&issue).await?.lines().last().unwrap_or_default().to_owned();
    let stranger = Client::new(&swarm.up.mcp, &token);
    stranger.call("join-swarm", json!({"name": "lead", "lead": true})).await?;
    ensure!(ids(&search(&stranger, "fuel for a car").await?).is_empty(), "it is another swarm's");

    // What tasks leave behind is learnt too.
    let make = json!({"action": "create", "task": "measure how much gasoline the vehicle burns"});
    let made = swarm.ben.0.call("task-action", make).await?;
    let task = &made["task"]["id"];
    swarm.ben.0.call("task-action", json!({"action": "claim", "taskId": task})).await?;
    let done = json!({"taskId": task, "status": "completed", "output": "seven litres"});
    swarm.ben.0.call("store-progress", done).await?;
    let found = meant(&swarm.ben.0, "car fuel").await?;
    ensure!(found["results"][0]["source"] == "task_completion", "{found}");

    // Both survive the end of the process, and nobody is asked for them again.
    endpoint.until_answered("gasoline").await;
    let before = endpoint.answered().iter().filter(|text| text.contains("petrol")).count();
    let swarm = swarm.restarted(None).await?;
    ensure!(ids(&meant(&swarm.anna.0, "fuel for a car").await?) == [&taught["memoryId"]]);
    let after = endpoint.answered().iter().filter(|text| text.contains("petrol")).count();
    ensure!(before == after, "{:?}", endpoint.answered());
    ensure!(endpoint.faults().is_empty(), "{:?}", endpoint.faults());
    nowhere(&swarm.up)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_fails_holds_nothing_up() -> Result<()> {
    let endpoint = Embeddings::start().await?;
    endpoint.trouble(Trouble::Silent);
    let swarm = Swarm::start(folder(&endpoint.configuration("small"))?).await?;
    let taught = swarm.teach(&swarm.anna.1, "an automobile needs petrol").await?;
    let found = search(&swarm.anna.0, "petrol").await?;
    ensure!(
        ids(&found) == [&taught["memoryId"]] && said(&found).contains("by words alone, since"),
        "{found}"
    );
    for trouble in [Trouble::Down, Trouble::Garbage] {
        endpoint.trouble(trouble);
        let found = search(&swarm.anna.0, "petrol").await?;
        ensure!(ids(&found) == [&taught["memoryId"]] && said(&found).contains("alone"), "{found}");
    }
    // A node that is started while it fails does without, and makes up for it.
    let swarm = swarm.restarted(None).await?;
    endpoint.until_asked("automobile", 2).await;
    ensure!(ids(&search(&swarm.anna.0, "petrol").await?) == [&taught["memoryId"]]);
    // Whether an endpoint fails is known once it was asked twice.
    swarm.up.has_logged("learnings wait for their vectors").await?;
    endpoint.trouble(Trouble::None);
    meant(&swarm.anna.0, "fuel for a car").await?;
    nowhere(&swarm.up)
}

/// Waits until so many learnings were given up, which the log alone tells.
async fn given_up(up: &Up, count: usize) -> Result<()> {
    let looking = async {
        while up.log()?.matches("a learning gets no vector").count() < count {
            tokio::time::sleep(LOOK).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, looking).await.context("it is never given up")?
}

#[tokio::test(flavor = "multi_thread")]
async fn one_text_that_the_endpoint_does_not_take_holds_up_no_other() -> Result<()> {
    let endpoint = Embeddings::start().await?;
    endpoint.trouble(Trouble::Down);
    let swarm = Swarm::start(folder(&endpoint.configuration("small"))?).await?;
    swarm.teach(&swarm.anna.1, "never say poison").await?;
    swarm.teach(&swarm.anna.1, "an automobile needs petrol").await?;
    endpoint.trouble(Trouble::Refuses("poison"));
    meant(&swarm.anna.0, "fuel for a car").await?;
    given_up(&swarm.up, 1).await?;
    endpoint.trouble(Trouble::FailsAt("plague"));
    swarm.teach(&swarm.anna.1, "the plague comes by ship").await?;
    swarm.teach(&swarm.anna.1, "geese fly in formation").await?;
    meant(&swarm.anna.0, "formation of geese").await?;
    given_up(&swarm.up, 2).await?;
    endpoint.trouble(Trouble::None);
    ensure!(!ids(&search(&swarm.anna.0, "plague").await?).is_empty(), "words find it");
    nowhere(&swarm.up)
}

/// As one does whose budget is spent, or that knows no `dimensions`.
#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_refuses_every_text_is_to_blame_itself_and_none_is_given_up() -> Result<()> {
    let endpoint = Embeddings::start().await?;
    endpoint.trouble(Trouble::Refuses(""));
    let swarm = Swarm::start(folder(&endpoint.configuration("small"))?).await?;
    swarm.teach(&swarm.anna.1, "an automobile needs petrol").await?;
    swarm.teach(&swarm.anna.1, "geese fly in formation").await?;
    swarm.up.has_logged("learnings wait for their vectors").await?;
    endpoint.until_asked("petrol", 3).await;
    endpoint.trouble(Trouble::None);
    meant(&swarm.anna.0, "fuel for a car").await?;
    meant(&swarm.anna.0, "formation of geese").await?;
    ensure!(!swarm.up.log()?.contains("a learning gets no vector"), "{}", swarm.up.log()?);
    nowhere(&swarm.up)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_comes_later_learns_what_was_known_before() -> Result<()> {
    let endpoint = Embeddings::start().await?;
    let swarm = Swarm::start(folder("")?).await?;
    // More than one request has room for.
    for number in 0..40 {
        swarm.teach(&swarm.anna.1, &format!("lesson {number} of many")).await?;
    }
    let taught = swarm.teach(&swarm.anna.1, "an automobile needs petrol").await?;
    let swarm = swarm.restarted(Some(endpoint.configuration("small"))).await?;
    is_meant(&swarm.anna.0, "fuel for a car", &taught["memoryId"]).await?;
    let swarm = swarm.restarted(Some(endpoint.configuration("large"))).await?;
    is_meant(&swarm.anna.0, "fuel for a car", &taught["memoryId"]).await?;
    let times = endpoint.answered().iter().filter(|text| text.contains("petrol")).count();
    ensure!(times == 2, "once for each model: {times}");

    // What was embedded goes where the swarm goes.
    let home = swarm.up.terminate().await?;
    let file = home.path().join("state.jsonl").to_string_lossy().into_owned();
    let run = async |folder: &Folder, arguments: &[&str]| -> Result<()> {
        let mut command = tokio::process::Command::new(binary("skein"));
        let output = command.args(arguments).arg("--data").arg(folder.data()).output().await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    };
    run(&home, &["export", &file]).await?;
    ensure!(!std::fs::read_to_string(&file)?.contains(KEY));
    let away = folder(&endpoint.configuration("large"))?;
    for entry in std::fs::read_dir(home.data())? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().contains("key") {
            std::fs::copy(entry.path(), away.data().join(entry.file_name()))?;
        }
    }
    run(&away, &["import", &file]).await?;
    let up = Up::start_in(away, &["--no-runner"]).await?;
    is_meant(&swarm.anna.0.at(&up.mcp), "fuel for a car", &taught["memoryId"]).await?;
    let times = endpoint.answered().iter().filter(|text| text.contains("petrol")).count();
    ensure!(times == 2, "its vector came with it");
    Ok(())
}
