//! `skein up` as a process of its own, over a data directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use procfs::process::Process;
use serde_json::Value;
use skein_coordinator::auth::Role;
use skein_coordinator::auth::token::{Claims, Keys};
use skein_coordinator::entity::Clock;
use skein_shared::id::Name;
use skein_tests::mcp::Client;
use skein_tests::process::{Signal, signal};
use tokio::process::Command;
use uuid::Uuid;

use super::embedded::refused;
use crate::harness::process::{Server, free_port};

/// How long a node may take until it answers.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a token is good for: longer than any run.
const LIFETIME: Duration = Duration::from_secs(86_400);
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

/// `skein up` without a runner, over a data directory.
///
/// # Errors
/// When the program is missing.
pub(crate) fn up(data: &Path, http: &str) -> Result<Command> {
    let mut command = Command::new(binary()?);
    command.args(["up", "--no-runner", "--listen", http, "--grpc", "127.0.0.1:0"]);
    command.args(["--ingress", "127.0.0.1:0", "--data"]).arg(data);
    Ok(command)
}

/// A token for somebody of the node's swarm, signed with the node's own keys: a process for each would take
/// minutes.
///
/// # Errors
/// When signing fails.
pub(crate) fn token(keys: &Keys, role: Role, agent: Uuid, name: &str) -> Result<String> {
    token_in(keys, "default", role, agent, name)
}

/// A token for somebody of a swarm.
///
/// # Errors
/// When signing fails.
pub(crate) fn token_in(keys: &Keys, swarm: &str, role: Role, agent: Uuid, name: &str) -> Result<String> {
    let claims = Claims {
        swarm: Name::parse(swarm).map_err(refused)?,
        agent,
        agent_name: Name::parse(name).map_err(refused)?,
        role,
        view: None,
        instance: None,
        lifetime: LIFETIME,
    };
    let issued = keys.issue(claims, Clock::start().wall()).map_err(refused)?;
    Ok(issued.text().to_owned())
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
        let command = up(data, &http)?;
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

    /// Where it answers.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.http)
    }

    pub(crate) fn client(&self, token: &str) -> Client {
        Client::new(&format!("http://{}/mcp", self.http), token)
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
        signal(self.server.id()?, Signal::KILL)?;
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
