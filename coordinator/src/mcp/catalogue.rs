//! The catalogue: every tool of every toolset, declared once.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use jsonschema::error::ValidationErrorKind;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use skein_shared::id::InstanceId;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::client::Client;
use super::columns::Rows;
use super::dispatch::{Gate, Progress};
use super::finder;
use super::result::{Answer, Reply};
use super::schema::{self, Args, Common};
use crate::auth::{Principal, Right, View};
use crate::service::Service;
use crate::service::unread::Delivery;

/// The families of tools. Their names do not collide, so one catalogue holds them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Toolset {
    Swarm,
    Scheduler,
    Skein,
}

impl Toolset {
    pub const ALL: [Toolset; 3] = [Toolset::Swarm, Toolset::Scheduler, Toolset::Skein];

    pub fn as_str(self) -> &'static str {
        match self {
            Toolset::Swarm => "swarm",
            Toolset::Scheduler => "scheduler",
            Toolset::Skein => "skein",
        }
    }

    /// One line for the map of areas.
    pub fn about(self) -> &'static str {
        match self {
            Toolset::Swarm => "tasks, agents, messages, epics, schedules, inboxes and memory of the swarm",
            Toolset::Scheduler => {
                "locks, calls between agents, waiting for triggers, commands and files of your instance"
            }
            Toolset::Skein => "waiting for changes, claiming tasks by tag, finding and calling tools",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    Core,
    Deferred,
}

/// What a tool really does, whatever its hints say: `poll-task` is hinted read-only by Agent Swarm, and starts a
/// task. Read-only views, `tools_read` and permissions go by this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Read,
    Write,
}

impl Effect {
    pub fn as_str(self) -> &'static str {
        match self {
            Effect::Read => "read",
            Effect::Write => "write",
        }
    }
}

/// The annotations as they are sent; `None` is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    pub read_only: Option<bool>,
    pub destructive: Option<bool>,
    pub idempotent: Option<bool>,
    pub open_world: Option<bool>,
}

impl Hints {
    pub fn json(self) -> Value {
        let named = [
            ("readOnlyHint", self.read_only),
            ("destructiveHint", self.destructive),
            ("idempotentHint", self.idempotent),
            ("openWorldHint", self.open_world),
        ];
        named.into_iter().filter_map(|(name, hint)| Some((name, Value::Bool(hint?)))).collect()
    }
}

/// One call, as a handler gets it.
pub struct Call {
    pub service: Service,
    pub catalogue: Arc<Catalogue>,
    pub who: Principal,
    pub view: View,
    /// Names this call: its repeat carries the same id and makes no second thing.
    pub request: Uuid,
    /// The client's own key, if it gave one; a call inside a call derives from it.
    pub key: Option<String>,
    pub progress: Progress,
    pub delivery: Delivery,
    /// For a call inside this one.
    pub gate: Gate,
    pub client: Client,
    /// What the caller wants alone of each row of the list; none for all. Other fields are left out of the answer.
    pub fields: Vec<String>,
}

impl Call {
    pub fn instance(&self) -> InstanceId {
        self.who.instance.clone()
    }
}

pub type Outcome = Result<Answer, Refusal>;
type Running = Pin<Box<dyn Future<Output = Reply> + Send>>;
type Handler = Arc<dyn Fn(Call, Value) -> Running + Send + Sync>;

/// One tool.
pub struct Tool {
    pub name: &'static str,
    pub title: &'static str,
    pub toolset: Toolset,
    pub tier: Tier,
    pub right: Right,
    pub effect: Effect,
    pub hints: Hints,
    /// Holds its caller until something happens.
    pub waits: bool,
    /// Calls another tool for its caller.
    pub hands_on: bool,
    /// Looks through texts, which costs more than other reads.
    pub searches: bool,
    /// One sentence with the words that a user would say.
    pub summary: &'static str,
    /// What the complete form adds: rules, limits, what to do next.
    pub details: &'static str,
    /// More words by which somebody may look for the tool.
    pub search: &'static str,
    /// What it is called elsewhere: it is found and called by these too.
    pub aliases: &'static [&'static str],
    pub args: Args,
    /// Null if it gives text alone, or what it hands on may do so.
    pub output: Value,
    /// The list in its result, if it has one.
    pub list: Option<Rows>,
    handler: Handler,
}

impl Tool {
    /// A tool of the deferred tier that anybody in the swarm may use to read; the setters say otherwise.
    pub fn new<A, F, R>(name: &'static str, title: &'static str, toolset: Toolset, handler: F) -> Self
    where
        A: DeserializeOwned,
        F: Fn(Call, A) -> R + Copy + Send + Sync + 'static,
        R: Future<Output = Outcome> + Send + 'static,
    {
        Self::raw(name, title, toolset, move |call, arguments: A| {
            let agent = call.who.agent;
            let running = handler(call, arguments);
            async move { Reply::shape(toolset, agent, running.await) }
        })
    }

