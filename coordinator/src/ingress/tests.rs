//! The door as senders meet it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, request};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http_body_util::BodyExt;
use secrecy::SecretString;
use serde_json::{Value, json};
use sha2::Sha256;
use skein_shared::forge::Act;
use skein_shared::id::Name;
use skein_shared::pool::Survey;
use skein_shared::time::Timestamp;
use skein_shared::triggers::{Incoming, Rejected};
use skein_shared::{Code, Refusal};
use tower::ServiceExt;
use uuid::Uuid;

use super::*;
use crate::config::{self, Provider};
use crate::slack::Workspaces;

mod slack;
mod turns;

#[derive(Default)]
struct Ledger {
    seen: Mutex<Vec<(Name, Incoming)>>,
    rejected: Mutex<Vec<Rejected>>,
    /// While somebody has it nothing is written down.
    stalled: tokio::sync::Mutex<()>,
    down: bool,
}

#[async_trait]
impl Intake for Ledger {
    fn now(&self) -> Timestamp {
        Timestamp(1_790_000_000_000)
    }

    fn wall(&self) -> Timestamp {
        Timestamp(1_790_000_000_000)
    }

    async fn deliver(&self, swarm: &Name, incoming: Incoming) -> Result<Taken, Refusal> {
        let _going = self.stalled.lock().await;
        if self.down {
            return Err(Refusal::new(Code::Unavailable, "the store is away").retry_after(1500));
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, first)) =
            seen.iter().find(|(_, first)| !first.delivery.is_empty() && first.delivery == incoming.delivery)
        {
            return Ok(Taken { receipt: first.receipt, duplicate: true, matched: 0 });
        }
        let receipt = incoming.receipt;
        seen.push((swarm.clone(), incoming));
        Ok(Taken { receipt, duplicate: false, matched: 1 })
    }

    async fn survey(&self, _: &Name) -> Result<Survey, Refusal> {
        Ok(Survey { members: Vec::new(), claimable: 1, open: 2 })
    }

    async fn reject(&self, _: &Name, rejected: Rejected) -> Result<(), Refusal> {
        self.rejected.lock().unwrap_or_else(PoisonError::into_inner).push(rejected);
        Ok(())
    }
}

/// A source of the swarm `build`; without a secret it takes what anybody sends.
fn source(name: &str, provider: Provider, secret: Option<&str>) -> config::Source {
    config::Source {
        name: Name::parse(name).unwrap(),
        provider,
        swarm: Name::parse("build").unwrap(),
        secret: secret.map(SecretString::from),
        secret_file: None,
        inbox_domains: Vec::new(),
        sender_domains: Vec::new(),
        bot: None,
        account: None,
        allowed_users: Vec::new(),
        allow_unsigned: secret.is_none(),
    }
}

fn door(ledger: &Arc<Ledger>) -> Router {
    let limits = config::Limits { webhook_bytes: 1000, webhooks_in_flight: 1, ..config::Limits::default() };
    let sources = [
        source("hub", Provider::Github, Some("hush")),
        source("ci", Provider::Generic, Some("hush")),
        source("hub-2", Provider::Github, Some("other")),
        source("open", Provider::Sentry, None),
        source("linear", Provider::Linear, Some("hush")),
        source("linear-2", Provider::Linear, Some("other")),
        source("bird", Provider::Twitter, Some("hush")),
        // Named after another kind, on purpose.
        source("gitlab", Provider::Generic, Some("hush")),
    ];
    router(Gate::new(&sources, &limits, Arc::clone(ledger) as Arc<dyn Intake>))
}

