//! What is held and what is waited for.

use serde_json::{Value, json};
use skein_shared::Refusal;

use super::super::Console;
use super::{Look, rows};
use crate::auth::Principal;

pub(super) async fn locks(console: &Console, who: &Principal, look: &Look) -> Result<Value, Refusal> {
    let (found, pager) = rows(&console.service, who, "locks", None, look).await?;
    Ok(json!({ "locks": found.rows, "pager": pager, "rebuilding": found.rebuilding }))
}

pub(super) async fn waits(console: &Console, who: &Principal, look: &Look) -> Result<Value, Refusal> {
    let (found, pager) = rows(&console.service, who, "waits", None, look).await?;
    Ok(json!({ "waits": found.rows, "pager": pager, "rebuilding": found.rebuilding }))
}
