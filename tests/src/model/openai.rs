//! The Responses API of OpenAI, streamed, as Codex uses it.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{Say, TOKENS, Talk, event, plain, result};

/// Codex offers the tools of a server in a space of their own.
const SPACE: &str = "mcp__skein";

pub(super) fn read(request: &Value) -> Talk {
    let mut talk = Talk::default();
    for tool in request["tools"].as_array().into_iter().flatten().filter(|tool| tool["name"] == SPACE) {
        let names = tool["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str());
        talk.tools.extend(names.map(plain));
    }
    let mut calls = HashMap::new();
    for item in request["input"].as_array().into_iter().flatten() {
        match item["type"].as_str().unwrap_or_default() {
            "message" if item["role"] == "user" => talk.prompt += &text(&item["content"]),
            "function_call" => {
                if let (Some(id), Some(name)) = (item["call_id"].as_str(), item["name"].as_str()) {
                    calls.insert(id, plain(name));
                }
            }
            "function_call_output" => {
                let call = item["call_id"].as_str().and_then(|id| calls.get(id));
                talk.results.extend(call.map(|name| (name.clone(), result(&text(&item["output"])))));
            }
            _ => {}
        }
    }
    talk
}

fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        _ => content.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str()).collect(),
    }
}

pub(super) fn render(request: &Value, say: &Say) -> String {
    let number = request["input"].as_array().map_or(0, Vec::len);
    let item = match say {
        Say::Call(tool, arguments) => json!({
            "type": "function_call", "id": format!("fc_{number}"), "call_id": format!("call_{number}"),
            "namespace": SPACE, "name": plain(tool), "arguments": arguments.to_string(),
        }),
        Say::Text(text) => json!({
            "type": "message", "role": "assistant", "id": format!("msg_{number}"),
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }),
    };
    let (input, output) = TOKENS;
    let id = format!("resp_{number}");
    let usage = json!({
        "input_tokens": input, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": input + output,
    });
    [
        json!({"type": "response.created", "response": {"id": id}}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({
            "type": "response.completed",
            "response": {"id": id, "status": "completed", "output": [item], "usage": usage},
        }),
    ]
    .iter()
    .map(event)
    .collect()
}
