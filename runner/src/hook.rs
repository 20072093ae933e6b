//! The hooks of coding agents: what switches them on, and what is said to them where a person has started the agent. In
//! an instance the program of the commands answers them, by the same decisions.

#[path = "../agent-commands/src/hook/mod.rs"]
mod decisions;
#[path = "../agent-commands/src/json.rs"]
mod json;

use std::path::Path;

use serde_json::{Map, Value};

/// The name of the program that answers hooks in an instance, beside the other commands.
pub const PROGRAM: &str = "skein-hook";
/// What is listened to.
const EVENTS: [&str; 5] = ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PreCompact"];
/// Longest that Claude Code waits for an answer, seconds. As a rule it is there in milliseconds.
const PATIENCE: u64 = 10;

/// An event on its way to what is said to it.
#[derive(Debug)]
pub struct Hook(decisions::Hook);

impl Hook {
    /// Takes note of an event, the JSON that Claude Code gives. None for one that nothing is to be said to. In the
    /// folder a file for each session is kept; `now` is in milliseconds since 1970.
    pub fn begin(event: &str, folder: &Path, now: u64) -> Option<Self> {
        decisions::Hook::begin(event, folder, now, true).map(Self)
    }

    /// The JSON that the coordinators' route `/hook` is to be asked with, if they are to be asked.
    pub fn question(&self) -> Option<&str> {
        self.0.question()
    }

    /// What to print, if anything. `told` is what the coordinator has answered with, none if it did not.
    pub fn answer(self, told: Option<&str>) -> Option<String> {
        self.0.answer(told)
    }
}

/// The settings by which Claude Code runs a line of the shell at each event.
pub fn settings(line: &str) -> Value {
    let hook = serde_json::json!({ "type": "command", "command": line, "timeout": PATIENCE });
    let hooks = EVENTS.map(|event| (event.to_owned(), serde_json::json!([{ "hooks": [hook] }])));
    serde_json::json!({ "hooks": Map::from_iter(hooks) })
}

/// Words as one line of the shell.
pub fn line<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let quoted = words.into_iter().map(|word| format!("'{}'", word.replace('\'', r"'\''")));
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::json;

    use super::decisions::guard::{Verdict, WINDOW, judge};
    use super::decisions::state::State;
    use super::*;

    #[test]
    fn words_reach_a_program_as_they_are() {
        let words = ["printf", "%s|", "it's", "a $HOME \"b\" \\", ""];
        let output = Command::new("/bin/sh").args(["-c", &line(words)]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "it's|a $HOME \"b\" \\||");
    }

    #[test]
    fn each_event_that_is_listened_to_is_answered_and_has_its_time() {
        let settings = settings("it");
        for event in EVENTS {
            let hook = &settings["hooks"][event][0]["hooks"][0];
            assert_eq!(*hook, json!({ "type": "command", "command": "it", "timeout": 10 }), "{event}");
            let folder = tempfile::tempdir().unwrap();
            let text = format!(r#"{{"hook_event_name":"{event}","session_id":"s"}}"#);
            let hook = Hook::begin(&text, folder.path(), 1).unwrap();
            assert!(hook.question().is_some_and(|asked| asked.contains(event)), "{event}");
        }
    }

    proptest! {
        #[test]
        fn calls_that_all_differ_are_never_stopped(calls in vec(any::<u64>(), 0..60)) {
            let mut calls = calls;
            calls.sort_unstable();
            calls.dedup();
            for at in 0..calls.len() {
                prop_assert_eq!(judge(&calls[..at], calls[at]), Verdict::Pass);
            }
        }

        #[test]
        fn no_call_is_made_more_often_than_fifteen_times_in_a_window(calls in vec(0_u64..4, 0..200)) {
            let mut made: Vec<u64> = Vec::new();
            for call in calls {
                if !matches!(judge(&made, call), Verdict::Block(_)) {
                    made.push(call);
                }
            }
            for window in made.windows(WINDOW) {
                for call in 0..4 {
                    prop_assert!(window.iter().filter(|other| **other == call).count() < 15);
                }
            }
        }

        #[test]
        fn whatever_stands_in_a_sessions_file_is_read(
            bytes in vec(any::<u8>(), 0..300),
            calls in vec(any::<u64>(), 0..90),
        ) {
            let garbled = State::parse(&String::from_utf8_lossy(&bytes));
            prop_assert_eq!(State::parse(&garbled.render()), garbled);
            let mut state = State::default();
            calls.iter().for_each(|call| state.made(*call));
            prop_assert!(state.calls.len() <= WINDOW && state.render().len() < 1024);
            prop_assert_eq!(State::parse(&state.render()), state);
        }

        #[test]
        fn whatever_comes_as_an_event_or_an_answer_is_no_panic(text in ".{0,200}", told in ".{0,100}") {
            let folder = tempfile::tempdir().unwrap();
            let known = format!(r#"{{"hook_event_name":"PreToolUse","session_id":"{text}"}}"#);
            for event in [text, known] {
                if let Some(hook) = Hook::begin(&event, folder.path(), 1) {
                    hook.answer(Some(&told));
                }
            }
        }
    }
}
