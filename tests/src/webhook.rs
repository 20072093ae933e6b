//! Webhooks as GitHub, AgentMail and Slack send them: signed, with an id of their own.

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use skein_coordinator::entity::Clock;

use crate::up::Up;

/// What the tests' source signs with.
pub const SECRET: &str = "a secret that nobody prints";

/// The part of `config.toml` that names the source.
pub fn configuration() -> String {
    format!("[[ingress.source]]\nname = \"github\"\nprovider = \"github\"\nsecret = \"{SECRET}\"\n")
}

pub fn signature(body: &str) -> String {
    format!("sha256={}", digest(body))
}

fn digest(text: &str) -> String {
    mac(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// By what somebody shows that the secret is known there, as X wants it.
pub fn proof(text: &str) -> String {
    STANDARD.encode(mac(text))
}

fn mac(text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("any key will do");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// The same, with a bot that people ask for something.
pub fn bot_configuration(bot: &str) -> String {
    format!("{}bot = \"{bot}\"\n", configuration())
}

/// Sends what happened in a repository, and gives the status and body of the answer.
///
/// # Errors
/// When there is no answer.
pub async fn report(ingress: &str, delivery: &str, event: &str, body: &Value) -> Result<(u16, Value)> {
    let body = body.to_string();
    deliver(ingress, delivery, event, &body, &signature(&body)).await
}

/// Sends a push to an ingress, and gives the status and body of its answer.
///
/// # Errors
/// When there is no answer.
pub async fn push(ingress: &str, delivery: &str, body: &str, signature: &str) -> Result<(u16, Value)> {
    deliver(ingress, delivery, "push", body, signature).await
}

async fn deliver(
    ingress: &str,
    delivery: &str,
    event: &str,
    body: &str,
    signature: &str,
) -> Result<(u16, Value)> {
    let response = reqwest::Client::new()
        .post(format!("{ingress}/webhooks/github"))
        .header("x-github-event", event)
        .header("x-github-delivery", delivery)
        .header("x-hub-signature-256", signature)
        .header("content-type", "application/json")
        .body(body.to_owned())
        .send()
        .await?;
    Ok((response.status().as_u16(), response.json().await?))
}

/// The key of [`mail_configuration`], without its base64.
const MAIL: &[u8] = b"a secret of letters";

/// The part of `config.toml` that names a source of mail.
pub fn mail_configuration() -> String {
    let key = STANDARD.encode(MAIL);
    format!("[[ingress.source]]\nname = \"mail\"\nprovider = \"agentmail\"\nsecret = \"whsec_{key}\"\n")
}

/// Reports a letter to an inbox, as AgentMail does, and gives the status and body of the answer. A repeat has the same
/// id.
///
/// # Errors
/// When there is no answer.
pub async fn write(ingress: &str, id: &str, inbox: &str, text: &str) -> Result<(u16, Value)> {
    let message = json!({
        "inbox_id": inbox, "thread_id": "t1", "message_id": id, "from_": "Ada <ada@example.org>", "text": text,
    });
    let body = json!({"event_type": "message.received", "event_id": id, "message": message}).to_string();
    let now = now();
    let mut mac = Hmac::<Sha256>::new_from_slice(MAIL).expect("any key will do");
    mac.update(format!("{id}.{now}.{body}").as_bytes());
    let response = reqwest::Client::new()
        .post(format!("{ingress}/webhooks/mail"))
        .header("svix-id", id)
        .header("svix-timestamp", now)
        .header("svix-signature", format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
        .header("content-type", "application/json")
        .body(body)
        .send()
        .await?;
    Ok((response.status().as_u16(), response.json().await?))
}

/// What the wall clock shows, in seconds since 1970: some senders sign it.
pub fn now() -> u64 {
    Clock::start().wall().0 / 1000
}

/// The part of `config.toml` that names Slack as a source that comes by request.
pub fn slack_configuration() -> String {
    format!("[[ingress.source]]\nname = \"slack\"\nprovider = \"slack\"\nsecret = \"{SECRET}\"\n")
}

/// How Slack signs a body that it sends at a time, in seconds since 1970.
pub fn slack_signature(at: u64, body: &str) -> String {
    format!("v0={}", digest(&format!("v0:{at}:{body}")))
}

/// A form, as Slack sends what people type and click.
pub fn form(fields: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

/// Sends what Slack reports, signed now, and gives the status and body of the answer, null if it has none. A retry says
/// which one it is.
///
/// # Errors
/// When there is no answer.
pub async fn slack(ingress: &str, body: &str, retry: Option<u64>) -> Result<(u16, Value)> {
    let now = now();
    slack_signed(ingress, body, now, &slack_signature(now, body), retry).await
}

/// The same with a time and a signature that may be wrong.
///
/// # Errors
/// When there is no answer.
pub async fn slack_signed(
    ingress: &str,
    body: &str,
    at: u64,
    signature: &str,
    retry: Option<u64>,
) -> Result<(u16, Value)> {
    let kind = if body.starts_with('{') { "application/json" } else { "application/x-www-form-urlencoded" };
    let mut request = reqwest::Client::new()
        .post(format!("{ingress}/webhooks/slack"))
        .header("x-slack-request-timestamp", at)
        .header("x-slack-signature", signature)
        .header("content-type", kind);
    if let Some(retry) = retry {
        request = request.header("x-slack-retry-num", retry).header("x-slack-retry-reason", "http_timeout");
    }
    let response = request.body(body.to_owned()).send().await?;
    let (status, text) = (response.status().as_u16(), response.text().await?);
    Ok((status, if text.is_empty() { Value::Null } else { serde_json::from_str(&text)? }))
}

/// The body of a push with a number to tell it by.
pub fn event(number: u64) -> Value {
    json!({"ref": "refs/heads/main", "number": number, "repository": {"full_name": "acme/app"}})
}

/// What the operator of a node sees of the deliveries that it has kept, the newest first.
///
/// # Errors
/// When they cannot be listed.
pub async fn receipts(up: &Up) -> Result<Vec<Value>> {
    let rows = up.skein(&["webhooks", "list", "--json"]).await?;
    Ok(rows.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}
