//! The command line as an operator uses it: tables and JSON, exit codes, and refusals that say what to do.

#[path = "cli/people.rs"]
mod people;
#[path = "cli/unread.rs"]
mod unread;

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Value, json};
use skein_coordinator::cluster::member::FORMAT;
use skein_coordinator::entity::Clock;
use skein_coordinator::store::sqlite::Sqlite;
use skein_shared::time::Timestamp;
use skein_tests::mcp::Client;
use skein_tests::up::{Folder, Up, binary};
use tokio::process::Command;

const NOBODY: &str = "00000000-0000-4000-8000-00000000dead";

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs the command and expects this exit code and this in what it says.
async fn refused(up: &Up, arguments: &[&str], code: i32, word: &str) -> Result<()> {
    let output = up.run(arguments).await?;
    let said = said(&output);
    ensure!(output.status.code() == Some(code), "{arguments:?} ended with {}: {said}", output.status);
    ensure!(said.contains(word), "{arguments:?} does not say {word:?}: {said}");
    ensure!(output.stdout.is_empty(), "{arguments:?} printed a refusal on stdout");
    Ok(())
}

/// Starts a node that cannot start and gives what came of it.
async fn fails_to_start(folder: &Folder) -> Result<Output> {
    Ok(Command::new(binary("skein")).args(["up", "--data"]).arg(folder.data()).output().await?)
}