    /// A tool that shapes its reply itself, because it passes on the reply of another.
    pub fn raw<A, F, R>(name: &'static str, title: &'static str, toolset: Toolset, handler: F) -> Self
    where
        A: DeserializeOwned,
        F: Fn(Call, A) -> R + Send + Sync + 'static,
        R: Future<Output = Reply> + Send + 'static,
    {
        let handler: Handler =
            Arc::new(move |call, arguments| match serde_json::from_value::<A>(arguments) {
                Ok(parsed) => Box::pin(handler(call, parsed)),
                Err(error) => {
                    let refusal =
                        Refusal::new(Code::InvalidArgument, format!("the arguments do not fit: {error}"));
                    Box::pin(async move { Reply::error(&refusal) })
                }
            });
        Self {
            name,
            title,
            toolset,
            tier: Tier::Deferred,
            right: Right::Read,
            effect: Effect::Read,
            hints: Hints::default(),
            waits: false,
            hands_on: false,
            searches: false,
            summary: "",
            details: "",
            search: "",
            aliases: &[],
            args: Args::none(),
            output: json!({ "type": "object" }),
            list: None,
            handler,
        }
    }

    #[must_use]
    pub fn core(mut self) -> Self {
        self.tier = Tier::Core;
        self
    }

    #[must_use]
    pub fn waiting(mut self) -> Self {
        self.waits = true;
        self
    }

    #[must_use]
    pub fn handing_on(mut self) -> Self {
        self.hands_on = true;
        self
    }

    #[must_use]
    pub fn searching(mut self) -> Self {
        self.searches = true;
        self
    }

    /// Reads only, and says so to the client.
    #[must_use]
    pub fn reads(mut self) -> Self {
        self.hints.read_only = Some(true);
        self
    }

    /// Takes this right to read.
    #[must_use]
    pub fn right(mut self, right: Right) -> Self {
        self.right = right;
        self
    }

    /// Changes something, and takes this right.
    #[must_use]
    pub fn writes(mut self, right: Right) -> Self {
        self.effect = Effect::Write;
        self.right = right;
        self
    }

    /// Hints that Agent Swarm sends although they are not the whole truth.
    #[must_use]
    pub fn hinted(mut self, hints: Hints) -> Self {
        self.hints = hints;
        self
    }

    #[must_use]
    pub fn additive(mut self) -> Self {
        self.hints.destructive = Some(false);
        self
    }

    #[must_use]
    pub fn destructive(mut self) -> Self {
        self.hints.destructive = Some(true);
        self
    }

    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.hints.idempotent = Some(true);
        self
    }

    #[must_use]
    pub fn open_world(mut self) -> Self {
        self.hints.open_world = Some(true);
        self
    }

    #[must_use]
    pub fn about(mut self, summary: &'static str, details: &'static str) -> Self {
        self.summary = summary;
        self.details = details;
        self
    }

    #[must_use]
    pub fn found_by(mut self, search: &'static str) -> Self {
        self.search = search;
        self
    }

    /// Names that its like has where agents come from. One that is a tool's in another toolset is none: toolsets do not
    /// take each other's names.
    #[must_use]
    pub fn known_as(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// Its name, and what it is called elsewhere.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    #[must_use]
    pub fn args(mut self, args: Args) -> Self {
        self.args = args;
        self
    }

    #[must_use]
    pub fn output(mut self, fields: Value) -> Self {
        self.output = schema::result(fields);
        self
    }

    /// This field of its result is a list, and these are the fields that a row may have.
    #[must_use]
    pub fn lists(mut self, name: &'static str, fields: &'static [&'static str]) -> Self {
        self.list = Some(Rows { name, fields, pages: false });
        self
    }

    /// Its list comes in pages: it takes a cursor, and gives one as long as there may be more.
    #[must_use]
    pub fn paged(mut self) -> Self {
        if let Some(list) = &mut self.list {
            list.pages = true;
        }
        self
    }

    /// Its result is text, and perhaps an image, for the model alone: nothing that a program could read. Or it is that
    /// of another tool, of which the same may hold.
    #[must_use]
    pub fn text_alone(mut self) -> Self {
        self.output = Value::Null;
        self
    }

    /// The complete input schema, with what every tool of its kind takes.
    pub fn input(&self) -> Map<String, Value> {
        let mut schema = self.args.full();
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            properties.extend(self.common(self.list.as_ref()).map(Common::full));
        }
        schema
    }

    /// The input schema as the long list has it. What is the same everywhere is explained in the instructions, once,
    /// and how a list is to be is named here where it may be long.
    pub fn input_listed(&self) -> Value {
        let mut schema = schema::listed(self.args.full());
        if let Some(properties) = schema["properties"].as_object_mut() {
            let common = self.common(self.list.as_ref().filter(|list| list.pages));
            properties.extend(common.map(Common::listed));
        }
        schema
    }

    /// The arguments that mean the same at every tool that takes them: how a list is to be, and the key of a change.
    fn common(&self, list: Option<&Rows>) -> impl Iterator<Item = Common> {
        let of_lists = list.into_iter().flat_map(|list| list.arguments(self.toolset));
        let of_changes = (self.effect == Effect::Write).then(|| Common {
            name: super::idempotency::ARGUMENT,
            schema: schema::text(200),
            about: "Same key, same answer".to_owned(),
            in_short: "For repeats",
        });
        of_lists.chain(of_changes)
    }

    pub fn run(&self, call: Call, arguments: Value) -> Running {
        (self.handler)(call, arguments)
    }
}

