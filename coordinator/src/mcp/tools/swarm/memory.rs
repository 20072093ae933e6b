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
use crate::service::memory::{Ranked, Recollection, Visible};

const SWARM: Toolset = Toolset::Swarm;
const SOURCES: [&str; 4] = ["manual", "file_index", "session_summary", "task_completion"];
const HIT: [&str; 7] = ["id", "name", "summary", "source", "scope", "createdAt", "similarity"];
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
                    .need("query", text(2000), "What you want to know")
                    .take("scope", one_of(&["all", "agent", "swarm"]), "Whose memory (all)")
                    .take("limit", integer(1, 50), "At most so many (10)")
                    .rare("source", one_of(&SOURCES), "Where it came from"),
            )
            .output(json!({ "success": flag(), "message": any_text(4000), "results": list(object(), 50) }))
            .lists("results", &HIT),
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
    source: Option<Source>,
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
        .hits
        .rows
        .iter()
        .map(|hit| {
            let mut row: Value = HIT[..6].iter().map(|field| (*field, hit.body[*field].clone())).collect();
            if let Some(similarity) = hit.similarity {
                row["similarity"] = json!((f64::from(similarity) * 1000.0).round() / 1000.0);
            }
            row
        })
        .collect();
    let message = told(&found);
    Ok(warned(done(message, facts!({ "results": results })), &found.hits))
}

fn told(found: &Recollection) -> String {
    let by = match &found.ranked {
        Ranked::ByMeaning => "by words and meaning".to_owned(),
        Ranked::ByWords => "by words".to_owned(),
        Ranked::ByWordsAlone(problem) => format!("by words alone, since {problem}"),
    };
    match found.hits.rows.len() {
        0 => format!("Nothing is remembered about this; it was looked for {by}."),
        count => {
            let memories = counted(count, "memory", "memories");
            format!("{memories}, the best first {by}; memory-get reads one.")
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Get {
    memory_id: Uuid,
}

async fn get(call: Call, args: Get) -> Outcome {
    let memory = call.service.get_memory(&call.who, call.request, args.memory_id).await?;
    let text = |field: &str| memory[field].as_str().unwrap_or_default().to_owned();
    Ok(done(format!("{}\n\n{}", text("name"), text("content")), facts!({ "memory": memory })))
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
    let taught = call.service.remember(&call.who, call.request, remember).await?;
    let message = match taught.again {
        false => "The agent will find this by memory-search.",
        true => "The agent was taught this before; it is kept once, as learnt just now.",
    };
    Ok(done(message, json!({ "memoryId": taught.memory })))
}