#[tokio::test]
async fn a_node_that_is_ready_ends_cleanly_when_it_is_asked_to() -> Result<()> {
    let mut folder = Folder::new()?;
    // The moment after it has said that it is ready.
    for _ in 0..3 {
        folder = Up::start_in(folder, &["--no-runner"]).await?.terminate().await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_version_names_the_format_of_a_clusters_nodes() -> Result<()> {
    let output = Command::new(binary("skein")).arg("--version").output().await?;
    let said = String::from_utf8(output.stdout)?;
    ensure!(said.starts_with(&format!("skein {}\n", env!("CARGO_PKG_VERSION"))), "{said}");
    ensure!(said.contains(&format!("format of a cluster's nodes: {FORMAT}")), "{said}");
    Ok(())
}

#[tokio::test]
async fn refusals_have_their_exit_code_and_say_what_to_do() -> Result<()> {
    let up = Up::start().await?;
    let ending: [(&[&str], i32, &str); 25] = [
        (&["task", "show", NOBODY], 4, "no task"),
        (&["task", "show", "1"], 2, "an id is a whole UUID"),
        (&["task", "cancel", NOBODY], 4, "no live task"),
        (&["task", "create", "x", "--priority", "101"], 2, "0..=100"),
        (&["task", "create", ""], 2, "say what is to be done"),
        (&["task", "create", "x", "--depends-on", "zzz"], 2, "--depends-on"),
        (&["task", "create", "x", "--swarm", "typo"], 4, "skein swarm create typo"),
        (&["tasks", "list", "--swarm", "typo"], 4, "skein swarm create typo"),
        (&["events", "--swarm", "typo"], 4, "skein swarm create typo"),
        (&["console", "--swarm", "typo"], 4, "skein swarm list"),
        (&["agents", "list", "--swarm", "Not A Name"], 2, "not a name"),
        (&["swarm", "create", "Not A Name"], 2, "not a name"),
        (&["swarm", "create", "default"], 5, "already"),
        (&["agent", "run", "nobody"], 4, "no agent"),
        (&["agent", "history", "nobody"], 4, "no agent"),
        (&["agent", "history", "nobody", "--json"], 4, "no agent"),
        (&["agent", "logs", "nobody"], 4, "no run of an agent"),
        (&["agent", "logs", "nobody", "--grep", "["], 2, "unclosed character class"),
        (&["token", "issue", "--role", "boss", "--name", "x"], 2, "lead, worker"),
        (&["token", "issue", "--role", "worker", "--name", "a b"], 2, "not a name"),
        (&["token", "issue", "--role", "worker", "--name", "a", "--agent", "zz"], 2, "--agent"),
        (&["token", "issue", "--role", "worker", "--name", "a", "--lifetime", "soon"], 2, "30d"),
        (&["token", "issue", "--role", "worker", "--name", "a", "--lifetime", "0s"], 2, "30d"),
        (&["mcp-config", "--client", "claude", "--role", "runner"], 2, "a lead, a worker or an observer"),
        (&["backup", "/no/such/folder/copy.db"], 2, "make the folder"),
    ];
    for (arguments, code, word) in ending {
        refused(&up, arguments, code, word).await?;
    }
    Ok(())
}

/// Dead letters are what agents were to do; those of a node are none.
#[tokio::test]
async fn a_status_names_effects_that_were_given_up_as_what_they_are() -> Result<()> {
    let up = Up::start().await?;
    let status: Value = serde_json::from_str(&up.skein(&["status", "--json"]).await?)?;
    ensure!(status["effectsGivenUp"] == 0 && status.get("deadLetters").is_none(), "{status}");
    Ok(())
}

/// A process that was stopped keeps its connections, and takes new ones.
#[tokio::test]
async fn a_node_that_stands_still_is_given_up() -> Result<()> {
    let up = Up::start().await?;
    up.freeze().await?;
    let waiting = tokio::time::timeout(Duration::from_secs(120), up.run(&["status"])).await;
    up.thaw()?;
    let output = waiting.context("it is waited for still")??;
    let said = said(&output);
    ensure!(output.status.code() == Some(6), "{}: {said}", output.status);
    ensure!(said.contains("the connection to the node broke"), "{said}");
    Ok(())
}

#[tokio::test]
async fn without_a_node_or_its_token_commands_say_so() -> Result<()> {
    let up = Up::start().await?;
    std::fs::write(up.data().join("operator.token"), "a.b.c\n")?;
    refused(&up, &["status"], 3, "token").await?;
    std::fs::remove_file(up.data().join("operator.token"))?;
    refused(&up, &["status"], 3, "operator.token").await?;
    let worker = up.token("worker", "w").await?;
    std::fs::write(up.data().join("operator.token"), worker)?;
    refused(&up, &["tasks", "list"], 3, "").await?;

    let folder = up.terminate().await?;
    let run = |arguments: &'static [&'static str]| {
        let data = folder.data();
        async move { Command::new(binary("skein")).args(arguments).arg("--data").arg(data).output().await }
    };
    for arguments in [&["status"][..], &["tasks", "list"], &["events", "--follow"], &["backup", "x.db"]] {
        let output = run(arguments).await?;
        ensure!(output.status.code() == Some(6), "{arguments:?} ended with {}", output.status);
        ensure!(said(&output).contains("--data or SKEIN_DATA"), "{arguments:?}: {}", said(&output));
    }
    // What is not there yet is most often another one that was not named.
    for command in ["status", "console"] {
        let output = Command::new(binary("skein")).arg(command).current_dir(folder.path()).output().await?;
        for word in ["--data or SKEIN_DATA", "`skein up --data .skein`"] {
            ensure!(said(&output).contains(word), "{command}: {}", said(&output));
        }
    }
    // An empty store would pass for a good copy of the one that was meant.
    let mistyped = ["export", "--data", "typo", "x.json"];
    let exported = Command::new(binary("skein")).args(mistyped).current_dir(folder.path()).output().await?;
    ensure!(
        exported.status.code() == Some(4) && said(&exported).contains("no store in typo"),
        "{exported:?}"
    );
    ensure!(!folder.path().join("typo").exists(), "a mistyped folder was made");
    // A signature needs no node.
    let issued = run(&["token", "issue", "--role", "worker", "--name", "w"]).await?;
    ensure!(issued.status.success(), "{}", said(&issued));
    Ok(())
}

/// What is hidden is not said to be missing.
#[tokio::test]
async fn who_may_not_look_into_the_data_folder_is_told_so() -> Result<()> {
    let folder = Folder::new()?;
    let (data, program) = (folder.data(), folder.path().join("skein"));
    // What another user may run has to lie where that user can read it.
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
    std::fs::copy(binary("skein"), &program)?;
    std::fs::create_dir(&data)?;
    std::fs::set_permissions(&data, Permissions::from_mode(0o0))?;
    // Nothing is hidden from root.
    let is_root = std::fs::metadata("/proc/self")?.uid() == 0;
    let commands: [&[&str]; 6] = [
        &["export", "x.jsonl"],
        &["credentials", "list"],
        &["credentials", "remove", "github_token"],
        &["credentials", "set", "github_token"],
        &["agent", "add", "dev", "--command", "true"],
        &["agent", "validate"],
    ];
    let mut ended = Vec::new();
    for arguments in commands {
        let mut command = Command::new(&program);
        command.args(arguments).arg("--data").arg(&data).current_dir(folder.path()).stdin(Stdio::null());
        if is_root {
            command.uid(65534).gid(65534);
        }
        ended.push((arguments, command.output().await?));
    }
    std::fs::set_permissions(&data, Permissions::from_mode(0o700))?;
    for (arguments, output) in ended {
        let said = said(&output);
        ensure!(output.status.code() == Some(3), "{arguments:?} ended with {}: {said}", output.status);
        ensure!(said.contains("run as the user who started the node"), "{arguments:?}: {said}");
    }
    Ok(())
}

#[tokio::test]
async fn every_list_is_a_table_for_people_and_lines_of_json_for_programs() -> Result<()> {
    let up = Up::start().await?;
    up.skein(&["swarm", "create", "build"]).await?;
    let swarms = up.skein(&["swarm", "list"]).await?;
    ensure!(swarms.contains("NAME") && swarms.contains("default") && swarms.contains("build"), "{swarms}");

    let created = up.skein(&["task", "create", "Write the notes", "--priority", "70", "--json"]).await?;
    let created: Value = serde_json::from_str(&created)?;
    let id = created["id"].as_str().context("a task has an id")?;
    let shown: Value = serde_json::from_str(&up.skein(&["task", "show", id, "--json"]).await?)?;
    ensure!(shown["priority"] == 70 && shown["status"] == "unassigned", "{shown}");
    let table = up.skein(&["tasks", "list"]).await?;
    ensure!(table.contains("PRIORITY") && table.contains("Write the notes"), "{table}");
    let elsewhere = up.skein(&["tasks", "list", "--swarm", "build", "--json"]).await?;
    ensure!(elsewhere.is_empty(), "a task shows in another swarm: {elsewhere}");
    let cancelled: Value =
        serde_json::from_str(&up.skein(&["task", "cancel", id, "--reason", "late", "--json"]).await?)?;
    ensure!(cancelled["status"] == "cancelled", "{cancelled}");
    refused(&up, &["task", "cancel", id], 5, "cancelled already").await?;

    for view in ["agents", "tasks", "locks", "calls", "waits", "instances", "runners"] {
        let table = up.skein(&[view, "list"]).await?;
        ensure!(table.lines().next().is_some_and(|heading| heading.len() > 3), "{view}: {table}");
        for line in up.skein(&[view, "list", "--json"]).await?.lines() {
            serde_json::from_str::<Value>(line).with_context(|| format!("{view}: {line}"))?;
        }
    }
    let status: Value = serde_json::from_str(&up.skein(&["status", "--json"]).await?)?;
    ensure!(status["swarms"] == json!(["build", "default"]), "{status}");
    let events = up.skein(&["events", "--json"]).await?;
    let named = |name: &str| {
        events
            .lines()
            .any(|line| serde_json::from_str::<Value>(line).is_ok_and(|event| event["event"] == name))
    };
    ensure!(named("created") && named("finished"), "{events}");
    Ok(())
}

/// More than one answer of the node holds.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_as_long_as_it_was_asked_for() -> Result<()> {
    const TASKS: usize = 1100;
    let up = Up::start().await?;
    let client = Client::new(&up.mcp, &up.token("worker", "w").await?);
    client.call("join-swarm", json!({"name": "w"})).await?;
    let make = async |number: usize| {
        let asked = json!({"action": "create", "task": format!("task {number}")});
        let made = client.call("task-action", asked).await?;
        Ok::<_, anyhow::Error>(made["task"]["id"].as_str().context("no id")?.to_owned())
    };
    let making = stream::iter(0..TASKS).map(make).buffer_unordered(32);
    let made: BTreeSet<String> = making.try_collect().await?;
    for limit in [TASKS - 50, TASKS, 20_000] {
        let printed = up.skein(&["tasks", "list", "--json", "--limit", &limit.to_string()]).await?;
        let rows = printed.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        let listed: BTreeSet<&str> = rows.iter().filter_map(|row| row["id"].as_str()).collect();
        let wanted = limit.min(TASKS);
        ensure!(rows.len() == wanted && listed.len() == wanted, "{limit} were asked for: {}", rows.len());
        ensure!(listed.iter().all(|task| made.contains(*task)), "a task is listed that was not made");
        let newest_first =
            |pair: &[Value]| pair[0]["lastUpdatedAt"].as_str() >= pair[1]["lastUpdatedAt"].as_str();
        ensure!(rows.windows(2).all(newest_first), "the list is out of order");
        let told = said(&up.run(&["tasks", "list", "--limit", &limit.to_string()]).await?);
        ensure!(told.contains("there are more than these") == (limit < TASKS), "{limit}: {told}");
    }
    let all = format!(
        "{} tasks list --json --limit 20000 --data {} | head -n 1",
        binary("skein").display(),
        up.data().display()
    );
    let read = Command::new("bash").args(["-o", "pipefail", "-c", &all]).output().await?;
    ensure!(
        read.status.success() && read.stderr.is_empty(),
        "who reads no more is no failure: {}",
        said(&read)
    );
    Ok(())
}

