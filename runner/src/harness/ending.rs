//! How a client's run ended: its exit status, and what it said itself.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use skein_shared::agent::Usage;

use crate::container::Exit;

/// Longest reason that is taken over from a client, characters.
const REASON: usize = 300;
/// Longest id of a conversation, characters.
const SESSION: usize = 200;
/// Greatest count that is believed of one line.
const MOST: u64 = 1 << 40;
/// Greatest sum of those. Whatever an agent runs may print such lines without end.
const SUM: u64 = 1 << 60;
/// What a shell exits with when it does not find a program.
const NOT_FOUND: i32 = 127;

/// What a client has said of a run so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Said {
    /// The client's id of the conversation.
    pub session: Option<String>,
    pub(super) usage: Usage,
    /// Its last word, if there was one.
    last: Option<Word>,
}

/// How a run went, by its client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Well,
    Failed(String),
}

/// How a run ended, with its client's word put to its exit status.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending {
    pub exit: Exit,
    /// Empty when the exit status says it all.
    pub reason: String,
    pub usage: Option<Usage>,
}

impl Said {
    pub(super) fn session_is(&mut self, id: &Value) {
        if let Some(id) = id.as_str().filter(|id| is_session(id)) {
            self.session = Some(id.to_owned());
        }
    }

    /// What the whole conversation has cost so far, in US dollars.
    pub(super) fn cost_is(&mut self, dollars: &Value) {
        self.usage.cost_micros = micros(dollars).or(self.usage.cost_micros);
    }

    /// Adds what a part of it cost, in US dollars.
    pub(super) fn costs(&mut self, dollars: &Value) {
        if let Some(micros) = micros(dollars) {
            add(self.usage.cost_micros.get_or_insert(0), micros);
        }
    }

    /// Adds what a part of it has taken.
    pub(super) fn takes(&mut self, input_tokens: u64, output_tokens: u64, turns: u64) {
        add(&mut self.usage.input_tokens, input_tokens);
        add(&mut self.usage.output_tokens, output_tokens);
        add(&mut self.usage.turns, turns);
    }

    pub(super) fn is_over(&mut self, failure: Option<String>) {
        self.last = Some(failure.map_or(Word::Well, Word::Failed));
    }

    /// The same with its own words as somebody else writes them.
    pub fn in_words(mut self, write: impl FnOnce(&str) -> String) -> Self {
        if let Some(Word::Failed(failure)) = &mut self.last {
            *failure = write(failure);
        }
        self
    }

    /// How the run ended. `exit` is empty of a process that outlived its runner: then the client's word counts.
    pub fn ending(self, exit: Exit) -> Ending {
        // A run that is cut short has no last word, and its steps have cost something all the same.
        let is_told = self.last.is_some() || self.usage != Usage::default();
        let usage = is_told.then_some(self.usage);
        let unknown = exit == Exit::default();
        let (exit, reason) = match self.last {
            Some(Word::Failed(failure)) if unknown || exit.code == Some(0) => (failed(), failure),
            Some(Word::Failed(failure)) if exit.signal.is_none() => (exit, failure),
            Some(Word::Well) if unknown => (Exit { code: Some(0), ..Exit::default() }, String::new()),
            None if exit.code == Some(NOT_FOUND) => (
                exit,
                "its program was not found on this runner; install it, or give its path as `command`"
                    .to_owned(),
            ),
            _ => (exit, String::new()),
        };
        Ending { exit, reason, usage }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is bounded just before")]
fn micros(dollars: &Value) -> Option<u64> {
    dollars.as_f64().map(|dollars| (dollars * 1e6).round().clamp(0.0, 1e15) as u64)
}

/// It becomes an argument of the client's next start, and whatever the agent runs may print one.
fn is_session(id: &str) -> bool {
    let usual = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    id.len() <= SESSION
        && id.starts_with(|first: char| first.is_ascii_alphanumeric())
        && id.chars().all(usual)
}

fn failed() -> Exit {
    Exit { code: Some(1), ..Exit::default() }
}

fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more).min(SUM);
}

/// A count, if it can be believed.
pub(super) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0).min(MOST)
}

/// What fits into a reason.
pub(super) fn first_line(text: &str) -> String {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or("an error").chars().take(REASON).collect()
}
