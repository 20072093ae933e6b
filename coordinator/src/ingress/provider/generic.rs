//! Events of senders that Skein knows nothing about.

use skein_shared::Refusal;

use super::{Notice, Reading, Sender, signs_body};
use crate::ingress::context::Context;
use crate::ingress::delivery::Delivery;
use crate::ingress::signature::hex_hmac;

const SIGNATURE: &str = "x-signature-256";

pub(super) struct Generic;

impl Sender for Generic {
    fn verify(&self, delivery: &Delivery<'_>, secret: &[u8]) -> Result<(), String> {
        signs_body(delivery, SIGNATURE, "sha256=", secret, hex_hmac)
    }

    fn read(&self, delivery: &Delivery<'_>) -> Result<Reading, Refusal> {
        let (id, event) = (delivery.required("x-delivery-id")?, delivery.required("x-event")?);
        let body = delivery.json()?;
        let mut context = Context::default();
        context.copy(&body);
        Ok(Notice::of(id, event, context, body))
    }
}
