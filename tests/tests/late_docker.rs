//! A Docker daemon that is started after the runner, as far as a runner asks one before it runs anything in it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde_json::{Value, json};
use skein_tests::stage::Stage;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

/// What the daemon has.
type Containers = Arc<Mutex<Vec<Value>>>;

/// Answers what a runner asks that has just found it: which version it is, what there is of the runner's, and to take
/// that away.
async fn answer(State(containers): State<Containers>, method: Method, uri: Uri) -> Response {
    if method == Method::DELETE {
        containers.lock().unwrap().clear();
        return StatusCode::NO_CONTENT.into_response();
    }
    let answer = match uri.path() {
        path if path.ends_with("/version") => json!({ "ApiVersion": "1.44" }),
        path if path.ends_with("/containers/json") => json!(*containers.lock().unwrap()),
        _ => json!([]),
    };
    Json(answer).into_response()
}

fn daemon(socket: &Path, containers: Containers) -> Result<JoinHandle<std::io::Result<()>>> {
    let (listener, router) =
        (UnixListener::bind(socket)?, Router::new().fallback(answer).with_state(containers));
    Ok(tokio::spawn(async move { axum::serve(listener, router).await }))
}

/// The engines of the runner, and the agents that it has.
async fn told(stage: &Stage) -> Result<(Value, Vec<String>)> {
    let engines = stage.list("runners").await?.first().context("there is no runner")?["engines"].clone();
    let agents = stage.up().skein(&["agent", "list", "--json"]).await?;
    let names = agents.lines().map(|line| Ok(serde_json::from_str::<Value>(line)?["agent"].clone()));
    let names = names.map(|name: Result<Value>| Ok(name?.as_str().unwrap_or_default().to_owned()));
    Ok((engines, names.collect::<Result<_>>()?))
}

#[tokio::test]
async fn docker_that_is_started_after_the_runner_is_found_and_its_agents_are_taken_in() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("docker.sock");
    let host = format!("unix://{}", socket.display());
    let stage = Stage::new(1)?.with_variable("DOCKER_HOST", &host).agent("plain", "", &["hold"])?;
    let boxed = stage.data().join("agents/boxed");
    fs::create_dir_all(&boxed)?;
    fs::write(boxed.join("agent.toml"), "image = \"my/agent:1\"\n")?;
    let stage = stage.start().await?;
    let run = stage.run("plain").await?;
    ensure!(
        told(&stage).await? == (json!(["process"]), vec!["plain".to_owned()]),
        "{:?}",
        told(&stage).await?
    );
    ensure!(stage.log().matches("it looks for Docker again").count() == 1, "{}", stage.log());

    let process = stage.processes(Some(&run)).first().context("the run has no process")?.pid;
    let environment = procfs::process::Process::new(process.cast_signed())?.environ()?;
    let mark = environment.get(OsStr::new("SKEIN_RUNNER")).context("it has no mark")?.to_string_lossy();
    let left = json!({ "Id": "c1", "Labels": { "skein.runner": mark, "skein.instance": "boxed-00000001" } });
    let containers: Containers = Arc::new(Mutex::new(vec![left]));
    let daemon = daemon(&socket, Arc::clone(&containers))?;
    let wanted = (json!(["docker", "process"]), vec!["boxed".to_owned(), "plain".to_owned()]);
    stage.until("the agent is taken in", async || Ok(told(&stage).await? == wanted)).await?;
    ensure!(containers.lock().unwrap().is_empty(), "what was left runs on");
    stage.has_logged("Docker is there").await?;
    ensure!(stage.log().matches("Docker is there").count() == 1, "{}", stage.log());
    ensure!(stage.log().matches("it looks for Docker again").count() == 1, "{}", stage.log());
    ensure!(stage.state(&run).await? == "running", "another agent was disturbed");
    daemon.abort();
    Ok(())
}
