//! Which tools a client is shown, and how much of each.

use serde_json::{Map, Value, json};

use skein_shared::{Code, Refusal};

use super::catalogue::{Catalogue, Effect, Hints, Tier, Tool, Toolset};
use crate::auth::{Right, Role, Scope, View, policy};

/// Tools that arrange work and do none. Agents use them by their right to work; an operator is not shown them, and may
/// call them by its right to lead: so do people through Agent Swarm's routes.
const ARRANGING: [&str; 12] = [
    "send-task",
    "cancel-task",
    "post-message",
    "create-channel",
    "update-epic",
    "delete-epic",
    "create-schedule",
    "update-schedule",
    "delete-schedule",
    "run-schedule-now",
    "set-config",
    "delete-config",
];

/// How much of a tool is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Detail {
    /// A name, a sentence, the hints and the usual arguments.
    Brief,
    /// Everything, with output schemas and the hints for clients that search tools themselves.
    Full,
}

/// The right that a tool takes of a caller with this role.
pub fn right(tool: &Tool, role: Role) -> Right {
    match role {
        Role::Operator if ARRANGING.contains(&tool.name) => Right::Lead,
        _ => tool.right,
    }
}

/// The positions in the catalogue of what a role sees in a view, in the catalogue's order.
pub fn list(catalogue: &Catalogue, role: Role, view: &View) -> Vec<usize> {
    catalogue
        .tools()
        .enumerate()
        .filter(|(_, tool)| policy::allows(role, tool.right) && in_scope(tool, &view.scope))
        .filter(|(_, tool)| !view.readonly || tool.effect == Effect::Read)
        .map(|(position, _)| position)
        .collect()
}

/// Refuses the view of a toolset that does not exist: it would look like an empty one.
///
/// # Errors
/// `not_found`, naming the toolsets.
pub fn check(view: &View) -> Result<(), Refusal> {
    let Scope::Toolset(name) = &view.scope else { return Ok(()) };
    let known = Toolset::ALL.map(Toolset::as_str);
    if known.contains(&name.as_str()) {
        return Ok(());
    }
    Err(Refusal::new(
        Code::NotFound,
        format!("there is no toolset `{name}`; use /mcp/x/ with one of {}", known.join(", ")),
    ))
}

fn in_scope(tool: &Tool, scope: &Scope) -> bool {
    // The finders stay everywhere: proxies may switch a client's own search off.
    let finder = tool.toolset == Toolset::Skein && tool.tier == Tier::Core;
    match scope {
        Scope::Core => tool.tier == Tier::Core,
        Scope::Full => true,
        Scope::Toolset(name) => finder || tool.toolset.as_str() == name,
    }
}

pub fn detail(view: &View) -> Detail {
    if view.scope == Scope::Core { Detail::Brief } else { Detail::Full }
}

/// The tool as `tools/list` shows it.
pub fn listed(tool: &Tool, detail: Detail) -> Value {
    let mut listed = Map::new();
    let mut put = |name: &str, value: Value| listed.insert(name.to_owned(), value);
    put("name", json!(tool.name));
    if tool.hints != Hints::default() {
        put("annotations", tool.hints.json());
    }
    match detail {
        Detail::Brief => {
            put("description", json!(tool.summary));
            put("inputSchema", Value::Object(tool.args.brief()));
        }
        Detail::Full => {
            put("title", json!(tool.title));
            put("description", json!(description(tool)));
            put("inputSchema", tool.input_listed());
            if !tool.output.is_null() {
                put("outputSchema", tool.output.clone());
            }
            put("_meta", meta(tool));
        }
    }
    Value::Object(listed)
}

pub fn description(tool: &Tool) -> String {
    match tool.details {
        "" => tool.summary.to_owned(),
        details => format!("{} {details}", tool.summary),
    }
}

fn meta(tool: &Tool) -> Value {
    match tool.tier {
        Tier::Core => json!({ "anthropic/alwaysLoad": true }),
        Tier::Deferred => json!({ "anthropic/searchHint": tool.search }),
    }
}
