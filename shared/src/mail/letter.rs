//! A letter as it comes from AgentMail.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::text::excerpt;

/// Longest id, characters. Others cannot be answered to anyhow.
const ID: usize = 1000;
/// How much of who wrote and what about is shown, and of the text, characters. The webhook's receipt has all of it.
const LINE: usize = 500;
const TEXT: usize = 4000;

/// The field of a task or message that names its thread.
pub const THREAD: &str = "agentmailThreadId";

/// What a person wrote, as far as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    pub ids: Ids,
    #[serde(default)]
    pub from: String,
    #[serde(default)]
    pub subject: String,
    #[serde(default)]
    pub text: String,
}

/// Where it is at AgentMail, under the names that tasks and messages have for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ids {
    #[serde(rename = "agentmailInboxId")]
    pub inbox: String,
    #[serde(rename = "agentmailMessageId")]
    pub message: String,
    #[serde(rename = "agentmailThreadId", default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
}

impl Ids {
    /// As fields of a task or a message.
    pub fn fields(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        }
    }
}

impl Letter {
    /// Reads the body of an event; none for other events than a message that was received.
    pub fn of(body: &Value) -> Option<Self> {
        if body["event_type"] != "message.received" {
            return None;
        }
        let message = &body["message"];
        let id = |field: &str| {
            let id = message[field].as_str().filter(|id| !id.is_empty() && id.chars().count() <= ID);
            id.map(str::to_owned)
        };
        let ids = Ids { inbox: id("inbox_id")?, message: id("message_id")?, thread: id("thread_id") };
        let words = |field: &str| message[field].as_str().filter(|text| !text.trim().is_empty());
        Some(Self {
            ids,
            from: excerpt(&Self::senders(message).join(", "), LINE),
            subject: excerpt(words("subject").unwrap_or_default(), LINE),
            text: excerpt(words("text").or_else(|| words("html")).unwrap_or_default(), TEXT),
        })
    }

    /// Who has written the message of an event: one address, or several.
    pub fn senders(message: &Value) -> Vec<&str> {
        let from = if message["from_"].is_null() { &message["from"] } else { &message["from_"] };
        match from {
            Value::String(one) => vec![one.as_str()],
            Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// What it says, for whoever is to act on it.
    pub fn words(&self) -> String {
        let or = |text: &str, otherwise: &str| {
            if text.is_empty() { otherwise.to_owned() } else { text.to_owned() }
        };
        format!(
            "E-mail to {}\nFrom: {}\nSubject: {}\n\n{}",
            self.ids.inbox,
            or(&self.from, "(unknown)"),
            or(&self.subject, "(none)"),
            or(&self.text, "(no text)"),
        )
    }
}
