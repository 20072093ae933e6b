//! Sentry: alerts, issues, errors and comments of an integration.

use serde_json::Value;
use skein_shared::Refusal;

use super::{Notice, Reading, Sender, signs_body};
use crate::ingress::context::{Context, text};
use crate::ingress::delivery::Delivery;
use crate::ingress::signature::hex_hmac;

const SIGNATURE: &str = "sentry-hook-signature";

pub(super) struct Sentry;

impl Sender for Sentry {
    fn verify(&self, delivery: &Delivery<'_>, secret: &[u8]) -> Result<(), String> {
        signs_body(delivery, SIGNATURE, "", secret, hex_hmac)
    }

    fn read(&self, delivery: &Delivery<'_>) -> Result<Reading, Refusal> {
        let resource = delivery.required("sentry-hook-resource")?;
        let body = delivery.json()?;
        let context = context(resource, &body);
        Ok(Notice::of(delivery.header("request-id"), resource, context, body))
    }
}

fn context(resource: &str, body: &Value) -> Context {
    let data = &body["data"];
    let mut context = Context::default();
    context.set("action", text(body, "/action"));
    context.set("sender", text(body, "/actor/name"));
    match resource {
        "issue" => {
            let issue = &data["issue"];
            context.set("repo", text(issue, "/project/slug"));
            context.set("title", text(issue, "/title"));
            context.set("body", text(issue, "/culprit"));
            context.set("url", text(issue, "/web_url").or_else(|| text(issue, "/permalink")));
            let person = &issue["assignedTo"];
            context.set("assignee", text(person, "/email").or_else(|| text(person, "/name")));
        }
        "event_alert" => {
            event(&mut context, &data["event"]);
            context.set("repo", text(data, "/triggered_rule"));
        }
        "metric_alert" => {
            let alert = &data["metric_alert"];
            let place = text(alert, "/projects/0").or_else(|| text(alert, "/alert_rule/name"));
            context.set("repo", place);
            context.set("title", text(data, "/description_title"));
            context.set("body", text(data, "/description_text"));
            context.set("url", text(data, "/web_url"));
        }
        "error" => event(&mut context, &data["error"]),
        "comment" => {
            context.set("repo", text(data, "/project_slug"));
            context.set("comment", text(data, "/comment"));
        }
        // Filters can still look into the body.
        _ => context.set("repo", text(data, "/installation/organization/slug")),
    }
    context
}

/// An error as it happened once.
fn event(context: &mut Context, event: &Value) {
    context.set("repo", text(event, "/project_slug"));
    context.set("title", text(event, "/title"));
    context.set("body", text(event, "/message").or_else(|| text(event, "/culprit")));
    context.set("url", text(event, "/web_url").or_else(|| text(event, "/issue_url")));
}
