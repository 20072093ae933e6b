//! What the swarm remembers.

use axum::extract::State;
use serde_json::{Value, json};
use skein_shared::memory::{Remember, Scope, Source};

use super::Compat;
use super::answer::{Answer, Problem, ok, taken};
use super::door::Asked;
use crate::auth::Role;
use crate::service::memory::{Hit, Ranked, Visible};

/// Memories that a search gives, and the most.
const FOUND: u64 = 5;
const MOST: u64 = 20;

/// Looks through the memory, and gives the contents too.
pub(super) async fn search(State(compat): State<Compat>, asked: Asked) -> Answer {
    let query = asked.need("query")?;
    let limit = asked.fields.get("limit").and_then(Value::as_u64).unwrap_or(FOUND).min(MOST) as usize;
    let who = asked.agent()?;
    let searching = async {
        let found = asked.service.search_memory(who, query, Visible::All, None, limit).await?;
        Ok((found.hits.whole()?.rows, found.ranked))
    };
    let (hits, ranked) = compat.like(&asked, "memory-search", searching).await?;
    let understood = ranked == Ranked::ByMeaning;
    let best = hits.first().map_or(1.0, |hit| hit.score);
    // Its runners leave out what is not similar enough. Where nobody knows what texts mean, the best is the measure.
    let result = |mut hit: Hit| {
        hit.body["similarity"] = if understood { json!(hit.similarity) } else { json!(hit.score / best) };
        hit.body
    };
    ok(json!({ "results": hits.into_iter().map(result).collect::<Vec<_>>() }))
}

/// Remembers a text in pieces. Those of a file replace what it left behind before.
pub(super) async fn index(State(compat): State<Compat>, asked: Asked) -> Answer {
    let own = (asked.who.role != Role::Operator).then_some(asked.who.agent);
    let tags = asked.fields.get("tags").filter(|tags| !tags.is_null()).cloned();
    let tags = tags.map(serde_json::from_value).transpose();
    let text = Remember {
        id: None,
        agent: asked.field_id("agentId")?.or(own),
        scope: one_of(&asked, "scope", "agent or swarm")?,
        name: asked.need("name")?.to_owned(),
        content: asked.need("content")?.to_owned(),
        summary: None,
        source: one_of::<Source>(&asked, "source", "manual, file_index, session_summary or task_completion")?,
        source_task: asked.field_id("sourceTaskId")?,
        source_path: asked.text("sourcePath").filter(|path| !path.is_empty()).map(str::to_owned),
        tags: tags.map_err(|_| Problem::bad_request("tags must be a list of texts"))?.unwrap_or_default(),
        chunk_index: 0,
        total_chunks: 1,
    };
    if text.scope == Scope::Agent && text.agent.is_none() {
        return Err(Problem::bad_request(
            "agentId is missing: say whose memory it is, or use the scope swarm",
        ));
    }
    let indexing = asked.service.index(&asked.who, asked.request, text);
    let memories = compat.like(&asked, "inject-learning", indexing).await?;
    taken(json!({ "queued": true, "memoryIds": memories }))
}

fn one_of<T: serde::de::DeserializeOwned>(asked: &Asked, field: &str, known: &str) -> Result<T, Problem> {
    serde_json::from_value(json!(asked.need(field)?))
        .map_err(|_| Problem::bad_request(format!("{field} must be {known}")))
}
