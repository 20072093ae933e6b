//! Mintlify: builds of documentation.

use serde_json::Value;
use skein_shared::Refusal;

use super::{Notice, Reading, Sender, signs_body};
use crate::ingress::context::{Context, text};
use crate::ingress::delivery::Delivery;
use crate::ingress::signature::hex_hmac;

const SIGNATURES: [&str; 2] = ["x-mintlify-signature", "mintlify-signature"];

pub(super) struct Mintlify;

impl Sender for Mintlify {
    fn verify(&self, delivery: &Delivery<'_>, secret: &[u8]) -> Result<(), String> {
        let given = SIGNATURES.into_iter().find(|name| !delivery.header(name).is_empty());
        signs_body(delivery, given.unwrap_or(SIGNATURES[0]), "", secret, hex_hmac)
    }

    fn read(&self, delivery: &Delivery<'_>) -> Result<Reading, Refusal> {
        let body = delivery.json()?;
        let event = text(&body, "/event").unwrap_or("build").to_owned();
        Ok(Notice::of("", &event, context(&body), body))
    }
}

fn context(body: &Value) -> Context {
    let state = text(body, "/action").or_else(|| text(body, "/status"));
    let mut context = Context::default();
    context.set("repo", text(body, "/project").or_else(|| text(body, "/organization")));
    context.set("action", state);
    let ended = text(body, "/status").or(state).unwrap_or_default();
    context.set(
        "conclusion",
        match ended {
            "failed" | "failure" => Some("failure"),
            "succeeded" | "success" => Some("success"),
            _ => None,
        },
    );
    context.set("branch", Some(text(body, "/branch").unwrap_or("main")));
    context.set("title", text(body, "/title"));
    context.set("body", text(body, "/error").or_else(|| text(body, "/message")));
    context.set("url", text(body, "/url"));
    context.set("author", text(body, "/author"));
    context
}