#[tokio::test]
async fn the_printed_configurations_reach_the_node() -> Result<()> {
    let up = Up::start().await?;
    let bearer = |value: &Value| {
        let text = value["headers"]["Authorization"].as_str().unwrap_or_default().to_owned();
        text.strip_prefix("Bearer ").map(str::to_owned).context("no bearer token")
    };
    let print = async |client: &str, name: &str| {
        up.skein(&["mcp-config", "--client", client, "--role", "worker", "--name", name]).await
    };
    let claude: Value = serde_json::from_str(&print("claude", "a").await?)?;
    let claude = &claude["mcpServers"]["skein"];
    let generic: Value = serde_json::from_str(&print("generic", "b").await?)?;
    // Codex takes the token from the environment: the line to paste into the shell stands in a comment.
    let codex = print("codex", "c").await?;
    let line = |start: &str| {
        let found =
            codex.lines().find_map(|line| line.strip_prefix(start)).map(|rest| rest.trim_matches('"'));
        found.map(str::to_owned).with_context(|| format!("no {start} in {codex}"))
    };
    let url = |value: &Value| value["url"].as_str().map(str::to_owned).context("no url");
    for (name, url, token) in [
        ("a", url(claude)?, bearer(claude)?),
        ("b", url(&generic)?, bearer(&generic)?),
        ("c", line("url = ")?, line("#   export SKEIN_TOKEN=")?),
    ] {
        let joined = Client::new(&url, &token).call("join-swarm", json!({"name": name})).await?;
        ensure!(joined["success"] == json!(true), "{name}: {joined}");
    }
    let agents = up.skein(&["agents", "list", "--json"]).await?;
    ensure!(agents.lines().count() == 3, "{agents}");
    // The next token of a name is for the agent that has it: nobody else could join under it.
    up.row("agents", |agent| agent["name"] == "b").await?;
    let next: Value = serde_json::from_str(&print("generic", "b").await?)?;
    let joined = Client::new(&url(&next)?, &bearer(&next)?).call("join-swarm", json!({"name": "b"})).await?;
    ensure!(joined["success"] == json!(true), "{joined}");
    let whose =
        ["--client", "generic", "--role", "worker", "--name", "d", "--agent", NOBODY, "--lifetime", "1h"];
    let given: Value = serde_json::from_str(&up.skein(&[&["mcp-config"], &whose[..]].concat()).await?)?;
    let joined =
        Client::new(&url(&given)?, &bearer(&given)?).call("join-swarm", json!({"name": "d"})).await?;
    ensure!(joined["agent"]["id"] == json!(NOBODY), "{joined}");
    // Without a node its id is not known, and a token needs none.
    let folder = up.terminate().await?;
    let mut command = Command::new(binary("skein"));
    command.args(["mcp-config", "--client", "generic", "--role", "worker", "--data"]).arg(folder.data());
    let offline = command.output().await?;
    ensure!(offline.status.success(), "{}", said(&offline));
    Ok(())
}

