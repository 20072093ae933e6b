//! Gemini CLI without its screen.

use serde_json::{Value, json};

use super::{Client, Run, SERVER, Said, Start, TOKEN, arguments, millis};
use crate::harness::ending::{first_line, number};

/// It takes settings from a file alone. The instance writes it, as the user that it is.
const FILE: &str = r#"GEMINI_CLI_SYSTEM_SETTINGS_PATH="$HOME/.gemini-$SKEIN_INSTANCE.json"
printf %s "$SKEIN_SETTINGS" > "$GEMINI_CLI_SYSTEM_SETTINGS_PATH" || exit
export GEMINI_CLI_SYSTEM_SETTINGS_PATH
"#;

pub(super) struct Gemini;

impl Client for Gemini {
    fn program(&self) -> &'static str {
        "gemini"
    }

    fn start(&self, run: &Run<'_>) -> Start {
        let settings = json!({
            "general": {"enableAutoUpdate": false},
            "privacy": {"usageStatisticsEnabled": false},
            "mcpServers": {SERVER: {
                "httpUrl": run.url,
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
        if let Some(session) = run.session {
            these.extend(arguments(["--resume", session]));
        }
        Start { arguments: these, env: vec![("SKEIN_SETTINGS", settings.to_string())], first: FILE }
    }

    fn note(&self, event: &Value, said: &mut Said) {
        match event["type"].as_str().unwrap_or_default() {
            "init" => said.session_is(&event["session_id"]),
            "result" => {
                let stats = &event["stats"];
                said.usage.input_tokens += number(&stats["input_tokens"]);
                said.usage.output_tokens += number(&stats["output_tokens"]);
                said.usage.turns += 1;
                let text = event["error"]["message"].as_str().unwrap_or("an error");
                said.is_over((event["status"] != "success").then(|| first_line(text)));
            }
            _ => {}
        }
    }
}
