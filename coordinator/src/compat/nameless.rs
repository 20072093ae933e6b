//! Callers of MCP that have the key and do not say who they are, as those of Agent Swarm may where it does not matter:
//! to look at the swarm, and to join it by `requestedId` (spec: Agent Swarm 1.5, 1.6).

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, middleware};
use http::{HeaderValue, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::{Code, json, limits};
use uuid::Uuid;

use super::answer::Problem;
use crate::mcp::SharedKey;

/// By which a caller says who it is.
const AGENT: &str = "x-agent-id";
/// Tools that need to know nobody.
const OPEN: [&str; 7] = [
    "get-swarm",
    "get-tasks",
    "get-task-details",
    "list-channels",
    "list-epics",
    "get-epic-details",
    "memory-get",
];

/// What a request is about, as far as it matters here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Message {
    id: Value,
    method: String,
    params: Params,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Params {
    name: String,
    arguments: Arguments,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Arguments {
    requested_id: Option<String>,
}

/// Lets them in at the routes of the MCP face.
pub fn let_in(face: Router, shared: SharedKey) -> Router {
    face.layer(middleware::from_fn_with_state(Arc::new(shared), name))
}

async fn name(State(shared): State<Arc<SharedKey>>, request: Request, next: Next) -> Response {
    if request.headers().contains_key(AGENT) || !shared.admits(request.headers()) {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let Ok(body) = Limited::new(body, limits::REQUEST).collect().await.map(|body| body.to_bytes()) else {
        let told = format!(
            "the body is cut off or longer than {} bytes; put what is long into a file and say where it is",
            limits::REQUEST
        );
        return Problem::of(Code::TooLarge, told).into_response();
    };
    let id = match agent(&body) {
        Ok(id) => id,
        Err(response) => return *response,
    };
    let Ok(id) = HeaderValue::from_str(&id) else {
        return Problem::bad_request("requestedId must be a UUID").into_response();
    };
    parts.headers.insert(AGENT, id);
    next.run(Request::from_parts(parts, Body::from(body))).await
}

/// The agent that a request is of: the one that it asks to be, else none that there is. A tool that has to know is not
/// called: the caller is told so as of any other failure.
fn agent(body: &Bytes) -> Result<String, Box<Response>> {
    let nobody = || Ok(Uuid::nil().to_string());
    // What is no request is the face's to refuse.
    if json::bounded(body).is_err() {
        return nobody();
    }
    let Ok(message) = serde_json::from_slice::<Message>(body) else { return nobody() };
    let Message { id, method, params: Params { name, arguments } } = message;
    match (name.as_str(), arguments.requested_id) {
        ("join-swarm", Some(requested)) if method == "tools/call" => Ok(requested),
        (name, _) if method != "tools/call" || OPEN.contains(&name) => nobody(),
        _ => Err(Box::new(untold(&id))),
    }
}

fn untold(id: &Value) -> Response {
    let told = "say who you are: send X-Agent-ID: <uuid> with each request, or join first: join-swarm takes the id as \
                requestedId";
    let facts = json!({ "success": false, "code": Code::Unauthenticated, "message": told });
    let content = json!([{ "type": "text", "text": told }]);
    let result = json!({ "content": content, "structuredContent": facts });
    (StatusCode::OK, Json(json!({ "jsonrpc": "2.0", "id": id, "result": result }))).into_response()
}
