//! The way to every tool that is not listed: find it, then read or call by its name.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use skein_shared::{Code, Refusal};

use crate::auth::Right;
use crate::auth::policy;
use crate::mcp::catalogue::{Call, Catalogue, Effect, Outcome, Tool, Toolset};
use crate::mcp::dispatch::{self, Context};
use crate::mcp::result::{Answer, Reply, counted};
use crate::mcp::schema::{Args, any_text, integer, list, object, one_of, text};
use crate::mcp::{finder, view};

const SKEIN: Toolset = Toolset::Skein;
const FOUND: [&str; 8] =
    ["name", "does", "area", "effect", "arguments", "description", "inputSchema", "outputSchema"];

pub(super) fn tools() -> Vec<Tool> {
    let target = || {
        Args::none()
            .need("name", text(100), "Name of the tool")
            .take("arguments", object(), "Its arguments")
            .closed()
    };
    let areas: Vec<&str> = Toolset::ALL.iter().map(|toolset| toolset.as_str()).collect();
    vec![
        Tool::new("tools_find", "Find tools", SKEIN, find)
            .core()
            .searching()
            .reads()
            .about(
                "Search all tools by words or name; full detail gives their schemas.",
                "Without query and names it gives the areas and how many tools each has.",
            )
            .found_by("search discover list catalogue help more deferred")
            .args(
                Args::none()
                    .take("query", any_text(500), "What you want to do")
                    .take("names", list(text(100), 25), "These tools")
                    .rare("area", one_of(&areas), "Only of this area")
                    .take("detail", one_of(&["name", "brief", "full"]), "How much of each (brief)")
                    .take("limit", integer(1, 25), "At most so many (8)")
                    .closed(),
            )
            .output(json!({ "tools": list(object(), 50), "areas": list(object(), 20) }))
            .lists("tools", &FOUND)
            .paged(),
        Tool::raw("tools_read", "Read with a tool", SKEIN, read)
            .core()
            .reads()
            .handing_on()
            // What it hands on may be text alone, and a client takes no such result from a tool with an output schema.
            .text_alone()
            .about(
                "Call a reading tool by its name.",
                "A tool that changes something is refused: use tools_call.",
            )
            .found_by("invoke run deferred by name")
            .args(target()),
        Tool::raw("tools_call", "Call a tool", SKEIN, call_tool)
            .core()
            .writes(Right::Read)
            .destructive()
            .handing_on()
            .text_alone()
            .about("Call any tool by its name.", "The same rules hold as for a direct call.")
            .found_by("invoke run execute deferred by name")
            .args(target()),
    ]
}

#[derive(Deserialize)]
struct Find {
    query: Option<String>,
    #[serde(default)]
    names: Vec<String>,
    area: Option<String>,
    detail: Option<String>,
    limit: Option<usize>,
    #[serde(default)]
    cursor: String,
}

async fn find(call: Call, args: Find) -> Outcome {
    let catalogue = &call.catalogue;
    let shown = |tool: &Tool| {
        policy::allows(call.who.role, tool.right)
            && (!call.view.readonly || tool.effect == Effect::Read)
            && args.area.as_deref().is_none_or(|area| tool.toolset.as_str() == area)
    };
    let query = args.query.as_deref().unwrap_or_default().trim();
    if query.is_empty() && args.names.is_empty() && args.area.is_none() {
        return Ok(areas(catalogue, shown));
    }
    let (named, missing): (Vec<_>, Vec<_>) =
        args.names.iter().partition(|name| catalogue.named(name).is_some_and(shown));
    let named = named.into_iter().filter_map(|name| catalogue.named(name));
    let mut found: Vec<&Tool> = match query {
        "" if args.names.is_empty() => catalogue.tools().filter(|tool| shown(tool)).collect(),
        "" => Vec::new(),
        query => finder::search(catalogue, query, usize::MAX, shown),
    };
    let (begin, limit) = (offset(&args.cursor)?, args.limit.unwrap_or(8));
    let more = found.len() > begin.saturating_add(limit);
    found = named.take_while(|_| begin == 0).chain(found.into_iter().skip(begin).take(limit)).collect();
    let mut seen = BTreeSet::new();
    found.retain(|tool| seen.insert(tool.name));
    let detail = args.detail.as_deref().unwrap_or("brief");
    let rows: Vec<Value> = found.iter().map(|tool| row(tool, detail)).collect();
    let mut json = json!({ "tools": rows });
    if more {
        json["cursor"] = json!((begin + limit).to_string());
    }
    if !missing.is_empty() {
        json["unknown"] = missing
            .iter()
            .map(|name| json!({ "name": name, "nearest": finder::nearest(catalogue, name, 3) }))
            .collect();
    }
    let text = match found.len() {
        0 => "No tool matches; ask without a query for the areas.".to_owned(),
        count => {
            format!("{}; tools_read or tools_call runs one by its name.", counted(count, "tool", "tools"))
        }
    };
    Ok(Answer::new(text, json))
}

/// How many of those that were found an earlier answer had.
fn offset(cursor: &str) -> Result<usize, Refusal> {
    let offset = if cursor.is_empty() { Ok(0) } else { cursor.parse() };
    offset.map_err(|_| {
        let problem = "cursor: this is none; give the one of the last answer, or leave it out to begin";
        Refusal::new(Code::InvalidArgument, problem)
    })
}

fn areas(catalogue: &Catalogue, shown: impl Fn(&Tool) -> bool) -> Answer {
    let areas: Vec<Value> = Toolset::ALL
        .into_iter()
        .map(|toolset| {
            let tools = catalogue.tools().filter(|tool| tool.toolset == toolset && shown(tool)).count();
            json!({ "area": toolset.as_str(), "about": toolset.about(), "tools": tools })
        })
        .collect();
    Answer::new("Ask with a query, or with an area, to see tools.", json!({ "areas": areas }))
}

fn row(tool: &Tool, detail: &str) -> Value {
    match detail {
        "name" => json!({ "name": tool.name }),
        "full" => json!({
            "name": tool.name, "area": tool.toolset.as_str(), "effect": tool.effect.as_str(),
            "description": view::description(tool), "inputSchema": tool.input(), "outputSchema": tool.output,
        }),
        _ => json!({
            "name": tool.name, "does": tool.summary, "effect": tool.effect.as_str(),
            "arguments": tool.args.names().collect::<Vec<_>>(),
        }),
    }
}

#[derive(Deserialize)]
struct Target {
    name: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

async fn read(call: Call, target: Target) -> Reply {
    if let Some(tool) = call.catalogue.get(&target.name)
        && tool.effect == Effect::Write
    {
        return Reply::error(&Refusal::new(
            Code::Forbidden,
            format!("{} changes something; use tools_call for it", tool.name),
        ));
    }
    run(call, target).await
}

async fn call_tool(call: Call, target: Target) -> Reply {
    run(call, target).await
}

/// The same path as a direct call. A finder is refused, or calls could nest without end.
async fn run(call: Call, target: Target) -> Reply {
    if matches!(target.name.as_str(), "tools_call" | "tools_read") {
        return Reply::error(&Refusal::new(
            Code::InvalidArgument,
            "name the tool that you want, not a finder",
        ));
    }
    let Call { service, catalogue, who, view, key, progress, delivery, gate, client, .. } = call;
    let context = Context { service, catalogue, who, view, key, progress, delivery, gate, client };
    Box::pin(dispatch::call(context, &target.name, target.arguments)).await
}
