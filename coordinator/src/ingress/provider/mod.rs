//! What differs between senders: how they sign, and the form of their events.
//!
//! A new one is a file here, a variant of [`Provider`] in the configuration, and its arm in [`sender`].

mod agentmail;
mod discord;
mod generic;
mod github;
mod gitlab;
mod linear;
mod mintlify;
mod sentry;
mod slack;
mod standard;
mod test;
#[cfg(test)]
mod tests;
mod twitter;

use serde_json::Value;
use skein_shared::Refusal;

pub(super) use agentmail::is_at;
pub(super) use slack::{COMMAND, from_socket};

use super::context::Context;
use super::delivery::Delivery;
use crate::config::Provider;

/// A kind of sender.
pub(super) trait Sender: Sync {
    /// Whether whoever has the secret has sent this; else a sentence that says what does not hold.
    fn verify(&self, delivery: &Delivery<'_>, secret: &[u8]) -> Result<(), String>;

    /// Whether the provider only looks if somebody is there. It need not sign that, for nothing of it is believed.
    fn knocks(&self, _delivery: &Delivery<'_>) -> bool {
        false
    }

    /// What a genuine request says.
    ///
    /// # Errors
    /// `invalid_argument` for a body that is not of the provider's form.
    fn read(&self, delivery: &Delivery<'_>) -> Result<Reading, Refusal>;

    /// What may be written down of a signed body that cannot be read: all but secrets that may stand in it.
    fn kept(&self, body: &[u8]) -> String {
        String::from_utf8_lossy(body).into_owned()
    }

    /// Answers the question whether this is the owner of the secret, for providers that ask it by GET.
    fn prove(&self, _token: &str, _secret: &[u8]) -> Option<Value> {
        None
    }
}

pub(super) enum Reading {
    Event(Box<Notice>),
    /// The provider wants to know whether somebody is there, and this for an answer.
    Challenge(Value),
    /// Genuine, but nobody's business, with the reason.
    Ignored(&'static str),
}

/// An event in the words that all senders share.
pub(super) struct Notice {
    /// The provider's id of the delivery; empty if it has none.
    pub delivery: String,
    pub event: String,
    pub context: Context,
    pub payload: Value,
    pub answer: Answer,
}

impl Notice {
    /// An event that is answered with its receipt.
    fn of(delivery: &str, event: &str, context: Context, payload: Value) -> Reading {
        let (delivery, event) = (delivery.to_owned(), event.to_owned());
        Reading::Event(Box::new(Self { delivery, event, context, payload, answer: Answer::Receipt }))
    }
}

/// What a sender gets for an event that was taken in. Some show it to a person.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    Receipt,
    /// 200 without a body.
    Nothing,
    /// 200 with this.
    Body(Value),
}

pub(super) fn sender(provider: Provider) -> &'static dyn Sender {
    match provider {
        Provider::Agentmail => &agentmail::Agentmail,
        Provider::Discord => &discord::Discord,
        Provider::Generic => &generic::Generic,
        Provider::Github => &github::Github,
        Provider::Gitlab => &gitlab::Gitlab,
        Provider::Linear => &linear::Linear,
        Provider::Mintlify => &mintlify::Mintlify,
        Provider::Sentry => &sentry::Sentry,
        Provider::Slack => &slack::Slack,
        Provider::Test => &test::Test,
        Provider::Twitter => &twitter::Twitter,
    }
}

/// Checks that a header has the body's HMAC, after a prefix.
fn signs_body(
    delivery: &Delivery<'_>,
    header: &str,
    prefix: &str,
    secret: &[u8],
    holds: fn(&[u8], &[&[u8]], &str) -> bool,
) -> Result<(), String> {
    let given = delivery.header(header).strip_prefix(prefix);
    let signed = given.is_some_and(|signature| holds(secret, &[delivery.body], signature));
    if signed { Ok(()) } else { Err(unsigned(header)) }
}

/// The sentence for a signature that is missing or does not hold.
fn unsigned(header: &str) -> String {
    format!("{header} does not match the body; sign it with the secret of this source")
}

/// The sentence for a time stamp that is missing, malformed or not of now.
fn outdated(header: &str) -> String {
    format!("{header} is not within five minutes of now; send it at once, with the clock set right")
}