/// Every tool, in a fixed order: core before deferred, then by toolset and name.
pub struct Catalogue {
    tools: Vec<Entry>,
    by_name: HashMap<&'static str, usize>,
    index: finder::Index,
}

struct Entry {
    tool: Tool,
    validator: jsonschema::Validator,
    /// The arguments that are whole numbers.
    whole: Vec<String>,
}

/// The declarations contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tool {tool}: {problem}")]
pub struct BadDeclaration {
    pub tool: &'static str,
    pub problem: String,
}

impl Catalogue {
    /// Compiles the schemas and the index of names.
    ///
    /// # Errors
    /// When a schema does not compile, or a name is taken twice, however it is spelt.
    pub fn new(mut tools: Vec<Tool>) -> Result<Self, BadDeclaration> {
        tools.sort_by_key(|tool| (tool.tier, tool.toolset, tool.name));
        let mut by_name = HashMap::new();
        let mut spellings = HashSet::new();
        let mut entries = Vec::with_capacity(tools.len());
        for (index, mut tool) in tools.into_iter().enumerate() {
            for name in tool.names() {
                if !spellings.insert(finder::plain(name)) {
                    return Err(BadDeclaration { tool: tool.name, problem: format!("`{name}` is taken") });
                }
                by_name.insert(name, index);
            }
            if let Some(list) = tool.list {
                list.complete(&mut tool.output);
            }
            let input = tool.input();
            let whole = schema::whole_numbers(&input);
            let validator = jsonschema::options()
                .should_validate_formats(true)
                .build(&Value::Object(input))
                .map_err(|error| BadDeclaration { tool: tool.name, problem: error.to_string() })?;
            entries.push(Entry { tool, validator, whole });
        }
        let index = finder::Index::new(entries.iter().map(|entry| &entry.tool));
        Ok(Self { tools: entries, by_name, index })
    }

    pub fn tools(&self) -> impl ExactSizeIterator<Item = &Tool> + Clone {
        self.tools.iter().map(|entry| &entry.tool)
    }

    /// What the tools are found by.
    pub fn index(&self) -> &finder::Index {
        &self.index
    }

    /// The position of a tool by its name or an alias.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.position(name).map(|index| &self.tools[index].tool)
    }

    /// The tool by its name or an alias, however that is spelt.
    pub fn named(&self, name: &str) -> Option<&Tool> {
        self.index.named(name).map(|index| &self.tools[index].tool)
    }

    /// What is wrong with the arguments: a JSON pointer and a sentence for each problem.
    pub fn problems(&self, name: &str, arguments: &Value) -> Vec<(String, String)> {
        const SHOWN: usize = 8;
        let Some(index) = self.position(name) else { return Vec::new() };
        let validator = &self.tools[index].validator;
        // To find none is the rule, and asking whether there is any costs far less than asking which.
        if validator.is_valid(arguments) {
            return Vec::new();
        }
        validator
            .iter_errors(arguments)
            .take(SHOWN)
            .map(|error| (error.instance_path().to_string(), told(&error)))
            .collect()
    }

    /// Writes the whole numbers among arguments that fit the schema as such.
    pub fn write_whole(&self, name: &str, arguments: &mut Value) {
        if let Some(index) = self.position(name) {
            schema::write_whole(arguments, &self.tools[index].whole);
        }
    }
}

/// What is wrong with a value, without the value. Of those that are allowed all are named, however many.
fn told(error: &jsonschema::ValidationError<'_>) -> String {
    match error.kind() {
        ValidationErrorKind::Enum { options } => {
            let options = options.as_array().into_iter().flatten();
            let options: Vec<&str> = options.filter_map(Value::as_str).collect();
            format!("value is not one of {}", options.join(", "))
        }
        _ => error.masked().to_string(),
    }
}
