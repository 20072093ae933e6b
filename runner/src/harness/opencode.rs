//! OpenCode for one message (`opencode run`).

use serde_json::{Value, json};

use super::{Client, Run, SERVER, Said, Start, TOKEN, arguments, millis};
use crate::harness::ending::{first_line, number};

pub(super) struct Opencode;

impl Client for Opencode {
    fn program(&self) -> &'static str {
        "opencode"
    }

    fn start(&self, run: &Run<'_>) -> Start {
        // Goes over the settings of the work folder and of the user.
        let config = json!({
            "autoupdate": false,
            "share": "disabled",
            "permission": "allow",
            "mcp": {SERVER: {
                "type": "remote",
                "url": run.url,
                "oauth": false,
                "headers": {"Authorization": format!("Bearer {{env:{TOKEN}}}")},
                "timeout": millis(run.tool_timeout),
            }},
        });
        let mut these = arguments(["run", "--format", "json"]);
        if let Some(model) = run.model {
            these.extend(arguments(["--model", model]));
        }
        if let Some(session) = run.session {
            these.extend(arguments(["--session", session]));
        }
        let env = vec![
            ("OPENCODE_CONFIG_CONTENT", config.to_string()),
            ("OPENCODE_DISABLE_AUTOUPDATE", "1".to_owned()),
        ];
        Start { arguments: these, env, first: "" }
    }

    fn note(&self, event: &Value, said: &mut Said) {
        said.session_is(&event["sessionID"]);
        match event["type"].as_str().unwrap_or_default() {
            "step_finish" => {
                let tokens = &event["part"]["tokens"];
                let cache = &tokens["cache"];
                let read = number(&tokens["input"]) + number(&cache["read"]) + number(&cache["write"]);
                said.takes(read, number(&tokens["output"]) + number(&tokens["reasoning"]), 1);
                said.costs(&event["part"]["cost"]);
                // Any other reason is a step on the way.
                if event["part"]["reason"] == "stop" {
                    said.is_over(None);
                }
            }
            "error" => {
                let error = &event["error"];
                let text = error["data"]["message"].as_str().or(error["name"].as_str());
                said.is_over(Some(first_line(text.unwrap_or("an error"))));
            }
            _ => {}
        }
    }
}
