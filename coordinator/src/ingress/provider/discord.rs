//! Discord: interactions with an application. A source's secret is the application's public key.

use serde_json::{Value, json};
use skein_shared::Refusal;

use super::{Answer, Notice, Reading, Sender, outdated, unsigned};
use crate::ingress::context::{Context, text};
use crate::ingress::delivery::{Delivery, invalid};
use crate::ingress::signature::ed25519;

const SIGNATURE: &str = "x-signature-ed25519";
const TIME: &str = "x-signature-timestamp";

/// Answers by which Discord knows that one comes later, without a message that people would see.
const THINKING: u8 = 5;
const LATER: u8 = 6;
const CHOICES: u8 = 8;

pub(super) struct Discord;

impl Sender for Discord {
    fn verify(&self, delivery: &Delivery<'_>, secret: &[u8]) -> Result<(), String> {
        let message = [delivery.header(TIME).as_bytes(), delivery.body].concat();
        let key = std::str::from_utf8(secret).unwrap_or_default();
        if !ed25519(key, &message, delivery.header(SIGNATURE)) {
            return Err(unsigned(SIGNATURE));
        }
        if delivery.is_recent(TIME) { Ok(()) } else { Err(outdated(TIME)) }
    }

    fn read(&self, delivery: &Delivery<'_>) -> Result<Reading, Refusal> {
        let body = delivery.json()?;
        let (event, answer) = match body["type"].as_u64() {
            Some(1) => return Ok(Reading::Challenge(json!({"type": 1}))),
            Some(2) => ("application_command", json!({"type": THINKING})),
            Some(3) => ("message_component", json!({"type": LATER})),
            Some(4) => ("autocomplete", json!({"type": CHOICES, "data": {"choices": []}})),
            Some(5) => ("modal_submit", json!({"type": THINKING})),
            _ => return Err(invalid("the body has no `type` of an interaction, 1 to 5".to_owned())),
        };
        Ok(Reading::Event(Box::new(Notice {
            delivery: text(&body, "/id").unwrap_or_default().to_owned(),
            event: event.to_owned(),
            context: context(&body),
            payload: body,
            answer: Answer::Body(answer),
        })))
    }
}

fn context(body: &Value) -> Context {
    let name = text(body, "/data/name").or_else(|| text(body, "/data/custom_id"));
    let person = text(body, "/member/user/username").or_else(|| text(body, "/user/username"));
    let mut context = Context::default();
    context.set("repo", text(body, "/guild_id"));
    let channel = text(body, "/channel_id").or_else(|| text(body, "/channel/id"));
    context.set("branch", channel);
    context.set("channel", channel);
    context.set("action", name);
    context.set("title", name);
    context.set("author", person);
    context.set("sender", person);
    context.set("body", text(body, "/data/options/0/value"));
    context
}
