//! Redis with replicas and a sentinel that makes one of them the primary when that dies.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use redis::cmd;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::ports;
use crate::redis::{LASTING, Server, connect, until};

/// The name under which the sentinel watches them.
const NAME: &str = "main";
/// For how long it has to hear nothing of a server to take it for dead, in milliseconds: one that waits for a processor is
/// not.
const SILENCE: u32 = 5000;

/// Three servers and the sentinel that watches them. All end when dropped.
pub struct Watched {
    servers: Vec<Option<Server>>,
    ports: Vec<u16>,
    sentinel: u16,
    _process: Child,
    _folder: TempDir,
}

impl Watched {
    /// The first server is the primary, and the others have all that it has.
    ///
    /// # Errors
    /// When a server does not start, or they do not find one another.
    pub async fn start() -> Result<Self> {
        let (mut servers, mut ports): (Vec<Option<Server>>, Vec<u16>) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let port = ports::free()?;
            let (own, primary) = (port.to_string(), ports.first().unwrap_or(&port).to_string());
            let mut settings = LASTING.to_vec();
            settings.extend(["--bind", "127.0.0.1", "--port", &own, "--repl-diskless-sync-delay", "0"]);
            settings.extend(["--min-replicas-to-write", "1", "--min-replicas-max-lag", "10"]);
            if !ports.is_empty() {
                settings.extend(["--replicaof", "127.0.0.1", &primary]);
            }
            servers.push(Some(Server::start_with(&settings).await?));
            ports.push(port);
        }
        let (folder, sentinel) = (TempDir::with_prefix("skein-sentinel-")?, ports::free()?);
        let process = watch(&folder, sentinel, ports[0])?;
        let watched = Self { servers, ports, sentinel, _process: process, _folder: folder };
        until("the sentinel knows both replicas", async || watched.replicas().await).await?;
        Ok(watched)
    }

    pub fn url(&self) -> String {
        format!("redis-sentinel://127.0.0.1:{}?primary={NAME}", self.sentinel)
    }

    /// Ends the primary as a crash does, and waits until the sentinel names another one.
    ///
    /// # Errors
    /// When none is chosen.
    pub async fn kill_the_primary(&mut self) -> Result<()> {
        let old = self.primary().await?;
        let place = self.ports.iter().position(|port| *port == old).context("nobody knows the primary")?;
        let mut server = self.servers[place].take().context("it is dead already")?;
        server.kill().await?;
        until("another primary is chosen", async || Ok(self.primary().await? != old)).await
    }

    /// Makes another server the primary, of which neither the old one nor who is connected to it hears. The old one takes no
    /// writes any more.
    ///
    /// # Errors
    /// When a server or the sentinel refuses.
    pub async fn cut_off_the_primary(&self) -> Result<()> {
        let old = self.primary().await?;
        let mut servers = self.ports.iter().zip(&self.servers);
        let (_, server) =
            servers.clone().find(|(port, _)| **port == old).context("nobody knows the primary")?;
        let mut connection = server.as_ref().context("it is dead")?.connection().await?;
        cmd("CONFIG").arg("SET").arg("min-replicas-to-write").arg(3).exec_async(&mut connection).await?;
        let (next, server) = servers.find(|(port, _)| **port != old).context("it has no replica")?;
        server.as_ref().context("it is dead")?.promote().await?;
        let mut sentinel = self.connection().await?;
        cmd("SENTINEL").arg("REMOVE").arg(NAME).exec_async(&mut sentinel).await?;
        let mut watch = cmd("SENTINEL");
        watch.arg("MONITOR").arg(NAME).arg("127.0.0.1").arg(*next).arg(1);
        Ok(watch.exec_async(&mut sentinel).await?)
    }

    /// Says something to each server.
    ///
    /// # Errors
    /// When one refuses it.
    pub async fn tell(&self, order: &redis::Cmd) -> Result<()> {
        for server in self.servers.iter().flatten() {
            order.exec_async(&mut server.connection().await?).await?;
        }
        Ok(())
    }

    async fn primary(&self) -> Result<u16> {
        let ask = cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(NAME).to_owned();
        let (_, port): (String, u16) = ask.query_async(&mut self.connection().await?).await?;
        Ok(port)
    }

    /// Whether both replicas are there and can be chosen.
    async fn replicas(&self) -> Result<bool> {
        let ask = cmd("SENTINEL").arg("REPLICAS").arg(NAME).to_owned();
        let found: Vec<std::collections::HashMap<String, String>> =
            ask.query_async(&mut self.connection().await?).await?;
        let ready =
            found.iter().filter(|replica| replica.get("master-link-status").is_some_and(|it| it == "ok"));
        Ok(ready.count() == 2)
    }

    async fn connection(&self) -> Result<redis::aio::MultiplexedConnection> {
        connect(&format!("redis://127.0.0.1:{}/", self.sentinel)).await
    }
}

fn watch(folder: &TempDir, port: u16, primary: u16) -> Result<Child> {
    let settings = format!(
        "port {port}\nbind 127.0.0.1\nsentinel monitor {NAME} 127.0.0.1 {primary} 1\n\
         sentinel down-after-milliseconds {NAME} {SILENCE}\nsentinel failover-timeout {NAME} 5000\n"
    );
    let path = folder.path().join("sentinel.conf");
    std::fs::write(&path, settings)?;
    let process = Command::new("redis-server")
        .arg(&path)
        .arg("--sentinel")
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    ensure!(process.id().is_some(), "the sentinel ended at once");
    Ok(process)
}
