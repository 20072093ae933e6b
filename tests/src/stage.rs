//! A node with a runner, and agents that follow a list of steps (`clients/agent.py`).

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use skein_runner::container::tree::Process;
use tokio::time::Instant;

use crate::agents::{self, Agents};
use crate::coder::Coder;
use crate::language_model::Model;
use crate::up::{Folder, Up, until_next_look};
use crate::webhook;

/// Longest that anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// The node with the folder that its agents are defined and work in. Dropping it ends them all.
pub struct Stage {
    agents: Agents,
    folder: Option<Folder>,
    up: Option<Up>,
    /// Whether some of its agents live in containers.
    contained: bool,
}

impl Stage {
    /// A folder with a runner of so many slots, not yet started.
    ///
    /// # Errors
    /// When the folder cannot be written to.
    pub fn new(slots: u32) -> Result<Self> {
        let settings = format!("[runner]\nslots = {slots}\n\n{}", webhook::configuration());
        let folder = Folder::new()?.configured(&settings)?;
        let agents = Agents::new(folder.path())?;
        Ok(Self { agents, folder: Some(folder), up: None, contained: false })
    }

    /// Defines an agent; `keys` are more lines of its `agent.toml`.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn agent(self, name: &str, keys: &str, steps: &[&str]) -> Result<Self> {
        self.agents.define(&self.data().join("agents"), name, keys, steps)?;
        Ok(self)
    }

    /// Defines an agent that lives in a container of an image.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn contained(mut self, image: &str, name: &str, keys: &str, steps: &[&str]) -> Result<Self> {
        self.contained = true;
        self.agents.define_contained(&self.data().join("agents"), name, image, keys, steps)?;
        Ok(self)
    }

    /// Defines an agent that is a line for the shell; `keys` are more lines of its `agent.toml`, among them perhaps an
    /// `image`.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn script(mut self, name: &str, keys: &str, script: &str) -> Result<Self> {
        self.contained |= keys.contains("image = ");
        self.agents.define_script(&self.data().join("agents"), name, keys, script)?;
        Ok(self)
    }

    /// Defines an agent that is a coding agent; `keys` are more lines of its `agent.toml`.
    ///
    /// # Errors
    /// When it cannot be written down, or the client is not installed.
    pub fn coder(self, name: &str, coder: Coder, keys: &str, model: &Model) -> Result<Self> {
        self.agents.define_coder(&self.data().join("agents"), name, coder, keys, model.address())?;
        Ok(self)
    }

    /// Writes a file into the folder that all its agents share.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn sharing(self, file: &str, text: &str) -> Result<Self> {
        let folder = self.data().join("shared");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(file), text)?;
        Ok(self)
    }

    /// Starts the node, for the first time or again.
    ///
    /// # Errors
    /// When it does not get ready.
    pub async fn start(mut self) -> Result<Self> {
        let folder = self.folder.take().context("it runs already")?;
        self.up = Some(Up::start_in(folder, &[]).await?);
        Ok(self)
    }

    /// With more settings for the node.
    ///
    /// # Errors
    /// When they cannot be written down.
    pub fn with_settings(self, more: &str) -> Result<Self> {
        let mut config = fs::File::options().append(true).open(self.data().join("config.toml"))?;
        write!(config, "\n{more}")?;
        Ok(self)
    }

    /// With a variable in the environment of the node.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.folder = self.folder.take().map(|folder| folder.with_variable(name, value));
        self
    }

    /// Ends the node as a crash does; its agents go on.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn kill(mut self) -> Result<Self> {
        self.folder = Some(self.up.take().context("it does not run")?.kill().await?);
        Ok(self)
    }

    /// Asks the node to end, and expects it to do so cleanly.
    ///
    /// # Errors
    /// When it does not.
    pub async fn terminate(mut self) -> Result<Self> {
        self.folder = Some(self.up.take().context("it does not run")?.terminate().await?);
        Ok(self)
    }

    /// Asks the node to end, and again while it waits for its agents. Gives how it ended.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ask_twice(mut self) -> Result<(Self, ExitStatus)> {
        let (folder, status) = self.up.take().context("it does not run")?.ask_twice().await?;
        self.folder = Some(folder);
        Ok((self, status))
    }

    pub fn up(&self) -> &Up {
        self.up.as_ref().expect("the test started the node")
    }

    pub fn data(&self) -> PathBuf {
        self.agents.root().join("data")
    }

    /// Starts a run by hand, waits until it is under way, and gives its instance.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn run(&self, agent: &str) -> Result<String> {
        let instance = self.ask(agent, "").await?;
        self.until("the run starts", async || {
            Ok(self.journal(agent)?.iter().any(|line| line["instance"] == instance.as_str()))
        })
        .await?;
        Ok(instance)
    }

    /// Asks for a run by hand, and gives its instance.
    ///
    /// # Errors
    /// When there will be none.
    pub async fn ask(&self, agent: &str, prompt: &str) -> Result<String> {
        let printed = self.up().skein(&["agent", "run", agent, "--prompt", prompt, "--json"]).await?;
        let queued: Value = serde_json::from_str(&printed)?;
        Ok(queued["instance"].as_str().context("no instance was named")?.to_owned())
    }

    /// What the runs of an agent wrote down, in order.
    ///
    /// # Errors
    /// When a line is no JSON.
    pub fn journal(&self, agent: &str) -> Result<Vec<Value>> {
        let mut lines = agents::journal(&self.work(agent))?;
        lines.extend(agents::printed(&self.data().join("runner/logs"), agent)?);
        Ok(lines)
    }

    /// The answers that the runs of an agent got in a step, as (instance, answer).
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub fn answers(&self, agent: &str, step: &str) -> Result<Vec<(String, Value)>> {
        let lines = self.journal(agent)?.into_iter().filter(|line| line["step"] == step);
        Ok(lines
            .map(|line| (line["instance"].as_str().unwrap_or_default().to_owned(), line["answer"].clone()))
            .collect())
    }

    /// Waits for the only answer of a step, and expects no second.
    ///
    /// # Errors
    /// When it does not come.
    pub async fn answer(&self, agent: &str, step: &str) -> Result<Value> {
        self.until(&format!("{agent} is through with {step}"), async || {
            Ok(!self.answers(agent, step)?.is_empty())
        })
        .await?;
        let mut answers = self.answers(agent, step)?;
        ensure!(answers.len() == 1, "{agent} did {step} more than once: {answers:?}");
        Ok(answers.remove(0).1)
    }

    /// Lets an agent's `hold` go on.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn go(&self, agent: &str) -> Result<()> {
        let (work, definition) = (self.work(agent), self.data().join("agents").join(agent));
        Ok(fs::write(if work.is_dir() { work } else { definition }.join("go"), "")?)
    }

    /// The work folder of an agent.
    pub fn work(&self, agent: &str) -> PathBuf {
        self.agents.root().join("data-work/default").join(agent)
    }

    /// The rows of a list of the command line.
    ///
    /// # Errors
    /// When the command fails.
    pub async fn list(&self, view: &str) -> Result<Vec<Value>> {
        let printed = self.up().skein(&[view, "list", "--json"]).await?;
        printed.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// The state of an instance, as people see it.
    ///
    /// # Errors
    /// When it is not listed.
    pub async fn state(&self, instance: &str) -> Result<String> {
        let row = self.instance(instance).await?;
        row["state"].as_str().map(str::to_owned).with_context(|| format!("{instance} has no state: {row}"))
    }

    /// An instance, as it is listed.
    ///
    /// # Errors
    /// When it is not listed.
    pub async fn instance(&self, instance: &str) -> Result<Value> {
        let mut rows = self.list("instances").await?.into_iter();
        rows.find(|row| row["instance"] == instance).with_context(|| format!("{instance} is not listed"))
    }

    /// Waits until an instance is in a state.
    ///
    /// # Errors
    /// When it does not come to be.
    pub async fn becomes(&self, instance: &str, state: &str) -> Result<()> {
        self.until(&format!("{instance} is {state}"), async || Ok(self.state(instance).await? == state)).await
    }

    /// Waits until an instance has ended, and says how.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ends(&self, instance: &str) -> Result<String> {
        let over =
            async || Ok(["completed", "error", "killed"].contains(&self.state(instance).await?.as_str()));
        self.until(&format!("{instance} has ended"), over).await?;
        self.state(instance).await
    }

    /// All that an instance printed.
    pub fn printed(&self, instance: &str) -> String {
        let log = self.data().join("runner/logs").join(format!("{instance}.log"));
        fs::read_to_string(log).unwrap_or_default()
    }

    /// The last lines that an instance printed.
    pub fn output(&self, instance: &str) -> String {
        let text = self.printed(instance);
        let tail: Vec<&str> = text.lines().rev().take(5).collect();
        tail.into_iter().rev().map(|line| line.chars().take(2000).collect::<String>() + "\n").collect()
    }

    /// What the node has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.agents.root().join("log")).unwrap_or_default()
    }

    /// Waits until the node's log has a text: a thread of its own writes what was logged a moment ago.
    ///
    /// # Errors
    /// When it does not come.
    pub async fn has_logged(&self, text: &str) -> Result<()> {
        self.until(&format!("the log says `{text}`"), async || Ok(self.log().contains(text))).await
    }

    /// Sends a signed push.
    ///
    /// # Errors
    /// When it is not taken in.
    pub async fn push(&self, delivery: &str, body: &Value) -> Result<Value> {
        let body = body.to_string();
        let signature = webhook::signature(&body);
        let (status, answer) = webhook::push(&self.up().ingress, delivery, &body, &signature).await?;
        ensure!((200..300).contains(&status), "{delivery} was answered with {status}: {answer}");
        Ok(answer)
    }

    /// The live processes of an instance, or of all when none is given.
    pub fn processes(&self, instance: Option<&str>) -> Vec<Process> {
        self.agents.processes(instance)
    }

    /// Looks until something is so.
    ///
    /// # Errors
    /// When it does not come to be, with what the node said last.
    pub async fn until(&self, what: &str, mut look: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
        let began = Instant::now();
        let looking = async {
            while !look().await? {
                tokio::time::sleep(until_next_look(began.elapsed())).await;
            }
            Ok(())
        };
        match tokio::time::timeout(LIMIT, looking).await {
            Ok(found) => found,
            Err(_) => {
                let log = self.log();
                let tail: Vec<&str> = log.lines().rev().take(30).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                bail!("it never came to be that {what}; the node's last words:\n{}", tail.join("\n"))
            }
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // The node first, so that it starts nothing more.
        self.up = None;
        self.agents.end();
        if self.contained {
            self.agents.end_contained();
        }
    }
}

