//! What people say to a swarm, and how its lead hears of it.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::BOT_USER;
use crate::mcp::Client;

/// What Slack sends when somebody says something.
pub fn event(id: &str, channel: &str, ts: &str, thread: Option<&str>, text: &str) -> Value {
    let mut event = json!({"type": "message", "channel": channel, "user": "U1", "text": text, "ts": ts});
    if let Some(thread) = thread {
        event["thread_ts"] = json!(thread);
    }
    json!({"type": "event_callback", "team_id": "T1", "event_id": id, "event": event,
        "authorizations": [{"team_id": "T1", "user_id": BOT_USER, "is_bot": true}]})
}

/// The lead's next message, by the id with which it is announced, and where to go on.
///
/// # Errors
/// When none comes.
pub async fn next_letter(lead: &Client, cursor: &Value) -> Result<(Value, Value)> {
    let mut cursor = cursor.clone();
    loop {
        let wish = json!({"for": ["messages"], "cursor": cursor, "timeout_s": 30, "format": "rows"});
        let news = lead.call("wait", wish).await?;
        ensure!(news["timed_out"] == false, "no message came: {news}");
        cursor = news["cursor"].clone();
        let changes = news["changed"].as_array().context("no changes")?;
        if let Some(delivered) = changes.iter().find(|change| change["event"] == "delivered") {
            let message = json!({"inboxMessageId": delivered["id"]});
            return Ok((lead.call("get-inbox-message", message).await?["inboxMessage"].clone(), cursor));
        }
    }
}
