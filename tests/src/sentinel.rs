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
/// For how long it has to hear nothing of a server to take it for dead, in milliseconds: one that waits for a processor
/// is not.
const SILENCE: u32 = 5000;

/// Three servers and the sentinel that watches them. All end when dropped.
pub struct Watched {
    servers: Vec<Option<Server>>,
    ports: Vec<u16>,
    sentinel: Sentinel,
    /// The port of another one, and that once it runs.
    other: (u16, Option<Sentinel>),
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
        let sentinel = Sentinel::start(ports::free()?, ports[0], 0).await?;
        let watched = Self { servers, ports, sentinel, other: (ports::free()?, None) };
        until("the sentinel knows both replicas", async || watched.replicas().await).await?;
        Ok(watched)
    }

    pub fn url(&self) -> String {
        format!("redis-sentinel://127.0.0.1:{}?primary={NAME}", self.sentinel.port)
    }

    /// A URL that names another sentinel first, which does not run before it is cut off with the primary.
    pub fn url_of_both(&self) -> String {
        let (other, sentinel) = (self.other.0, self.sentinel.port);
        format!("redis-sentinel://127.0.0.1:{other},127.0.0.1:{sentinel}?primary={NAME}")
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

    /// Makes another server the primary, of which neither the old one hears, nor a sentinel that is cut off with it,
    /// nor who is connected to it. The old one takes no writes any more.
    ///
    /// # Errors
    /// When a server or a sentinel refuses.
    pub async fn cut_off_the_primary(&mut self) -> Result<()> {
        let old = self.primary().await?;
        let next = *self.ports.iter().find(|port| **port != old).context("it has no replica")?;
        let mut connection = self.server(old)?.connection().await?;
        cmd("CONFIG").arg("SET").arg("min-replicas-to-write").arg(3).exec_async(&mut connection).await?;
        // One that has seen another failover. It watches none of the servers that the other one does, so that neither
        // hears of the other.
        self.sentinel.end().await?;
        self.server(next)?.promote().await?;
        self.sentinel = Sentinel::start(self.sentinel.port, next, 1).await?;
        until("the primary knows that a replica has left", async || {
            let told: String = cmd("INFO").arg("replication").query_async(&mut connection.clone()).await?;
            Ok(told.contains("connected_slaves:1"))
        })
        .await?;
        self.other.1 = Some(Sentinel::start(self.other.0, old, 0).await?);
        Ok(())
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

    fn server(&self, port: u16) -> Result<&Server> {
        let mut servers = self.ports.iter().zip(&self.servers);
        let (_, server) = servers.find(|(has, _)| **has == port).context("nobody knows it")?;
        server.as_ref().context("it is dead")
    }

    async fn primary(&self) -> Result<u16> {
        self.sentinel.primary().await
    }

    /// Whether both replicas are there and can be chosen.
    async fn replicas(&self) -> Result<bool> {
        let ask = cmd("SENTINEL").arg("REPLICAS").arg(NAME).to_owned();
        let found: Vec<std::collections::HashMap<String, String>> =
            ask.query_async(&mut self.sentinel.connection().await?).await?;
        let ready =
            found.iter().filter(|replica| replica.get("master-link-status").is_some_and(|it| it == "ok"));
        Ok(ready.count() == 2)
    }
}

struct Sentinel {
    port: u16,
    process: Child,
    _folder: TempDir,
}

impl Sentinel {
    /// One that watches this primary, as it was chosen in the failover of that number. Returns once it names it.
    async fn start(port: u16, primary: u16, failover: u32) -> Result<Self> {
        let settings = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor {NAME} 127.0.0.1 {primary} 1\n\
             sentinel config-epoch {NAME} {failover}\n\
             sentinel down-after-milliseconds {NAME} {SILENCE}\nsentinel failover-timeout {NAME} 5000\n"
        );
        let folder = TempDir::with_prefix("skein-sentinel-")?;
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
        let sentinel = Self { port, process, _folder: folder };
        until("the sentinel names the primary", async || Ok(sentinel.primary().await? == primary)).await?;
        Ok(sentinel)
    }

    /// Returns once its port is free.
    async fn end(&mut self) -> Result<()> {
        Ok(self.process.kill().await?)
    }

    async fn primary(&self) -> Result<u16> {
        let ask = cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(NAME).to_owned();
        let (_, port): (String, u16) = ask.query_async(&mut self.connection().await?).await?;
        Ok(port)
    }

    async fn connection(&self) -> Result<redis::aio::MultiplexedConnection> {
        connect(&format!("redis://127.0.0.1:{}/", self.port)).await
    }
}