/// Whether a process stands still: stopped by a signal, or in a frozen control group of either version.
fn stands_still(process: &Process) -> bool {
    let is_frozen = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let places: &[&str] = match controllers {
            "" => &["", "/unified"],
            "freezer" => &["/freezer"],
            _ => return None,
        };
        let file = if controllers.is_empty() { "cgroup.events" } else { "freezer.state" };
        let files = places.iter().map(|place| format!("/sys/fs/cgroup{place}{group}/{file}"));
        let mut states = files.filter_map(|path| fs::read_to_string(path).ok());
        states.any(|text| text.lines().any(|line| line == "frozen 1" || line == "FROZEN")).then_some(())
    };
    let groups = || fs::read_to_string(format!("/proc/{}/cgroup", process.pid)).unwrap_or_default();
    Process::read(process.pid).is_ok_and(|now| now.is_some_and(|now| now.is_stopped()))
        || groups().lines().any(|line| is_frozen(line).is_some())
}

/// Whether there are processes, and all of them stand still.
pub fn are_frozen(processes: &[Process]) -> bool {
    !processes.is_empty() && processes.iter().all(stands_still)
}

/// Whether there are processes, and none of them stands still.
pub fn are_running(processes: &[Process]) -> bool {
    !processes.is_empty() && !processes.iter().any(stands_still)
}
