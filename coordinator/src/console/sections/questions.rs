//! What agents ask people.

use serde_json::{Value, json};
use skein_shared::Refusal;
use skein_shared::id::parse_uuid;

use super::super::Console;
use super::{Look, names, rows};
use crate::auth::Principal;

pub(super) async fn list(console: &Console, who: &Principal, look: &Look) -> Result<Value, Refusal> {
    let service = &console.service;
    let answered = look.query.get("answered").is_some();
    let view = if answered { "answers" } else { "questions" };
    let ((found, pager), names) =
        tokio::try_join!(rows(service, who, view, None, look), names(service, who))?;
    Ok(json!({
        "questions": found.rows, "answered": answered, "names": names, "pager": pager,
        "rebuilding": found.rebuilding,
    }))
}

pub(super) async fn one(console: &Console, who: &Principal, look: &Look) -> Result<Value, Refusal> {
    let service = &console.service;
    let id = parse_uuid("question", look.subject())?;
    let (question, names) = tokio::try_join!(service.question(who, id), names(service, who))?;
    Ok(json!({ "title": "Question", "question": question, "names": names }))
}