#[tokio::test]
async fn a_copy_made_at_work_opens_as_a_node_of_its_own() -> Result<()> {
    let up = Up::start().await?;
    for task in ["one", "two", "three"] {
        up.skein(&["task", "create", task]).await?;
    }
    let other = Folder::new()?;
    std::fs::create_dir(other.data())?;
    let file = other.data().join("store.db");
    let copy = file.to_str().context("a plain path")?;
    up.skein(&["backup", copy]).await?;
    refused(&up, &["backup", copy], 5, "choose a new name").await?;
    up.skein(&["task", "create", "later"]).await?;

    let second = Up::start_in(other, &["--no-runner"]).await?;
    let tasks = async |up: &Up| -> Result<Vec<(String, String)>> {
        let mut tasks = Vec::new();
        for line in up.skein(&["tasks", "list", "--json"]).await?.lines() {
            let task: Value = serde_json::from_str(line)?;
            tasks.push((task["task"].to_string(), task["id"].to_string()));
        }
        tasks.sort();
        Ok(tasks)
    };
    let mut before = tasks(&up).await?;
    before.retain(|(task, _)| task != "\"later\"");
    ensure!(before.len() == 3 && tasks(&second).await? == before, "{before:?}");
    Ok(())
}

#[tokio::test]
async fn a_misspelt_setting_keeps_the_node_from_starting() -> Result<()> {
    for (config, word) in [
        ("[retention]\nevnts = 3\n", "did you mean `events`"),
        ("[limits]\ndrain = \"soon\"\n", "limits.drain"),
        ("[runner]\nslots = 0\n", "runner.slots"),
        ("[limits.tools.send-tsk]\nat_a_time = 1\n", "did you mean `send-task`"),
        ("[store]\nredis = \"box:6379\"\n", "redis[s]://"),
        ("[[ingress.source]]\nname = \"hub\"\nprovider = \"github\"\n", "has no secret"),
        ("[[ingress.source]]\nname = \"hub\"\nprovider = \"gitlub\"\nsecret = \"x\"\n", "github"),
    ] {
        let output = fails_to_start(&Folder::new()?.configured(config)?).await?;
        ensure!(output.status.code() == Some(2), "{config} ended with {}: {}", output.status, said(&output));
        ensure!(said(&output).contains(word), "{config}: {}", said(&output));
    }
    Ok(())
}

