//! What an agent's definition says about its program, and what starts that for a run.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{Harness, Run, prompt};
use crate::credentials::Reference;
use crate::hook;

/// A call of a tool may take as long as the longest wait, and then a while.
const LEEWAY: Duration = Duration::from_secs(60);
const LEAST: Duration = Duration::from_secs(3600);
/// Gives a client the prompt, and a home of its own where the agent's is not its user's: clients keep files there that
/// they let no other user read, and each instance may have another user.
const SHELL: &str = r#"[ -O "$HOME" ] || { HOME="$HOME/.home-$(id -u)"; mkdir -p "$HOME" || exit; export HOME; }
"#;
/// A conversation that goes on has its instructions.
const GO_ON: &str = r#"exec "$@" <<PROMPT
$SKEIN_PROMPT
PROMPT
"#;
const BEGIN: &str = r#"exec "$@" <<PROMPT
$SKEIN_INSTRUCTIONS

$SKEIN_PROMPT
PROMPT
"#;

/// The keys of a definition that choose the program.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Choice {
    pub harness: Harness,
    /// The program with its first arguments. A client's own name if left out.
    pub command: Vec<String>,
    pub model: Option<String>,
    /// More arguments for the client.
    pub args: Vec<String>,
    /// Whether the swarm has a say between its steps, if it is a client that lets it. It has if nothing is said.
    pub swarm_hooks: Option<bool>,
}

/// The program of an agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    harness: Harness,
    command: Vec<String>,
    model: Option<String>,
    args: Vec<String>,
    swarm_hooks: bool,
    tool_timeout: Duration,
}

/// The instance that a program runs for.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub swarm: &'a str,
    pub agent: &'a str,
    pub instance: &'a str,
    /// Its endpoint.
    pub url: &'a str,
    /// What its definition tells it of its surroundings.
    pub params: &'a Value,
    pub lent: Option<Lent<'a>>,
    /// The only folders that it may write into; empty where its user's rights say which.
    pub writable: &'a [&'a str],
    /// Where it finds the commands of its runner, if that has them.
    pub commands: Option<&'a Path>,
}

/// The credentials that an instance is lent, by their names: no value of them is ever told.
#[derive(Clone, Copy, Debug)]
pub struct Lent<'a> {
    /// Where it finds their files.
    pub folder: &'a Path,
    pub credentials: &'a [Reference],
    /// The variables that they set.
    pub variables: &'a [&'a str],
}

/// What an engine starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    pub command: Vec<String>,
    /// Variables that the definition may set otherwise.
    pub env: BTreeMap<String, String>,
}

impl Launch {
    /// A line for the shell.
    pub fn shell(line: &str) -> Self {
        Self { command: ["/bin/sh", "-c", line].map(str::to_owned).to_vec(), env: BTreeMap::new() }
    }
}

impl Program {
    /// `wait_timeout` is the longest that the agent may wait for an event. An agent in a container needs no command:
    /// its image may have one.
    ///
    /// # Errors
    /// A sentence that names the key and what to write.
    pub fn new(
        choice: Choice,
        contained: bool,
        tool_timeout: Option<Duration>,
        wait_timeout: Duration,
    ) -> Result<Self, String> {
        let named = choice.command.first().is_some_and(|program| !program.is_empty());
        if !choice.harness.is_client() {
            let of_the_image = contained && choice.command.is_empty();
            if !named && !of_the_image {
                return Err("command: missing; write the program and its arguments, such as [\"python3\", \"/opt/agents/agent.py\"], or say which coding agent it is, such as harness = \"claude-code\"".to_owned());
            }
            alone(&choice, tool_timeout)?;
        } else if !named && !choice.command.is_empty() {
            return Err("command: empty; leave it out, or write where the client is".to_owned());
        }
        if [&choice.command, &choice.args].into_iter().flatten().any(|argument| argument.contains('\0')) {
            return Err("command, args: an argument cannot hold a zero byte".to_owned());
        }
        Ok(Self {
            harness: choice.harness,
            command: choice.command,
            model: choice.model,
            args: choice.args,
            swarm_hooks: choice.swarm_hooks.unwrap_or(true),
            tool_timeout: tool_timeout.unwrap_or_else(|| LEAST.max(wait_timeout + LEEWAY)),
        })
    }

    pub fn harness(&self) -> Harness {
        self.harness
    }

    /// The coding agent that `PATH` has to lead to; none where the definition says where its program is.
    pub fn looked_for(&self) -> Option<&'static str> {
        self.harness.client().filter(|_| self.command.is_empty()).map(|client| client.program())
    }

    /// How long a client waits for the answer to a call. That of a command is its own affair.
    pub fn patience(&self) -> Option<Duration> {
        self.harness.is_client().then_some(self.tool_timeout)
    }

    /// What starts it. `session` is the conversation that an earlier start of the same instance has begun.
    pub fn launch(&self, place: &Place<'_>, input: &str, session: Option<&str>) -> Launch {
        let Some(client) = self.harness.client() else {
            return Launch { command: self.command.clone(), env: BTreeMap::new() };
        };
        let (url, tool_timeout) = (place.url, self.tool_timeout);
        // By its place: the agent may have a `PATH` of its own.
        let commands = place.commands.filter(|_| self.swarm_hooks && !self.has_settings());
        let hook = commands.map(|folder| folder.join(hook::PROGRAM));
        let hook = hook.map(|program| hook::line([&*program.to_string_lossy()]));
        let model = self.model.as_deref();
        let start = client.start(&Run { url, model, tool_timeout, session, hook: hook.as_deref() });
        let prompt = prompt::render(place, input, session.is_some());
        let mut env: BTreeMap<String, String> =
            start.env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        env.insert("SKEIN_PROMPT".to_owned(), prompt);
        let last = if session.is_some() { GO_ON } else { BEGIN };
        let Launch { mut command, .. } = Launch::shell(&format!("{SHELL}{}{last}", start.first));
        command.push("sh".to_owned());
        match self.command.as_slice() {
            [] => command.push(client.program().to_owned()),
            named => command.extend_from_slice(named),
        }
        // What the definition adds comes before what has to stand at the end, and after what it may set otherwise.
        let last = usize::from(start.arguments.last().is_some_and(|last| last == "-"));
        let (these, end) = start.arguments.split_at(start.arguments.len() - last);
        command.extend(these.iter().chain(&self.args).chain(end).cloned());
        Launch { command, env }
    }

    /// Whether the definition gives the client settings. It takes one file of them, and which one depends on its
    /// version: the hooks, which are settings too, must not make it forget the agent's own.
    fn has_settings(&self) -> bool {
        let mut given = self.command.iter().chain(&self.args);
        given.any(|argument| argument == "--settings" || argument.starts_with("--settings="))
    }
}

/// A command gets its arguments as they stand: nothing reads these keys for it.
fn alone(choice: &Choice, tool_timeout: Option<Duration>) -> Result<(), String> {
    let set = [
        ("model", choice.model.is_some()),
        ("args", !choice.args.is_empty()),
        ("tool_timeout", tool_timeout.is_some()),
    ];
    match set.into_iter().find(|(_, set)| *set) {
        Some((key, _)) => Err(format!(
            "{key}: only a coding agent has it; say which, such as harness = \"claude-code\", or write it into `command`"
        )),
        None => Ok(()),
    }
}
