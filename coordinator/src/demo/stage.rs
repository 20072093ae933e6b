//! The stage of the demo: a folder with a copy of the repository, the program, the agents' definitions and a
//! node of its own.
//!
//! The agents may run under users of their own, who can read neither the caller's home nor the data folder.
//! So the repository is cloned and the program copied to where they can read them; the data folder beside
//! them stays closed.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::agents::{LEAD, REPOSITORY, SUMMARISER};
use super::run::DemoError;

/// How long the node may take to get ready on a busy machine.
const START: Duration = Duration::from_secs(60);
/// How often to look whether it is.
const LOOK: Duration = Duration::from_millis(20);
/// The lead and the workers, which start by themselves. The summariser starts when it is called.
pub(super) const STARTED: [(&str, &str); 3] = [(LEAD, LEAD), ("worker-1", "worker"), ("worker-2", "worker")];

/// How many lines of a log say enough about a failure.
const LAST_WORDS: usize = 20;

pub(super) struct Stage {
    /// Removed with all that is in it when the stage is dropped.
    root: TempDir,
    pub(super) secret: String,
    node: Child,
    /// Where the node's ingress listens.
    pub(super) ingress: String,
}

impl Stage {
    /// Builds the folder and starts the node in it.
    pub(super) async fn set(repository: &Path) -> Result<Self, DemoError> {
        let root = tempfile::Builder::new().prefix("skein-demo-").tempdir()?;
        let path = root.path();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
        clone(repository, &path.join("repository")).await?;
        let program = copy_program(path)?;
        let secret = uuid::Uuid::new_v4().to_string();
        write_definitions(path, &program, &secret)?;
        let (node, endpoint) = start_node(path, &program).await?;
        let ingress = endpoint["ingress"]
            .as_str()
            .map(str::to_owned)
            .ok_or_else(|| DemoError::Node("it does not say where its ingress listens".to_owned()))?;
        Ok(Self { root, secret, node, ingress })
    }

    pub(super) fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    pub(super) fn report(&self) -> PathBuf {
        self.root.path().join("report.md")
    }

    /// The branch that the clone stands on.
    pub(super) async fn branch(&self) -> Result<String, DemoError> {
        let clone = self.root.path().join("repository");
        let output = Command::new("git")
            .arg("-C")
            .arg(clone)
            .args(["rev-parse", "--abbrev-ref", "HEAD"])
            .output()
            .await?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// What to say when the node ended by itself.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.node.try_wait().ok().flatten()?;
        let words = last_words(&self.root.path().join("node.log"));
        Some(format!("{status}; its last words:\n{words}"))
    }

    /// The end of an instance's log; empty when it wrote none.
    pub(super) fn last_words_of(&self, instance: &str) -> String {
        last_words(&self.data().join("runner").join("logs").join(format!("{instance}.log")))
    }

    /// Leaves the node running and says how to reach and how to stop it.
    pub(super) fn keep(mut self) -> String {
        let data = self.data();
        let id = self.node.id().unwrap_or_default();
        // Not waiting for it any more is the point: the node goes on by itself.
        let _ = self.node.try_wait();
        std::mem::forget(self.node);
        let root = self.root.keep();
        format!(
            "everything keeps running: try `skein status --data {}`; stop it with `kill {id}`, and then remove {}",
            data.display(),
            root.display()
        )
    }

