//! A private Redis, or Valkey: a program of its own in a folder of its own, on a socket that nobody else knows.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use tokio::process::Command;

use crate::link::Link;
use crate::program::{Ground, Program};

/// How long a start may take on a busy machine. It ends as soon as the server is ready.
const START: Duration = Duration::from_secs(60);

/// How often to look for what no event tells.
const LOOK: Duration = Duration::from_millis(20);

/// How long several servers may take to find one another, and to choose a primary.
const PATIENCE: Duration = Duration::from_secs(120);

/// Settings of a server that flushes each write before it answers: it loses nothing that it acknowledged. The others
/// are as the guide for operators has them.
pub const LASTING: &[&str] = &[
    "--appendonly",
    "yes",
    "--appendfsync",
    "always",
    "--rdbcompression",
    "no",
    "--auto-aof-rewrite-min-size",
    "512mb",
];
/// The same for one that flushes once a second.
pub const EACH_SECOND: &[&str] = &[
    "--appendonly",
    "yes",
    "--appendfsync",
    "everysec",
    "--rdbcompression",
    "no",
    "--auto-aof-rewrite-min-size",
    "512mb",
];

/// Looks until it is so.
///
/// # Errors
/// When it is not in time, with what went wrong last.
pub async fn until(what: &str, look: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let mut last = None;
    let looking = async {
        loop {
            match look().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => last = Some(error),
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    if tokio::time::timeout(PATIENCE, looking).await.is_err() {
        bail!("{what}: not in time ({last:?})");
    }
    Ok(())
}

/// A connection that waits for its answers: by itself it would give one up after half a second.
///
/// # Errors
/// When the server does not take it.
pub async fn connect(url: &str) -> Result<redis::aio::MultiplexedConnection> {
    let patient = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(START))
        .set_response_timeout(Some(START));
    Ok(redis::Client::open(url)?.get_multiplexed_async_connection_with_config(&patient).await?)
}

/// Whose server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    Redis,
    Valkey,
}

impl Make {
    fn program(self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Valkey => "valkey-server",
        }
    }
}

/// A running server. It is killed when dropped, and its folder removed.
pub struct Server {
    /// Ends first.
    program: Option<Program>,
    make: Make,
    ground: Ground,
    folder: TempDir,
    settings: Vec<String>,
}

impl Server {
    /// One that flushes each write before it answers, as a store needs it.
    ///
    /// # Errors
    /// When `redis-server` is missing or does not start.
    pub async fn start() -> Result<Self> {
        Self::start_with(LASTING).await
    }

    /// The same, in memory where the system has such a folder: what it wrote outlives its process, which is all that
    /// most tests ask for, and no other work on the machine's disk delays its answers past a lease.
    ///
    /// # Errors
    /// When `redis-server` is missing or does not start.
    pub async fn in_memory() -> Result<Self> {
        Self::in_memory_with(LASTING).await
    }

    /// One in memory with settings of its own.
    ///
    /// # Errors
    /// When `redis-server` is missing or does not start.
    pub async fn in_memory_with(settings: &[&str]) -> Result<Self> {
        Self::in_memory_on(Ground::default(), settings).await
    }

    /// The same, where programs are started in a way of their own.
    ///
    /// # Errors
    /// When `redis-server` is missing or does not start.
    pub async fn in_memory_on(ground: Ground, settings: &[&str]) -> Result<Self> {
        let folder = TempDir::with_prefix_in("skein-redis-", "/dev/shm");
        let folder = folder.or_else(|_| TempDir::with_prefix("skein-redis-"))?;
        Self::start_in(folder, Make::Redis, ground, settings).await
    }

    /// One with settings of its own.
    ///
    /// # Errors
    /// When `redis-server` is missing or does not start.
    pub async fn start_with(settings: &[&str]) -> Result<Self> {
        Self::start_as(Make::Redis, settings).await
    }

    /// One of this make.
    ///
    /// # Errors
    /// When it is missing or does not start.
    pub async fn start_as(make: Make, settings: &[&str]) -> Result<Self> {
        Self::start_in(TempDir::with_prefix("skein-redis-")?, make, Ground::default(), settings).await
    }

    async fn start_in(folder: TempDir, make: Make, ground: Ground, settings: &[&str]) -> Result<Self> {
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut server = Self { program: None, make, ground, folder, settings };
        server.launch().await?;
        Ok(server)
    }

