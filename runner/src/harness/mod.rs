//! The program that an agent is: a coding agent with a command line of its own, or any command.
//!
//! Each client is a file here, behind [`Client`]: what starts it, and what its events mean. Both are pure, so that what
//! is rendered can be looked at in a test; whoever starts and ends instances knows of no client.

mod claude_code;
mod codex;
mod ending;
mod gemini;
mod opencode;
mod program;
mod prompt;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use ending::{Ending, Said};
pub use program::{Choice, Launch, Lent, Place, Program};

/// Which program an agent is, as its definition spells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Harness {
    /// What `command` says, as it stands.
    #[default]
    Command,
    ClaudeCode,
    Codex,
    Gemini,
    Opencode,
}

/// A coding agent.
trait Client: Sync {
    /// The program's name, where `PATH` finds it.
    fn program(&self) -> &'static str;

    /// What starts it for one run without a person. It reads its prompt from standard input.
    fn start(&self, run: &Run<'_>) -> Start;

    /// Whether it can go on in a conversation that an earlier start has begun.
    fn goes_on(&self) -> bool {
        true
    }

    /// Takes note of one line of JSON that it printed.
    fn note(&self, event: &Value, said: &mut Said);
}

/// A run that a client is started for.
struct Run<'a> {
    /// The instance's endpoint: it ends in `/mcp`, and wants the value of [`TOKEN`] as its bearer token.
    url: &'a str,
    model: Option<&'a str>,
    /// How long one call of a tool may take before the client gives it up.
    tool_timeout: Duration,
    /// The conversation to go on with, by the client's own id.
    session: Option<&'a str>,
    /// The line of the shell that answers the client's hooks, unless they are off.
    hook: Option<&'a str>,
}

/// The name under which clients know the swarm's tools.
const SERVER: &str = "skein";
/// The variable that holds what an instance shows at its endpoint.
const TOKEN: &str = "SKEIN_TOKEN";
/// The variable that holds the endpoint's address.
const URL: &str = "SKEIN_URL";

/// The longest that a timer of JavaScript can be set to; a longer one ends at once.
const LONGEST_MILLIS: u64 = 2_147_483_647;

/// What starts a client.
struct Start {
    arguments: Vec<String>,
    /// Variables that the definition may set otherwise.
    env: Vec<(&'static str, String)>,
    /// Lines for the shell that have to come first.
    first: &'static str,
}

impl Harness {
    fn client(self) -> Option<&'static dyn Client> {
        match self {
            Self::Command => None,
            Self::ClaudeCode => Some(&claude_code::ClaudeCode),
            Self::Codex => Some(&codex::Codex),
            Self::Gemini => Some(&gemini::Gemini),
            Self::Opencode => Some(&opencode::Opencode),
        }
    }

    /// Whether what it prints says more than its exit status.
    pub fn is_client(self) -> bool {
        self.client().is_some()
    }

    /// Whether a later start of the same instance goes on in its conversation.
    pub fn goes_on(self) -> bool {
        self.client().is_some_and(Client::goes_on)
    }

    /// Takes note of a line that an instance printed.
    pub fn note(self, line: &str, said: &mut Said) {
        let Some(client) = self.client() else { return };
        if !line.starts_with('{') {
            return;
        }
        // Programs that the client starts may print anything.
        if let Ok(event) = serde_json::from_str(line) {
            client.note(&event, said);
        }
    }
}

fn arguments<const N: usize>(these: [&str; N]) -> Vec<String> {
    these.map(str::to_owned).to_vec()
}

/// As a limit of a client that is written in JavaScript.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX).min(LONGEST_MILLIS)
}

#[cfg(test)]
mod tests;
