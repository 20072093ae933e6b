//! GitLab: hooks of projects, groups and the system.

use serde_json::Value;
use skein_shared::Refusal;

use super::standard::{self, HEADERS, SIGNING};
use super::{Notice, Reading, Sender};
use crate::ingress::context::{Context, text};
use crate::ingress::delivery::{Delivery, invalid};
use crate::ingress::signature::is_secret;

const TOKEN: &str = "x-gitlab-token";

pub(super) struct Gitlab;

impl Sender for Gitlab {
    /// A hook with a signing token signs; one with a secret token only shows it.
    fn verify(&self, delivery: &Delivery<'_>, secret: &[u8]) -> Result<(), String> {
        match secret.strip_prefix(SIGNING.as_bytes()) {
            Some(key) => standard::verify(delivery, &HEADERS, key),
            None if is_secret(secret, delivery.header(TOKEN).as_bytes()) => Ok(()),
            None => Err(format!("{TOKEN} is not the secret of this source; write the same into the hook")),
        }
    }

    fn read(&self, delivery: &Delivery<'_>) -> Result<Reading, Refusal> {
        let body = delivery.json()?;
        let kind = text(&body, "/object_kind").or_else(|| text(&body, "/event_name"));
        let Some(event) = kind.map(str::to_owned) else {
            return Err(invalid("the body has no `object_kind`, as GitLab's events have".to_owned()));
        };
        // Hooks that set off hooks share the id of the event, never that of the delivery.
        let ids = [HEADERS.id, "idempotency-key", "x-gitlab-event-uuid"].map(|name| delivery.header(name));
        let id = ids.into_iter().find(|id| !id.is_empty()).unwrap_or_default();
        Ok(Notice::of(id, &event, context(&event, &body), body))
    }
}

fn context(event: &str, body: &Value) -> Context {
    let mut context = Context::default();
    let places = ["/project/path_with_namespace", "/path_with_namespace", "/group_path", "/group/full_path"];
    context.set("repo", places.into_iter().find_map(|pointer| text(body, pointer)));
    context.set("sender", text(body, "/user/username").or_else(|| text(body, "/user_username")));
    context.set("action", text(body, "/object_attributes/action").or_else(|| text(body, "/action")));
    let object = &body["object_attributes"];
    match event {
        "push" | "tag_push" => push(&mut context, body),
        "issue" | "work_item" | "merge_request" => {
            item(&mut context, object);
            context.set("author", written_by(body, object));
            people_and_labels(&mut context, body);
        }
        "note" => {
            let about = if body["merge_request"].is_object() { "merge_request" } else { "issue" };
            item(&mut context, &body[about]);
            context.set("comment", text(object, "/note"));
            context.set("url", text(object, "/url"));
            context.set("author", written_by(body, object));
        }
        "pipeline" => {
            context.number(&object["id"]);
            context.set("title", text(object, "/name"));
            run(&mut context, object, "/status", "/ref");
        }
        "build" => {
            context.number(&body["build_id"]);
            context.set("title", text(body, "/build_name"));
            run(&mut context, body, "/build_status", "/ref");
        }
        "deployment" => {
            context.set("title", text(body, "/environment"));
            run(&mut context, body, "/status", "/ref");
            context.set("url", text(body, "/deployable_url"));
        }
        "release" => {
            context.set("title", text(body, "/name").or_else(|| text(body, "/tag")));
            context.set("body", text(body, "/description"));
            context.set("url", text(body, "/url"));
            context.set("branch", text(body, "/tag"));
        }
        // Filters can still look into the body.
        _ => item(&mut context, object),
    }
    context
}

/// GitLab names only who acts. That is the author when both have one number.
fn written_by<'a>(body: &'a Value, object: &Value) -> Option<&'a str> {
    let same = object["author_id"].is_u64() && object["author_id"] == body["user"]["id"];
    text(body, "/user/username").filter(|_| same)
}

fn item(context: &mut Context, item: &Value) {
    context.number(&item["iid"]);
    context.set("title", text(item, "/title"));
    context.set("body", text(item, "/description"));
    context.set("url", text(item, "/url"));
    context.set("branch", text(item, "/source_branch"));
    context.labels(&item["labels"], "title");
}

fn people_and_labels(context: &mut Context, body: &Value) {
    context.set("assignee", text(body, "/assignees/0/username"));
    context.labels(&body["labels"], "title");
}

fn push(context: &mut Context, body: &Value) {
    let name = text(body, "/ref");
    let short = |name| ["refs/heads/", "refs/tags/"].iter().find_map(|p| str::strip_prefix(name, p));
    context.set("branch", name.map(|name| short(name).unwrap_or(name)));
    context.set("author", text(body, "/user_username"));
    let last = body["commits"].as_array().and_then(|commits| commits.last()).unwrap_or(&Value::Null);
    context.set("title", text(last, "/title"));
    context.set("body", text(last, "/message"));
    context.set("url", text(last, "/url"));
}

fn run(context: &mut Context, run: &Value, status: &str, branch: &str) {
    context.set("conclusion", text(run, status));
    context.set("branch", text(run, branch));
    context.set("url", text(run, "/url"));
}
