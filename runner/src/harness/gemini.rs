//! Gemini CLI without its screen.
//!
//! It has a `--resume`, but then it sends each answer of a tool twice (0.61), which no model takes. So a run that is
//! started again begins a new conversation, and the id of the old one is not kept.

use serde_json::{Value, json};

use super::{Client, Run, SERVER, Said, Start, TOKEN, URL, arguments, millis};
use crate::harness::ending::{first_line, number};

/// It takes settings from files alone, and those that go over all others from files of root's only. So the instance
/// writes those of a user, as the user that it is, into a home that the client has for itself; it is the same for all
/// instances of an agent, for what differs stands in their variables. Settings in the work folder go over them.
const FILE: &str = r#"GEMINI_CLI_HOME="$HOME/.gemini-runner"
export GEMINI_CLI_HOME
mkdir -p "$GEMINI_CLI_HOME/.gemini" || exit
printf %s "$SKEIN_SETTINGS" > "$GEMINI_CLI_HOME/.gemini/settings.$$" || exit
mv "$GEMINI_CLI_HOME/.gemini/settings.$$" "$GEMINI_CLI_HOME/.gemini/settings.json" || exit
"#;

pub(super) struct Gemini;

impl Client for Gemini {
    fn program(&self) -> &'static str {
        "gemini"
    }

    fn start(&self, run: &Run<'_>) -> Start {
        let settings = json!({
            "general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false},
            "privacy": {"usageStatisticsEnabled": false},
            // Its own look at the way to the model knows no other address than Google's.
            "security": {"auth": {"useExternal": true}},
            // It would end the run of an agent that makes the same call again, as those do that ask and wait.
            "model": {"disableLoopDetection": true},
            "mcpServers": {SERVER: {
                "httpUrl": format!("${URL}"),
                "headers": {"Authorization": format!("Bearer ${TOKEN}")},
                "timeout": millis(run.tool_timeout),
                "trust": true,
            }},
        });
        let mut these =
            arguments(["--output-format", "stream-json", "--approval-mode", "yolo", "--skip-trust"]);
        if let Some(model) = run.model {
            these.extend(arguments(["--model", model]));
        }
        Start { arguments: these, env: vec![("SKEIN_SETTINGS", settings.to_string())], first: FILE }
    }

    fn goes_on(&self) -> bool {
        false
    }

    fn note(&self, event: &Value, said: &mut Said) {
        if event["type"] != "result" {
            return;
        }
        let stats = &event["stats"];
        said.takes(number(&stats["input_tokens"]), number(&stats["output_tokens"]), 1);
        let text = event["error"]["message"].as_str().unwrap_or("an error");
        said.is_over((event["status"] != "success").then(|| first_line(text)));
    }
}
