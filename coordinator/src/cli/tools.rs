//! `skein tools`: what an agent can do, a person can do, through the same calls.

use std::io::{self, IsTerminal, Read, Write};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use skein_shared::id::{Name, agent_id};
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::table::{self, Column};
use super::{CliError, InSwarm, ids, token};
use crate::auth::{Role, View};
use crate::mcp::connection::{Called, Connection, ConnectionError};
use crate::node::Endpoint;

/// A call may wait for an hour.
const LIFETIME: Duration = Duration::from_secs(2 * 3600);

const LISTED: &[Column] = &[("NAME", &["name"]), ("DOES", &["description"])];
const FOUND: &[Column] = &[("NAME", &["name"]), ("EFFECT", &["effect"]), ("DOES", &["does"])];
const ARGUMENTS: &[Column] =
    &[("ARGUMENT", &["name"]), ("TYPE", &["type"]), ("", &["needed"]), ("ABOUT", &["about"])];

#[derive(Debug, Subcommand)]
pub(super) enum Tools {
    /// List the tools of a view.
    List {
        /// core, full, x/TOOLSET; with /readonly for those that change nothing.
        #[arg(long, default_value = "full")]
        view: View,
        #[command(flatten)]
        as_whom: AsWhom,
    },
    /// Find tools by what they are to do.
    Find {
        /// What you want to do.
        #[arg(required = true)]
        words: Vec<String>,
        /// At most so many.
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=25))]
        limit: u32,
        #[command(flatten)]
        as_whom: AsWhom,
    },
    /// Say what a tool does and which arguments it takes.
    Describe {
        /// The tool, as `skein tools list` or `skein tools find` shows it.
        tool: String,
        #[command(flatten)]
        as_whom: AsWhom,
    },
    /// Call a tool.
    Call {
        /// The tool, as `skein tools list` or `skein tools find` shows it.
        tool: String,
        /// `name=value` each, where a value that is JSON counts as such; or one JSON object; or `-` for one on stdin.
        arguments: Vec<String>,
        #[command(flatten)]
        as_whom: AsWhom,
    },
}

/// The caller, as the swarm is to see it.
#[derive(Debug, Args)]
pub(super) struct AsWhom {
    /// lead, worker, observer or operator.
    #[arg(long, default_value = "lead")]
    role: Role,
    /// The caller's name: an agent's, to act for that agent. The role's if left out.
    #[arg(long)]
    name: Option<Name>,
    /// The agent's id; that of the member which has the name, if left out, or else of the agent that runners start
    /// under it.
    #[arg(long, value_parser = ids::id)]
    agent: Option<Uuid>,
    #[command(flatten)]
    at: InSwarm,
}

impl Tools {
    pub(super) async fn run(self) -> Result<(), CliError> {
        match self {
            Tools::List { view, as_whom } => list(&view, &as_whom).await,
            Tools::Find { words, limit, as_whom } => {
                let wanted = json!({ "query": words.join(" "), "limit": limit, "format": "rows" });
                let found = find(&as_whom, wanted).await?;
                Ok(table::print(&rows(&found), FOUND, as_whom.at.common.json)?)
            }
            Tools::Describe { tool, as_whom } => describe(&tool, &as_whom).await,
            Tools::Call { tool, arguments, as_whom } => {
                let called = as_whom.call(&tool, read_arguments(&arguments)?).await?;
                print(&called, as_whom.at.common.json)
            }
        }
    }
}

impl AsWhom {
    /// Opens a session with a token of its own.
    async fn connect(&self, view: &View) -> Result<Connection, CliError> {
        let endpoint = Endpoint::of_a_node(&self.at.common.layout())?;
        let name = match &self.name {
            Some(name) => name.clone(),
            None => Name::parse(self.role.as_str())?,
        };
        let agent = self.agent(&name).await?;
        let issued = token::issue(&self.at, self.role, name, agent, LIFETIME, None)?;
        // Not by its public address: this machine need not reach that, and it may want TLS.
        let url = format!("http://{}/mcp/{view}", Endpoint::near(endpoint.http));
        Ok(Connection::connect(&url, issued.text()).await?)
    }

