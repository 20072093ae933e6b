//! The Responses API of OpenAI, streamed, as Codex uses it.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{Say, TOKENS, Talk, event, plain, result};

/// Codex offers the tools of a server in a space of their own.
const SPACE: &str = "mcp__skein";
/// Its own search of tools that it has not offered yet.
const SEARCH: &str = "tool_search";

pub(super) fn read(request: &Value) -> Talk {
    let tools = tools(request).into_iter().map(|(name, _)| name).collect();
    let mut talk = Talk { tools, ..Talk::default() };
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
            "tool_search_output" => talk.results.push((SEARCH.to_owned(), item["tools"].clone())),
            _ => {}
        }
    }
    talk
}

/// Those that it offers, and those that it has found since.
pub(super) fn tools(request: &Value) -> Vec<(String, &Value)> {
    let items = request["input"].as_array().into_iter().flatten();
    let found = items.filter(|item| item["type"] == "tool_search_output").map(|item| &item["tools"]);
    let spaces = found.chain([&request["tools"]]).filter_map(Value::as_array).flatten();
    let ours = spaces.filter(|space| space["name"] == SPACE).filter_map(|space| space["tools"].as_array());
    ours.flatten().filter_map(|tool| Some((plain(tool["name"].as_str()?), tool))).collect()
}

/// A tool of Codex itself, which is in no space.
fn is_its_own(request: &Value, tool: &str) -> bool {
    request["tools"].as_array().into_iter().flatten().any(|offered| offered["name"] == tool)
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
        Say::Call(SEARCH, arguments) => json!({
            "type": "tool_search_call", "id": format!("ts_{number}"), "call_id": format!("call_{number}"),
            "status": "completed", "execution": "client", "arguments": arguments,
        }),
        Say::Call(tool, arguments) => {
            let mut call = json!({
                "type": "function_call", "id": format!("fc_{number}"), "call_id": format!("call_{number}"),
                "name": plain(tool), "arguments": arguments.to_string(),
            });
            if !is_its_own(request, tool) {
                call["namespace"] = json!(SPACE);
            }
            call
        }
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
