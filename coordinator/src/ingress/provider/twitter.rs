//! X, once Twitter: what happens around an account.

use serde_json::{Value, json};
use skein_shared::Refusal;

use super::{Notice, Reading, Sender, signs_body};
use crate::ingress::context::{Context, text};
use crate::ingress::delivery::Delivery;
use crate::ingress::signature::{base64_hmac, base64_of, digest};

const SIGNATURE: &str = "x-twitter-webhooks-signature";

pub(super) struct Twitter;

impl Sender for Twitter {
    fn verify(&self, delivery: &Delivery<'_>, secret: &[u8]) -> Result<(), String> {
        signs_body(delivery, SIGNATURE, "sha256=", secret, base64_hmac)
    }

    fn read(&self, delivery: &Delivery<'_>) -> Result<Reading, Refusal> {
        let body = delivery.json()?;
        // The kind of an activity is the name of the list that holds it.
        let list = body.as_object().and_then(|fields| fields.iter().find(|(_, value)| value.is_array()));
        let Some((event, items)) = list else { return Ok(Reading::Ignored("the body holds no activity")) };
        let context = context(event, items.get(0).unwrap_or(&Value::Null), &body);
        // X names no deliveries. Every activity has its id or its moment, so only a repeat is the same to the byte.
        Ok(Notice::of(&digest(delivery.body), &event.clone(), context, body))
    }

    fn prove(&self, token: &str, secret: &[u8]) -> Option<Value> {
        let proof = base64_of(secret, token.as_bytes())?;
        Some(json!({"response_token": format!("sha256={proof}")}))
    }
}

/// Of several activities in one delivery the first; the others stand in the body.
fn context(event: &str, first: &Value, body: &Value) -> Context {
    let mut context = Context::default();
    context.set("repo", text(body, "/for_user_id"));
    context.set("action", Some(event.strip_suffix("_events").unwrap_or(event)));
    let words = ["/text", "/message_create/message_data/text", "/favorited_status/text"];
    context.set("body", words.into_iter().find_map(|pointer| text(first, pointer)));
    let people = ["/user/screen_name", "/source/screen_name", "/message_create/sender_id"];
    let author = people.into_iter().find_map(|pointer| text(first, pointer));
    context.set("author", author);
    context.set("sender", author);
    if let (Some(name), Some(id)) = (text(first, "/user/screen_name"), text(first, "/id_str")) {
        context.set("url", Some(&format!("https://x.com/{name}/status/{id}")));
    }
    context
}
