//! Agents as people define them, and change them while their runner runs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use skein_runner::container::Isolation;
use skein_tests::stage::Stage;
use skein_tests::up::{Folder, Up, binary};
use skein_tests::webhook::event;
use tokio::process::Command;

#[tokio::test]
async fn agents_come_change_and_go_while_the_runner_runs() -> Result<()> {
    let stage = Stage::new(3)?.agent("one", "", &["hold"])?.start().await?;
    let first = stage.run("one").await?;

    // Another agent comes.
    let stage = stage.agent("two", "", &["hold"])?;
    stage.until("the new agent is known", async || Ok(stage.run("two").await.is_ok())).await?;
    ensure!(stage.state(&first).await? == "running", "the others are left alone");

    // One that changes does so for its next run.
    let stage = stage.agent("one", "instances = 2\nautostart = true", &["tree", "hold"])?;
    let told = |stage: &Stage| stage.log().matches("a runner says anew what it is").count();
    stage.until("the change is known", async || Ok(told(&stage) >= 2)).await?;
    let second = stage.run("one").await?;
    // Only the second run has a tree.
    stage.answer("one", "tree").await?;

    // A mistake changes nothing.
    fs::write(stage.data().join("agents/one/agent.toml"), "comand = [\"sh\"]")?;
    stage.until("the mistake is told", async || Ok(stage.log().contains("did you mean `command`"))).await?;
    ensure!(stage.state(&second).await? == "running", "a slip of the pen ended a run");

    // An agent that goes takes its runs with it.
    fs::remove_dir_all(stage.data().join("agents/one"))?;
    for instance in [&first, &second] {
        ensure!(stage.ends(instance).await? == "killed", "{instance} was not killed");
    }
    let refused = stage.up().skein(&["agent", "run", "one"]).await.unwrap_err().to_string();
    ensure!(refused.contains("no agent one"), "{refused}");
    ensure!(stage.list("runners").await?.len() == 1, "the runner is not there any more");
    Ok(())
}

