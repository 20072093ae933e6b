//! Claude Code in print mode (`claude -p`).

use serde_json::{Value, json};

use super::{Client, Run, SERVER, Said, Start, TOKEN, arguments, millis};
use crate::harness::ending::{first_line, number};
use crate::hook;

pub(super) struct ClaudeCode;

impl Client for ClaudeCode {
    fn program(&self) -> &'static str {
        "claude"
    }

    fn start(&self, run: &Run<'_>) -> Start {
        // It searches the tools of a large catalogue by itself, so it gets the whole one. The secret stays out of the
        // arguments, which every user of the machine can read.
        let servers = json!({"mcpServers": {SERVER: {
            "type": "http",
            "url": format!("{}/full", run.url),
            "headers": {"Authorization": format!("Bearer ${{{TOKEN}}}")},
            "timeout": millis(run.tool_timeout),
        }}});
        let mut these = arguments(["-p", "--output-format", "stream-json", "--verbose"]);
        these.extend(["--mcp-config".to_owned(), servers.to_string()]);
        these.extend(arguments(["--strict-mcp-config", "--permission-mode", "bypassPermissions"]));
        if let Some(line) = run.hook {
            these.extend(["--settings".to_owned(), hook::settings(line).to_string()]);
        }
        if let Some(model) = run.model {
            these.extend(arguments(["--model", model]));
        }
        if let Some(session) = run.session {
            these.extend(arguments(["--resume", session]));
        }
        let env = vec![("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned())];
        Start { arguments: these, env, first: "" }
    }

    fn note(&self, event: &Value, said: &mut Said) {
        said.session_is(&event["session_id"]);
        if event["type"] != "result" {
            return;
        }
        let usage = &event["usage"];
        let read = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];
        let read = read.iter().map(|name| number(&usage[*name])).sum();
        said.takes(read, number(&usage["output_tokens"]), number(&event["num_turns"]));
        // The tokens are those of this start, the cost is that of the conversation.
        said.cost_is(&event["total_cost_usd"]);
        let failed = event["is_error"] == true || event["subtype"] != "success";
        said.is_over(failed.then(|| failure(event)));
    }
}

/// An error of the model's API stands in `result`; of other ends the subtype says what they are.
fn failure(event: &Value) -> String {
    match event["result"].as_str() {
        Some(text) if !text.is_empty() => first_line(text),
        _ => event["subtype"].as_str().unwrap_or("an error").replace('_', " "),
    }
}
