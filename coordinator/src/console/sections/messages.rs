//! What is said: in channels, to agents from outside, and by machines.

use serde_json::{Value, json};
use skein_shared::Refusal;

use super::super::Console;
use super::{Look, PAGE, names, rows, rows_behind};
use crate::auth::{Principal, Right, policy};
use crate::service::views::Wanted;

pub(super) async fn messages(console: &Console, who: &Principal, look: &Look) -> Result<Value, Refusal> {
    let service = &console.service;
    let (channels, names) = tokio::try_join!(service.list_channels(who), names(service, who))?;
    if look.query.get("inbox").is_some() {
        let (found, pager) = rows(service, who, "inbox", None, look).await?;
        return Ok(json!({
            "inbox": true, "may_read_letters": true, "messages": found.rows, "channels": channels, "names": names, "pager": pager,
            "rebuilding": found.rebuilding,
        }));
    }
    let channel = look.query.id("channel")?.map(|id| id.to_string());
    let only = channel.as_deref().map(|channel| ("channelId", channel));
    let (found, pager) = rows(service, who, "messages", only, look).await?;
    Ok(json!({
        "inbox": false, "may_read_letters": policy::require(who, Right::Administer).is_ok(), "messages": found.rows, "channels": channels, "channel": channel, "names": names,
        "pager": pager, "rebuilding": found.rebuilding,
    }))
}

/// Webhooks as they were taken in, and what was to run and was given up.
pub(super) async fn deliveries(console: &Console, who: &Principal, look: &Look) -> Result<Value, Refusal> {
    let service = &console.service;
    let agent = look.query.get("agent");
    let only = agent.map(|agent| ("agent", agent));
    let letters = Wanted { view: "dead-letters", only, limit: Some(PAGE), ..Wanted::default() };
    let ((webhooks, pager), (letters, letters_pager)) = tokio::try_join!(
        rows(service, who, "webhooks", None, look),
        rows_behind(service, who, letters, look, "letters_after"),
    )?;
    Ok(json!({
        "webhooks": webhooks.rows, "letters": letters.rows, "agent": agent, "pager": pager,
        "letters_pager": letters_pager, "rebuilding": webhooks.rebuilding || letters.rebuilding,
    }))
}
