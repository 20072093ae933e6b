//! Events of senders that Skein knows nothing about: by the Standard Webhooks, or by the plainest of signatures.

use skein_shared::Refusal;

use super::standard::{self, HEADERS, SIGNING};
use super::{Notice, Reading, Sender, signs_body};
use crate::ingress::context::{Context, text};
use crate::ingress::delivery::Delivery;
use crate::ingress::signature::hex_hmac;

const SIGNATURE: &str = "x-signature-256";
/// What an event is called whose body does not say its type.
const UNNAMED: &str = "webhook";

pub(super) struct Generic;

impl Sender for Generic {
    fn verify(&self, delivery: &Delivery<'_>, secret: &[u8]) -> Result<(), String> {
        match secret.strip_prefix(SIGNING.as_bytes()) {
            Some(key) => standard::verify(delivery, &HEADERS, key),
            None => signs_body(delivery, SIGNATURE, "sha256=", secret, hex_hmac),
        }
    }

    fn read(&self, delivery: &Delivery<'_>) -> Result<Reading, Refusal> {
        let body = delivery.json()?;
        let mut context = Context::default();
        context.copy(&body);
        // By the standard, whose headers come together, an event says in its body what it is: only that is signed.
        if !delivery.header(HEADERS.signatures).is_empty() {
            let event = text(&body, "/type").unwrap_or(UNNAMED).to_owned();
            return Ok(Notice::of(delivery.required(HEADERS.id)?, &event, context, body));
        }
        let (id, event) = (delivery.required("x-delivery-id")?, delivery.required("x-event")?);
        Ok(Notice::of(id, event, context, body))
    }
}