    /// Who has the name that was given, or the agent that runners start under it.
    async fn agent(&self, name: &Name) -> Result<Uuid, CliError> {
        let is_named = self.name.is_some() && matches!(self.role, Role::Lead | Role::Worker);
        let known = match self.agent {
            None if is_named => self.at.member(name).await?,
            given => given,
        };
        Ok(known.unwrap_or_else(|| agent_id(&self.at.swarm, name)))
    }

    /// Calls a tool by its name, listed or not.
    async fn call(&self, name: &str, arguments: Map<String, Value>) -> Result<Called, CliError> {
        let client = self.connect(&View::parse("full")?).await?;
        let called = client.call(name, arguments).await;
        client.close().await;
        let called = called?;
        refused(&called).map_or(Ok(called), Err)
    }
}

async fn list(view: &View, as_whom: &AsWhom) -> Result<(), CliError> {
    let client = as_whom.connect(view).await?;
    let tools = client.list().await;
    client.close().await;
    Ok(table::print(&tools?, LISTED, as_whom.at.common.json)?)
}

async fn find(as_whom: &AsWhom, wanted: Value) -> Result<Value, CliError> {
    let Value::Object(wanted) = wanted else { return Err(CliError::Usage("no query".to_owned())) };
    Ok(as_whom.call("tools_find", wanted).await?.json)
}

async fn describe(name: &str, as_whom: &AsWhom) -> Result<(), CliError> {
    let found = find(as_whom, json!({ "names": [name], "detail": "full", "format": "rows" })).await?;
    let Some(tool) = rows(&found).into_iter().next() else {
        let near = &found["unknown"][0]["nearest"];
        let near: Vec<&str> = near.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let problem =
            format!("there is no tool `{name}` for a {}; did you mean {}?", as_whom.role, near.join(", "));
        return Err(CliError::Refused(Refusal::new(Code::NotFound, problem)));
    };
    if as_whom.at.common.json {
        return Ok(table::print_document(&tool, true)?);
    }
    let said = |field: &str| tool[field].as_str().unwrap_or_default().to_owned();
    let (name, area, effect) = (said("name"), said("area"), said("effect"));
    writeln!(io::stdout().lock(), "{name} ({area}, {effect})\n{}\n", said("description"))?;
    Ok(table::print(&arguments_of(&tool["inputSchema"]), ARGUMENTS, false)?)
}

fn rows(found: &Value) -> Vec<Value> {
    found["tools"].as_array().cloned().unwrap_or_default()
}

/// A row for each argument of a schema.
fn arguments_of(schema: &Value) -> Vec<Value> {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let each = schema["properties"].as_object().into_iter().flatten();
    each.map(|(name, argument)| {
        let needed = if required.contains(&json!(name)) { "needed" } else { "" };
        let kind = match argument["enum"].as_array() {
            Some(values) => {
                values.iter().map(|value| value.as_str().unwrap_or("?")).collect::<Vec<_>>().join("|")
            }
            None => argument["type"].as_str().unwrap_or("any").to_owned(),
        };
        json!({ "name": name, "type": kind, "needed": needed, "about": argument["description"] })
    })
    .collect()
}

/// The arguments of a call, in any of the ways in which they may be given.
fn read_arguments(given: &[String]) -> Result<Map<String, Value>, CliError> {
    let object = |text: &str| match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err(CliError::Usage("the arguments are to be a JSON object".to_owned())),
        Err(error) => Err(CliError::Usage(format!("the arguments are no JSON: {error}"))),
    };
    match given {
        [only] if only == "-" => {
            if io::stdin().is_terminal() {
                table::note("skein: reading a JSON object from the terminal; end it with Ctrl-D");
            }
            let mut text = String::new();
            io::stdin().read_to_string(&mut text)?;
            object(&text)
        }
        [only] if only.trim_start().starts_with('{') => object(only),
        pairs => pairs.iter().map(|pair| named(pair)).collect(),
    }
}

