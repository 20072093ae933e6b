//! Webhooks as GitHub sends them: signed, with an id of their own.

use anyhow::Result;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

/// What the tests' source signs with.
pub const SECRET: &str = "a secret that nobody prints";

/// The part of `config.toml` that names the source.
pub fn configuration() -> String {
    format!("[[ingress.source]]\nname = \"github\"\nprovider = \"github\"\nsecret = \"{SECRET}\"\n")
}

pub fn signature(body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).expect("any key will do");
    mac.update(body.as_bytes());
    let digest = mac.finalize().into_bytes();
    format!("sha256={}", digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

/// Sends a push to an ingress, and gives the status and body of its answer.
///
/// # Errors
/// When there is no answer.
pub async fn push(ingress: &str, delivery: &str, body: &str, signature: &str) -> Result<(u16, Value)> {
    let response = reqwest::Client::new()
        .post(format!("{ingress}/webhooks/github"))
        .header("x-github-event", "push")
        .header("x-github-delivery", delivery)
        .header("x-hub-signature-256", signature)
        .header("content-type", "application/json")
        .body(body.to_owned())
        .send()
        .await?;
    Ok((response.status().as_u16(), response.json().await?))
}

/// The body of a push with a number to tell it by.
pub fn event(number: u64) -> Value {
    json!({"ref": "refs/heads/main", "number": number, "repository": {"full_name": "acme/app"}})
}
