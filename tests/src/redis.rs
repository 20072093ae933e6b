//! A private Redis: a process of its own in a folder of its own, on a socket that nobody else knows.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::{Child, Command};
use tokio::sync::watch;

/// How long a start may take on a busy machine. It ends as soon as the server is ready.
const START: Duration = Duration::from_secs(60);

/// A running server. It is killed when dropped, and its folder removed.
pub struct Server {
    folder: TempDir,
    settings: Vec<String>,
    child: Option<Child>,
}

impl Server {
    /// One that flushes each write before it answers, as a store needs it.
    ///
    /// # Errors
    /// When `redis-server` is missing or does not start.
    pub async fn start() -> Result<Self> {
        Self::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await
    }

    /// One with settings of its own.
    ///
    /// # Errors
    /// When `redis-server` is missing or does not start.
    pub async fn start_with(settings: &[&str]) -> Result<Self> {
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut server = Self { folder: TempDir::with_prefix("skein-redis-")?, settings, child: None };
        server.launch().await?;
        Ok(server)
    }

    pub fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// The process, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref()?.id()
    }

    /// A connection for looking and meddling.
    ///
    /// # Errors
    /// When the server does not take it.
    pub async fn connection(&self) -> Result<redis::aio::MultiplexedConnection> {
        Ok(redis::Client::open(self.url())?.get_multiplexed_async_connection().await?)
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
        let mut child = self.child.take().context("the server does not run")?;
        child.kill().await?;
        let _ = std::fs::remove_file(self.socket());
        Ok(())
    }

    /// Starts it again on what its disk has.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn launch(&mut self) -> Result<()> {
        let mut child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--dir", "."])
            .arg("--unixsocket")
            .arg(self.socket())
            .args(&self.settings)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .context("redis-server does not start; on Debian: apt-get install redis-server")?;
        let output = child.stdout.take().context("its output is not at hand")?;
        self.child = Some(child);
        let mut lines = BufReader::new(output).lines();
        let mut said = Vec::new();
        let ready = async {
            while let Some(line) = lines.next_line().await? {
                if line.contains("ready to accept connections") {
                    return Ok(());
                }
                said.push(line);
            }
            bail!("redis-server ended at once:\n{}", said.join("\n"))
        };
        tokio::time::timeout(START, ready).await.context("redis-server did not get ready")??;
        // It would stop at a pipe that nobody empties.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(())
    }
}

/// What a link does with what goes through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passage {
    Open,
    /// Requests arrive, and whoever is answered loses the connection instead.
    NoAnswers,
    /// Nothing passes: connections end, and new ones do too.
    Cut,
}

/// Stands between a client and the server, and can keep answers back or be cut.
pub struct Link {
    folder: TempDir,
    passage: watch::Sender<Passage>,
}

impl Link {
    /// # Errors
    /// When the socket cannot be made.
    pub fn to(server: &Server) -> Result<Self> {
        let folder = TempDir::with_prefix("skein-link-")?;
        let listener = UnixListener::bind(folder.path().join("link.sock"))?;
        let passage = watch::Sender::new(Passage::Open);
        let (passing, target) = (passage.subscribe(), server.socket());
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (mut passing, target) = (passing.clone(), target.clone());
                tokio::spawn(async move {
                    if *passing.borrow_and_update() == Passage::Cut {
                        return;
                    }
                    if let Ok(far) = UnixStream::connect(&target).await {
                        carry(near, far, passing).await;
                    }
                });
            }
        });
        Ok(Self { folder, passage })
    }

    pub fn url(&self) -> String {
        format!("unix://{}", self.folder.path().join("link.sock").display())
    }

    /// From now on requests arrive, and whoever is answered loses the connection instead.
    pub fn lose_answers(&self) {
        self.passage.send_replace(Passage::NoAnswers);
    }

    /// From now on nothing passes.
    pub fn cut(&self) {
        self.passage.send_replace(Passage::Cut);
    }

    pub fn heal(&self) {
        self.passage.send_replace(Passage::Open);
    }
}

/// Carries bytes both ways until one side ends, an answer is to be lost, or the link is cut.
async fn carry(near: UnixStream, far: UnixStream, mut passing: watch::Receiver<Passage>) {
    let (mut from_client, mut to_client) = near.into_split();
    let (mut from_server, mut to_server) = far.into_split();
    let out = tokio::io::copy(&mut from_client, &mut to_server);
    let answering = passing.clone();
    let back = async {
        let mut bytes = vec![0; 64 * 1024];
        loop {
            match from_server.read(&mut bytes).await {
                Ok(count) if count > 0 && *answering.borrow() == Passage::Open => {
                    if to_client.write_all(&bytes[..count]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            }
        }
    };
    tokio::select! {
        _ = out => {}
        () = back => {}
        _ = passing.wait_for(|passage| *passage == Passage::Cut) => {}
    }
}
