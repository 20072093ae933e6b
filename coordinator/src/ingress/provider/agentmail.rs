//! AgentMail: letters that people write to agents.

use serde_json::{Value, json};
use skein_shared::Refusal;
use skein_shared::mail::Letter;

use super::standard::{self, Headers, SIGNING};
use super::{Answer, Notice, Reading, Sender};
use crate::ingress::context::{Context, text};
use crate::ingress::delivery::{Delivery, invalid};

const SVIX: Headers = Headers { id: "svix-id", time: "svix-timestamp", signatures: "svix-signature" };

pub(super) struct Agentmail;

impl Sender for Agentmail {
    fn verify(&self, delivery: &Delivery<'_>, secret: &[u8]) -> Result<(), String> {
        standard::verify(delivery, &SVIX, secret.strip_prefix(SIGNING.as_bytes()).unwrap_or(secret))
    }

    /// A repeat has its event's id again, by whichever of its webhooks it comes.
    fn read(&self, delivery: &Delivery<'_>) -> Result<Reading, Refusal> {
        let body = delivery.json()?;
        let Some(event) = text(&body, "/event_type").map(str::to_owned) else {
            return Err(invalid("the body has no `event_type`, as AgentMail's events have".to_owned()));
        };
        let id = text(&body, "/event_id").filter(|id| !id.is_empty()).unwrap_or(delivery.header(SVIX.id));
        Ok(Reading::Event(Box::new(Notice {
            delivery: id.to_owned(),
            event,
            context: context(&body),
            answer: Answer::Body(json!({ "received": true })),
            payload: body,
        })))
    }
}

fn context(body: &Value) -> Context {
    let mut context = Context::default();
    let message = &body["message"];
    context.set("repo", text(message, "/inbox_id"));
    context.set("thread", text(message, "/thread_id"));
    context.set("title", text(message, "/subject"));
    context.set("body", text(message, "/text").or_else(|| text(message, "/html")));
    if let Some(from) = Letter::senders(message).first() {
        let from = address(from);
        context.set("author", Some(&from));
        context.set("sender", Some(&from));
    }
    context
}

/// The address in `Name <name@host>`, or all of it if it is one.
fn address(text: &str) -> String {
    let inner = text.rsplit_once('<').and_then(|(_, rest)| rest.split_once('>'));
    inner.map_or(text, |(address, _)| address).trim().to_lowercase()
}

/// Whether an address, with or without a name, is at one of the domains. Without domains any is.
pub(in crate::ingress) fn is_at(text: &str, domains: &[String]) -> bool {
    let address = address(text);
    let host = address.rsplit_once('@').map(|(_, host)| host);
    domains.is_empty() || domains.iter().any(|domain| host == Some(&domain.trim().to_lowercase()))
}
