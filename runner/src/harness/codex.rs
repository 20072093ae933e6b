//! Codex without its screen (`codex exec`).

use serde_json::{Value, json};

use super::{Client, Run, SERVER, Said, Start, TOKEN, arguments};
use crate::harness::ending::{first_line, number};

/// Time to connect to the endpoint, seconds.
const STARTUP: u64 = 30;

pub(super) struct Codex;

impl Client for Codex {
    fn program(&self) -> &'static str {
        "codex"
    }

    fn start(&self, run: &Run<'_>) -> Start {
        let mut these = arguments(["exec"]);
        if run.session.is_some() {
            these.push("resume".to_owned());
        }
        // The runner is the sandbox, and the work folder need not be a repository.
        these.extend(arguments([
            "--json",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
        ]));
        for (key, value) in settings(run) {
            // A string of JSON is one of TOML too.
            these.extend(["-c".to_owned(), format!("{key}={value}")]);
        }
        if let Some(model) = run.model {
            these.extend(arguments(["--model", model]));
        }
        these.extend(run.session.map(str::to_owned));
        // The prompt comes over standard input.
        these.push("-".to_owned());
        Start { arguments: these, env: Vec::new(), first: "" }
    }

    fn note(&self, event: &Value, said: &mut Said) {
        match event["type"].as_str().unwrap_or_default() {
            "thread.started" => said.session_is(&event["thread_id"]),
            "turn.completed" => {
                let usage = &event["usage"];
                // It counts from the conversation's beginning.
                said.usage.input_tokens = number(&usage["input_tokens"]);
                said.usage.output_tokens = number(&usage["output_tokens"]);
                said.usage.turns += 1;
                said.is_over(None);
            }
            "turn.failed" => {
                let text = event["error"]["message"].as_str().unwrap_or("its turn failed");
                said.is_over(Some(first_line(text)));
            }
            _ => {}
        }
    }
}

fn settings(run: &Run<'_>) -> [(String, Value); 6] {
    let server = |key: &str| format!("mcp_servers.{SERVER}.{key}");
    [
        (server("url"), json!(run.url)),
        (server("bearer_token_env_var"), json!(TOKEN)),
        (server("tool_timeout_sec"), json!(run.tool_timeout.as_secs().max(1))),
        (server("startup_timeout_sec"), json!(STARTUP)),
        ("check_for_update_on_startup".to_owned(), json!(false)),
        ("analytics.enabled".to_owned(), json!(false)),
    ]
}
