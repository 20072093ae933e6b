//! Configuration: the settings of the swarm, with the rights of the tools that set and read them.

use axum::extract::State;
use serde_json::{Map, Value, json};
use skein_shared::Code;
use skein_shared::settings::MASK;
use uuid::Uuid;

use super::Compat;
use super::answer::{Answer, Problem, ok};
use super::door::{Asked, Path};

/// What applies to an agent in a repository. Whoever asks for secrets puts all of this into an environment, where a
/// mask would take the place of what is there: so those that it may not read are left out.
pub(super) async fn resolved(State(compat): State<Compat>, asked: Asked) -> Answer {
    let mut configs = found(&compat, &asked, "get-config", &["agentId", "repoId"]).await?;
    if asked.flag("includeSecrets") == Some(true) {
        configs.retain(|config| config["isSecret"] != true || config["value"] != MASK);
    }
    ok(json!({ "configs": configs }))
}

/// Settings as they stand.
pub(super) async fn list(State(compat): State<Compat>, asked: Asked) -> Answer {
    ok(json!({ "configs": found(&compat, &asked, "list-config", &["scope", "scopeId"]).await? }))
}

pub(super) async fn one(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    let all = found(&compat, &asked, "list-config", &[]).await?;
    let config = all.into_iter().find(|config| config["id"] == json!(id));
    ok(config.ok_or_else(|| Problem::of(Code::NotFound, "Config not found; GET /api/config lists them"))?)
}

pub(super) async fn set(State(compat): State<Compat>, asked: Asked) -> Answer {
    let mut arguments = asked.given(&[]);
    if arguments.get("scope") == Some(&json!("global")) && arguments.contains_key("scopeId") {
        return Err(Problem::bad_request("scopeId: what is for all has none; leave it out"));
    }
    // Its programs write numbers and truths as such.
    if let Some(value) = arguments.get_mut("value").filter(|value| !value.is_string()) {
        *value = json!(value.to_string());
    }
    ok(compat.tool(&asked, "set-config", arguments).await?["config"].take())
}

pub(super) async fn delete(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    compat.tool(&asked, "delete-config", Map::from_iter([("id".to_owned(), json!(id))])).await?;
    ok(json!({ "success": true }))
}

/// Nothing has to be read again: a setting holds from when it was set, and what the node itself needs is its own.
pub(super) async fn reload(State(compat): State<Compat>, asked: Asked) -> Answer {
    compat.look(&asked)?;
    ok(json!({
        "success": true, "configsLoaded": 0, "keysUpdated": [], "integrationsReinitialized": [],
        "message": "settings hold as soon as they are set; the node's own configuration is read when it starts",
    }))
}

/// The script with which Agent Swarm's programs begin the start of every agent: a setting of the whole swarm.
pub(super) async fn setup_script(compat: &Compat, asked: &Asked) -> Result<Value, Problem> {
    let wanted = [("scope", "global"), ("key", "SETUP_SCRIPT")];
    let wanted = wanted.map(|(argument, value)| (argument.to_owned(), json!(value)));
    let found = compat.tool(asked, "list-config", Map::from_iter(wanted)).await?;
    let script = &found["configs"][0];
    // A mask is no script.
    Ok(if script["isSecret"] == true { Value::Null } else { script["value"].clone() })
}

async fn found(compat: &Compat, asked: &Asked, tool: &str, by: &[&str]) -> Result<Vec<Value>, Problem> {
    let given = by.iter().filter_map(|name| Some(((*name).to_owned(), json!(asked.query(name)?))));
    let mut arguments: Map<String, Value> = given.collect();
    let secrets = asked.flag("includeSecrets") == Some(true);
    arguments.insert("includeSecrets".to_owned(), json!(secrets));
    let mut found = compat.tool(asked, tool, arguments).await?;
    match found["configs"].take() {
        Value::Array(configs) => Ok(configs),
        _ => Ok(Vec::new()),
    }
}
