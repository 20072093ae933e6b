//! Linear: issues, comments and whatever else has a type.

use std::time::Duration;

use serde_json::Value;
use skein_shared::Refusal;
use skein_shared::time::Timestamp;

use super::{Notice, Reading, Sender, signs_body};
use crate::ingress::context::{Context, text};
use crate::ingress::delivery::{Delivery, invalid};
use crate::ingress::signature::{digest, hex_hmac};

const SIGNATURE: &str = "linear-signature";
/// When it was sent, in milliseconds since 1970.
const SENT: &str = "webhookTimestamp";
/// How old a delivery may be. Linear repeats one for seven hours and may say then when it sent it first; repeats are
/// told for longer than this.
const REPEATS: Duration = Duration::from_secs(86_400);

pub(super) struct Linear;

impl Sender for Linear {
    fn verify(&self, delivery: &Delivery<'_>, secret: &[u8]) -> Result<(), String> {
        signs_body(delivery, SIGNATURE, "", secret, hex_hmac)?;
        let sent = delivery.json().ok().and_then(|body| body[SENT].as_u64());
        match sent {
            Some(sent) if !delivery.is_within(Timestamp(sent), REPEATS) => {
                Err(format!("`{SENT}` is not within a day of now; send it at once, with the clock set right"))
            }
            _ => Ok(()),
        }
    }

    fn read(&self, delivery: &Delivery<'_>) -> Result<Reading, Refusal> {
        let body = delivery.json()?;
        let Some(kind) = text(&body, "/type") else {
            return Err(invalid("the body has no `type`, as Linear's events have".to_owned()));
        };
        let Some(organization) = text(&body, "/organizationId") else {
            return Ok(Reading::Ignored("the event belongs to no organization"));
        };
        let event = match kind {
            "Issue" => "issues".to_owned(),
            "Comment" => "issue_comment".to_owned(),
            other => other.to_lowercase(),
        };
        let context = context(&event, organization, &body);
        Ok(Notice::of(&id(&body), &event, context, body))
    }
}

/// The id in Linear's header is not signed, so a recording could have any. In a repeat all is the same but the moment
/// of sending, perhaps; the moment of the event tells it from all others.
fn id(body: &Value) -> String {
    let mut event = body.clone();
    if let Some(fields) = event.as_object_mut().filter(|fields| fields.contains_key("createdAt")) {
        fields.shift_remove(SENT);
    }
    digest(event.to_string().as_bytes())
}

fn context(event: &str, organization: &str, body: &Value) -> Context {
    let data = &body["data"];
    let mut context = Context::default();
    context.set("repo", Some(organization));
    context.set("action", text(body, "/action"));
    context.set("sender", person(&body["actor"]));
    context.set("url", text(body, "/url").or_else(|| text(data, "/url")));
    let issue = if event == "issue_comment" { &data["issue"] } else { data };
    context.number(&issue["number"]);
    context.set("title", text(issue, "/title").or_else(|| text(issue, "/name")));
    context.set("body", text(issue, "/description"));
    context.set("assignee", person(&issue["assignee"]));
    context.labels(&issue["labels"], "name");
    if event == "issue_comment" {
        context.set("comment", text(data, "/body"));
        context.set("author", person(&data["user"]).or_else(|| person(&body["actor"])));
    } else {
        context.set("author", person(&data["creator"]).or_else(|| person(&body["actor"])));
    }
    context
}

/// People go by their address, which is what the filters name; without one by their name.
fn person(user: &Value) -> Option<&str> {
    text(user, "/email").or_else(|| text(user, "/name"))
}
