//! GitHub's events in the words that all senders share (spec: Action Llama 8.3).

use serde_json::{Map, Value};

use super::excerpt;
use super::provider::Normalised;

pub(super) fn normalise(event: &str, body: &Value) -> Normalised {
    if event == "ping" {
        return Normalised::Ignored("ping");
    }
    let Some(repo) = text(body, "/repository/full_name") else {
        return Normalised::Ignored("the event belongs to no repository");
    };
    let mut context = Context::default();
    context.set("repo", Some(repo));
    context.set("action", text(body, "/action"));
    context.set("sender", text(body, "/sender/login"));
    match event {
        "push" => context.push(body),
        "create" | "delete" => context.set("branch", text(body, "/ref")),
        "issues" => context.item(&body["issue"]),
        "issue_comment" => {
            context.item(&body["issue"]);
            context.comment(&body["comment"]);
        }
        "pull_request" | "pull_request_target" => context.pull_request(body),
        "pull_request_review" => {
            context.pull_request(body);
            context.comment(&body["review"]);
            context.set("conclusion", text(body, "/review/state"));
        }
        "pull_request_review_comment" => {
            context.pull_request(body);
            context.comment(&body["comment"]);
        }
        "discussion" => context.item(&body["discussion"]),
        "discussion_comment" => {
            context.item(&body["discussion"]);
            context.comment(&body["comment"]);
        }
        "commit_comment" => context.comment(&body["comment"]),
        "workflow_run" | "workflow_job" | "check_run" | "check_suite" => context.run(&body[event]),
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
            context.item(release);
            context.set("title", text(release, "/name").or_else(|| text(release, "/tag_name")));
            context.set("branch", text(release, "/target_commitish"));
        }
        // Filters can still look into the body.
        _ => {}
    }
    Normalised::Event(context.0)
}

#[derive(Default)]
struct Context(Map<String, Value>);

impl Context {
    fn set(&mut self, field: &str, value: Option<&str>) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.0.insert(field.to_owned(), excerpt(value).into());
        }
    }

    fn number(&mut self, value: &Value) {
        if value.is_u64() {
            self.0.insert("number".to_owned(), value.clone());
        }
    }

    /// What issues, pull requests, discussions and releases have in common.
    fn item(&mut self, item: &Value) {
        self.number(&item["number"]);
        self.set("title", text(item, "/title"));
        self.set("body", text(item, "/body"));
        self.set("url", text(item, "/html_url"));
        self.set("author", text(item, "/user/login").or_else(|| text(item, "/author/login")));
        self.set("assignee", text(item, "/assignee/login"));
        if let Some(labels) = item["labels"].as_array() {
            let names = labels.iter().filter_map(|label| label["name"].as_str());
            self.0.insert("labels".to_owned(), names.collect());
        }
    }

    fn pull_request(&mut self, body: &Value) {
        let request = &body["pull_request"];
        self.item(request);
        self.set("branch", text(request, "/head/ref"));
    }

    /// A comment's own address leads to both, the comment and what it is about.
    fn comment(&mut self, comment: &Value) {
        self.set("comment", text(comment, "/body"));
        self.set("url", text(comment, "/html_url"));
    }

    fn push(&mut self, body: &Value) {
        let branch = text(body, "/ref");
        self.set("branch", branch.map(|name| name.strip_prefix("refs/heads/").unwrap_or(name)));
        let message = text(body, "/head_commit/message");
        self.set("title", message.and_then(|message| message.lines().next()));
        self.set("body", message);
        self.set("author", text(body, "/head_commit/author/username").or_else(|| text(body, "/pusher/name")));
        self.set("url", text(body, "/compare"));
    }

    /// Runs of workflows and checks.
    fn run(&mut self, run: &Value) {
        self.number(&run["run_number"]);
        self.set("title", text(run, "/name"));
        self.set("url", text(run, "/html_url").or_else(|| text(run, "/url")));
        self.set("author", text(run, "/actor/login"));
        self.set("conclusion", text(run, "/conclusion"));
        self.set("branch", text(run, "/head_branch").or_else(|| text(run, "/check_suite/head_branch")));
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer)?.as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn context(event: &str, mut body: Value) -> Value {
        body["repository"] = json!({"full_name": "acme/api"});
        body["sender"] = json!({"login": "ada"});
        match normalise(event, &body) {
            Normalised::Event(context) => Value::Object(context),
            Normalised::Ignored(reason) => panic!("ignored: {reason}"),
        }
    }

    #[test]
    fn a_push_names_its_branch() {
        let body = json!({"ref": "refs/heads/feature/x", "compare": "https://example.com/c",
            "head_commit": {"message": "Mend it\n\nwith care", "author": {"username": "bob"}}});
        assert_eq!(
            context("push", body),
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
            context("pull_request", body),
            json!({"repo": "acme/api", "action": "opened", "sender": "ada", "number": 7, "title": "T",
                "url": "u", "author": "bob", "labels": ["bug", "p1"], "branch": "fix"})
        );
    }

    #[test]
    fn comments_and_runs_carry_what_filters_ask_for() {
        let comment = context(
            "issue_comment",
            json!({"action": "created", "issue": {"number": 3, "html_url": "i"}, "comment": {"body": "hi", "html_url": "c"}}),
        );
        assert_eq!(
            (&comment["comment"], &comment["url"], &comment["number"]),
            (&json!("hi"), &json!("c"), &json!(3))
        );
        let run = context(
            "workflow_run",
            json!({"action": "completed", "workflow_run": {"name": "ci", "head_branch": "main", "conclusion": "failure", "run_number": 12}}),
        );
        assert_eq!(
            (&run["branch"], &run["conclusion"], &run["number"]),
            (&json!("main"), &json!("failure"), &json!(12))
        );
        let release = context(
            "release",
            json!({"release": {"tag_name": "v1", "name": null, "author": {"login": "bob"}}}),
        );
        assert_eq!((&release["title"], &release["author"]), (&json!("v1"), &json!("bob")));
    }

    #[test]
    fn pings_and_events_without_a_repository_are_ignored() {
        assert_eq!(normalise("ping", &json!({})), Normalised::Ignored("ping"));
        assert!(matches!(normalise("organization", &json!({"action": "x"})), Normalised::Ignored(_)));
    }

    #[test]
    fn long_texts_are_cut() {
        let long = "é".repeat(5000);
        let issue = context("issues", json!({"issue": {"body": long}}));
        let body = issue["body"].as_str().unwrap();
        assert_eq!(body.chars().count(), 4001);
        assert!(body.ends_with('…'));
    }
}