#[tokio::test]
async fn an_agent_that_is_gone_after_a_restart_is_gone_for_good() -> Result<()> {
    let stage = Stage::new(2)?.agent("one", "", &[])?.agent("two", "", &[])?.start().await?;
    stage.run("one").await?;
    let stage = stage.terminate().await?;
    fs::remove_dir_all(stage.data().join("agents/one"))?;
    let stage = stage.start().await?;
    stage.run("two").await?;
    let refused = stage.up().skein(&["agent", "run", "one"]).await.unwrap_err().to_string();
    ensure!(refused.contains("no agent one"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn an_agent_that_moves_to_another_swarm_is_gone_from_the_one_that_it_was_in() -> Result<()> {
    let keys = "schedule = \"0 9 * * *\"\nsubscriptions = [{ source = \"github\", event = \"push\" }]";
    let stage = Stage::new(2)?.agent("dev", keys, &["hold"])?.start().await?;
    let first = stage.run("dev").await?;
    let schedules = ["tools", "call", "list-schedules", "--role", "observer", "--json"];
    let listed = stage.up().skein(&schedules).await?;
    ensure!(listed.contains("agent dev"), "{listed}");
    stage.up().skein(&["swarm", "create", "other"]).await?;
    let stage = stage.agent("dev", &format!("swarm = \"other\"\n{keys}"), &["hold"])?;
    ensure!(stage.ends(&first).await? == "killed", "its run goes on");
    let refused = stage.up().skein(&["agent", "run", "dev"]).await.unwrap_err().to_string();
    ensure!(refused.contains("no agent dev"), "{refused}");
    let left = stage.up().skein(&schedules).await?;
    ensure!(!left.contains("agent dev"), "{left}");
    ensure!(stage.push("d-1", &event(1)).await?["matched"] == 0, "it is started by what it hears no more");
    stage.up().skein(&["agent", "run", "dev", "--swarm", "other"]).await?;
    Ok(())
}

#[tokio::test]
async fn an_agent_runs_at_the_times_of_its_definition() -> Result<()> {
    let keys = "schedule = \"* * * * * *\"\nparams = { team = \"core\" }";
    let stage = Stage::new(1)?.agent("clock", keys, &["environment"])?;
    fs::write(stage.data().join("agents/clock/SKILL.md"), "---\nname: clock\n---\n\nTell the time.\n")?;
    let stage = stage.start().await?;
    stage.until("it has run twice", async || Ok(stage.answers("clock", "start")?.len() >= 2)).await?;
    let (_, input) = stage.answers("clock", "start")?.remove(0);
    ensure!(input["type"] == "schedule" && input["schedule"] == "agent clock", "{input}");
    let (_, environment) = stage.answers("clock", "environment")?.remove(0);
    ensure!(environment["SKEIN_INSTRUCTIONS"] == "Tell the time.", "{environment}");
    ensure!(environment["SKEIN_PARAMS"] == r#"{"team":"core"}"#, "{environment}");
    Ok(())
}

#[tokio::test]
async fn agents_are_added_by_a_program_from_a_folder_and_from_a_repository() -> Result<()> {
    let stage = Stage::new(1)?.start().await?;
    let skein = async |line: &[&str]| stage.up().skein(line).await;
    let line = ["agent", "add", "greeter", "--command", "sh", "--command", "-c", "--command", "echo $0"];
    let more = ["--schedule", "0 9 * * *", "--credential", "github_token:acme"];
    stage.up().skein_with(&["credentials", "set", "github_token:acme"], "s3cret").await?;
    skein(&[&line[..], &more].concat()).await?;
    let written = fs::read_to_string(stage.data().join("agents/greeter/agent.toml"))?;
    let asked = ["schedule = \"0 9 * * *\"", "credentials = [\"github_token:acme\"]"];
    ensure!(asked.iter().all(|line| written.contains(line)), "{written}");
    let twice = skein(&["agent", "add", "greeter", "--command", "sh"]).await.unwrap_err().to_string();
    ensure!(twice.contains("there is an agent greeter"), "{twice}");
    // Whoever adds one has waited until it is known.
    skein(&["agent", "run", "greeter"]).await?;

    // A collection as others publish it, of which one agent has no program yet.
    let collection = tempfile::tempdir()?;
    for (file, text) in [
        ("skills/dev/SKILL.md", "---\nname: dev\n---\n\nMend bugs.\n"),
        (
            "skills/dev/config.toml",
            "scale = 2\nsource = \"elsewhere\"\ncredentials = [\"a\"]\n[params]\nteam = \"core\"\n",
        ),
        ("skills/dev/tools/check.sh", "true\n"),
        ("README.md", "A collection.\n"),
    ] {
        let file = collection.path().join(file);
        fs::create_dir_all(file.parent().context("it lies in a folder")?)?;
        fs::write(file, text)?;
    }
    let folder = collection.path().to_str().context("the folder's name is no text")?;
    let unfinished = skein(&["agent", "add", "dev", "--from", folder]).await.unwrap_err().to_string();
    ensure!(unfinished.contains("nothing was added: config.toml: command: missing"), "{unfinished}");
    ensure!(!stage.data().join("agents/dev").exists(), "something was added");
    let absent = skein(&["agent", "add", "nobody", "--from", folder]).await.unwrap_err().to_string();
    ensure!(absent.contains("has no agent nobody"), "{absent}");
    // A program of one's own takes the place of a harness, of ours or of anybody's.
    let published = collection.path().join("skills/dev/config.toml");
    let there = fs::read_to_string(&published)?;
    fs::write(&published, format!("harness = \"pi\"\nmodel = \"x\"\n{there}"))?;
    skein(&["agent", "add", "dev", "--from", folder, "--command", "true"]).await?;
    ensure!(stage.data().join("agents/dev/tools/check.sh").is_file(), "its files are not all there");

    for line in [
        &["init", "--quiet"][..],
        &["add", "."],
        &["-c", "user.name=t", "-c", "user.email=t@t", "commit", "--quiet", "-m", "agents"],
    ] {
        let ran = Command::new("git").current_dir(collection.path()).args(line).status().await?;
        ensure!(ran.success(), "git {line:?}");
    }
    fs::rename(stage.data().join("agents/dev"), collection.path().join("before"))?;
    let url = format!("file://{folder}");
    let asked = ["--command", "true", "--credential", "b", "--json"];
    skein(&[&["agent", "add", "dev", "--from", &url][..], &asked].concat()).await?;
    let settings = fs::read_to_string(stage.data().join("agents/dev/config.toml"))?;
    let source = format!("source = \"{url}\"");
    let whole = [source.as_str(), "credentials = [\"b\"]", "scale = 2", "[params]\nteam = \"core\""];
    ensure!(whole.iter().all(|line| settings.contains(line)), "{settings}");
    ensure!(!["elsewhere", "harness", "model"].iter().any(|gone| settings.contains(gone)), "{settings}");
    let gone = skein(&["agent", "add", "other", "--from", "file:///nowhere"]).await.unwrap_err().to_string();
    ensure!(gone.contains("git cannot fetch it"), "{gone}");
    let closed = ["agent", "add", "other", "--from", "http://me:s3cret@127.0.0.1:1/agents"];
    let closed = String::from_utf8(stage.up().run(&closed).await?.stderr)?;
    ensure!(closed.contains("//127.0.0.1:1/agents") && !closed.contains("s3cret"), "{closed}");

    let good = skein(&["agent", "validate", "--json"]).await?;
    ensure!(good.lines().count() == 2 && !good.contains("problem"), "{good}");
    fs::write(stage.data().join("agents/greeter/agent.toml"), "comand = [\"sh\"]")?;
    let output = stage.up().run(&["agent", "validate"]).await?;
    let (told, why) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    ensure!(!output.status.success() && told.contains("did you mean `command`"), "{told}");
    ensure!(why.contains("1 of 2 definitions are wrong"), "{why}");
    Ok(())
}

#[tokio::test]
async fn who_adds_an_agent_that_no_runner_has_is_told_so() -> Result<()> {
    let up = Up::start().await?;
    let added = up.run(&["agent", "add", "greeter", "--command", "sh"]).await?;
    let said = String::from_utf8(added.stderr)?;
    ensure!(added.status.success() && said.contains("no runner is connected to the node"), "{said}");

    // Without a node nobody can be asked.
    let folder = up.terminate().await?;
    let mut alone = Command::new(binary("skein"));
    alone.args(["agent", "add", "other", "--command", "sh", "--data"]).arg(folder.data());
    let added = alone.output().await?;
    let said = String::from_utf8(added.stderr)?;
    ensure!(added.status.success() && !said.contains("runner"), "{said}");

    let settings = "[runner]\nswarms = [\"default\"]\n";
    let up = Up::start_in(Folder::new()?.configured(settings)?, &[]).await?;
    let stranger = ["agent", "add", "stranger", "--command", "sh", "--credential", "openai_key"];
    let added = up.run(&[&stranger[..], &["--swarm", "elsewhere"]].concat()).await?;
    let said = String::from_utf8(added.stderr)?;
    ensure!(added.status.success() && said.contains("no runner has stranger yet"), "{said}");
    ensure!(said.contains("run `skein credentials set openai_key --data"), "{said}");
    Ok(())
}

#[tokio::test]
async fn an_agent_is_lent_the_credentials_that_it_names_and_no_others() -> Result<()> {
    let stage = Stage::new(3)?
        .agent("mender", "credentials = [\"github_token:acme\"]", &["environment", "hold"])?
        .agent("curious", "", &["environment", "hold"])?
        .agent("poor", "credentials = [\"openai_key\"]", &[])?
        .start()
        .await?;
    for (credential, value) in [("github_token:acme", "s3cret-of-acme"), ("github_token", "s3cret-of-others")]
    {
        stage.up().skein_with(&["credentials", "set", credential], value).await?;
    }
    let listed = stage.up().skein(&["credentials", "list"]).await?;
    ensure!(listed.contains("github_token:acme") && !listed.contains("s3cret"), "{listed}");

    let mender = stage.run("mender").await?;
    let curious = stage.run("curious").await?;
    let seen = async |agent: &str| stage.answer(agent, "environment").await;
    let (lent, other) = (seen("mender").await?, seen("curious").await?);
    ensure!(lent["GITHUB_TOKEN"] == "s3cret-of-acme" && lent["GH_TOKEN"] == "s3cret-of-acme", "{lent}");
    stage.has_logged("github_token:acme").await?;
    let log = stage.log();
    let told = log.lines().find(|line| line.contains("github_token:acme")).context("nobody was told")?;
    ensure!(told.contains(&mender) && !log.contains("s3cret"), "{told}");
    ensure!(!other.to_string().contains("s3cret") && other["SKEIN_CREDENTIALS"].is_null(), "{other}");
    let folder = PathBuf::from(lent["SKEIN_CREDENTIALS"].as_str().context("no folder is named")?);
    let file = folder.join("github_token/acme/token");
    ensure!(fs::read_to_string(&file)? == "s3cret-of-acme");
    let (owner, modes) = (fs::metadata(&file)?.uid(), fs::metadata(&folder)?.mode() & 0o777);
    let user = |instance: &str| -> Result<u32> {
        let process = stage.processes(Some(instance)).pop().context("it does not run")?;
        Ok(fs::metadata(format!("/proc/{}", process.pid))?.uid())
    };
    let of_file = fs::metadata(&file)?.mode() & 0o777;
    // The folder stays the runner's: its group may look into it, and nobody but the runner changes it.
    ensure!(
        owner == user(&mender)? && of_file == 0o400 && modes & 0o027 == 0,
        "{owner} {of_file:o} {modes:o}"
    );
    ensure!(skein_runner::isolation() != Isolation::Users || owner != user(&curious)?, "others can read it");

    stage.go("mender")?;
    stage.becomes(&mender, "completed").await?;
    ensure!(!folder.exists(), "what was lent is still there");
    let queued: Value = serde_json::from_str(&stage.up().skein(&["agent", "run", "poor", "--json"]).await?)?;
    let poor = queued["instance"].as_str().context("no instance was named")?;
    ensure!(stage.ends(poor).await? == "error", "it ran without its credential");
    let history = stage.up().skein(&["agent", "history", "poor", "--json"]).await?;
    ensure!(history.contains("skein credentials set openai_key"), "{history}");
    stage.up().skein(&["credentials", "remove", "github_token:acme"]).await?;
    ensure!(!stage.log().contains("s3cret"), "a secret is in the log");
    Ok(())
}

/// The kernel takes no variable of more than 128 KiB.
#[tokio::test]
async fn an_event_that_is_too_long_for_a_variable_starts_its_agent_all_the_same() -> Result<()> {
    let keys = "subscriptions = [{ source = \"github\", event = \"push\" }]";
    let stage = Stage::new(1)?.agent("reader", keys, &["hold"])?.start().await?;
    let mut push = event(7);
    push["commits"] =
        (0..3000).map(|number| json!({"message": format!("commit {number} – {}", "x".repeat(50))})).collect();
    stage.push("d-1", &push).await?;
    let input = stage.answer("reader", "start").await?;
    ensure!(input["type"] == "webhook" && input["payload"].is_null(), "{input}");
    let file = PathBuf::from(input["input_file"].as_str().context("no file is named")?);
    let whole: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
    ensure!(whole["payload"] == push, "the file has not all of it");
    ensure!(fs::metadata(&file)?.mode() & 0o777 == 0o400, "others may read it");
    let instance = stage.answers("reader", "start")?.remove(0).0;
    stage.go("reader")?;
    stage.becomes(&instance, "completed").await?;
    ensure!(!file.exists(), "the file is still there");
    Ok(())
}