    pub fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// A link to it that can be cut.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn link(&self) -> Result<Link> {
        Link::to_socket(self.socket())
    }

    /// The process, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.program.as_ref()?.id()
    }

    /// Where it was started, and where those are that work with it.
    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    /// A connection for looking and meddling.
    ///
    /// # Errors
    /// When the server does not take it.
    pub async fn connection(&self) -> Result<redis::aio::MultiplexedConnection> {
        connect(&self.url()).await
    }

    /// Another server, in memory too, that follows this one over a link. Returns once it has everything.
    ///
    /// # Errors
    /// When it does not come to that.
    pub async fn replica(&self) -> Result<(Self, Link)> {
        let link = Link::port().await?;
        link.leads_to_socket(self.socket());
        let address = link.address().replace(':', " ");
        let settings = [LASTING, &["--replicaof", &address]].concat();
        let replica = Self::in_memory_on(self.ground.clone(), &settings).await?;
        let mut connection = self.connection().await?;
        let online = async {
            loop {
                let said: String = redis::cmd("INFO").arg("replication").query_async(&mut connection).await?;
                if said.contains("state=online") {
                    return Ok::<_, anyhow::Error>(());
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(START, online).await.context("the replica does not follow")??;
        Ok((replica, link))
    }

    /// Writes something and waits until replicas have it, and all that was written before. Says how many have.
    ///
    /// # Errors
    /// When it is not answered.
    pub async fn replicate(&self) -> Result<u32> {
        let mut connection = self.connection().await?;
        let () = redis::cmd("SET").arg("probe").arg("1").query_async(&mut connection).await?;
        let limit = u64::try_from(START.as_millis())?;
        Ok(redis::cmd("WAIT").arg(1).arg(limit).query_async(&mut connection).await?)
    }

    /// Its clock, in milliseconds since 1970.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn now(&self) -> Result<u64> {
        let (seconds, micros): (u64, u64) =
            redis::cmd("TIME").query_async(&mut self.connection().await?).await?;
        Ok(seconds * 1000 + micros / 1000)
    }

    /// Makes a replica the primary, with what it has.
    ///
    /// # Errors
    /// When it refuses.
    pub async fn promote(&self) -> Result<()> {
        let promote = redis::cmd("REPLICAOF").arg("NO").arg("ONE").to_owned();
        Ok(promote.query_async(&mut self.connection().await?).await?)
    }

    /// Gives it more settings at its next start.
    pub fn will_have(&mut self, settings: &[&str]) {
        self.settings.extend(settings.iter().map(|&setting| setting.to_owned()));
    }

    /// Ends it as a crash does, and starts it again on what its disk has.
    ///
    /// # Errors
    /// When it does not come back.
    pub async fn crash_and_restart(&mut self) -> Result<()> {
        self.kill().await?;
        self.launch().await
    }

    /// Ends it as a crash does.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn kill(&mut self) -> Result<()> {
        let mut program = self.program.take().context("the server does not run")?;
        program.kill().await?;
        let _ = std::fs::remove_file(self.socket());
        Ok(())
    }

    /// Starts it again on what its disk has.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn launch(&mut self) -> Result<()> {
        let name = self.make.program();
        let mut command = Command::new(name);
        let log = self.folder.path().join("log");
        command.args(["--port", "0", "--save", "", "--dir", "."]);
        command.arg("--logfile").arg(&log).arg("--unixsocket").arg(self.socket());
        command.args(&self.settings).current_dir(self.folder.path());
        let program = self.ground.start(command, &log).await;
        let mut program = program.with_context(|| format!("on Debian: apt-get install {name}"))?;
        // A client would wait for the socket in its own time.
        let ready = async {
            while self.answers().await.is_err() {
                let said = || std::fs::read_to_string(&log).unwrap_or_default();
                ensure!(!program.has_ended()?, "{name} ended at once:\n{}", said());
                tokio::time::sleep(LOOK).await;
            }
            Ok(())
        };
        tokio::time::timeout(START, ready).await.with_context(|| format!("{name} did not get ready"))??;
        self.program = Some(program);
        Ok(())
    }

    /// Once it has read what its disk has. One that wants a password says that.
    async fn answers(&self) -> Result<()> {
        let client = redis::Client::open(self.url())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        match redis::cmd("PING").query_async::<()>(&mut connection).await {
            Err(error) if error.code() != Some("NOAUTH") => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// What the disk of a server had at one moment.
pub struct Snapshot(TempDir);

impl Server {
    /// Copies what its log has now.
    ///
    /// # Errors
    /// When it writes none.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let copy = TempDir::with_prefix("skein-snapshot-")?;
        replace(&self.log(), copy.path())?;
        Ok(Snapshot(copy))
    }

    /// Ends it as a crash does, and starts it again on what its disk had before.
    ///
    /// # Errors
    /// When it does not come back.
    pub async fn fall_back(&mut self, to: &Snapshot) -> Result<()> {
        self.kill().await?;
        replace(to.0.path(), &self.log())?;
        self.launch().await
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("appendonlydir")
    }
}

/// Puts the files of one folder in the place of those of another.
fn replace(from: &Path, to: &Path) -> Result<()> {
    for entry in std::fs::read_dir(to)? {
        std::fs::remove_file(entry?.path())?;
    }
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        std::fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