    /// Ends the node and removes all but the report.
    pub(super) async fn clear(mut self) -> Result<(), DemoError> {
        self.end_node().await?;
        let report = self.report();
        for entry in std::fs::read_dir(self.root.keep())? {
            let path = entry?.path();
            if path.is_dir() {
                std::fs::remove_dir_all(path)?;
            } else if path != report {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Ends the node and removes everything.
    pub(super) async fn strike(mut self) -> Result<(), DemoError> {
        self.end_node().await?;
        Ok(self.root.close()?)
    }

    async fn end_node(&mut self) -> Result<(), DemoError> {
        let id = self.node.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        if let Some(id) = id {
            // It has ended already when this fails.
            let _ = kill_process(id, Signal::TERM);
        }
        if tokio::time::timeout(START, self.node.wait()).await.is_err() {
            self.node.kill().await?;
        }
        Ok(())
    }
}

fn last_words(log: &Path) -> String {
    let log = std::fs::read(log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LAST_WORDS)..].join("\n")
}

/// Clones, so that the agents work on what is committed and cannot touch the original.
async fn clone(repository: &Path, target: &Path) -> Result<(), DemoError> {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "clone", "--quiet", "--no-hardlinks"])
        .arg(repository)
        .arg(target)
        .stdin(Stdio::null())
        .output()
        .await
        .map_err(|error| DemoError::Repository(format!("git cannot be run: {error}; install git")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(DemoError::Repository(said));
    }
    if !target.join(".git").join("index").exists() {
        return Err(DemoError::Repository(format!("{} has no commit yet", repository.display())));
    }
    Ok(())
}

fn copy_program(root: &Path) -> Result<PathBuf, DemoError> {
    let folder = root.join("bin");
    std::fs::create_dir(&folder)?;
    let program = folder.join("skein");
    std::fs::copy(std::env::current_exe()?, &program)?;
    Ok(program)
}

fn write_definitions(root: &Path, program: &Path, secret: &str) -> Result<(), DemoError> {
    let data = root.join("data");
    std::fs::create_dir(&data)?;
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700))?;
    let config =
        format!("[[ingress.source]]\nname = \"github\"\nprovider = \"github\"\nsecret = \"{secret}\"\n");
    std::fs::write(data.join("config.toml"), config)?;
    let repository = root.join("repository");
    for (name, role) in STARTED {
        write_agent(&data, name, program, role, role, true, &repository)?;
    }
    write_agent(&data, SUMMARISER, program, SUMMARISER, "worker", false, &repository)
}

fn write_agent(
    data: &Path,
    name: &str,
    program: &Path,
    part: &str,
    role: &str,
    autostart: bool,
    repository: &Path,
) -> Result<(), DemoError> {
    let folder = data.join("agents").join(name);
    std::fs::create_dir_all(&folder)?;
    let text = |path: &Path| serde_json::to_string(&path.to_string_lossy()).unwrap_or_default();
    let definition = format!(
        "command = [{}, \"demo-agent\", \"{part}\"]\nrole = \"{role}\"\nautostart = {autostart}\ntimeout = \"1h\"\n\n[env]\n{REPOSITORY} = {}\n",
        text(program),
        text(repository),
    );
    std::fs::write(folder.join("agent.toml"), definition)?;
    Ok(())
}

/// Starts `skein up` on free ports and waits until it has written where it listens, which it does when it is
/// ready. Its output goes to a file, so that it can outlive this process.
async fn start_node(root: &Path, program: &Path) -> Result<(Child, Value), DemoError> {
    let data = root.join("data");
    let log = std::fs::File::create(root.join("node.log"))?;
    let mut node = Command::new(program)
        .arg("up")
        .arg("--data")
        .arg(&data)
        .args(["--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--ingress", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        // Ctrl-C in a terminal is for the demo alone, which then ends the node in order.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let ready = tokio::time::timeout(START, endpoint(&mut node, &data.join("endpoint.json"))).await;
    match ready {
        Ok(Some(endpoint)) => Ok((node, endpoint)),
        _ => {
            let said = last_words(&root.join("node.log"));
            Err(DemoError::Node(format!("it did not get ready; its last words:\n{said}")))
        }
    }
}

/// `None` when the node ended instead.
async fn endpoint(node: &mut Child, path: &Path) -> Option<Value> {
    loop {
        if node.try_wait().ok()?.is_some() {
            return None;
        }
        if let Ok(text) = std::fs::read(path)
            && let Ok(endpoint) = serde_json::from_slice(&text)
        {
            return Some(endpoint);
        }
        tokio::time::sleep(LOOK).await;
    }
}
