//! `skein up` as a process of its own, over a data directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use procfs::process::Process;
use serde_json::Value;
use skein_tests::mcp::Client;
use tokio::process::Command;
use uuid::Uuid;

use crate::harness::process::{Server, free_port, signal};

/// How long a node may take until it answers.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(2);

/// Where `skein` was built: beside this program.
///
/// # Errors
/// When it was not.
pub(crate) fn binary() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("skein");
    ensure!(path.exists(), "{} is missing; build it with `cargo build --release --bins`", path.display());
    Ok(path)
}

/// A token for a worker of the node's swarm. The directory is made if need be.
///
/// # Errors
/// When it cannot be issued.
pub(crate) async fn token(data: &Path, agent: Uuid) -> Result<String> {
    std::fs::create_dir_all(data)?;
    let mut command = Command::new(binary()?);
    command.args(["token", "issue", "--role", "worker", "--name", "bench", "--agent", &agent.to_string()]);
    let output = command.arg("--data").arg(data).output().await?;
    ensure!(output.status.success(), "no token: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// A node that was just started. It is killed when dropped.
pub(crate) struct Node {
    server: Server,
    http: String,
    started: Instant,
}

impl Node {
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(data: &Path) -> Result<Self> {
        let http = format!("127.0.0.1:{}", free_port()?);
        let mut command = Command::new(binary()?);
        command.args(["up", "--no-runner", "--listen", &http, "--grpc", "127.0.0.1:0"]);
        command.args(["--ingress", "127.0.0.1:0", "--data"]).arg(data);
        let started = Instant::now();
        let server = Server::start("skein", command, &data.with_extension("log"))?;
        Ok(Self { server, http, started })
    }

    /// Milliseconds from the start until it says that it is ready.
    ///
    /// # Errors
    /// When it does not.
    pub(crate) async fn ready(&self) -> Result<f64> {
        ready(&self.http, self.started).await
    }

    /// Calls a tool as soon as there is somebody who answers; gives the answer and the milliseconds since the start.
    ///
    /// # Errors
    /// When nobody does.
    pub(crate) async fn first(&self, token: &str, tool: &str, arguments: Value) -> Result<(Value, f64)> {
        let client = self.client(token);
        let answer = async {
            loop {
                if let Ok(answer) = client.call(tool, arguments.clone()).await {
                    return answer;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let answer = tokio::time::timeout(PATIENCE, answer).await.context("it answers no call")?;
        Ok((answer, milliseconds(self.started)))
    }

    pub(crate) fn client(&self, token: &str) -> Client {
        Client::new(&format!("http://{}/mcp", self.http), token)
    }

    /// Waits until lists are whole again.
    ///
    /// # Errors
    /// When they do not become so.
    pub(crate) async fn caught_up(&self, token: &str, limit: Duration) -> Result<()> {
        let client = self.client(token);
        let whole = async {
            loop {
                let list = client.call("get-tasks", serde_json::json!({ "limit": 1 })).await;
                if list.is_ok_and(|list| !list.to_string().contains("rebuilding")) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
        };
        tokio::time::timeout(limit, whole).await.context("its lists stay incomplete")
    }

    /// What is resident, and what was at most, MiB.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn memory(&self) -> Result<Memory> {
        memory(self.server.id()?)
    }

    /// Ends it as a crash does.
    ///
    /// # Errors
    /// When it has ended already.
    pub(crate) async fn kill(self) -> Result<()> {
        signal(self.server.id()?, "KILL").await?;
        self.server.stop().await.or(Ok(()))
    }
}

/// Memory of one process, MiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub resident: f64,
    pub peak: f64,
}

/// # Errors
/// When the process has ended.
pub(crate) fn memory(process: u32) -> Result<Memory> {
    let status = Process::new(process.cast_signed())?.status()?;
    let mib = |kib: Option<u64>| kib.unwrap_or_default() as f64 / 1024.0;
    Ok(Memory { resident: mib(status.vmrss), peak: mib(status.vmhwm) })
}

/// Milliseconds until `GET /readyz` is answered with 200.
///
/// # Errors
/// When it is not.
pub(crate) async fn ready(address: &str, started: Instant) -> Result<f64> {
    let client = reqwest::Client::new();
    let url = format!("http://{address}/readyz");
    let ready = async {
        while !client.get(&url).send().await.is_ok_and(|answer| answer.status().is_success()) {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, ready).await.context("it does not get ready")?;
    Ok(milliseconds(started))
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}