#[tokio::test]
async fn a_wrong_definition_stops_no_other_agent() -> Result<()> {
    let folder = Folder::new()?.configured("[runner]\nswarms = [\"default\"]\n")?;
    for (name, text) in [
        ("misspelt", "comand = [\"true\"]"),
        ("foreign", "command = [\"true\"]\nswarm = \"ducks\""),
        ("good", "command = [\"sleep\", \"600\"]"),
    ] {
        let agent = folder.data().join("agents").join(name);
        std::fs::create_dir_all(&agent)?;
        std::fs::write(agent.join("agent.toml"), text)?;
    }
    let up = Up::start_in(folder, &[]).await?;
    let runner = up.row("runners", |runner| runner["state"] == "ready").await?;
    ensure!(runner["agents"] == json!(["default/good"]), "{runner}");
    let table = up.skein(&["runners", "list"]).await?;
    let row = table.lines().nth(1).unwrap_or_default();
    ensure!(row.trim_start().starts_with("local") && row.contains("default"), "{table}");
    up.has_logged("did you mean `command`").await?;
    up.has_logged("does not serve `ducks`").await?;
    refused(&up, &["agent", "run", "misspelt"], 4, "no agent").await?;
    let none = up.skein(&["agent", "history", "good"]).await?;
    ensure!(none.contains("STARTED") && none.lines().count() == 1, "it has not run yet: {none}");
    let run: Value = serde_json::from_str(&up.skein(&["agent", "run", "good", "--json"]).await?)?;
    up.row("instances", |row| row["instance"] == run["instance"] && row["state"] == "running").await?;
    Ok(())
}

