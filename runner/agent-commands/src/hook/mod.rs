//! What Claude Code is told at its hooks (spec: Agent Swarm 5.3): it gives an event as JSON on standard input, and
//! reads from standard output whether to go on, and what its model is to know.
//!
//! Whoever runs this asks the swarm in between, by whatever way leads there: [`Hook::begin`] says what to ask, and
//! [`Hook::answer`] what to print. What goes wrong stops nothing: where the swarm cannot be asked, the tool runs.
//!
//! `guard` looks for circles, `state` keeps what is known of a session. What the swarm says its coordinator decides.

pub(crate) mod guard;
pub(crate) mod state;

use std::path::{Path, PathBuf};

use super::json;
use guard::Verdict;
use state::{State, mark};

/// What the names of the swarm's tools begin with, for its server is called `skein`. They run whatever was cancelled:
/// by them an agent reports, and gets other work.
const OWN: &str = "mcp__skein__";
/// Tools of the swarm that an agent rightly calls again and again as they stand.
const PATIENT: [&str; 8] = [
    "check_call",
    "heartbeat_lock",
    "poll-task",
    "read-messages",
    "task_claim_next",
    "wait",
    "wait_for_calls",
    "wait_for_trigger",
];
/// The same of Claude Code itself: they fetch what a command in the background has printed since.
const FETCHING: [&str; 2] = ["BashOutput", "TaskOutput"];
/// The tool of which the swarm says whether it is of use.
const POLL: &str = "poll-task";
/// After a tool the swarm hears of the session once in so long, milliseconds.
const SIGN: u64 = 10_000;
/// So long no tool waits for a swarm that has not answered, milliseconds.
const REST: u64 = 15_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Start,
    Prompt,
    Before,
    After,
    Compact,
}

impl Event {
    const ALL: [Self; 5] = [Self::Start, Self::Prompt, Self::Before, Self::After, Self::Compact];

    fn name(self) -> &'static str {
        match self {
            Self::Start => "SessionStart",
            Self::Prompt => "UserPromptSubmit",
            Self::Before => "PreToolUse",
            Self::After => "PostToolUse",
            Self::Compact => "PreCompact",
        }
    }
}

/// An event on its way to what is said to it.
#[derive(Debug)]
pub(crate) struct Hook {
    event: Event,
    file: PathBuf,
    now: u64,
    is_attended: bool,
    question: Option<String>,
    verdict: Verdict,
}

impl Hook {
    /// Takes note of an event. None for one that nothing is to be said to. `folder` is for temporary files, `now` in
    /// milliseconds since 1970, and `is_attended` says whether prompts are a person's.
    pub(crate) fn begin(text: &str, folder: &Path, now: u64, is_attended: bool) -> Option<Self> {
        if !json::is_whole(text) {
            return None;
        }
        let named = |name: &str| json::field(text, name).and_then(json::plain);
        let event = named("hook_event_name")?;
        let event = Event::ALL.into_iter().find(|known| known.name() == event)?;
        // Its agents run at the same time under the name of their session: a call of each is none of the others'.
        let file = state::file(folder, &named("session_id")?, &named("agent_id").unwrap_or_default());
        // Whoever goes on with a conversation has its past.
        let goes_on = matches!(named("source").as_deref(), Some("compact" | "resume"));
        let is_new = event == Event::Start && !goes_on;
        let tool = named("tool_name").unwrap_or_default();
        let input = json::field(text, "tool_input").unwrap_or_default();
        let own = own(&tool, input);
        let own = own.as_deref();
        state::change(&file, |state| {
            if is_new || state.begun == 0 || state.begun > now {
                *state = State { begun: now, ..State::default() };
            }
            let is_patient = own.map_or_else(|| FETCHING.contains(&&*tool), |name| PATIENT.contains(&name));
            let is_free = event == Event::Before && !is_patient;
            let verdict = if is_free { judged(state, mark(&[&tool, input])) } else { Verdict::Pass };
            let is_over = |since: u64, wait: u64| since == 0 || since > now || now - since >= wait;
            let rests = !is_over(state.unheard, REST);
            let asks = match event {
                Event::Before | Event::After if rests => false,
                Event::Before => !matches!(verdict, Verdict::Block(_)) && own.is_none_or(|name| name == POLL),
                Event::After => is_over(state.asked, SIGN),
                Event::Start | Event::Prompt | Event::Compact => true,
            };
            let question = asks.then(|| question(event, own, now - state.begun));
            if asks {
                state.asked = now;
            }
            Some(Self { event, file: file.clone(), now, is_attended, question, verdict })
        })
    }

