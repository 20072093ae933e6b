//! The ordinary call: `tools/call` of the stateless revision. It is answered right here, for
//! rmcp's transport starts several tasks and channels for each request, which cost more than most tools do.
//!
//! What is read here is what nobody could object to. Everything else, however slightly odd, goes to rmcp,
//! which judges it; so there is one judge, and this knows no errors.

use std::borrow::Cow;

use axum::body::{Body, Bytes};
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, ClientCapabilities, ContentBlock, ErrorCode, JsonRpcVersion2_0, ProgressToken,
    ProtocolVersion, RequestId, ResultType, ServerResult,
};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use super::wire;
use crate::mcp::client::Client;
use crate::mcp::result::Reply;

const CALL: &str = "tools/call";
const JSON: &str = "application/json";
pub(super) const EVENTS: &str = "text/event-stream";

/// A call that may run.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: RequestId,
    pub(super) name: String,
    pub(super) arguments: Map<String, Value>,
    /// Set when the client listens to progress.
    pub(super) progress: Option<ProgressToken>,
    pub(super) client: Client,
}

/// A message with the fields that an ordinary one has, and no others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Message<'a> {
    #[serde(rename = "jsonrpc")]
    _version: JsonRpcVersion2_0,
    id: RequestId,
    #[serde(borrow)]
    method: Cow<'a, str>,
    params: Params,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    name: String,
    #[serde(default)]
    arguments: Option<Map<String, Value>>,
    #[serde(rename = "_meta")]
    meta: Meta,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: ProtocolVersion,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: ClientCapabilities,
    #[serde(rename = "progressToken")]
    progress: Option<ProgressToken>,
}

/// Reads an ordinary call; `None` leaves the request to rmcp.
pub(super) fn read(
    method: &Method,
    headers: &HeaderMap,
    body: &[u8],
    allowed_hosts: &[String],
) -> Option<Call> {
    let ordinary = method == Method::POST
        && !headers.contains_key(header::ORIGIN)
        && !headers.contains_key("mcp-session-id")
        && sole(headers, header::CONTENT_TYPE.as_str())? == JSON
        && takes_both(sole(headers, header::ACCEPT.as_str())?)
        && is_allowed(sole(headers, header::HOST.as_str())?, allowed_hosts)
        && sole(headers, "mcp-protocol-version")? == ProtocolVersion::V_2026_07_28.as_str()
        && sole(headers, "mcp-method")? == CALL;
    if !ordinary {
        return None;
    }
    let name = sole(headers, "mcp-name")?;
    let Message { id, method, params, .. } = serde_json::from_slice(body).ok()?;
    let same = method == CALL && params.name == name && params.meta.version == ProtocolVersion::V_2026_07_28;
    let Params { name, arguments, meta } = params;
    let client = Client { abilities: wire::abilities(&meta.capabilities), ..Client::default() };
    let arguments = arguments.unwrap_or_default();
    same.then(|| Call { id, name, arguments, progress: meta.progress, client })
}

