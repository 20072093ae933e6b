//! What an event would be, without a node: for those who write subscriptions.

use axum::http::HeaderMap;
use skein_shared::Refusal;
use skein_shared::id::Name;
use skein_shared::time::Timestamp;
use skein_shared::triggers::Envelope;

use super::delivery::{Delivery, invalid};
use super::provider::{Reading, sender};
use super::receive::incoming;
use crate::config::Provider;

/// The event that a request of this source would be taken for. Its signature is not looked at.
///
/// # Errors
/// `invalid_argument` for a request that a source of this provider refuses, or makes no event of.
pub fn simulate(
    provider: Provider,
    source: &Name,
    headers: &HeaderMap,
    body: &[u8],
    at: Timestamp,
) -> Result<Envelope, Refusal> {
    match sender(provider).read(&Delivery { headers, body, at })? {
        Reading::Event(notice) => Ok(Envelope::webhook(&incoming(*notice, source, provider, at)?)),
        Reading::Ignored(reason) => Err(invalid(format!("this is no event: {reason}"))),
        Reading::Challenge(_) => {
            Err(invalid("this is no event: the sender asks whether somebody is there".to_owned()))
        }
    }
}
