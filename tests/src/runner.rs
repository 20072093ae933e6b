//! `skein-runner` as a process of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Result, ensure};
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::agents::{self, Agents};
use crate::process::{Signal, signal};
use crate::up::{Folder, binary};

/// A runner's folders: agents, ledger, token, work. What runs in them ends when it is dropped.
pub struct Place {
    agents: Agents,
    /// Removed last.
    folder: Folder,
    name: String,
}

impl Place {
    /// For a runner of this name.
    ///
    /// # Errors
    /// When the folders cannot be made.
    pub fn new(name: &str) -> Result<Self> {
        let folder = Folder::new()?;
        std::fs::create_dir_all(folder.path().join("agents"))?;
        Ok(Self { agents: Agents::new(folder.path())?, folder, name: name.to_owned() })
    }

    /// Defines an agent as it is written.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn define(&self, name: &str, definition: &str) -> Result<()> {
        let folder = self.definitions().join(name);
        std::fs::create_dir_all(&folder)?;
        Ok(std::fs::write(folder.join("agent.toml"), definition)?)
    }

    /// Defines an agent that follows steps.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn agent(&self, name: &str, keys: &str, steps: &[&str]) -> Result<()> {
        self.agents.define(&self.definitions(), name, keys, steps)
    }

    /// What the runs of an agent wrote down.
    ///
    /// # Errors
    /// When a line is no JSON.
    pub fn journal(&self, agent: &str) -> Result<Vec<Value>> {
        agents::journal(&self.work(agent))
    }

    /// Lets an agent's `hold` go on.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn go(&self, agent: &str) -> Result<()> {
        Ok(std::fs::write(self.work(agent).join("go"), "")?)
    }

    /// The command lines of an instance's processes.
    pub fn commands(&self, instance: &str) -> Vec<String> {
        let line = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let processes = self.agents.processes(Some(instance));
        processes.iter().map(|process| line(process.pid).replace('\0', " ")).collect()
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Starts the runner, with the coordinators' addresses as `HOST:PORT`. It is killed when dropped.
    ///
    /// # Errors
    /// When the program is missing.
    pub fn start(&self, coordinators: &[impl AsRef<str>], token: &str) -> Result<Child> {
        let root = self.folder.path();
        std::fs::write(root.join("token"), token)?;
        let log = std::fs::File::options().create(true).append(true).open(root.join("log"))?;
        let mut command = Command::new(binary("skein-runner"));
        for address in coordinators {
            command.arg("--coordinator").arg(format!("http://{}", address.as_ref()));
        }
        Ok(command
            .args(["--name", &self.name, "--slots", "2"])
            .arg("--token-file")
            .arg(root.join("token"))
            .arg("--agents")
            .arg(self.definitions())
            .arg("--data")
            .arg(root.join("runner"))
            .arg("--work")
            .arg(root.join("work"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?)
    }

    fn definitions(&self) -> PathBuf {
        self.folder.path().join("agents")
    }

    fn work(&self, agent: &str) -> PathBuf {
        self.folder.path().join("work/default").join(agent)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.agents.end();
    }
}

/// Asks a runner to end, and expects it to do so cleanly.
///
/// # Errors
/// When it does not.
pub async fn terminate(mut runner: Child) -> Result<()> {
    let Some(id) = runner.id() else { anyhow::bail!("the runner has ended") };
    signal(id, Signal::TERM)?;
    let status = runner.wait().await?;
    ensure!(status.success(), "the runner ended with {status}");
    Ok(())
}
