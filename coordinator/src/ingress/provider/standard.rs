//! Standard Webhooks, under whatever names a provider gives their headers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::outdated;
use crate::ingress::delivery::Delivery;
use crate::ingress::signature::base64_hmac;

/// What a signing token begins with.
pub(super) const SIGNING: &str = "whsec_";

/// By the names that the standard gives them.
pub(super) const HEADERS: Headers =
    Headers { id: "webhook-id", time: "webhook-timestamp", signatures: "webhook-signature" };

/// The names of the headers.
pub(super) struct Headers {
    pub id: &'static str,
    pub time: &'static str,
    pub signatures: &'static str,
}

/// Checks the signature with a key in base64. There may be several, while a token is replaced by another.
pub(super) fn verify(delivery: &Delivery<'_>, names: &Headers, key: &[u8]) -> Result<(), String> {
    let (id, time) = (delivery.header(names.id).as_bytes(), delivery.header(names.time).as_bytes());
    let parts = [id, b".", time, b".", delivery.body];
    let key = STANDARD.decode(key).unwrap_or_default();
    let given = delivery.header(names.signatures).split_whitespace();
    let mut given = given.filter_map(|one| one.strip_prefix("v1,"));
    if key.is_empty() || !given.any(|signature| base64_hmac(&key, &parts, signature)) {
        return Err(format!(
            "{} does not match; sign with the signing token of this source",
            names.signatures
        ));
    }
    if delivery.is_recent(names.time) { Ok(()) } else { Err(outdated(names.time)) }
}
