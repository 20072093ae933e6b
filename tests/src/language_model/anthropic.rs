//! The Messages API of Anthropic, streamed.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{Say, TOKENS, Talk, event, plain, result};

/// What clients put before the names of a server's tools: Claude Code, and opencode.
const PREFIXES: [&str; 2] = ["mcp__skein__", "skein_"];

pub(super) fn read(request: &Value) -> Talk {
    let tools = tools(request).into_iter().map(|(name, _)| name).collect();
    let mut talk = Talk { tools, ..Talk::default() };
    let mut calls = HashMap::new();
    for message in request["messages"].as_array().into_iter().flatten() {
        // What hooks and the client itself say comes as the system's.
        let is_said = message["role"] != "assistant";
        if let (true, Some(text)) = (is_said, message["content"].as_str()) {
            talk.prompt += text;
        }
        for block in message["content"].as_array().into_iter().flatten() {
            match block["type"].as_str().unwrap_or_default() {
                "text" if is_said => talk.prompt += block["text"].as_str().unwrap_or_default(),
                "tool_use" => {
                    if let (Some(id), Some(name)) = (block["id"].as_str(), block["name"].as_str()) {
                        calls.insert(id, plain(ours(name).unwrap_or(name)));
                    }
                }
                "tool_result" => {
                    let call = block["tool_use_id"].as_str().and_then(|id| calls.get(id));
                    talk.results.extend(call.map(|name| (name.clone(), result(&text(&block["content"])))));
                }
                _ => {}
            }
        }
    }
    talk
}

pub(super) fn tools(request: &Value) -> Vec<(String, &Value)> {
    let offered = request["tools"].as_array().into_iter().flatten();
    offered.filter_map(|tool| Some((plain(ours(tool["name"].as_str()?)?), tool))).collect()
}

fn ours(name: &str) -> Option<&str> {
    PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))
}

fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        _ => content.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str()).collect(),
    }
}

pub(super) fn render(request: &Value, say: &Say) -> String {
    let offered = |tool: &str| {
        let names =
            request["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str());
        let mut names = names.filter(|name| ours(name).is_some_and(|name| plain(name) == plain(tool)));
        names.next().unwrap_or(tool).to_owned()
    };
    let number = request["messages"].as_array().map_or(0, Vec::len);
    let (block, delta, stop) = match say {
        Say::Call(tool, arguments) => (
            json!({"type": "tool_use", "id": format!("toolu_{number}"), "name": offered(tool), "input": {}}),
            json!({"type": "input_json_delta", "partial_json": arguments.to_string()}),
            "tool_use",
        ),
        Say::Text(text) => {
            (json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": text}), "end_turn")
        }
    };
    let (input, output) = TOKENS;
    let message = json!({
        "id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": request["model"],
        "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": input, "output_tokens": 1},
    });
    [
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({
            "type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null},
            "usage": {"output_tokens": output},
        }),
        json!({"type": "message_stop"}),
    ]
    .iter()
    .map(event)
    .collect()
}
