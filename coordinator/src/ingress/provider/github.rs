//! GitHub's events in the words that all senders share (spec: Action Llama 8.3).

use serde_json::Value;
use skein_shared::Refusal;

use super::{Notice, Reading, Sender, signs_body};
use crate::ingress::context::{Context, text};
use crate::ingress::delivery::Delivery;
use crate::ingress::signature::hex_hmac;

const SIGNATURE: &str = "x-hub-signature-256";

pub(super) struct Github;

impl Sender for Github {
    fn verify(&self, delivery: &Delivery<'_>, secret: &[u8]) -> Result<(), String> {
        signs_body(delivery, SIGNATURE, "sha256=", secret, hex_hmac)
    }

    fn read(&self, delivery: &Delivery<'_>) -> Result<Reading, Refusal> {
        let (id, event) = (delivery.required("x-github-delivery")?, delivery.required("x-github-event")?);
        let body = delivery.json()?;
        if event == "ping" {
            return Ok(Reading::Ignored("ping"));
        }
        match context(event, &body) {
            Some(context) => Ok(Notice::of(id, event, context, body)),
            None => Ok(Reading::Ignored("the event belongs to no repository")),
        }
    }
}

fn context(event: &str, body: &Value) -> Option<Context> {
    let repo = text(body, "/repository/full_name")?;
    let mut context = Context::default();
    context.set("repo", Some(repo));
    context.set("action", text(body, "/action"));
    context.set("sender", text(body, "/sender/login"));
    match event {
        "push" => push(&mut context, body),
        "create" | "delete" => context.set("branch", text(body, "/ref")),
        "issues" => item(&mut context, &body["issue"]),
        "issue_comment" => {
            item(&mut context, &body["issue"]);
            comment(&mut context, &body["comment"]);
        }
        "pull_request" | "pull_request_target" => pull_request(&mut context, body),
        "pull_request_review" => {
            pull_request(&mut context, body);
            comment(&mut context, &body["review"]);
            context.set("conclusion", text(body, "/review/state"));
        }
        "pull_request_review_comment" => {
            pull_request(&mut context, body);
            comment(&mut context, &body["comment"]);
        }
        "discussion" => item(&mut context, &body["discussion"]),
        "discussion_comment" => {
            item(&mut context, &body["discussion"]);
            comment(&mut context, &body["comment"]);
        }
        "commit_comment" => comment(&mut context, &body["comment"]),
        "workflow_run" | "workflow_job" | "check_run" | "check_suite" => run(&mut context, &body[event]),
        "status" => {
            context.set("conclusion", text(body, "/state"));
            context.set("title", text(body, "/context"));
            context.set("url", text(body, "/target_url"));
            context.set("branch", text(body, "/branches/0/name"));
        }
        "deployment_status" => {
            context.set("conclusion", text(body, "/deployment_status/state"));
            context.set("title", text(body, "/deployment_status/environment"));
            context.set("branch", text(body, "/deployment/ref"));
            context.set("url", text(body, "/deployment_status/target_url"));
        }
        "release" => {
            let release = &body["release"];
            item(&mut context, release);
            context.set("title", text(release, "/name").or_else(|| text(release, "/tag_name")));
            context.set("branch", text(release, "/target_commitish"));
        }
        // Filters can still look into the body.
        _ => {}
    }
    Some(context)
}

/// What issues, pull requests, discussions and releases have in common.
fn item(context: &mut Context, item: &Value) {
    context.number(&item["number"]);
    context.set("title", text(item, "/title"));
    context.set("body", text(item, "/body"));
    context.set("url", text(item, "/html_url"));
    context.set("author", text(item, "/user/login").or_else(|| text(item, "/author/login")));
    context.set("assignee", text(item, "/assignee/login"));
    context.labels(&item["labels"], "name");
}

fn pull_request(context: &mut Context, body: &Value) {
    let request = &body["pull_request"];
    item(context, request);
    context.set("branch", text(request, "/head/ref"));
}

/// A comment's own address leads to both, the comment and what it is about.
fn comment(context: &mut Context, comment: &Value) {
    context.set("comment", text(comment, "/body"));
    context.set("url", text(comment, "/html_url"));
}

fn push(context: &mut Context, body: &Value) {
    let branch = text(body, "/ref");
    context.set("branch", branch.map(|name| name.strip_prefix("refs/heads/").unwrap_or(name)));
    let message = text(body, "/head_commit/message");
    context.set("title", message.and_then(|message| message.lines().next()));
    context.set("body", message);
    context.set("author", text(body, "/head_commit/author/username").or_else(|| text(body, "/pusher/name")));
    context.set("url", text(body, "/compare"));
}

/// Runs of workflows and checks.
fn run(context: &mut Context, run: &Value) {
    context.number(&run["run_number"]);
    context.set("title", text(run, "/name"));
    context.set("url", text(run, "/html_url").or_else(|| text(run, "/url")));
    context.set("author", text(run, "/actor/login"));
    context.set("conclusion", text(run, "/conclusion"));
    context.set("branch", text(run, "/head_branch").or_else(|| text(run, "/check_suite/head_branch")));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(event: &str, mut body: Value) -> Value {
        body["repository"] = json!({"full_name": "acme/api"});
        body["sender"] = json!({"login": "ada"});
        context(event, &body).unwrap().into_value()
    }

    #[test]
    fn a_push_names_its_branch() {
        let body = json!({"ref": "refs/heads/feature/x", "compare": "https://example.com/c",
            "head_commit": {"message": "Mend it\n\nwith care", "author": {"username": "bob"}}});
        assert_eq!(
            of("push", body),
            json!({"repo": "acme/api", "sender": "ada", "branch": "feature/x", "title": "Mend it",
                "body": "Mend it\n\nwith care", "author": "bob", "url": "https://example.com/c"})
        );
    }

    #[test]
    fn a_pull_request_has_its_head_and_labels() {
        let body = json!({"action": "opened", "pull_request": {"number": 7, "title": "T", "body": null,
            "html_url": "u", "user": {"login": "bob"}, "assignee": null, "head": {"ref": "fix"},
            "labels": [{"name": "bug"}, {"name": "p1"}]}});
        assert_eq!(
            of("pull_request", body),
            json!({"repo": "acme/api", "action": "opened", "sender": "ada", "number": 7, "title": "T",
                "url": "u", "author": "bob", "labels": ["bug", "p1"], "branch": "fix"})
        );
    }

    #[test]
    fn comments_and_runs_carry_what_filters_ask_for() {
        let comment = of(
            "issue_comment",
            json!({"action": "created", "issue": {"number": 3, "html_url": "i"}, "comment": {"body": "hi", "html_url": "c"}}),
        );
        assert_eq!(
            (&comment["comment"], &comment["url"], &comment["number"]),
            (&json!("hi"), &json!("c"), &json!(3))
        );
        let run = of(
            "workflow_run",
            json!({"action": "completed", "workflow_run": {"name": "ci", "head_branch": "main", "conclusion": "failure", "run_number": 12}}),
        );
        assert_eq!(
            (&run["branch"], &run["conclusion"], &run["number"]),
            (&json!("main"), &json!("failure"), &json!(12))
        );
        let release =
            of("release", json!({"release": {"tag_name": "v1", "name": null, "author": {"login": "bob"}}}));
        assert_eq!((&release["title"], &release["author"]), (&json!("v1"), &json!("bob")));
    }
}