fn digest(secret: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sign(body: &str) -> String {
    format!("sha256={}", digest("hush", body))
}

fn hub(body: &str) -> request::Builder {
    Request::post("/webhooks/hub")
        .header("x-hub-signature-256", sign(body))
        .header("x-github-delivery", "d-1")
        .header("x-github-event", "issues")
}

async fn send(door: &Router, request: Request<Body>) -> (u16, Value) {
    let response = door.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

const ISSUE: &str = r#"{"action":"opened","issue":{"number":4},"repository":{"full_name":"acme/api"}}"#;

#[tokio::test]
async fn a_signed_event_is_written_down_once() {
    let ledger = Arc::new(Ledger::default());
    let door = door(&ledger);
    let (status, answer) = send(&door, hub(ISSUE).body(ISSUE.into()).unwrap()).await;
    assert_eq!((status, &answer["duplicate"]), (200, &json!(false)), "{answer}");
    let (status, again) = send(&door, hub(ISSUE).body(ISSUE.into()).unwrap()).await;
    assert_eq!((status, &again["duplicate"]), (200, &json!(true)));
    assert_eq!(again["receipt"], answer["receipt"]);

    let seen = ledger.seen.lock().unwrap();
    let [(swarm, incoming)] = seen.as_slice() else { panic!("one event") };
    assert_eq!(swarm.as_str(), "build");
    assert_eq!((incoming.source.as_str(), incoming.provider.as_str()), ("hub", "github"));
    assert_eq!(incoming.context, json!({"repo": "acme/api", "action": "opened", "number": 4}));
    assert_eq!(incoming.payload["issue"]["number"], 4);
}

/// X sends again what was answered with anything but 200, and names no deliveries.
#[tokio::test]
async fn a_repeat_without_an_id_is_told_by_what_was_signed() {
    let ledger = Arc::new(Ledger::default());
    let door = door(&ledger);
    let tweet = async |id: &str| {
        let body = json!({"for_user_id": "42", "tweet_create_events": [{"id_str": id, "text": "hi"}]});
        let body = body.to_string();
        let mut mac = Hmac::<Sha256>::new_from_slice(b"hush").unwrap();
        mac.update(body.as_bytes());
        let signature = format!("sha256={}", STANDARD.encode(mac.finalize().into_bytes()));
        let request = Request::post("/webhooks/bird").header("x-twitter-webhooks-signature", signature);
        let (status, answer) = send(&door, request.body(Body::from(body)).unwrap()).await;
        (status, answer["duplicate"].clone())
    };
    assert_eq!(tweet("9").await, (200, json!(false)));
    assert_eq!(tweet("9").await, (200, json!(true)));
    assert_eq!(tweet("10").await, (200, json!(false)));
    assert_eq!(ledger.seen.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn what_is_not_signed_is_not_believed() {
    let ledger = Arc::new(Ledger::default());
    let door = door(&ledger);
    let tampered = ISSUE.replace("opened", "closed");
    let unsigned = Request::post("/webhooks/hub")
        .header("x-github-delivery", "d-1")
        .header("x-github-event", "issues")
        .body(ISSUE.into());
    for request in [hub(ISSUE).body(tampered.into()), hub("other").body(ISSUE.into()), unsigned] {
        let (status, answer) = send(&door, request.unwrap()).await;
        assert_eq!((status, &answer["code"]), (401, &json!("unauthenticated")));
    }
    // A forger has not used up the delivery's id.
    let (status, _) = send(&door, hub(ISSUE).body(ISSUE.into()).unwrap()).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn malformed_requests_are_told_what_is_wrong() {
    let ledger = Arc::new(Ledger::default());
    let door = door(&ledger);
    let large = format!("\"{}\"", "x".repeat(2000));
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let nameless = Request::post("/webhooks/hub")
        .header("x-hub-signature-256", sign(ISSUE))
        .header("x-github-event", "issues");
    let elsewhere = Request::post("/webhooks/other").header("x-hub-signature-256", sign(ISSUE));
    for (request, status, code) in [
        (hub(&large).body(large.clone().into()), 413, "too_large"),
        (hub("{oops").body("{oops".into()), 400, "invalid_argument"),
        (hub(&deep).body(deep.clone().into()), 400, "invalid_argument"),
        (nameless.body(ISSUE.into()), 400, "invalid_argument"),
        (elsewhere.body(ISSUE.into()), 404, "not_found"),
        (Request::get("/").body(Body::empty()), 404, "not_found"),
    ] {
        let (got, answer) = send(&door, request.unwrap()).await;
        assert_eq!((got, answer["code"].as_str()), (status, Some(code)), "{answer}");
        assert!(answer["message"].as_str().is_some_and(|message| !message.contains("hush")));
    }
    assert!(ledger.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn other_senders_use_the_plain_headers() {
    let ledger = Arc::new(Ledger::default());
    let body = r#"{"title":"down"}"#;
    let request = Request::post("/webhooks/ci")
        .header("x-signature-256", sign(body))
        .header("x-delivery-id", "7")
        .header("x-event", "alert")
        .body(body.into());
    assert_eq!(send(&door(&ledger), request.unwrap()).await.0, 200);
    assert_eq!(ledger.seen.lock().unwrap()[0].1.context, json!({"title": "down"}));
}

#[tokio::test]
async fn a_ping_is_answered_and_forgotten() {
    let ledger = Arc::new(Ledger::default());
    let ping = Request::post("/webhooks/hub")
        .header("x-hub-signature-256", sign("{}"))
        .header("x-github-delivery", "d-0")
        .header("x-github-event", "ping")
        .body("{}".into());
    let (status, answer) = send(&door(&ledger), ping.unwrap()).await;
    assert_eq!((status, &answer["ignored"]), (200, &json!("ping")));
    assert!(ledger.seen.lock().unwrap().is_empty());
}

/// It does not sign that, and has its token of former days in it.
#[tokio::test]
async fn slack_may_look_at_the_certificate_and_nothing_is_kept_of_it() {
    let ledger = Arc::new(Ledger::default());
    let (sources, limits) = ([source("talk", Provider::Slack, Some("hush"))], config::Limits::default());
    let door = router(Gate::new(&sources, &limits, Arc::clone(&ledger) as Arc<dyn Intake>));
    let post = |body: &'static str| {
        let request = Request::post("/webhooks/talk");
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        request.body(Body::from(body)).unwrap()
    };
    let (status, answer) = send(&door, post("ssl_check=1&token=old")).await;
    assert_eq!((status, answer["ok"].as_bool()), (200, Some(true)), "{answer}");
    assert_eq!(send(&door, post("command=%2Fdeploy&token=old")).await.0, 401);
    assert!(ledger.seen.lock().unwrap().is_empty() && ledger.rejected.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_cannot_be_written_down_is_not_accepted() {
    let ledger = Arc::new(Ledger { down: true, ..Ledger::default() });
    let response = door(&ledger).oneshot(hub(ISSUE).body(Body::from(ISSUE)).unwrap()).await.unwrap();
    assert_eq!(response.status().as_u16(), 503);
    assert_eq!(response.headers()["retry-after"], "2");
}

#[tokio::test]
async fn the_url_of_a_kind_finds_the_source_by_its_secret() {
    let ledger = Arc::new(Ledger::default());
    let door = door(&ledger);
    let hub = |path: &str, secret: &str, delivery: &str| {
        Request::post(format!("/webhooks/{path}"))
            .header("x-hub-signature-256", format!("sha256={}", digest(secret, ISSUE)))
            .header("x-github-delivery", delivery)
            .header("x-github-event", "issues")
            .body(Body::from(ISSUE))
            .unwrap()
    };
    let linear = |path: &str, secret: &str, at: &str| {
        let body = json!({"type": "Issue", "organizationId": "o", "createdAt": at}).to_string();
        Request::post(format!("/webhooks/{path}"))
            .header("linear-signature", digest(secret, &body))
            .body(Body::from(body))
            .unwrap()
    };
    for (request, status, source) in [
        (hub("github", "hush", "d-1"), 200, "hub"),
        (hub("github", "other", "d-2"), 200, "hub-2"),
        (hub("github", "third", "d-3"), 401, ""),
        (hub("hub", "other", "d-4"), 401, ""),
        (linear("linear", "hush", "d-5"), 200, "linear"),
        // A source with the name of its kind leaves the others reachable.
        (linear("linear", "other", "d-6"), 200, "linear-2"),
        (linear("linear-2", "hush", "d-7"), 401, ""),
        (hub("slack", "hush", "d-8"), 404, ""),
        (hub("gitlab", "hush", "d-9"), 401, ""),
    ] {
        let path = request.uri().to_string();
        let (got, answer) = send(&door, request).await;
        assert_eq!(got, status, "{path}: {answer}");
        if status == 200 {
            assert_eq!(ledger.seen.lock().unwrap().last().unwrap().1.source, source, "{path}");
        }
    }
}

#[tokio::test]
async fn a_source_that_takes_what_is_not_signed_takes_it() {
    let ledger = Arc::new(Ledger::default());
    let door = door(&ledger);
    let sentry = |path: &str| {
        Request::post(format!("/webhooks/{path}"))
            .header("sentry-hook-resource", "issue")
            .body(Body::from("{}"))
            .unwrap()
    };
    for path in ["open", "sentry"] {
        assert_eq!(send(&door, sentry(path)).await.0, 200, "{path}");
        let mut of_a_page = sentry(path);
        of_a_page.headers_mut().insert("origin", "https://evil.example".parse().unwrap());
        let (status, refused) = send(&door, of_a_page).await;
        assert!(status == 403 && refused.to_string().contains("by a web page"), "{path}: {status} {refused}");
    }
    let seen = ledger.seen.lock().unwrap();
    assert!(seen.iter().all(|(_, incoming)| incoming.source == "open" && incoming.unsigned));
    assert_eq!(seen.len(), 2);
}

/// A sender that is known has sent something unreadable: somebody will want to see it. What strangers send fills
/// nothing.
#[tokio::test]
async fn only_what_is_signed_and_unreadable_is_written_down() {
    let ledger = Arc::new(Ledger::default());
    let door = door(&ledger);
    let long = format!("{{\"x\":\"{}", "y".repeat(900));
    for body in ["{oops", "\u{0}", &long] {
        assert_eq!(send(&door, hub(body).body(body.to_owned().into()).unwrap()).await.0, 400);
    }
    let forged = hub("other").body(Body::from("{oops")).unwrap();
    assert_eq!(send(&door, forged).await.0, 401);
    let open =
        Request::post("/webhooks/open").header("sentry-hook-resource", "issue").body(Body::from("{oops"));
    assert_eq!(send(&door, open.unwrap()).await.0, 400);
    let rejected = ledger.rejected.lock().unwrap();
    let bodies: Vec<&str> = rejected.iter().map(|rejected| rejected.body.as_str()).collect();
    assert_eq!(bodies, ["{oops", "\u{0}", &long]);
    assert!(rejected[0].problem.contains("not JSON") && rejected[0].source == "hub");
}

#[tokio::test]
async fn a_challenge_by_get_is_answered_by_those_who_have_one() {
    let ledger = Arc::new(Ledger::default());
    let door = door(&ledger);
    let long = format!("/webhooks/twitter?crc_token={}", "x".repeat(2000));
    for (path, status) in [
        ("/webhooks/twitter?crc_token=t", 200),
        ("/webhooks/bird?crc_token=t", 200),
        ("/api/twitter/webhook?crc_token=t", 200),
        ("/webhooks/bird", 400),
        ("/webhooks/bird?crc_token=", 400),
        (long.as_str(), 400),
        // What is signed here would be believed as a body.
        ("/webhooks/twitter?crc_token=%7B%22tweet_create_events%22%3A%5B%5D%7D", 400),
        ("/webhooks/twitter?crc_token=payload=%257B%257D", 400),
        ("/webhooks/twitter?crc_token=aZ09%2B%2F=-_.", 200),
        ("/webhooks/hub?crc_token=t", 404),
        ("/webhooks/open?crc_token=t", 404),
        ("/webhooks/nobody?crc_token=t", 404),
    ] {
        let (got, answer) = send(&door, Request::get(path).body(Body::empty()).unwrap()).await;
        assert_eq!(got, status, "{path}: {answer}");
        assert_eq!(answer["response_token"].is_string(), status == 200, "{path}: {answer}");
    }
}

#[tokio::test]
async fn a_node_takes_in_as_many_at_once_as_its_settings_say_however_many() {
    let ledger = Arc::new(Ledger::default());
    let limits = config::Limits { webhooks_in_flight: usize::MAX, ..config::Limits::default() };
    let door = router(Gate::new(&[], &limits, Arc::clone(&ledger) as Arc<dyn Intake>));
    assert_eq!(send(&door, Request::post("/webhooks/gone").body(Body::empty()).unwrap()).await.0, 404);
}

#[tokio::test]
async fn the_bot_of_a_source_is_asked_by_those_who_may_and_hears_the_news_of_all() {
    let ledger = Arc::new(Ledger::default());
    let source = config::Source {
        bot: Some("skein".to_owned()),
        allowed_users: vec!["Ada".to_owned()],
        ..source("hub", Provider::Github, Some("hush"))
    };
    let limits = config::Limits::default();
    let door = router(Gate::new(&[source], &limits, Arc::clone(&ledger) as Arc<dyn Intake>));
    let request = json!({ "number": 7, "title": "Mend it, @skein" });
    // Agent Swarm's senders know another address.
    for (path, by, action, heard) in [
        ("/webhooks/hub", "ada", "opened", Some("github-pr")),
        ("/api/github/webhook", "ada", "opened", Some("github-pr")),
        ("/webhooks/hub", "eve", "opened", None),
        ("/webhooks/hub", "eve", "closed", Some("github-pr-status")),
        ("/webhooks/hub", "ada", "labeled", None),
    ] {
        let body = json!({ "action": action, "sender": { "login": by }, "pull_request": request,
            "repository": { "full_name": "acme/api" } });
        let body = body.to_string();
        let request = Request::post(path)
            .header("x-hub-signature-256", sign(&body))
            .header("x-github-delivery", Uuid::now_v7().to_string())
            .header("x-github-event", "pull_request");
        let (status, answer) = send(&door, request.body(Body::from(body)).unwrap()).await;
        assert_eq!(status, 200, "{answer}");
        let seen = ledger.seen.lock().unwrap();
        let activity = seen.last().unwrap().1.activity.as_ref().map(|activity| match &activity.act {
            Act::Ask { task_type, .. } | Act::News { task_type } => task_type.as_str(),
            Act::Withdraw => "withdrawn",
        });
        assert_eq!(activity, heard, "{path} {by} {action}");
    }
}

#[tokio::test]
async fn who_may_not_speak_is_not_heard_by_an_edit_either() {
    let ledger = Arc::new(Ledger::default());
    let workspace = json!({ "swarm": "build", "bot_token": "xoxb", "allowed_users": ["U1"] });
    let settings = config::Slack { workspace: vec![serde_json::from_value(workspace).unwrap()] };
    let limits = config::Limits::default();
    let sources = [source("slack", Provider::Slack, Some("hush"))];
    let gate = Gate::new(&sources, &limits, Arc::clone(&ledger) as Arc<dyn Intake>);
    let door = router(gate.hearing(Workspaces::new(&settings).unwrap()));
    for (id, event, heard) in [
        ("1", json!({ "type": "message", "user": "U1", "text": "hi" }), true),
        ("2", json!({ "type": "message", "user": "U2", "text": "hi" }), false),
        ("3", json!({ "type": "message", "subtype": "message_changed", "message": { "user": "U1" } }), true),
        ("4", json!({ "type": "message", "subtype": "message_changed", "message": { "user": "U2" } }), false),
        (
            "5",
            json!({ "type": "message", "subtype": "message_deleted", "previous_message": { "user": "U2" } }),
            false,
        ),
        ("6", json!({ "type": "message", "subtype": "bot_message", "bot_id": "B1", "text": "hi" }), false),
        ("7", json!({ "type": "file_shared", "user_id": "U2" }), false),
        ("8", json!({ "type": "channel_archive", "channel": "C1" }), true),
    ] {
        let body = json!({ "type": "event_callback", "event_id": id, "event": event }).to_string();
        let request = Request::post("/webhooks/slack")
            .header("x-slack-request-timestamp", "1790000000")
            .header("x-slack-signature", format!("v0={}", digest("hush", &format!("v0:1790000000:{body}"))));
        let (status, answer) = send(&door, request.body(Body::from(body)).unwrap()).await;
        assert_eq!((status, answer["ignored"].is_null()), (200, heard), "{id}: {answer}");
    }
    assert_eq!(ledger.seen.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_letter_is_taken_in_for_its_domains_and_no_others() {
    let ledger = Arc::new(Ledger::default());
    let domains = |domain: &str| vec![domain.to_owned()];
    let source = config::Source {
        inbox_domains: domains("agentmail.to"),
        sender_domains: domains("example.org"),
        ..source("mail", Provider::Agentmail, Some("whsec_aHVzaA=="))
    };
    let limits = config::Limits::default();
    let door = router(Gate::new(&[source], &limits, Arc::clone(&ledger) as Arc<dyn Intake>));
    let write = async |id: &str, kind: &str, to: &str, from: &str| {
        let body = json!({ "event_type": kind, "event_id": id, "message": {
            "inbox_id": to, "thread_id": "t1", "message_id": id, "from_": from, "text": "hello",
        }});
        let body = body.to_string();
        let mut mac = Hmac::<Sha256>::new_from_slice(b"hush").unwrap();
        mac.update(format!("{id}.1790000000.{body}").as_bytes());
        let signature = STANDARD.encode(mac.finalize().into_bytes());
        let request = Request::post("/webhooks/mail")
            .header("svix-id", id)
            .header("svix-timestamp", "1790000000")
            .header("svix-signature", format!("v1,AAAA v1,{signature}"));
        send(&door, request.body(body.into()).unwrap()).await
    };
    let (received, dev, ada) = ("message.received", "dev@agentmail.to", "Ada <ada@example.org>");
    assert_eq!(write("e1", received, dev, ada).await, (200, json!({ "received": true })));
    for (to, from) in [(dev, "x@evil.net"), ("dev@other.to", ada)] {
        let (status, answer) = write("e2", received, to, from).await;
        assert!(status == 200 && answer["ignored"].is_string(), "{answer}");
    }
    assert_eq!(write("e3", "message.sent", dev, ada).await.0, 200);
    let seen = ledger.seen.lock().unwrap();
    let [(_, letter), (_, sent)] = seen.as_slice() else { panic!("two events") };
    assert_eq!(letter.letter.as_ref().unwrap().ids.thread.as_deref(), Some("t1"));
    assert_eq!((sent.event.as_str(), &sent.letter), ("message.sent", &None));
}
