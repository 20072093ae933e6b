//! What the keys of a subscription find in requests as their senders send them (spec: Action Llama 8.3).

use serde_json::{Value, json};
use skein_shared::id::Name;
use skein_shared::triggers::subscription;

use super::Sent;
use crate::config::Provider;
use crate::ingress::simulate;

/// A request whose headers say nothing of its event.
fn plain(body: &Value) -> Sent {
    Sent::new(&[], body.to_string())
}

/// Whether a subscription with this key alone is for the event that the request makes.
fn picks(provider: Provider, sent: &Sent, key: &str, wanted: &str) -> bool {
    let mut fields = json!({"source": provider.as_str()});
    fields[key] = json!([wanted]);
    let filter = subscription(fields.as_object().unwrap()).unwrap();
    let door = Name::parse("door").unwrap();
    let event = sent.ask(|delivery| simulate(provider, &door, delivery.headers, delivery.body, delivery.at));
    filter.matches(&event.unwrap())
}

#[test]
fn each_key_picks_the_events_that_have_its_value() {
    let issue = json!({"type": "Issue", "action": "update", "organizationId": "org-1",
        "actor": {"name": "Ada", "email": "ada@example.com"},
        "data": {"number": 4, "title": "T", "labels": [{"name": "bug"}, {"name": "ui"}],
            "assignee": {"name": "Bob", "email": "bob@example.com"}}});
    let comment = json!({"type": "Comment", "action": "create", "organizationId": "org-1",
        "actor": {"name": "Linear"}, "data": {"body": "hi", "user": {"email": "eve@example.com"},
            "issue": {"title": "T", "assignee": {"name": "Bob"}}}});
    let project = json!({"type": "Project", "action": "remove", "organizationId": "org-2", "data": {}});
    let broken = json!({"project": "docs", "status": "failed", "branch": "next", "error": "no"});
    let preview =
        json!({"organization": "acme", "event": "preview", "action": "created", "status": "success"});
    let tweet = json!({"for_user_id": "42", "tweet_create_events": [{"id_str": "9", "text": "hi"}]});
    // Of each key a value that the event has, and one that it does not have.
    for (provider, sent, keys) in [
        (
            Provider::Linear,
            plain(&issue),
            vec![
                ("organizations", "org-1", "org-2"),
                ("events", "issues", "Issue"),
                ("actions", "update", "create"),
                ("labels", "ui", "docs"),
                ("author", "ada@example.com", "bob@example.com"),
                ("assignee", "bob@example.com", "ada@example.com"),
            ],
        ),
        (
            Provider::Linear,
            plain(&comment),
            vec![
                ("events", "issue_comment", "issues"),
                ("author", "eve@example.com", "Linear"),
                ("assignee", "Bob", "eve@example.com"),
            ],
        ),
        (
            Provider::Linear,
            plain(&project),
            vec![("organizations", "org-2", "org-1"), ("events", "project", "issues")],
        ),
        (
            Provider::Mintlify,
            plain(&broken),
            vec![
                ("projects", "docs", "site"),
                ("repos", "docs", "site"),
                ("events", "build", "preview"),
                ("actions", "failed", "succeeded"),
                ("branches", "next", "main"),
            ],
        ),
        (
            Provider::Mintlify,
            plain(&preview),
            vec![
                ("projects", "acme", "docs"),
                ("events", "preview", "build"),
                ("actions", "created", "success"),
                // What names no branch is of this one.
                ("branches", "main", "next"),
            ],
        ),
        (
            Provider::Twitter,
            plain(&tweet),
            vec![
                ("users", "42", "9"),
                ("repos", "42", "9"),
                ("events", "tweet_create_events", "favorite_events"),
            ],
        ),
    ] {
        for (key, has, lacks) in keys {
            assert!(picks(provider, &sent, key, has), "{provider:?}: {key} = {has}");
            assert!(!picks(provider, &sent, key, lacks), "{provider:?}: {key} = {lacks}");
        }
    }
}

#[test]
fn each_resource_of_sentry_is_picked_alone() {
    let resources = ["event_alert", "metric_alert", "issue", "error", "comment"];
    for resource in resources {
        let sent = Sent::new(&[("sentry-hook-resource", resource)], r#"{"action":"created","data":{}}"#);
        for wanted in resources {
            let picked = picks(Provider::Sentry, &sent, "resources", wanted);
            assert_eq!(picked, resource == wanted, "{resource}: resources = {wanted}");
        }
    }
}

#[test]
fn who_names_actions_or_labels_gets_no_event_without_any() {
    let issue = plain(&json!({"type": "Issue", "organizationId": "org-1", "data": {"title": "T"}}));
    let build = plain(&json!({"project": "docs"}));
    for (provider, sent, key, wanted) in [
        (Provider::Linear, &issue, "actions", "create"),
        (Provider::Linear, &issue, "labels", "bug"),
        (Provider::Linear, &issue, "assignee", "bob@example.com"),
        (Provider::Mintlify, &build, "actions", "failed"),
    ] {
        assert!(!picks(provider, sent, key, wanted), "{provider:?}: {key} = {wanted}");
    }
}
