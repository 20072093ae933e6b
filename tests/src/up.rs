//! `skein up` as a process of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// How long a start may take on a busy machine. It ends as soon as the node is ready.
const START: Duration = Duration::from_secs(60);

/// Where a program of this workspace was built.
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let folder = test.parent().and_then(Path::parent).expect("tests are built into target/PROFILE/deps");
    let path = folder.join(name);
    assert!(path.exists(), "{} is missing; run `cargo build --workspace --bins` first", path.display());
    path
}

/// A running node with its data folder. It is killed when dropped.
pub struct Up {
    child: Child,
    pub folder: Folder,
    pub mcp: String,
    pub ingress: String,
    pub grpc: String,
}

/// The folder that outlives a node's process.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Result<Self> {
        Ok(Self(TempDir::with_prefix("skein-test-")?))
    }

    pub fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Up {
    pub async fn start() -> Result<Self> {
        Self::start_in(Folder::new()?, &["--no-runner"]).await
    }

    /// Starts in a folder, which may hold the data of an earlier node.
    pub async fn start_in(folder: Folder, arguments: &[&str]) -> Result<Self> {
        let data = folder.data();
        let log = std::fs::File::options().create(true).append(true).open(folder.path().join("log"))?;
        let endpoint = data.join("endpoint.json");
        let _ = std::fs::remove_file(&endpoint);
        let mut child = Command::new(binary("skein"))
            .arg("up")
            .arg("--data")
            .arg(&data)
            .args(["--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--ingress", "127.0.0.1:0"])
            .args(arguments)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let endpoint = tokio::time::timeout(START, ready(&mut child, &endpoint))
            .await
            .context("the node did not get ready")?
            .with_context(|| std::fs::read_to_string(folder.path().join("log")).unwrap_or_default())?;
        let address = |name: &str| {
            endpoint[name].as_str().map(str::to_owned).with_context(|| format!("endpoint.json lacks {name}"))
        };
        Ok(Self {
            mcp: format!("http://{}/mcp", address("http")?),
            ingress: format!("http://{}", address("ingress")?),
            grpc: address("grpc")?,
            child,
            folder,
        })
    }

    pub fn data(&self) -> PathBuf {
        self.folder.data()
    }

    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Ends the process the hard way, as a crash does, and gives the folder back.
    pub async fn kill(mut self) -> Result<Folder> {
        self.child.start_kill()?;
        self.child.wait().await?;
        Ok(self.folder)
    }

    /// Asks the process to end and expects it to do so cleanly.
    pub async fn terminate(mut self) -> Result<Folder> {
        let id = self.child.id().context("the node has ended already")?;
        ensure!(Command::new("kill").arg("-TERM").arg(id.to_string()).status().await?.success());
        let status =
            tokio::time::timeout(START, self.child.wait()).await.context("the node did not drain")??;
        ensure!(status.success(), "the node ended with {status}");
        Ok(self.folder)
    }

    /// Runs the command line against this node and gives what it prints.
    pub async fn skein(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(binary("skein"))
            .args(arguments)
            .arg("--data")
            .arg(self.data())
            .stdin(Stdio::null())
            .output()
            .await?;
        if !output.status.success() {
            bail!(
                "skein {} ended with {}: {}",
                arguments.join(" "),
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Issues a token; it is the last line of what the command prints.
    pub async fn token(&self, role: &str, name: &str) -> Result<String> {
        let printed = self.skein(&["token", "issue", "--role", role, "--name", name]).await?;
        printed.lines().last().map(str::to_owned).context("no token was printed")
    }
}

/// Waits until the node has written where it listens, which it does once it is ready.
async fn ready(child: &mut Child, endpoint: &Path) -> Result<Value> {
    loop {
        if let Some(status) = child.try_wait()? {
            bail!("the node ended with {status}");
        }
        if let Ok(text) = std::fs::read_to_string(endpoint)
            && let Ok(endpoint) = serde_json::from_str(&text)
        {
            return Ok(endpoint);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
