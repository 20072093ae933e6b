//! The one path of a call: find the tool, check the right, take the key, validate, run, note it down.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use skein_shared::{Code, Refusal};
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use super::audit::Audit;
use super::catalogue::{Call, Catalogue, Effect, Tool, Toolset};
use super::client::Client;
use super::columns::Wish;
use super::idempotency::Keys;
use super::quota::{Limits, Quota, Seat};
use super::result::{Reply, refusal_json};
use super::turns::Turns;
use super::{finder, idempotency, names, view};
use crate::auth::{Principal, View, policy};
use crate::service::Service;
use crate::service::unread::Delivery;

/// What every call passes, from whichever client it comes. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    pub quota: Quota,
    pub keys: Keys,
    pub turns: Turns,
}

impl Gate {
    pub fn new(limits: Limits) -> Self {
        Self { quota: Quota::new(limits), keys: Keys::default(), turns: Turns::default() }
    }
}

/// What comes with a call besides its name and arguments.
#[derive(Clone)]
pub struct Context {
    pub service: Service,
    pub catalogue: Arc<Catalogue>,
    pub who: Principal,
    pub view: View,
    /// The idempotency key that came as a header.
    pub key: Option<String>,
    pub progress: Progress,
    pub delivery: Delivery,
    pub gate: Gate,
    pub client: Client,
}

/// What a handler says before it answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// That it is alive, and what it waits for.
    Alive(String),
    /// How far it is.
    Step {
        done: f64,
        of: f64,
        message: String,
    },
    Log(String),
}

/// Where a handler says how it goes on. Whoever listens does so between two steps of the handler, so that
/// nothing is said over before it was heard.
#[derive(Clone, Debug)]
pub struct Progress {
    told: Option<watch::Sender<Told>>,
    heard: bool,
}

impl Progress {
    /// A client that listens: it is told that the call is alive, and so may be kept waiting for long.
    pub fn heard(told: watch::Sender<Told>) -> Self {
        Self { told: Some(told), heard: true }
    }

    /// A client that hears no signs of life, but may be told something all the same.
    pub fn unheard(told: watch::Sender<Told>) -> Self {
        Self { told: Some(told), heard: false }
    }

    /// A client that hears nothing before the answer.
    pub fn silent() -> Self {
        Self { told: None, heard: false }
    }

    pub fn say(&self, message: impl Into<String>) {
        self.tell(Told::Alive(message.into()));
    }

    pub fn tell(&self, told: Told) {
        if let Some(sender) = &self.told {
            sender.send_replace(told);
        }
    }

    /// How long a client may be kept waiting that would like to wait for `wanted`. Without a sign of life
    /// many clients give up after 60 seconds, so those are answered before.
    pub fn patience(&self, wanted: Duration) -> Duration {
        const SILENT: Duration = Duration::from_secs(45);
        const HEARD: Duration = Duration::from_secs(3600);
        wanted.min(if self.heard { HEARD } else { SILENT })
    }
}

/// Runs a tool by name.
pub async fn call(context: Context, name: &str, arguments: Map<String, Value>) -> Reply {
    let audit = Audit::begin(Uuid::now_v7(), context.who.clone(), context.catalogue.get(name));
    let reply = match prepare(context, name, arguments) {
        Ok(Prepared { call, catalogue, arguments, wish, seat: _seat }) => match catalogue.get(name) {
            Some(tool) => take_turn(tool, call, arguments, &wish).await,
            None => Reply::error(&unknown(&catalogue, name)),
        },
        Err(reply) => *reply,
    };
    audit.answered(&reply);
    reply
}

/// Runs a tool when it is its caller's turn. What is about to wait for something needs none, nor what makes another
/// call for its caller, which has its own.
async fn take_turn(tool: &Tool, call: Call, arguments: Value, wish: &Wish) -> Reply {
    if tool.waits || tool.hands_on {
        return run(tool, call, arguments, wish).await;
    }
    let (turns, swarm) = (call.gate.turns.clone(), call.who.swarm.clone());
    turns.run(&swarm, run(tool, call, arguments, wish)).await
}

/// Runs a tool and gives its answer the form that the caller wants.
async fn run(tool: &Tool, call: Call, mut arguments: Value, wish: &Wish) -> Reply {
    let agent = call.who.agent;
    let mut reply = match names::resolve(&call, tool, &mut arguments).await {
        Ok(()) => tool.run(call, arguments).await,
        Err(refusal) => Reply::shape(tool.toolset, agent, Err(refusal)),
    };
    if let Some(list) = &tool.list {
        list.shape(wish, &mut reply.json);
    }
    let is_misuse = reply.is_error && reply.code == Some(Code::InvalidArgument);
    if is_misuse { taught(tool, reply) } else { reply }
}

