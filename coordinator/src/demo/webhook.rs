//! Delivers a push to the ingress the way GitHub does: signed, with a delivery id.

use hmac::{Hmac, KeyInit, Mac};
use serde_json::json;
use sha2::Sha256;
use uuid::Uuid;

/// Posts a `push` event. Gives the status and the answer's text.
pub(super) async fn deliver_push(
    ingress: &str,
    secret: &str,
    repository: &str,
    branch: &str,
) -> Result<(u16, String), reqwest::Error> {
    let body = json!({
        "ref": format!("refs/heads/{branch}"),
        "repository": {"full_name": repository, "html_url": format!("https://github.com/{repository}")},
        "sender": {"login": "skein-demo"},
        "pusher": {"name": "skein-demo"},
        "head_commit": {"message": "the push that wakes the summariser"},
    })
    .to_string();
    let response = reqwest::Client::new()
        .post(format!("http://{ingress}/webhooks/github"))
        .header("content-type", "application/json")
        .header("x-github-event", "push")
        .header("x-github-delivery", Uuid::new_v4().to_string())
        .header("x-hub-signature-256", format!("sha256={}", sign(secret, body.as_bytes())))
        .body(body)
        .send()
        .await?;
    let status = response.status().as_u16();
    Ok((status, response.text().await?))
}

fn sign(secret: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(body);
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of GitHub's documentation on validating deliveries.
    #[test]
    fn signatures_are_githubs() {
        assert_eq!(
            sign("It's a Secret to Everybody", b"Hello, World!"),
            "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
        );
    }
}
