//! Between what tools, prompts and documents are made of and the protocol's types.

use std::collections::{BTreeMap, BTreeSet};

use rmcp::ErrorData;
use rmcp::model::{
    CallToolResult, ClientCapabilities, ContentBlock, CreateTaskResult, DetailedTask, ErrorCode,
    InputRequest, InputRequests, Prompt, PromptArgument, PromptMessage, Resource, ResourceContents,
    ResourceTemplate, Role, Task, TaskPayload, TaskStatus,
};
use serde_json::{Map, Value, json};
use skein_shared::{Code, Refusal};

use crate::mcp::client::{Ability, Question};
use crate::mcp::content::{Body, Content, Document};
use crate::mcp::job::{Job, State};
use crate::mcp::offer;
use crate::mcp::result::{Reply, refusal_json};

/// How often a client may ask how a task stands.
const POLL_MS: u64 = 1000;
/// What an error has that the protocol has no code for.
const REFUSED: ErrorCode = ErrorCode(-32000);

pub(super) fn finished(reply: Reply) -> CallToolResult {
    let Reply { text, more, json, is_error, .. } = reply;
    let json = Some(json).filter(|json| !json.is_null());
    let facts = json.as_ref().map(Value::to_string);
    let mut result = CallToolResult::success(blocks(text, more, facts.as_deref(), is_error));
    result.structured_content = json;
    result.is_error = Some(is_error);
    result
}

/// What a result consists of. Some clients show their models texts alone, so the JSON is a text too; that of an error
/// has all in it already.
pub(super) fn blocks(
    text: String,
    more: Vec<Content>,
    json: Option<&str>,
    is_error: bool,
) -> Vec<ContentBlock> {
    let facts = json.filter(|json| !is_error && *json != text).map(ContentBlock::text);
    let text = (!text.is_empty() || more.is_empty()).then(|| ContentBlock::text(text));
    text.into_iter().chain(more.into_iter().map(block)).chain(facts).collect()
}

fn block(content: Content) -> ContentBlock {
    match content {
        Content::Text(text) => ContentBlock::text(text),
        Content::Image { data, mime_type } => ContentBlock::image(data, mime_type),
        Content::Audio { data, mime_type } => ContentBlock::audio(data, mime_type),
        Content::Document(document) => ContentBlock::resource(contents(document)),
    }
}

pub(super) fn contents(document: Document) -> ResourceContents {
    let Document { uri, mime_type, body } = document;
    match body {
        Body::Text(text) => ResourceContents::text(text, uri),
        Body::Bytes(bytes) => ResourceContents::blob(bytes, uri),
    }
    .with_mime_type(mime_type)
}

pub(super) fn message(content: Content) -> PromptMessage {
    PromptMessage::new(Role::User, block(content))
}

pub(super) fn prompt(prompt: &offer::Prompt) -> Prompt {
    let argument = |argument: &offer::Argument| {
        PromptArgument::new(argument.name).with_description(argument.about).with_required(argument.required)
    };
    let arguments = prompt.arguments.iter().map(argument).collect();
    Prompt::new(prompt.name, Some(prompt.about), Some(arguments)).with_title(prompt.title)
}

pub(super) fn resource(listed: offer::Listed) -> Resource {
    Resource::new(listed.uri, listed.name).with_description(listed.about).with_mime_type(listed.mime_type)
}

pub(super) fn template(listed: offer::Listed) -> ResourceTemplate {
    ResourceTemplate::new(listed.uri, listed.name)
        .with_description(listed.about)
        .with_mime_type(listed.mime_type)
}

pub(super) fn abilities(capabilities: &ClientCapabilities) -> BTreeSet<Ability> {
    // One that says of neither shows forms, as all did before there was another way to ask.
    let shows_forms =
        capabilities.elicitation.as_ref().is_some_and(|asks| asks.form.is_some() || asks.url.is_none());
    let has = [
        (Ability::Elicitation, shows_forms),
        (Ability::Sampling, capabilities.sampling.is_some()),
        (Ability::Roots, capabilities.roots.is_some()),
        (Ability::Tasks, capabilities.supports_tasks()),
    ];
    has.into_iter().filter_map(|(ability, has)| has.then_some(ability)).collect()
}

/// Says which ability a client lacks.
pub(super) fn lacks(ability: Ability) -> ErrorData {
    let required = match ability {
        Ability::Elicitation => json!({ "elicitation": {} }),
        Ability::Sampling => json!({ "sampling": {} }),
        Ability::Roots => json!({ "roots": {} }),
        Ability::Tasks => json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } }),
    };
    let mut error = ErrorData::missing_required_client_capability(ClientCapabilities::default());
    error.data = Some(json!({ "requiredCapabilities": required }));
    error
}

/// The questions in the protocol's form. One that it does not know is a fault of the tool that asks it.
pub(super) fn requests(asked: &BTreeMap<String, Question>) -> Result<InputRequests, ErrorData> {
    let request = |question: &Question| {
        let form = json!({ "method": question.method(), "params": question.params });
        serde_json::from_value::<InputRequest>(form).map_err(|error| {
            ErrorData::internal_error(format!("a question has not the protocol's form: {error}"), None)
        })
    };
    asked.iter().map(|(key, question)| Ok((key.clone(), request(question)?))).collect()
}

pub(super) fn begun(job: &Job) -> CreateTaskResult {
    CreateTaskResult::new(task(job))
}

fn task(job: &Job) -> Task {
    let status = match job.state {
        State::Asks(_) => TaskStatus::InputRequired,
        _ => TaskStatus::Working,
    };
    let task = Task::new(&job.id, status, job.began.iso(), job.changed.iso());
    let task = task.with_poll_interval_ms(POLL_MS);
    match job.kept {
        Some(kept) => task.with_ttl_ms(u64::try_from(kept.as_millis()).unwrap_or(u64::MAX)),
        None => task,
    }
}

pub(super) fn detailed(job: Job) -> Result<DetailedTask, ErrorData> {
    let task = task(&job);
    let payload = match job.state {
        State::Working => TaskPayload::Working,
        State::Cancelled => TaskPayload::Cancelled,
        State::Asks(asked) => TaskPayload::InputRequired { input_requests: requests(&asked)? },
        State::Done(reply) => TaskPayload::Completed { result: object(finished(*reply)) },
        State::Failed(refusal) => TaskPayload::Failed { error: object(refused(&refusal)) },
    };
    Ok(DetailedTask::new(task, payload))
}

fn object(value: impl serde::Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

/// A refusal of what is no tool.
pub(super) fn refused(refusal: &Refusal) -> ErrorData {
    let data = Some(refusal_json(refusal));
    let message = refusal.message.clone();
    match refusal.code {
        Code::InvalidArgument => ErrorData::invalid_params(message, data),
        Code::Internal => ErrorData::internal_error(message, data),
        _ => ErrorData::new(REFUSED, message, data),
    }
}

/// The same for something that is named: what is not there is a wrong parameter.
pub(super) fn not_found(uri: &str, refusal: &Refusal) -> ErrorData {
    if refusal.code != Code::NotFound {
        return refused(refusal);
    }
    let mut data = refusal_json(refusal);
    data["uri"] = json!(uri);
    ErrorData::resource_not_found(refusal.message.clone(), Some(data))
}
