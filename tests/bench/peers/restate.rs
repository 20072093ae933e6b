//! Restate: an invocation of a handler that does nothing, through its HTTP ingress.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use futures::FutureExt;
use serde_json::json;
use tokio::process::Command;

use super::{Peer, install};
use crate::harness::contender::{Card, Contender, Durability, Plan, Work};
use crate::harness::load::{self, Operation};
use crate::harness::machine::said;
use crate::harness::process::{Server, free_port};
use crate::options::Options;
use crate::probes::sqlite::PAYLOAD;

pub(crate) const RESTATE: Peer = Peer { name: "Restate", start: |options| start(options).boxed() };

const PATIENCE: Duration = Duration::from_secs(60);

struct Restate {
    server: Server,
    service: Server,
    version: String,
    http: reqwest::Client,
    url: String,
}

/// Where it listens, each on loopback.
struct Ports {
    ingress: u16,
    admin: u16,
    node: u16,
    service: u16,
}

async fn start(options: Options) -> Result<Box<dyn Contender>> {
    let packages = install::node(
        "restate",
        &[
            ("package.json", include_str!("restate/package.json")),
            ("package-lock.json", include_str!("restate/package-lock.json")),
            ("service.mjs", include_str!("restate/service.mjs")),
        ],
    )
    .await?;
    let folder = options.folder_for("restate")?;
    let ports =
        Ports { ingress: free_port()?, admin: free_port()?, node: free_port()?, service: free_port()? };

    let mut command = Command::new("node");
    command.arg(packages.join("service.mjs")).arg(ports.service.to_string()).env("RESTATE_LOGGING", "ERROR");
    let mut service = Server::start("Restate's handler", command, &folder.join("service.log"))?;
    service.listening(ports.service).await?;

    let program = packages.join(program()?);
    let config = folder.join("restate.toml");
    std::fs::write(&config, settings(&ports, &folder))?;
    let mut command = Command::new(&program);
    command.arg("--config-file").arg(config).arg("--no-logo").current_dir(&folder);
    let mut server = Server::start("Restate", command, &folder.join("server.log"))?;
    server.listening(ports.admin).await?;
    server.listening(ports.ingress).await?;

    let restate = Restate {
        server,
        service,
        version: said(&program.to_string_lossy(), &["--version"]),
        http: reqwest::Client::new(),
        url: format!("http://127.0.0.1:{}/noop/run", ports.ingress),
    };
    restate.register(&ports).await?;
    Ok(Box::new(restate))
}

/// The program's place among npm's packages.
fn program() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("node_modules/@restatedev/restate-server-linux-x64/bin/restate-server"),
        "aarch64" => Ok("node_modules/@restatedev/restate-server-linux-arm64/bin/restate-server"),
        other => anyhow::bail!("there is no package for {other}"),
    }
}

/// As it comes, its log flushed before it answers, but on loopback and silent.
fn settings(ports: &Ports, folder: &Path) -> String {
    let Ports { ingress, admin, node, .. } = ports;
    format!(
        "base-dir = \"{}\"
disable-telemetry = true
listen-mode = \"tcp\"
log-filter = \"error\"
bind-address = \"127.0.0.1:{node}\"
advertised-address = \"http://127.0.0.1:{node}\"
[ingress]
bind-address = \"127.0.0.1:{ingress}\"
advertised-address = \"http://127.0.0.1:{ingress}\"
[admin]
bind-address = \"127.0.0.1:{admin}\"
advertised-address = \"http://127.0.0.1:{admin}\"
",
        folder.join("data").display()
    )
}

impl Restate {
    /// Tells Restate of the handler, and waits until it answers through Restate.
    async fn register(&self, ports: &Ports) -> Result<()> {
        let url = format!("http://127.0.0.1:{}/deployments", ports.admin);
        let deployment = json!({ "uri": format!("http://127.0.0.1:{}", ports.service) });
        let ready = async {
            loop {
                let answer = self.http.post(&url).json(&deployment).send().await;
                if answer.is_ok_and(|answer| answer.status().is_success()) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            while invoke(&self.http, &self.url).await.is_err() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ready).await.context("it does not accept the handler")
    }
}

async fn invoke(http: &reqwest::Client, url: &str) -> Result<()> {
    let answer = http.post(url).json(PAYLOAD).send().await?.error_for_status()?;
    answer.bytes().await?;
    Ok(())
}

#[async_trait]
impl Contender for Restate {
    /// What it takes is that of the server alone; the handler belongs to the user.
    fn card(&self) -> Card {
        Card::peer(RESTATE.name, Durability::PowerCut, self.version.clone(), self.server.metered())
    }

    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        let (http, url) = (self.http.clone(), self.url.clone());
        let operation: Operation = Arc::new(move |_| {
            let (http, url) = (http.clone(), url.clone());
            Box::pin(async move { invoke(&http, &url).await })
        });
        load::run(plan, operation).await
    }

    async fn stop(self: Box<Self>) -> Result<()> {
        self.server.stop().await?;
        self.service.stop().await
    }
}