/// The answer as rmcp writes it.
pub(super) fn answer(id: RequestId, result: Result<CallToolResponse, ErrorData>) -> Response {
    let lacks = matches!(&result, Err(error) if error.code == ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY);
    let mut response = written(&message(id, result), 0);
    if lacks {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    response
}

/// The answer to a call that has ended, as rmcp writes it. Its JSON stands in it as a value and as a text, and to write
/// it is most of the work: so that is done once.
pub(super) fn finished(id: RequestId, reply: Reply) -> Response {
    let Reply { text, more, json, is_error, .. } = reply;
    let json = to_raw_value(&json).ok().filter(|json| json.get() != "null");
    let content = wire::blocks(text, more, json.as_deref().map(RawValue::get), is_error);
    let length = json.as_ref().map_or(0, |json| json.get().len());
    let result = Finished { result_type: ResultType::COMPLETE, content, structured_content: json, is_error };
    written(&Answer { jsonrpc: JsonRpcVersion2_0, id, outcome: Outcome::Finished(result) }, length)
}

/// `length` is that of its JSON.
fn written(answer: &Answer, length: usize) -> Response {
    // Once as it is, once as a text with its quotes escaped, and what is around them.
    let mut body = Vec::with_capacity(2 * length + length / 4 + 512);
    let body = serde_json::to_writer(&mut body, answer).map_or_else(|_| Bytes::new(), |()| Bytes::from(body));
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}

/// An answer on the wire.
#[derive(Serialize)]
pub(super) struct Answer {
    jsonrpc: JsonRpcVersion2_0,
    id: RequestId,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Result(Box<ServerResult>),
    #[serde(rename = "result")]
    Finished(Finished),
    Error(ErrorData),
}

/// What a call has led to, in the words of [`rmcp::model::CallToolResult`].
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Finished {
    result_type: ResultType,
    content: Vec<ContentBlock>,
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_content: Option<Box<RawValue>>,
    is_error: bool,
}

pub(super) fn message(id: RequestId, result: Result<CallToolResponse, ErrorData>) -> Answer {
    let outcome = match result {
        Ok(response) => Outcome::Result(Box::new(response.into())),
        Err(error) => Outcome::Error(error),
    };
    Answer { jsonrpc: JsonRpcVersion2_0, id, outcome }
}

/// The value of a header that came once.
fn sole<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Whether an `Accept` names both forms of an answer, without weights.
fn takes_both(accept: &str) -> bool {
    let has = |wanted: &str| accept.split(',').any(|form| form.trim() == wanted);
    has(JSON) && has(EVENTS)
}

/// Whether a `Host` is one of those allowed, as it stands or without its port.
fn is_allowed(host: &str, allowed: &[String]) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    allowed.iter().any(|allowed| allowed == host || allowed == name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skein_shared::json;

    use super::*;
    use crate::mcp::content::Content;
    use crate::mcp::result::Then;

    const ALLOWED: &str = "127.0.0.1";

    fn headers(changed: &[(&'static str, Option<&'static str>)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("host", "127.0.0.1:7700"),
            ("content-type", JSON),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", CALL),
            ("mcp-name", "get-tasks"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        for (name, value) in changed {
            match value {
                Some(value) => headers.append(*name, HeaderValue::from_static(value)),
                None => headers.remove(*name).is_some(),
            };
        }
        headers
    }

    fn message() -> Value {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        });
        let params = json!({ "name": "get-tasks", "arguments": { "limit": 3 }, "_meta": meta });
        json!({ "jsonrpc": "2.0", "id": "seven", "method": CALL, "params": params })
    }

    fn read_as(headers: &HeaderMap, message: &Value) -> Option<Call> {
        read(&Method::POST, headers, message.to_string().as_bytes(), &[ALLOWED.to_owned()])
    }

    #[test]
    fn an_ordinary_call_is_read() {
        let call = read_as(&headers(&[]), &message()).unwrap();
        assert_eq!((call.name.as_str(), call.arguments["limit"].as_u64()), ("get-tasks", Some(3)));
        let written = serde_json::to_value(call.id).unwrap();
        assert_eq!((written, call.progress), (json!("seven"), None));
        let mut heard = message();
        heard["params"]["_meta"]["progressToken"] = json!(1);
        assert!(read_as(&headers(&[]), &heard).unwrap().progress.is_some());
    }

    /// The bytes of both ways to write the same reply.
    async fn both(reply: &Reply) -> [Bytes; 2] {
        let id = || RequestId::String("a \"quoted\" id".into());
        let through_rmcp = answer(id(), Ok(wire::finished(reply.clone()).into()));
        let bytes =
            async |response: Response| axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        [bytes(finished(id(), reply.clone())).await, bytes(through_rmcp).await]
    }

    #[tokio::test]
    async fn a_reply_is_written_as_rmcp_writes_it() {
        let json = json!({ "text": "a \"b\" \u{e9}\n", "list": [1, 2.5, null], "object": {} });
        let plain = Reply {
            text: "done".to_owned(),
            json: json.clone(),
            is_error: false,
            code: None,
            more: Vec::new(),
            then: Then::Nothing,
        };
        let picture = || Content::Image { data: "aGk=".to_owned(), mime_type: "image/png".to_owned() };
        for reply in [
            plain.clone(),
            Reply { json: Value::Null, ..plain.clone() },
            Reply { text: json.to_string(), ..plain.clone() },
            Reply { is_error: true, ..plain.clone() },
            Reply { more: vec![picture()], ..plain.clone() },
            Reply { text: String::new(), more: vec![picture()], ..plain.clone() },
            Reply { text: String::new(), json: Value::Null, ..plain },
        ] {
            let [direct, through_rmcp] = both(&reply).await;
            assert!(!direct.is_empty() && direct == through_rmcp, "{direct:?}\n{through_rmcp:?}");
        }
    }

    /// `limits::ANSWER` counts with this.
    #[tokio::test]
    async fn an_answer_is_three_times_as_long_as_its_json_at_most() {
        for json in
            [json!(vec![0; 50_000]), json!({ "a": "\"\\".repeat(25_000) }), json!("\u{1}ä".repeat(25_000))]
        {
            let length = json::length(&json);
            let reply = Reply::new("done", json);
            for written in both(&reply).await {
                assert!(written.len() < 3 * length + 512, "{} bytes of {length}", written.len());
            }
        }
    }

    #[test]
    fn odd_headers_are_left_to_rmcp() {
        for odd in [
            ("origin", Some("http://localhost:5173")),
            ("mcp-session-id", Some("x")),
            ("host", Some("127.0.0.1")),
            ("host", None),
            ("accept", None),
            ("accept", Some("*/*")),
            ("content-type", None),
            ("mcp-protocol-version", None),
            ("mcp-method", None),
            ("mcp-name", None),
            ("mcp-name", Some("get-tasks")),
        ] {
            assert!(read_as(&headers(&[odd]), &message()).is_none(), "{odd:?}");
        }
        for (name, value) in [
            ("host", "evil.example"),
            ("host", "127.0.0.1.evil.example:80"),
            ("accept", "application/json"),
            ("accept", "application/json, text/event-stream;q=0"),
            ("content-type", "text/plain"),
            ("mcp-protocol-version", "2025-11-25"),
            ("mcp-method", "tools/list"),
            ("mcp-name", "send-task"),
            ("mcp-name", "=?base64?Z2V0LXRhc2tz?="),
        ] {
            let headers = headers(&[(name, None), (name, Some(value))]);
            assert!(read_as(&headers, &message()).is_none(), "{name}: {value}");
        }
    }

    #[test]
    fn odd_messages_are_left_to_rmcp() {
        let odd: [fn(&mut Value); 11] = [
            |message| message["jsonrpc"] = json!("1.0"),
            |message| message["id"] = Value::Null,
            |message| message["more"] = json!(1),
            |message| message["method"] = json!("tools/list"),
            |message| message["params"]["name"] = json!("send-task"),
            |message| message["params"]["arguments"] = json!([]),
            |message| message["params"]["requestState"] = json!("x"),
            |message| message["params"]["_meta"]["progressToken"] = json!({}),
            |message| message["params"]["_meta"] = json!({}),
            |message| {
                message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2025-11-25");
            },
            |message| message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!(1),
        ];
        for (number, change) in odd.into_iter().enumerate() {
            let mut message = message();
            change(&mut message);
            assert!(read_as(&headers(&[]), &message).is_none(), "{number}: {message}");
        }
    }

    #[test]
    fn hosts_are_compared_whole() {
        let allowed = ["localhost".to_owned(), "skein.example:443".to_owned()];
        for good in ["localhost", "localhost:7700", "skein.example:443"] {
            assert!(is_allowed(good, &allowed), "{good}");
        }
        for other in ["skein.example", "skein.example:80", "localhost:", "localhost:x", "localhost.evil"] {
            assert!(!is_allowed(other, &allowed), "{other}");
        }
    }
}