    /// The JSON that the swarm is to be asked with.
    pub(crate) fn question(&self) -> Option<&str> {
        self.question.as_deref()
    }

    /// What to print, if anything. `told` is what the swarm has answered with.
    pub(crate) fn answer(self, told: Option<&str>) -> Option<String> {
        let told = told.filter(|_| self.question.is_some());
        if self.question.is_some() && told.is_none() {
            state::change(&self.file, |state| state.unheard = self.now);
        }
        let said = |name: &str| told.and_then(|told| json::field(told, name)).and_then(json::plain);
        if let Verdict::Block(reason) = &self.verdict {
            return Some(before("permissionDecisionReason", reason));
        }
        if let Some(reason) = said("block").filter(|reason| self.holds(reason)) {
            return match self.event {
                Event::Before => Some(before("permissionDecisionReason", &reason)),
                // Nobody would send it again, and what it brings, such as what was waited for, would be lost.
                Event::Prompt if !self.is_attended => Some(reason),
                Event::Prompt => Some(json::object(&[
                    ("decision".to_owned(), json::text("block")),
                    ("reason".to_owned(), json::text(&reason)),
                ])),
                Event::Start | Event::After | Event::Compact => None,
            };
        }
        match self.verdict {
            Verdict::Warn(warning) => Some(before("additionalContext", &warning)),
            // As it stands it becomes a part of the conversation, or of what its summary is made by.
            _ => said("say").filter(|_| matches!(self.event, Event::Start | Event::Compact)),
        }
    }

    /// Whether a reason still stops something. A person who was told it, and sends a prompt all the same, wants what
    /// comes of it to be done; and so does a runner, which knows of no reason.
    fn holds(&self, reason: &str) -> bool {
        let reason = mark(&[reason]);
        state::change(&self.file, |state| {
            let is_news = state.told != reason;
            if is_news && self.event == Event::Prompt {
                state.told = reason;
            }
            is_news
        })
    }
}

/// What a tool of the swarm is called there, also when it is called by another's hand.
fn own(tool: &str, input: &str) -> Option<String> {
    let name = tool.strip_prefix(OWN)?;
    let called = matches!(name, "tools_call" | "tools_read").then(|| json::field(input, "name")).flatten();
    Some(called.and_then(json::plain).unwrap_or_else(|| name.to_owned()))
}

/// Calls that are not made do not count, so that others soon take their place.
fn judged(state: &mut State, call: u64) -> Verdict {
    let verdict = guard::judge(&state.calls, call);
    if !matches!(verdict, Verdict::Block(_)) {
        state.made(call);
    }
    verdict
}

fn question(event: Event, tool: Option<&str>, age: u64) -> String {
    let mut fields =
        vec![("event".to_owned(), json::text(event.name())), ("sessionAgeMs".to_owned(), age.to_string())];
    fields.extend(tool.map(|tool| ("tool".to_owned(), json::text(tool))));
    json::object(&fields)
}

/// An answer to a tool that is about to run. A reason keeps it from that.
fn before(field: &str, text: &str) -> String {
    let mut fields = vec![("hookEventName".to_owned(), json::text(Event::Before.name()))];
    if field == "permissionDecisionReason" {
        fields.push(("permissionDecision".to_owned(), json::text("deny")));
    }
    fields.push((field.to_owned(), json::text(text)));
    json::object(&[("hookSpecificOutput".to_owned(), json::object(&fields))])
}

#[cfg(test)]
mod tests;
