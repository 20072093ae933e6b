//! Events for trying agents out. Nothing is signed, and the body has the shared fields as they are.

use skein_shared::Refusal;

use super::{Notice, Reading, Sender};
use crate::ingress::context::{Context, text};
use crate::ingress::delivery::Delivery;

pub(super) struct Test;

impl Sender for Test {
    fn verify(&self, _: &Delivery<'_>, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn read(&self, delivery: &Delivery<'_>) -> Result<Reading, Refusal> {
        let body = delivery.json()?;
        let named = Some(delivery.header("x-event")).filter(|event| !event.is_empty());
        let event = named.or_else(|| text(&body, "/event")).unwrap_or("test").to_owned();
        let mut context = Context::default();
        context.copy(&body);
        Ok(Notice::of(delivery.header("x-delivery-id"), &event, context, body))
    }
}
