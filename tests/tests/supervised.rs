//! What systemd hears of a node and of a runner that it has started, and what a node does that is told again to end.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use skein_tests::process::{self, Signal};
use skein_tests::stage::Stage;
use skein_tests::up::{Folder, Up, binary};
use tokio::net::UnixDatagram;
use tokio::process::Command;

/// Where a supervisor listens, and where that is.
fn supervisor(folder: &Path) -> Result<(UnixDatagram, String)> {
    let path = folder.join("notify");
    let listener = UnixDatagram::bind(&path)?;
    Ok((listener, path.to_str().context("no text")?.to_owned()))
}

async fn heard(supervisor: &UnixDatagram) -> Result<String> {
    let mut bytes = [0; 64];
    let heard = tokio::time::timeout(Duration::from_secs(60), supervisor.recv(&mut bytes));
    let count = heard.await.context("the supervisor hears nothing")??;
    Ok(String::from_utf8(bytes[..count].to_vec())?)
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_started_a_node_is_told_once_it_works_and_when_it_ends() -> Result<()> {
    let place = tempfile::tempdir()?;
    let (listener, path) = supervisor(place.path())?;
    let folder = Folder::new()?.with_variable("NOTIFY_SOCKET", &path);
    let endpoint = folder.data().join("endpoint.json");
    let told = async {
        let told = heard(&listener).await?;
        let endpoint: Value = serde_json::from_str(&std::fs::read_to_string(endpoint)?)?;
        let url = format!("http://{}/readyz", endpoint["http"].as_str().context("no address")?);
        anyhow::Ok((told, reqwest::get(url).await?.status().as_u16()))
    };
    let (up, told) = tokio::try_join!(Up::start_in(folder, &[]), told)?;
    ensure!(told == ("READY=1".to_owned(), 200), "{told:?}");
    up.terminate().await?;
    // The runner of the same process says nothing of its own.
    ensure!(heard(&listener).await? == "STOPPING=1");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_started_a_runner_is_told_once_it_works_and_when_it_ends() -> Result<()> {
    let place = tempfile::tempdir()?;
    let (listener, path) = supervisor(place.path())?;
    let token = place.path().join("token");
    std::fs::write(&token, "nobody looks at it yet")?;
    std::fs::create_dir(place.path().join("agents"))?;
    let mut runner = Command::new(binary("skein-runner"));
    // No coordinator is there yet: the runner waits for one, as it does when all of them are gone for a while.
    runner.args(["--coordinator", "http://127.0.0.1:1", "--name", "box-1", "--token-file"]).arg(token);
    runner.arg("--agents").arg(place.path().join("agents")).arg("--data").arg(place.path().join("data"));
    let mut runner = runner.env("NOTIFY_SOCKET", path).kill_on_drop(true).spawn()?;
    ensure!(heard(&listener).await? == "READY=1");
    process::signal(runner.id().context("it has ended")?, Signal::TERM)?;
    ensure!(heard(&listener).await? == "STOPPING=1");
    tokio::time::timeout(Duration::from_secs(60), runner.wait()).await.context("it goes on")??;
    Ok(())
}

/// systemd gives a service 1,024, of which a thousand agents that wait would leave nothing.
#[tokio::test]
async fn a_node_may_have_as_many_files_open_as_its_system_allows() -> Result<()> {
    let given = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(300), ..given })?;
    let up = Up::start().await;
    setrlimit(Resource::Nofile, given)?;
    let up = up?;
    let id = up.id().context("it has ended")?;
    let has = procfs::process::Process::new(id.cast_signed())?.limits()?.max_open_files;
    ensure!(format!("{:?}", has.soft_limit) == format!("{:?}", has.hard_limit), "{has:?}");
    Ok(())
}

/// An operator who asks again does not want to wait for the agents.
#[tokio::test]
async fn a_node_that_is_asked_twice_ends_at_once_and_its_next_start_takes_over_what_runs() -> Result<()> {
    let stage = Stage::new(1)?.agent("deaf", "grace = \"1h\"\n", &["deaf", "hold"])?;
    // Longer than a test has: what ends it sooner is the second word.
    let stage = stage.with_variable("SKEIN_LIMITS__DRAIN", "1h").start().await?;
    let run = stage.run("deaf").await?;
    stage.answer("deaf", "deaf").await?;
    let (stage, status) = stage.ask_twice().await?;
    ensure!(status.code() == Some(130), "it ended with {status}: {}", stage.log());
    ensure!(stage.log().contains("asked again: it ends at once"), "it does not say why: {}", stage.log());
    ensure!(!stage.data().join("endpoint.json").exists(), "whoever looks for it is sent to nobody");
    ensure!(!stage.processes(Some(&run)).is_empty(), "its agent ended with it");

    let stage = stage.start().await?;
    stage.becomes(&run, "running").await?;
    ensure!(stage.log().matches("started instance").count() == 1, "it ran twice: {}", stage.log());
    Ok(())
}

/// An operator who wonders why it takes so long.
#[tokio::test]
async fn a_node_that_ends_its_agents_says_at_the_command_line_which_still_run() -> Result<()> {
    let stage = Stage::new(1)?.agent("deaf", "grace = \"1h\"\n", &["deaf", "hold"])?;
    let stage = stage.with_variable("SKEIN_LIMITS__DRAIN", "1h").start().await?;
    let run = stage.run("deaf").await?;
    stage.answer("deaf", "deaf").await?;
    process::signal(stage.up().id().context("it has ended")?, Signal::TERM)?;
    stage
        .until("it ends its agents", async || Ok(stage.log().contains("asked again, it ends at once")))
        .await?;
    let listed = stage.up().skein(&["instances", "list"]).await?;
    ensure!(listed.contains(&run), "{listed}");
    Ok(())
}
