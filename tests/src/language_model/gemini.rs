//! The Gemini API, streamed and whole, as Gemini CLI uses it.

use serde_json::{Value, json};

use super::{Say, TOKENS, Talk, plain, result};

/// What the client puts before the names of a server's tools.
const PREFIX: &str = "mcp_skein_";

pub(super) fn read(request: &Value) -> Talk {
    let tools = tools(request).into_iter().map(|(name, _)| name).collect();
    let mut talk = Talk { tools, ..Talk::default() };
    for content in request["contents"].as_array().into_iter().flatten() {
        for part in content["parts"].as_array().into_iter().flatten() {
            if let ("user", Some(text)) = (content["role"].as_str().unwrap_or("user"), part["text"].as_str())
            {
                talk.prompt += text;
            }
            let answer = &part["functionResponse"];
            if let Some(name) = answer["name"].as_str() {
                let name = plain(name.strip_prefix(PREFIX).unwrap_or(name));
                talk.results.push((name, result(&text(&answer["response"]))));
            }
        }
    }
    talk
}

/// What a tool said, or what the client says went wrong with it. It marks what comes from a server.
fn text(response: &Value) -> String {
    let text = response["output"].as_str().or(response["error"].as_str()).unwrap_or_default();
    text.replace("<untrusted_context>\n", "").replace("\n</untrusted_context>", "")
}

pub(super) fn tools(request: &Value) -> Vec<(String, &Value)> {
    let offered = declared(request);
    offered.filter_map(|tool| Some((plain(tool["name"].as_str()?.strip_prefix(PREFIX)?), tool))).collect()
}

fn declared(request: &Value) -> impl Iterator<Item = &Value> {
    let sets = request["tools"].as_array().into_iter().flatten();
    sets.filter_map(|set| set["functionDeclarations"].as_array()).flatten()
}

/// One event of a stream, which is the whole answer.
pub(super) fn stream(request: &Value, say: &Say) -> String {
    format!("data: {}\r\n\r\n", whole(request, say))
}

pub(super) fn whole(request: &Value, say: &Say) -> String {
    let number = request["contents"].as_array().map_or(0, Vec::len);
    let part = match say {
        Say::Call(tool, arguments) => {
            let names = declared(request).filter_map(|tool| tool["name"].as_str());
            let mut names =
                names.filter(|name| name.strip_prefix(PREFIX).is_some_and(|name| plain(name) == plain(tool)));
            let name = names.next().unwrap_or(tool);
            json!({"functionCall": {"id": format!("call_{number}"), "name": name, "args": arguments}})
        }
        Say::Text(text) => json!({"text": text}),
    };
    let (input, output) = TOKENS;
    json!({
        "candidates": [{
            "index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP",
        }],
        "usageMetadata": {
            "promptTokenCount": input, "candidatesTokenCount": output, "totalTokenCount": input + output,
        },
        "responseId": format!("resp_{number}"),
    })
    .to_string()
}