/// A call that may run. Its place among those who wait is free again when it is dropped.
struct Prepared {
    call: Call,
    catalogue: Arc<Catalogue>,
    arguments: Value,
    wish: Wish,
    seat: Seat,
}

fn prepare(context: Context, name: &str, mut arguments: Map<String, Value>) -> Result<Prepared, Box<Reply>> {
    let Context { service, catalogue, who, view, key, progress, delivery, gate, client } = context;
    let tool = catalogue.get(name).ok_or_else(|| Box::new(Reply::error(&unknown(&catalogue, name))))?;
    let agent = who.agent;
    let refuse = |refusal: Refusal| Box::new(Reply::shape(tool.toolset, agent, Err(refusal)));
    permit(tool, &who, &view).map_err(refuse)?;
    let seat = gate.quota.admit(&who, tool, Instant::now()).map_err(refuse)?;
    // As with any other argument of a wrong kind, it is an error in every toolset.
    let key = idempotency::key(&mut arguments, key.as_deref())
        .map_err(|bad| Box::new(taught(tool, Reply::error(&bad))))?;
    let mut arguments = Value::Object(arguments);
    let problems = catalogue.problems(name, &arguments);
    if !problems.is_empty() {
        return Err(Box::new(invalid(tool, &problems)));
    }
    catalogue.write_whole(name, &mut arguments);
    let wish = match (&tool.list, &mut arguments) {
        (Some(list), Value::Object(arguments)) => list.wish(tool.toolset, arguments),
        _ => Wish::default(),
    };
    service.seen(&who);
    let request = idempotency::request(&who, tool.name, key.as_deref());
    if key.is_some() && tool.effect == Effect::Write {
        gate.keys.take(request, &arguments, Instant::now()).map_err(refuse)?;
    }
    let service = service.keeping_answers(key.is_some());
    let call = Call {
        service,
        catalogue: Arc::clone(&catalogue),
        who,
        view,
        request,
        key,
        progress,
        delivery,
        gate,
        client,
        fields: wish.fields().to_vec(),
    };
    Ok(Prepared { call, catalogue, arguments, wish, seat })
}

fn permit(tool: &Tool, who: &Principal, view: &View) -> Result<(), Refusal> {
    policy::require(who, view::right(tool, who.role))?;
    match tool.effect {
        Effect::Write => require_writable(tool.name, who, view),
        Effect::Read => Ok(()),
    }
}

/// Whether whoever asks may change something by `what`, at the address that was asked.
pub(super) fn require_writable(what: &str, who: &Principal, view: &View) -> Result<(), Refusal> {
    if view.readonly {
        return Err(Refusal::new(
            Code::Forbidden,
            format!(
                "{what} changes something, and this address or token may only read; use an address without /readonly, and a token without the readonly view"
            ),
        ));
    }
    policy::require_writable(who)
}

/// Nobody can call what does not exist: name what comes near.
fn unknown(catalogue: &Catalogue, name: &str) -> Refusal {
    let near = finder::nearest(catalogue, name, 3);
    let shown: String = name.chars().take(60).collect();
    Refusal::new(
        Code::UnknownTool,
        format!(
            "there is no tool `{shown}`; did you mean {}? tools_find searches all of them",
            near.join(", ")
        ),
    )
    .with(json!({ "nearest": near }))
}

/// Says where the arguments are wrong and how they ought to be, so that the next call is right.
fn invalid(tool: &Tool, problems: &[(String, String)]) -> Reply {
    let lines: Vec<String> = problems
        .iter()
        .map(|(pointer, problem)| {
            let place = if pointer.is_empty() { "/" } else { pointer };
            format!("{place}: {problem}")
        })
        .collect();
    let refusal = Refusal::new(
        Code::InvalidArgument,
        format!("Input validation error: invalid arguments for tool {}: {}", tool.name, lines.join("; ")),
    );
    let mut json = refusal_json(&refusal);
    json["problems"] =
        problems.iter().map(|(path, message)| json!({ "path": path, "message": message })).collect();
    taught(tool, Reply { json, ..Reply::error(&refusal) })
}

/// Adds the schema to an error about the arguments, in the text too. That of a tool which was called by another has its
/// own already.
fn taught(tool: &Tool, mut reply: Reply) -> Reply {
    if reply.json.get("schema").is_some() {
        return reply;
    }
    reply.json["schema"] = Value::Object(tool.input());
    reply.text = match tool.toolset {
        // The original's wording, by which agents know to correct themselves.
        Toolset::Swarm => {
            let message = reply.json["message"].as_str().unwrap_or_default();
            format!("MCP error -32602: {message}\nSchema: {}", reply.json["schema"])
        }
        _ => reply.json.to_string(),
    };
    reply
}
