//! Channels, their messages, and what the swarm remembers.

use axum::extract::{Path, State};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::Compat;
use super::answer::{Answer, made, ok};
use super::door::Asked;
use crate::service::memory::{Hit, Ranked, Visible};

/// Memories that a search gives, and the most.
const FOUND: u64 = 5;
const MOST: u64 = 20;

pub(super) async fn list(State(compat): State<Compat>, asked: Asked) -> Answer {
    ok(json!({ "channels": compat.service.list_channels(&asked.who).await? }))
}

pub(super) async fn create(State(compat): State<Compat>, asked: Asked) -> Answer {
    made(compat.tool(&asked, "create-channel", asked.fields.clone()).await?["channel"].take())
}

pub(super) async fn delete(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    let named = Map::from_iter([("channelId".to_owned(), json!(id))]);
    compat.tool(&asked, "delete-channel", named).await?;
    ok(json!({ "success": true }))
}

/// The newest messages, oldest first; they stay unread.
pub(super) async fn read(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    asked.agent()?;
    let mut arguments = Map::from_iter([
        ("channel".to_owned(), json!(id)),
        ("limit".to_owned(), json!(asked.number("limit", 50)?)),
        ("markAsRead".to_owned(), json!(false)),
    ]);
    arguments.extend(asked.query("since").map(|since| ("since".to_owned(), json!(since))));
    let found = compat.tool(&asked, "read-messages", arguments).await?;
    ok(json!({ "messages": found["messages"] }))
}

pub(super) async fn post(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    asked.agent()?;
    let fields = [("content", "content"), ("replyToId", "replyTo"), ("mentions", "mentions")].into_iter();
    let mut arguments: Map<String, Value> = fields
        .filter_map(|(given, taken)| Some((taken.to_owned(), asked.fields.get(given)?.clone())))
        .collect();
    arguments.insert("channel".to_owned(), json!(id));
    made(compat.tool(&asked, "post-message", arguments).await?["posted"].take())
}

/// Looks through the memory, and gives the contents too.
pub(super) async fn remember(State(compat): State<Compat>, asked: Asked) -> Answer {
    let query = asked.need("query")?;
    let limit = asked.fields.get("limit").and_then(Value::as_u64).unwrap_or(FOUND).min(MOST) as usize;
    let who = asked.agent()?;
    let found = compat.service.search_memory(who, query, Visible::All, None, limit).await?;
    let (hits, understood) = (found.hits.rows, found.ranked == Ranked::ByMeaning);
    let best = hits.first().map_or(1.0, |hit| hit.score);
    // Its runners leave out what is not similar enough. Where nobody knows what texts mean, the best is the measure.
    let result = |mut hit: Hit| {
        hit.body["similarity"] = if understood { json!(hit.similarity) } else { json!(hit.score / best) };
        hit.body
    };
    ok(json!({ "results": hits.into_iter().map(result).collect::<Vec<_>>() }))
}
