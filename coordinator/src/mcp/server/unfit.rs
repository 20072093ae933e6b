//! What is said of parameters that do not fit their method. rmcp takes such a request for one of a method that it does
//! not know, and would answer that there is none.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use rmcp::ErrorData;
use rmcp::model::{
    CustomRequest, ErrorCode, InitializeRequestParams, JsonRpcError, ProtocolVersion, RequestId,
};
use serde_json::{Map, Value, json};

use super::message::Message;

/// What a parameter is.
#[derive(Clone, Copy)]
enum Form {
    Text,
    Object,
}

#[derive(Clone, Copy, PartialEq)]
enum Need {
    Needed,
    Free,
}

type Parameter = (&'static str, Form, Need);

const INITIALIZE: &[Parameter] = &[
    ("protocolVersion", Form::Text, Need::Needed),
    ("capabilities", Form::Object, Need::Needed),
    ("clientInfo", Form::Object, Need::Needed),
];
const NAMED: &[Parameter] = &[
    ("name", Form::Text, Need::Needed),
    ("arguments", Form::Object, Need::Free),
    ("inputResponses", Form::Object, Need::Free),
    ("requestState", Form::Text, Need::Free),
];
const READ: &[Parameter] = &[
    ("uri", Form::Text, Need::Needed),
    ("inputResponses", Form::Object, Need::Free),
    ("requestState", Form::Text, Need::Free),
];
const WATCHED: &[Parameter] = &[("uri", Form::Text, Need::Needed)];
const COMPLETED: &[Parameter] = &[
    ("ref", Form::Object, Need::Needed),
    ("argument", Form::Object, Need::Needed),
    ("context", Form::Object, Need::Free),
];
const LISTENED: &[Parameter] = &[("notifications", Form::Object, Need::Needed)];
const TASK: &[Parameter] = &[("taskId", Form::Text, Need::Needed)];
const TOLD: &[Parameter] =
    &[("taskId", Form::Text, Need::Needed), ("inputResponses", Form::Object, Need::Needed)];

/// The parameters of a method that is served here and needs some.
fn parameters(method: &str, session: bool) -> Option<&'static [Parameter]> {
    Some(match method {
        "tools/call" | "prompts/get" => NAMED,
        "resources/read" => READ,
        "resources/subscribe" | "resources/unsubscribe" if session => WATCHED,
        "completion/complete" => COMPLETED,
        "subscriptions/listen" if !session => LISTENED,
        "tasks/get" | "tasks/cancel" => TASK,
        "tasks/update" => TOLD,
        _ => return None,
    })
}

/// What is said to a request of a method that rmcp does not know, or whose parameters it could not read.
pub(super) fn refusal(request: &CustomRequest, session: bool) -> ErrorData {
    let method = request.method.as_str();
    let Some(wanted) = parameters(method, session) else {
        return ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method.to_owned(), None);
    };
    let none = Map::new();
    let given = request.params.as_ref().and_then(Value::as_object).unwrap_or(&none);
    let problem = problem(method, given, wanted).unwrap_or_else(|| {
        format!("the parameters of {method} have not the form of its schema; look it up and send them so")
    });
    ErrorData::invalid_params(problem, None)
}

/// What is refused before rmcp has it, which would say of an `initialize` that does not fit that it names no session,
/// and of parameters that are no object that the body has the wrong media type.
pub(super) fn outright(message: &Message<'_>, revision: Option<&str>) -> Option<Response> {
    let id = message.id.clone()?;
    let params = message.params.map_or("null", |params| params.get());
    let problem = match &*message.method {
        // The stateless revision has no such method, which rmcp says.
        "initialize" if revision != Some(ProtocolVersion::V_2026_07_28.as_str()) => unfit_beginning(params)?,
        method if !params.starts_with('{') && params != "null" => {
            format!("params must be an object; call {method} again with it so")
        }
        _ => return None,
    };
    let error = JsonRpcError::new(Some(id), ErrorData::invalid_params(problem, None));
    Some((StatusCode::BAD_REQUEST, axum::Json(error)).into_response())
}

/// Whether a body is said to be JSON.
pub(super) fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

/// What is said of JSON that is no message, of which rmcp says that the body has the wrong media type.
pub(super) fn no_message(id: Option<RequestId>) -> Response {
    let problem = "the body is no message of JSON-RPC 2.0: it needs `jsonrpc: \"2.0\"`, a method, and an id that is \
                   a text or a whole number, or none where no answer is wanted; send each message in a request of its \
                   own, for batches are not taken";
    let error = json!({ "code": ErrorCode::INVALID_REQUEST.0, "message": problem });
    let answer = json!({ "jsonrpc": "2.0", "id": id, "error": error });
    (StatusCode::BAD_REQUEST, axum::Json(answer)).into_response()
}

fn unfit_beginning(params: &str) -> Option<String> {
    let error = serde_json::from_str::<InitializeRequestParams>(params).err()?;
    let given = serde_json::from_str::<Map<String, Value>>(params).unwrap_or_default();
    let other =
        || format!("the parameters of initialize have not the form of its schema: {error}; send them so");
    Some(problem("initialize", &given, INITIALIZE).unwrap_or_else(other))
}

/// The first that is missing or of another form. What is not needed may be null.
fn problem(method: &str, given: &Map<String, Value>, wanted: &[Parameter]) -> Option<String> {
    wanted.iter().find_map(|&(name, form, need)| {
        let form = match (form, given.get(name)) {
            (_, None | Some(Value::Null)) if need == Need::Free => return None,
            (Form::Text, Some(Value::String(_))) | (Form::Object, Some(Value::Object(_))) => return None,
            (Form::Text, _) => "a text",
            (Form::Object, _) => "an object",
        };
        Some(match given.contains_key(name) {
            true => format!("{name} must be {form}; call {method} again with it so"),
            false => format!("{name} is missing, which is {form}; call {method} again with it"),
        })
    })
}
