//! Channels and their messages.

use axum::extract::State;
use serde_json::{Map, Value, json};
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::Compat;
use super::answer::{Answer, Problem, made, ok};
use super::door::{Asked, Path};
use crate::service::programs::Messages;

/// Messages of a thread at most.
const THREAD: usize = 1000;

pub(super) async fn list(State(compat): State<Compat>, asked: Asked) -> Answer {
    let listing = asked.service.list_channels(&asked.who);
    ok(json!({ "channels": compat.like(&asked, "list-channels", listing).await? }))
}

pub(super) async fn create(State(compat): State<Compat>, asked: Asked) -> Answer {
    made(compat.tool(&asked, "create-channel", asked.given(&[])).await?["channel"].take())
}

pub(super) async fn delete(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    let named = Map::from_iter([("channelId".to_owned(), json!(id))]);
    compat.tool(&asked, "delete-channel", named).await?;
    ok(json!({ "success": true }))
}

/// The newest messages of a time, oldest first; they stay unread.
pub(super) async fn read(State(compat): State<Compat>, Path(channel): Path<Uuid>, asked: Asked) -> Answer {
    let (since, before) = (time(&asked, "since")?, time(&asked, "before")?);
    let limit = asked.number("limit", 50)?;
    messages(&compat, &asked, Messages { channel, since, before, to: None, limit }).await
}

/// The answers to a message, oldest first.
pub(super) async fn thread(
    State(compat): State<Compat>,
    Path((channel, message)): Path<(Uuid, Uuid)>,
    asked: Asked,
) -> Answer {
    let wanted = Messages { channel, to: Some(message), limit: THREAD, ..Messages::default() };
    messages(&compat, &asked, wanted).await
}

async fn messages(compat: &Compat, asked: &Asked, wanted: Messages) -> Answer {
    let listing = asked.service.list_messages(&asked.who, wanted);
    ok(json!({ "messages": compat.like(asked, "read-messages", listing).await? }))
}

fn time(asked: &Asked, name: &str) -> Result<Option<Timestamp>, Problem> {
    let wrong = || Problem::bad_request(format!("{name} must be a time such as 2026-03-01T12:00:00.000Z"));
    asked.query(name).map(|text| Timestamp::parse_iso(text).ok_or_else(wrong)).transpose()
}

/// Posts as the caller; for one that names no agent as the one that the body names, else as a person.
pub(super) async fn post(State(compat): State<Compat>, Path(id): Path<Uuid>, mut asked: Asked) -> Answer {
    let named = asked.field_id("agentId")?;
    compat.believe(&mut asked, named)?;
    let given = asked.given(&[]);
    let fields = [("content", "content"), ("replyToId", "replyTo"), ("mentions", "mentions")].into_iter();
    let mut arguments: Map<String, Value> =
        fields.filter_map(|(field, taken)| Some((taken.to_owned(), given.get(field)?.clone()))).collect();
    arguments.insert("channel".to_owned(), json!(id));
    made(compat.tool(&asked, "post-message", arguments).await?["posted"].take())
}