/// `priority=70` is a number and `task=write it down` a text.
fn named(pair: &str) -> Result<(String, Value), CliError> {
    let (name, value) = pair.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
        CliError::Usage(format!("`{pair}` is no argument; write name=value, or one JSON object"))
    })?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
    Ok((name.to_owned(), value))
}

/// Why the swarm said no, whichever the manners of the tool's set are.
fn refused(called: &Called) -> Option<CliError> {
    let json = &called.json;
    if !called.is_error && json["success"] != json!(false) && json["ok"] != json!(false) {
        return None;
    }
    let message = json["message"].as_str().or(json["reason"].as_str()).unwrap_or(&called.text);
    // A command that ended badly inside an instance has a text alone.
    Some(match serde_json::from_value(json["code"].clone()) {
        Ok(code) => CliError::Refused(Refusal::new(code, message)),
        Err(_) => CliError::Agent(message.to_owned()),
    })
}

fn print(called: &Called, json: bool) -> Result<(), CliError> {
    match text_of(called, json) {
        Some(text) => Ok(writeln!(io::stdout().lock(), "{text}")?),
        None => Ok(table::print_document(&called.json, json)?),
    }
}

/// What is printed of a tool whose text is all there is.
fn text_of(called: &Called, json: bool) -> Option<String> {
    let text = &called.text;
    called.json.is_null().then(|| if json { json!({ "text": text }).to_string() } else { table::plain(text) })
}

impl From<ConnectionError> for CliError {
    fn from(error: ConnectionError) -> Self {
        CliError::Refused(Refusal::new(Code::Unavailable, error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(arguments: &[&str]) -> Result<Map<String, Value>, CliError> {
        read_arguments(&arguments.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_pairs_or_an_object() {
        let pairs = given(&["task=write it = down", "priority=70", "tags=[\"a\"]", "quote=\"7\""]).unwrap();
        let object = json!({"task": "write it = down", "priority": 70, "tags": ["a"], "quote": "7"});
        assert_eq!(Value::Object(pairs), object);
        assert_eq!(Value::Object(given(&[&object.to_string()]).unwrap()), object);
        assert!(given(&[]).unwrap().is_empty());
        for bad in ["{", "{]", "word", "=7"] {
            let error = given(&[bad]).unwrap_err();
            assert!(matches!(error, CliError::Usage(_)), "{bad}: {error}");
        }
    }

    #[test]
    fn a_text_is_json_to_those_who_ask_for_json() {
        let called = |json| Called { text: "one\n\u{1b}[2Jtwo".to_owned(), json, is_error: false };
        let alone = called(Value::Null);
        let printed: Value = serde_json::from_str(&text_of(&alone, true).unwrap()).unwrap();
        assert_eq!(printed, json!({ "text": alone.text }));
        assert_eq!(text_of(&alone, false).unwrap(), "one\n[2Jtwo");
        assert_eq!(text_of(&called(json!({ "ok": true })), true), None);
    }

    #[test]
    fn a_refusal_is_known_in_either_form() {
        let called = |json, is_error| Called { text: "as a text".to_owned(), json, is_error };
        let full = json!({"success": false, "message": "full", "code": "no_capacity"});
        let held = json!({"ok": false, "reason": "held", "code": "lock_held"});
        for (json, is_error, message, exit) in
            [(full, false, "full", 5), (held, false, "held", 5), (Value::Null, true, "as a text", 1)]
        {
            let error = refused(&called(json, is_error)).unwrap();
            assert_eq!((error.to_string().as_str(), error.exit()), (message, exit));
        }
        assert!(refused(&called(json!({"success": true}), false)).is_none());
    }
}
