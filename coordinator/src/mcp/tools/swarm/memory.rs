//! What the swarm remembers.

use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::limits;
use skein_shared::memory::{Remember, Scope, Source};
use uuid::Uuid;

use super::{done, warned};
use crate::auth::Right;
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::result::counted;
use crate::mcp::schema::{Args, agent, any_text, flag, integer, list, object, one_of, text, uuid};
use crate::service::memory::Visible;

const SWARM: Toolset = Toolset::Swarm;
const SOURCES: [&str; 4] = ["manual", "file_index", "session_summary", "task_completion"];
const CATEGORIES: [&str; 4] = ["mistake-pattern", "best-practice", "codebase-knowledge", "preference"];

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("memory-search", "Search memory", SWARM, search)
            .core()
            .searching()
            .reads()
            .about(
                "Find what you and the swarm have learnt before.",
                "Gives names and summaries; memory-get reads one whole. The best matches come first.",
            )
            .found_by("recall remember knowledge learnings past experience notes lookup")
            .args(
                Args::none()
                    .need("query", text(2000), "Words to look for")
                    .take("scope", one_of(&["all", "agent", "swarm"]), "Whose memory (all)")
                    .take("limit", integer(1, 50), "At most so many (10)")
                    .rare("source", one_of(&SOURCES), "Where it came from"),
            )
            .output(json!({ "success": flag(), "message": any_text(4000), "results": list(object(), 50) })),
        Tool::new("memory-get", "Get a memory", SWARM, get)
            .core()
            .reads()
            .about("Read one memory whole.", "")
            .found_by("recall show learning note content")
            .args(Args::none().need("memoryId", uuid(), "Its id, from memory-search"))
            .output(json!({ "success": flag(), "message": any_text(300_000), "memory": object() })),
        Tool::new("inject-learning", "Inject a learning", SWARM, inject)
            .writes(Right::Lead)
            .additive()
            .about("Teach an agent something; only the lead does.", "It finds the learning by memory-search.")
            .found_by("teach feedback lesson remember store memory coach")
            .args(
                Args::none()
                    .need("agentId", agent(), "Who shall know it")
                    .of_agents()
                    .need("learning", text(limits::TEXT), "What is to be known")
                    .need("category", one_of(&CATEGORIES), "What kind of learning"),
            )
            .output(json!({ "success": flag(), "message": any_text(4000), "memoryId": uuid() })),
    ]
}

#[derive(Deserialize)]
struct Search {
    query: String,
    #[serde(default)]
    scope: Option<String>,
    limit: Option<usize>,
    source: Option<String>,
}

async fn search(call: Call, args: Search) -> Outcome {
    let visible = match args.scope.as_deref() {
        Some("agent") => Visible::Agent,
        Some("swarm") => Visible::Swarm,
        _ => Visible::All,
    };
    let limit = args.limit.unwrap_or(10);
    let found = call.service.search_memory(&call.who, &args.query, visible, args.source, limit).await?;
    let results: Vec<Value> = found
        .rows
        .iter()
        .map(|recalled| {
            const FIELDS: [&str; 6] = ["id", "name", "summary", "source", "scope", "createdAt"];
            let mut row: Value =
                FIELDS.iter().map(|field| (*field, recalled.memory[*field].clone())).collect();
            row["similarity"] = json!((recalled.similarity * 1000.0).round() / 1000.0);
            row
        })
        .collect();
    let message = match results.len() {
        0 => "Nothing is remembered about this.".to_owned(),
        count => {
            format!("{}, the best first; memory-get reads one.", counted(count, "memory", "memories"))
        }
    };
    Ok(warned(done(message, json!({ "results": results })), &found))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Get {
    memory_id: Uuid,
}

async fn get(call: Call, args: Get) -> Outcome {
    let memory = call.service.get_memory(&call.who, call.request, args.memory_id).await?;
    let text = |field: &str| memory[field].as_str().unwrap_or_default().to_owned();
    Ok(done(format!("{}\n\n{}", text("name"), text("content")), json!({ "memory": memory })))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Inject {
    agent_id: Uuid,
    learning: String,
    category: String,
}

async fn inject(call: Call, args: Inject) -> Outcome {
    let head: String = args.learning.chars().take(60).collect();
    let remember = Remember {
        id: None,
        agent: Some(args.agent_id),
        scope: Scope::Agent,
        name: format!("Lead feedback: {}: {head}", args.category),
        content: format!("[Lead feedback, {}]\n\n{}", args.category, args.learning),
        summary: None,
        source: Source::Manual,
        source_task: None,
        source_path: None,
        tags: vec![args.category],
        chunk_index: 0,
        total_chunks: 1,
    };
    let memory = call.service.remember(&call.who, call.request, remember).await?;
    Ok(done("The agent will find this by memory-search.", json!({ "memoryId": memory["id"] })))
}
