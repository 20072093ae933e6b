//! Agents that follow a list of steps (`clients/agent.py`), and what they write down.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use skein_runner::container::tree::{self, Process};

use crate::coder::{Coder, Guide};
use crate::process::{Signal, signal};

/// Names the folder in its agents' environment, so that none outlives it.
const MARK: &str = "STAGE";
/// `/proc` announces nothing, so it is looked at this often.
const LOOK: Duration = Duration::from_millis(20);

/// Finds the runners whose containers have the mark, and removes all that is labelled as theirs.
const SWEEP: &str = r#"
format='{{index .Config.Labels "skein.runner"}} {{.Config.Env}}'
docker ps --all --quiet --filter label=skein.runner | xargs --no-run-if-empty docker inspect --format "$format" |
  grep --fixed-strings "$1" | cut --delimiter=' ' --fields=1 | sort --unique |
  while read -r runner; do
    docker ps --all --quiet --filter "label=skein.runner=$runner" | xargs --no-run-if-empty docker rm --force
    docker network ls --quiet --filter "label=skein.runner=$runner" | xargs --no-run-if-empty docker network rm
  done
"#;

/// A folder with the agents' program.
pub struct Agents {
    root: PathBuf,
}

impl Agents {
    /// # Errors
    /// When the folder cannot be written to.
    pub fn new(folder: &Path) -> Result<Self> {
        let root = folder.canonicalize()?;
        // The agents run under users of their own, who have to reach the program and their work.
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755))?;
        let bin = root.join("bin");
        fs::create_dir(&bin)?;
        fs::set_permissions(&bin, fs::Permissions::from_mode(0o755))?;
        let program = bin.join("agent.py");
        fs::write(&program, include_str!("../clients/agent.py"))?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o644))?;
        Ok(Self { root })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Defines an agent in a folder of definitions; `keys` are more lines of its `agent.toml`.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn define(&self, definitions: &Path, name: &str, keys: &str, steps: &[&str]) -> Result<()> {
        let program = self.root.join("bin/agent.py");
        let mut command = vec!["python3", program.to_str().context("the folder's name is no text")?];
        command.extend(steps);
        let keys = format!("command = {}\n{keys}", serde_json::to_string(&command)?);
        self.write(definitions, name, &keys, &[])
    }

    /// Defines an agent that is a line for the shell.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn define_script(&self, definitions: &Path, name: &str, keys: &str, script: &str) -> Result<()> {
        let command = serde_json::to_string(&["sh", "-c", script])?;
        self.write(definitions, name, &format!("command = {command}\n{keys}"), &[])
    }

    /// Defines an agent that is a coding agent, led to a model at an address.
    ///
    /// # Errors
    /// When it cannot be written down, or the client is not installed.
    pub fn define_coder(
        &self,
        definitions: &Path,
        name: &str,
        coder: Coder,
        keys: &str,
        model: &str,
    ) -> Result<()> {
        let program = coder.install(&self.root.join("bin"))?;
        let Guide { model, args, env } = coder.guide(model);
        let harness = coder.harness();
        let model = model.map(|model| format!("model = \"{model}\"\n")).unwrap_or_default();
        let program = program.display();
        let args = serde_json::to_string(&args)?;
        let keys =
            format!("harness = \"{harness}\"\ncommand = [\"{program}\"]\nargs = {args}\n{model}{keys}");
        self.write(definitions, name, &keys, &env)
    }

    fn write(&self, definitions: &Path, name: &str, keys: &str, env: &[(&str, String)]) -> Result<()> {
        let mut definition = format!("{keys}\n[env]\n{MARK} = \"{}\"\n", self.root.display());
        for (name, value) in env {
            definition += &format!("{name} = \"{value}\"\n");
        }
        let folder = definitions.join(name);
        fs::create_dir_all(&folder)?;
        Ok(fs::write(folder.join("agent.toml"), definition)?)
    }

    /// Defines an agent in a container: the program lies beside its definition.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn define_contained(
        &self,
        definitions: &Path,
        name: &str,
        image: &str,
        keys: &str,
        steps: &[&str],
    ) -> Result<()> {
        let mut command = vec!["python3", "agent.py"];
        command.extend(steps);
        let definition = format!(
            "image = \"{image}\"\ncommand = {}\n{keys}\n[env]\n{MARK} = \"{}\"\n",
            serde_json::to_string(&command)?,
            self.root.display()
        );
        let folder = definitions.join(name);
        fs::create_dir_all(&folder)?;
        fs::copy(self.root.join("bin/agent.py"), folder.join("agent.py"))?;
        Ok(fs::write(folder.join("agent.toml"), definition)?)
    }

    /// Removes the containers and networks of the runners that have run such agents here.
    pub fn end_contained(&self) {
        let mark = format!("{MARK}={}", self.root.display());
        // Whatever is left is no fault of a test that has passed; one that has failed says so itself.
        let _ = std::process::Command::new("sh").args(["-c", SWEEP, "sh", &mark]).output();
    }

    /// The live processes of an instance, or of all when none is given.
    pub fn processes(&self, instance: Option<&str>) -> Vec<Process> {
        let mark = format!("{MARK}={}", self.root.display());
        let wanted = instance.map(|instance| format!("SKEIN_INSTANCE={instance}"));
        let ours = |process: &Process| {
            let environment = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
            let has =
                |entry: &str| environment.split(|&byte| byte == 0).any(|found| found == entry.as_bytes());
            has(&mark) && wanted.as_deref().is_none_or(has)
        };
        let all = tree::all().expect("`/proc` can be read");
        all.into_iter().filter(|process| !process.is_over() && ours(process)).collect()
    }

    /// Ends them all, once nothing starts any more.
    #[expect(clippy::disallowed_methods, reason = "a drop cannot await, and the test is over")]
    pub fn end(&self) {
        for _ in 0..100 {
            let left = self.processes(None);
            if left.is_empty() {
                return;
            }
            for process in left {
                // It may have ended by itself.
                let _ = signal(process.pid, Signal::KILL);
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// What the runs of an agent wrote down in their work folder, in order.
///
/// # Errors
/// When a line is no JSON.
pub fn journal(work: &Path) -> Result<Vec<Value>> {
    let Ok(text) = fs::read_to_string(work.join("journal")) else { return Ok(Vec::new()) };
    whole_lines(&text).map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// What the runs of an agent printed in their containers, each in order.
///
/// # Errors
/// When a line is no JSON.
pub fn printed(logs: &Path, agent: &str) -> Result<Vec<Value>> {
    let Ok(entries) = fs::read_dir(logs) else { return Ok(Vec::new()) };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let mut lines = Vec::new();
    for file in files.iter().filter(|file| is_log_of(file, agent)) {
        let text = fs::read_to_string(file)?;
        // Whatever else is printed is none of the journal.
        for line in whole_lines(&text).filter(|line| line.starts_with("{\"instance\"")) {
            lines.push(serde_json::from_str(line)?);
        }
    }
    Ok(lines)
}

fn is_log_of(file: &Path, agent: &str) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.strip_suffix(".log").and_then(|name| name.rsplit_once('-')).is_some_and(|(of, _)| of == agent)
}

fn whole_lines(text: &str) -> impl Iterator<Item = &str> {
    text.rsplit_once('\n').map_or("", |(whole, _)| whole).lines()
}
