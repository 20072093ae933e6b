//! Every provider against requests as its vendor sends them.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use proptest::prelude::*;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::json;
use sha2::Sha256;
use skein_shared::time::Timestamp;

use super::*;

mod filters;
mod signatures;

const NOW: u64 = 1_790_000_000;
const SECRET: &str = "hush";

struct Sent {
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    at: u64,
}

impl Sent {
    fn new(headers: &[(&'static str, &str)], body: impl Into<Vec<u8>>) -> Self {
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Self { headers, body: body.into(), at: NOW }
    }

    fn ask<R>(&self, ask: impl FnOnce(&Delivery<'_>) -> R) -> R {
        let pairs = self.headers.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        });
        let headers: HeaderMap = pairs.collect();
        ask(&Delivery { headers: &headers, body: &self.body, at: Timestamp(self.at * 1000) })
    }

    fn is_good(&self, provider: Provider, secret: &str) -> bool {
        self.ask(|delivery| sender(provider).verify(delivery, secret.as_bytes())).is_ok()
    }

    fn read(&self, provider: Provider) -> Result<Reading, Refusal> {
        self.ask(|delivery| sender(provider).read(delivery))
    }

    /// Event, id and context.
    fn event(&self, provider: Provider) -> (String, String, Value) {
        match self.read(provider) {
            Ok(Reading::Event(notice)) => (notice.event, notice.delivery, notice.context.into_value()),
            Ok(Reading::Ignored(reason)) => panic!("ignored: {reason}"),
            Ok(Reading::Challenge(answer)) => panic!("a challenge: {answer}"),
            Err(refusal) => panic!("refused: {refusal}"),
        }
    }
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn discord_key() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()
}

/// What a source of the provider has as its secret in these tests.
fn secret(provider: Provider) -> String {
    match provider {
        Provider::Agentmail => format!("whsec_{}", STANDARD.encode(SECRET)),
        Provider::Discord => hex(discord_key().public_key().as_ref()),
        _ => SECRET.to_owned(),
    }
}

/// The headers by which a provider signs the body now.
fn signed(provider: Provider, body: &[u8]) -> Vec<(&'static str, String)> {
    let now = NOW.to_string();
    let digest = hex(&mac(SECRET.as_bytes(), &[body]));
    match provider {
        Provider::Agentmail => {
            let digest = mac(SECRET.as_bytes(), &[b"msg_1.", now.as_bytes(), b".", body]);
            let signature = format!("v1,{}", STANDARD.encode(digest));
            vec![("svix-signature", signature), ("svix-id", "msg_1".to_owned()), ("svix-timestamp", now)]
        }
        Provider::Github => vec![("x-hub-signature-256", format!("sha256={digest}"))],
        Provider::Generic => vec![("x-signature-256", format!("sha256={digest}"))],
        Provider::Gitlab => vec![("x-gitlab-token", SECRET.to_owned())],
        Provider::Linear => vec![("linear-signature", digest)],
        Provider::Mintlify => vec![("x-mintlify-signature", digest)],
        Provider::Sentry => vec![("sentry-hook-signature", digest)],
        Provider::Slack => {
            let digest = hex(&mac(SECRET.as_bytes(), &[b"v0:", now.as_bytes(), b":", body]));
            vec![("x-slack-signature", format!("v0={digest}")), ("x-slack-request-timestamp", now)]
        }
        Provider::Discord => {
            let signature = discord_key().sign(&[now.as_bytes(), body].concat());
            vec![("x-signature-ed25519", hex(signature.as_ref())), ("x-signature-timestamp", now)]
        }
        Provider::Twitter => {
            let digest = STANDARD.encode(mac(SECRET.as_bytes(), &[body]));
            vec![("x-twitter-webhooks-signature", format!("sha256={digest}"))]
        }
        Provider::Test => Vec::new(),
    }
}

#[test]
fn challenges_are_answered() {
    for (provider, body, answer) in [
        (Provider::Slack, r#"{"type":"url_verification","challenge":"c"}"#, json!({"challenge": "c"})),
        (Provider::Discord, r#"{"type":1}"#, json!({"type": 1})),
    ] {
        let Ok(Reading::Challenge(given)) = Sent::new(&[], body).read(provider) else {
            panic!("{provider:?}")
        };
        assert_eq!(given, answer);
    }
}

#[test]
fn events_are_told_in_shared_words() {
    let sentry = ("sentry-hook-resource", "issue");
    for (provider, headers, body, event, id, context) in [
        (
            Provider::Agentmail,
            vec![("svix-id", "msg_1")],
            json!({"event_type": "message.received", "event_id": "e1", "message": {"inbox_id": "dev@agentmail.to",
                "thread_id": "t1", "message_id": "m1", "from_": ["Ada <Ada@Example.org>"], "subject": "T", "text": "B"}}),
            "message.received",
            "e1",
            json!({"repo": "dev@agentmail.to", "thread": "t1", "title": "T", "body": "B", "author": "ada@example.org",
                "sender": "ada@example.org"}),
        ),
        (
            Provider::Agentmail,
            vec![("svix-id", "msg_1")],
            json!({"event_type": "message.bounced", "message": {"inbox_id": "dev@agentmail.to"}}),
            "message.bounced",
            "msg_1",
            json!({"repo": "dev@agentmail.to"}),
        ),
        (
            Provider::Gitlab,
            vec![("idempotency-key", "k"), ("x-gitlab-event-uuid", "u")],
            json!({"object_kind": "merge_request", "user": {"id": 1, "username": "ada"},
                "project": {"path_with_namespace": "acme/api"}, "labels": [{"title": "bug"}],
                "assignees": [{"username": "bob"}],
                "object_attributes": {"iid": 7, "title": "T", "description": "D", "action": "open",
                    "source_branch": "fix", "url": "u", "author_id": 1}}),
            "merge_request",
            "k",
            json!({"repo": "acme/api", "sender": "ada", "action": "open", "number": 7, "title": "T", "body": "D",
                "url": "u", "branch": "fix", "author": "ada", "assignee": "bob", "labels": ["bug"]}),
        ),
        (
            Provider::Gitlab,
            vec![("x-gitlab-event-uuid", "u")],
            json!({"object_kind": "push", "ref": "refs/heads/main", "user_username": "ada",
                "project": {"path_with_namespace": "acme/api"},
                "commits": [{"title": "a"}, {"title": "b", "message": "b\n", "url": "c"}]}),
            "push",
            "u",
            json!({"repo": "acme/api", "sender": "ada", "branch": "main", "author": "ada", "title": "b",
                "body": "b\n", "url": "c"}),
        ),
        (
            Provider::Linear,
            vec![("linear-delivery", "l")],
            json!({"type": "Issue", "action": "create", "organizationId": "o", "url": "u",
                "actor": {"name": "Ada"}, "data": {"number": 4, "title": "T", "description": "D",
                    "labels": [{"name": "bug"}], "assignee": {"email": "b@example.com"}}}),
            "issues",
            "iadNUl1fhdyBwLp6afleVR6a6nqniiKseD9jaJO4WHQ",
            json!({"repo": "o", "action": "create", "sender": "Ada", "url": "u", "number": 4, "title": "T",
                "body": "D", "assignee": "b@example.com", "labels": ["bug"], "author": "Ada"}),
        ),
        (
            Provider::Linear,
            vec![],
            json!({"type": "Comment", "action": "create", "organizationId": "o",
                "data": {"body": "hi", "user": {"email": "a@example.com"}, "issue": {"title": "T"}}}),
            "issue_comment",
            "jArFXUh86StgGjDgJeb9Bz7NB0OUSuLjDOnK0NGSpEQ",
            json!({"repo": "o", "action": "create", "title": "T", "comment": "hi", "author": "a@example.com"}),
        ),
        (
            Provider::Sentry,
            vec![sentry, ("request-id", "r")],
            json!({"action": "created", "actor": {"name": "Sentry"}, "data": {"issue": {"title": "T",
                "culprit": "c", "web_url": "u", "project": {"slug": "api"}, "assignedTo": null}}}),
            "issue",
            "r",
            json!({"action": "created", "sender": "Sentry", "repo": "api", "title": "T", "body": "c", "url": "u"}),
        ),
        (
            Provider::Mintlify,
            vec![],
            json!({"project": "docs", "status": "failed", "error": "no"}),
            "build",
            "",
            json!({"repo": "docs", "action": "failed", "conclusion": "failure", "branch": "main", "body": "no"}),
        ),
        (
            Provider::Twitter,
            vec![],
            json!({"for_user_id": "42", "tweet_create_events": [{"id_str": "9", "text": "hi",
                "user": {"screen_name": "ada"}}]}),
            "tweet_create_events",
            "wKb1cWzpAj-Q8gytu1i6MMtphXweMKA0BNAvWyabXM8",
            json!({"repo": "42", "action": "tweet_create", "body": "hi", "author": "ada", "sender": "ada",
                "url": "https://x.com/ada/status/9"}),
        ),
        (
            Provider::Slack,
            vec![("x-slack-retry-num", "1")],
            json!({"type": "event_callback", "event_id": "Ev1", "team_id": "T1", "event": {"type": "message",
                "channel": "C1", "user": "U1", "text": "hi", "ts": "2.0", "thread_ts": "1.0"}}),
            "message",
            "Ev1",
            json!({"repo": "T1", "channel": "C1", "author": "U1", "sender": "U1", "body": "hi", "thread": "1.0",
                "comment": "channel:C1"}),
        ),
        (
            Provider::Slack,
            vec![],
            json!({"type": "event_callback", "event_id": "Ev2", "team_id": "T1", "event": {"type": "reaction_added",
                "user": "U1", "reaction": "eyes", "item": {"channel": "C1", "ts": "1.0"}}}),
            "reaction_added",
            "Ev2",
            json!({"repo": "T1", "channel": "C1", "author": "U1", "sender": "U1", "title": "eyes", "thread": "1.0"}),
        ),
        (
            Provider::Slack,
            vec![],
            json!({"type": "event_callback", "event_id": "Ev3", "team_id": "T1", "event": {"type": "message",
                "subtype": "message_changed", "channel": "C1", "ts": "2.0", "message": {"user": "U2", "text": "new"},
                "previous_message": {"user": "U2", "text": "old"}}}),
            "message",
            "Ev3",
            json!({"repo": "T1", "channel": "C1", "author": "U2", "sender": "U2", "action": "message_changed",
                "thread": "2.0", "comment": "channel:C1"}),
        ),
        (
            Provider::Slack,
            vec![],
            json!({"type": "event_callback", "event_id": "Ev4", "team_id": "T1", "event": {"type": "message",
                "subtype": "message_deleted", "channel": "C1", "ts": "3.0", "previous_message": {"user": "U2"}}}),
            "message",
            "Ev4",
            json!({"repo": "T1", "channel": "C1", "author": "U2", "sender": "U2", "action": "message_deleted",
                "thread": "3.0", "comment": "channel:C1"}),
        ),
        (
            Provider::Slack,
            vec![],
            json!({"type": "event_callback", "event_id": "Ev5", "team_id": "T1", "event": {"type": "file_shared",
                "user_id": "U2", "file_id": "F1"}}),
            "file_shared",
            "Ev5",
            json!({"repo": "T1", "author": "U2", "sender": "U2"}),
        ),
        (
            Provider::Slack,
            vec![],
            json!({"type": "block_actions", "trigger_id": "t", "team": {"id": "T1"}, "user": {"id": "U1"},
                "channel": {"id": "C1"}, "actions": [{"action_id": "go", "value": "v"}], "token": "old"}),
            "block_actions",
            "t",
            json!({"repo": "T1", "channel": "C1", "author": "U1", "sender": "U1", "action": "go", "title": "go",
                "body": "v", "comment": "channel:C1"}),
        ),
        (
            Provider::Discord,
            vec![],
            json!({"type": 2, "id": "1", "guild_id": "g", "channel_id": "c", "data": {"name": "deploy"},
                "member": {"user": {"username": "ada"}}}),
            "application_command",
            "1",
            json!({"repo": "g", "branch": "c", "channel": "c", "action": "deploy", "title": "deploy",
                "author": "ada", "sender": "ada"}),
        ),
        (
            Provider::Test,
            vec![("x-delivery-id", "7")],
            json!({"event": "pull_request", "action": "opened", "repo": "acme/api"}),
            "pull_request",
            "7",
            json!({"action": "opened", "repo": "acme/api"}),
        ),
        (
            Provider::Generic,
            vec![("x-delivery-id", "7"), ("x-event", "alert")],
            json!({"title": "down"}),
            "alert",
            "7",
            json!({"title": "down"}),
        ),
    ] {
        let sent = Sent::new(&headers, body.to_string());
        assert_eq!(sent.event(provider), (event.to_owned(), id.to_owned(), context), "{provider:?} {event}");
    }
}

/// What people see at once is not an object of ours, and Slack's old token is kept nowhere.
#[test]
fn people_are_not_shown_our_receipts() {
    let form = ("content-type", "application/x-www-form-urlencoded");
    for (provider, sent, answer) in [
        (Provider::Slack, Sent::new(&[form], "command=%2Fgo&token=old"), Answer::Nothing),
        (
            Provider::Slack,
            Sent::new(&[form], "payload=%7B%22type%22%3A%22shortcut%22%2C%22token%22%3A%22old%22%7D"),
            Answer::Nothing,
        ),
        (
            Provider::Slack,
            Sent::new(&[], r#"{"type":"event_callback","token":"old","event":{"type":"message"}}"#),
            Answer::Receipt,
        ),
        (Provider::Discord, Sent::new(&[], r#"{"type":2}"#), Answer::Body(json!({"type": THINKING}))),
    ] {
        let Ok(Reading::Event(notice)) = sent.read(provider) else { panic!("{provider:?}") };
        assert_eq!(notice.answer, answer);
        assert!(notice.payload.get("token").is_none());
    }
}

/// Deferred: Discord shows that an answer will come.
const THINKING: u8 = 5;

#[test]
fn genuine_requests_that_concern_nobody_are_ignored() {
    let github = [("x-github-delivery", "d"), ("x-github-event", "ping")];
    let other = [("x-github-delivery", "d"), ("x-github-event", "organization")];
    for (provider, sent) in [
        (Provider::Github, Sent::new(&github, "{}")),
        (Provider::Github, Sent::new(&other, r#"{"action":"x"}"#)),
        (Provider::Linear, Sent::new(&[], r#"{"type":"Issue"}"#)),
        (Provider::Twitter, Sent::new(&[], r#"{"for_user_id":"1"}"#)),
        (Provider::Slack, Sent::new(&[], r#"{"type":"app_rate_limited"}"#)),
    ] {
        assert!(matches!(sent.read(provider), Ok(Reading::Ignored(_))), "{provider:?}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let names =
        ["type", "event", "object_kind", "data", "issue", "labels", "repository", "full_name", "channel"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        proptest::sample::select(vec!["event_callback", "Issue", "push", "acme/api"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        let field = proptest::sample::select(names.to_vec());
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec((field, inner), 0..6).prop_map(|fields| Value::Object(
                fields.into_iter().map(|(n, v)| (n.to_owned(), v)).collect()
            )),
        ]
    })
}

proptest! {
    /// Whatever the bytes, a provider answers, and what it takes is an object of bounded texts.
    #[test]
    fn no_body_crashes_a_provider(
        body in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            any_json().prop_map(|value| value.to_string().into_bytes()),
            any_json().prop_map(|value| {
                let pairs = [("payload", value.to_string())];
                url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish().into_bytes()
            }),
        ],
        kind in proptest::sample::select(vec![
            "", "application/json", "application/x-www-form-urlencoded", "text/plain",
        ]),
        event in proptest::sample::select(vec!["push", "issues", "check_run", "status", "issue", "comment", ""]),
    ) {
        let names = ["content-type", "x-github-event", "x-github-delivery", "x-delivery-id", "x-event",
            "sentry-hook-resource"];
        let headers = names.map(|name| (name, if name == "content-type" { kind } else { event }));
        let sent = Sent::new(&headers, body);
        for provider in Provider::ALL {
            sent.ask(|delivery| sender(provider).verify(delivery, b"whsec_AAAA").ok());
            if let Ok(Reading::Event(notice)) = sent.read(provider) {
                prop_assert!(notice.context.into_value().is_object());
            }
        }
    }
}