#[tokio::test]
async fn what_is_past_its_limit_is_forgotten() -> Result<()> {
    let config = "[retention]\nevents = 2\narchived = \"1ms\"\nevery = \"1s\"\n";
    let up = Up::start_in(Folder::new()?.configured(config)?, &["--no-runner"]).await?;
    let keep: Value = serde_json::from_str(&up.skein(&["task", "create", "keep", "--json"]).await?)?;
    for task in ["one", "two", "three"] {
        let made: Value = serde_json::from_str(&up.skein(&["task", "create", task, "--json"]).await?)?;
        up.skein(&["task", "cancel", made["id"].as_str().context("id")?]).await?;
    }
    up.until("the ended tasks are forgotten", async || {
        let tasks = up.skein(&["tasks", "list", "--json"]).await?;
        Ok((tasks.lines().count() == 1).then_some(tasks))
    })
    .await?;
    let shown = up.skein(&["task", "show", keep["id"].as_str().context("id")?]).await?;
    ensure!(shown.contains("task: keep"), "a live task went too: {shown}");
    // The store itself holds no more of them than the read side shows.
    let store = rusqlite::Connection::open_with_flags(
        up.data().join("store.db"),
        rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY,
    )?;
    let left: i64 =
        store
            .query_row("SELECT count(*) FROM document WHERE document LIKE 'task/%'", [], |row| row.get(0))?;
    ensure!(left == 1, "{left} tasks are left in the store");
    Ok(())
}

/// As on a laptop whose clock was wrong for a while.
#[tokio::test]
async fn a_node_whose_clock_was_ahead_says_until_when_time_stands_still_and_works() -> Result<()> {
    let up = Up::start().await?;
    up.skein(&["task", "create", "before"]).await?;
    let folder = up.terminate().await?;
    let path = folder.data().join("store.db");
    // What waits in the journal comes to its place as the store opens.
    drop(Sqlite::open(&path, Clock::start().wall())?);
    let store = rusqlite::Connection::open(&path)?;
    let written = store.execute("UPDATE entity SET at = at + 86400000", [])?;
    let until: i64 = store.query_row("SELECT max(at) FROM entity", [], |row| row.get(0))?;
    drop(store);
    let up = Up::start_in(folder, &["--no-runner"]).await?;
    let status: Value = serde_json::from_str(&up.skein(&["status", "--json"]).await?)?;
    let alarm = &status["alarms"][0];
    ensure!(alarm["kind"] == "clock", "{status}");
    let said = alarm["problem"].as_str().context("it says nothing")?;
    let begins = format!("{written} of the store's entities were written by a clock that was ahead");
    ensure!(said.starts_with(&begins) && said.contains(&Timestamp(until.try_into()?).iso()), "{said}");
    up.skein(&["task", "create", "after"]).await?;
    ensure!(up.skein(&["tasks", "list", "--json"]).await?.lines().count() == 2);
    Ok(())
}

#[tokio::test]
async fn roles_are_served_as_named() -> Result<()> {
    let folder = Folder::new()?;
    let serve = async |roles: &str| {
        let mut command = Command::new(binary("skein"));
        command.args(["serve", "--roles", roles, "--data"]).arg(folder.data());
        command.output().await
    };
    let alone = serve("ingress").await?;
    ensure!(
        alone.status.code() == Some(2) && said(&alone).contains("coordinator,ingress"),
        "{}",
        said(&alone)
    );
    let mut elsewhere = Command::new(binary("skein"));
    elsewhere.args(["serve", "--redis", "http://:hush@box", "--data"]).arg(folder.data());
    let elsewhere = elsewhere.output().await?;
    ensure!(
        elsewhere.status.code() == Some(2)
            && said(&elsewhere).contains("--redis")
            && !said(&elsewhere).contains("hush"),
        "{}",
        said(&elsewhere)
    );
    let wrong = serve("cook").await?;
    ensure!(wrong.status.code() == Some(2) && said(&wrong).contains("ingress"), "{}", said(&wrong));

    let up = Up::serve_in(folder, &["--roles", "coordinator,ingress"]).await?;
    let (webhooks, runners) = (&up.ingress, up.skein(&["runners", "list", "--json"]).await?);
    ensure!(reqwest::get(format!("{webhooks}/healthz")).await?.status() == 200, "no ingress");
    ensure!(runners.is_empty(), "a runner was started: {runners}");
    up.terminate().await?;
    Ok(())
}
