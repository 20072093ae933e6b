//! The transport tools `bash read write edit grep find ls`, as they are executed: by a process inside the instance,
//! with its user and its sandbox, so that the kernel says what they may touch. Nothing here looks at that itself.
//! `set_env` runs nowhere: the runner keeps what it sets, and hands it to `bash`.
//!
//! The runner starts its own program in the instance with the subcommand `transport` ([`Engine::exec`]), which reads
//! one [`Request`] and writes one [`Outcome`]. One file for each tool; [`cut`] bounds what they say, [`files`] reads
//! and writes, [`walk`] goes through folders, [`drain`] reads on what a command has left in the background, [`end`]
//! ends it. By [`part`] coordinators carry whole files, in and out.
//!
//! [`Engine::exec`]: crate::container::Engine::exec

mod bash;
mod cut;
mod drain;
mod edit;
mod end;
mod files;
mod find;
mod grep;
mod ls;
mod part;
mod read;
mod walk;
mod write;

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use skein_shared::transport::{self as shared, Outcome, Tool};

use drain::Rest;
pub use end::END;

/// The hidden subcommand that runs a tool; every binary that runs a runner has to offer it.
pub const SUBCOMMAND: &str = "transport";
/// The variable that says in which folder output is kept that is too long to be shown. It goes with the instance, as
/// the temporary files of a container do, where it is not set.
pub const OUTPUTS: &str = "SKEIN_OUTPUTS";
/// What is left to a tool, after its time, to say so.
const MARGIN: Duration = Duration::from_secs(10);
/// Exit status of a tool whose time was over, as timeout(1) has it: what it has started shall end with it.
const TIMED_OUT: u8 = 124;

/// Which tool to run, and with what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub tool: Tool,
    pub arguments: Value,
    /// What the agent has set for its commands. For these alone: this program works without.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
}

/// What came of a tool.
struct Ran {
    outcome: Outcome,
    /// Its time was over.
    timed_out: bool,
    /// What it has left in the background prints still.
    rest: Option<Rest>,
}

impl From<Outcome> for Ran {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, timed_out: false, rest: None }
    }
}

/// A result, or a sentence that says what went wrong and what to do next.
type Result<T> = std::result::Result<T, String>;

impl Request {
    /// How long the process may run that executes this.
    pub fn limit(&self) -> Duration {
        match self.tool {
            // A time that is none is refused at once.
            Tool::Bash => shared::limit(self.arguments["timeout"].as_f64()).unwrap_or_default() + MARGIN,
            _ => shared::QUICK,
        }
    }

    fn run(self) -> Ran {
        let Self { tool, arguments, variables } = self;
        let outcome = match tool {
            Tool::Bash => {
                return with(arguments, |arguments| bash::run(arguments, &variables))
                    .unwrap_or_else(|problem| Outcome::failed(problem).into());
            }
            Tool::Read => with(arguments, read::run),
            Tool::Write => with(arguments, write::run),
            Tool::Edit => with(arguments, edit::run),
            Tool::Grep => with(arguments, grep::run),
            Tool::Find => with(arguments, find::run),
            Tool::Ls => with(arguments, ls::run),
            Tool::SetEnv => Err("variables are the runner's to set".to_owned()),
            Tool::GetPart => with(arguments, part::get),
            Tool::PutPart => with(arguments, part::put),
        };
        outcome.unwrap_or_else(Outcome::failed).into()
    }
}

fn with<A: DeserializeOwned, T>(arguments: Value, tool: impl FnOnce(A) -> Result<T>) -> Result<T> {
    let arguments = serde_json::from_value(arguments);
    tool(arguments.map_err(|error| format!("the arguments do not fit: {error}"))?)
}

/// Runs the tool that standard input asks for and writes its outcome to standard output.
pub fn serve() -> ExitCode {
    if let Some(keep) = drain::is_asked_to_keep() {
        return drain::serve(keep);
    }
    if let Some(mark) = end::is_asked_for() {
        return end::serve(mark);
    }
    match answer() {
        Ok(code) => code,
        Err(problem) => {
            // Where nobody hears it the status says it.
            let _ = writeln!(io::stderr(), "skein: a tool could not be run: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn answer() -> io::Result<ExitCode> {
    let mut asked = Vec::new();
    io::stdin().lock().read_to_end(&mut asked)?;
    let request: Request = serde_json::from_slice(&asked)?;
    let Ran { mut outcome, timed_out, rest } = request.run();
    if let Some(Err(error)) = rest.map(Rest::hand_over) {
        outcome.text = format!(
            "{}\n\nNobody reads what the command's processes in the background print from now on, which may end them: {error}",
            outcome.text
        );
    }
    let mut output = io::stdout().lock();
    serde_json::to_writer(&mut output, &outcome)?;
    output.flush()?;
    Ok(if timed_out { ExitCode::from(TIMED_OUT) } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests;
