//! Each route with each of its statuses, over HTTP, with entities on a store in memory behind them.

mod bounds;
mod control;
mod hook;

use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use http_body_util::BodyExt;
use skein_shared::agent::{self, Agent};
use skein_shared::fleet::{self, Fleet};
use skein_shared::id::{EntityKey, InstanceId, Kind, Name};
use skein_shared::lockspace::{self, Lockspace, Settings};
use tower::ServiceExt;
use uuid::Uuid;

use super::*;
use crate::auth::Role;
use crate::auth::issuer::Issuers;
use crate::auth::token::{Claims, Keys};
use crate::entity::tests::{Node, node};
use crate::entity::{Clock, Request as Asking};
use crate::mcp::quota::Limits;
use crate::mcp::tools::catalogue;
use crate::store::memory::Fault;

const KEY: &str = "github://acme/app/issues/1";
const OTHER: &str = "github://acme/app/issues/2";

struct Bed {
    router: Router,
    keys: Keys,
    clock: Clock,
    node: Node,
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

impl Bed {
    fn new() -> Self {
        Self::with(Gate::default())
    }

    fn with(gate: Gate) -> Self {
        Self::trusting(Issuers::default(), gate)
    }

    fn trusting(issuers: Issuers, gate: Gate) -> Self {
        let (node, keys) = (node(), Keys::ephemeral().unwrap());
        let service = Service::new(node.entities.clone());
        let clock = service.clock().clone();
        let access = Access::new(keys.clone(), node.entities.clone()).trusting(issuers);
        let router = router(service, access, Arc::new(catalogue().unwrap()), gate).merge(health());
        Self { router, keys, clock, node }
    }

    fn claims(&self, of: &str, role: Role) -> Claims {
        Claims {
            swarm: name("default"),
            agent: Uuid::new_v5(&Uuid::nil(), of.as_bytes()),
            agent_name: name(of),
            role,
            view: None,
            instance: None,
            lifetime: Duration::from_secs(900),
        }
    }

    fn token(&self, of: &str, role: Role, instance: Option<InstanceId>) -> String {
        let claims = Claims { instance, ..self.claims(of, role) };
        self.keys.issue(claims, self.clock.wall()).unwrap().text().to_owned()
    }

    fn worker(&self, name: &str) -> String {
        self.token(name, Role::Worker, None)
    }

    async fn tell(&self, of: &str, command: agent::Command) -> agent::Reply {
        let key = EntityKey::agent(&name("default"), &name(of));
        self.node.entities.ask::<Agent>(&key, Asking::once(Uuid::now_v7()), command).await.unwrap()
    }

    /// An agent that a runner would have, whose runs wait in its queue.
    async fn define(&self, of: &str) {
        let (definition, group) = (agent::Definition::default(), name("default"));
        self.tell(of, agent::Command::Define { definition, group }).await;
    }

    /// A run of an agent with its token.
    async fn run(&self, of: &str) -> (InstanceId, String) {
        self.define(of).await;
        let command = agent::Command::Enqueue {
            class: agent::Class::Manual,
            source: "test".to_owned(),
            receipt: None,
            input: json!({}),
        };
        let agent::Reply::Queued { instance } = self.tell(of, command).await else { panic!("no run") };
        let token = self.token(of, Role::Worker, Some(instance.clone()));
        (instance, token)
    }

    async fn send(&self, request: Request<Body>) -> (u16, Value) {
        let response: Response<_> = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn post(&self, path: &str, token: &str, body: Value) -> (u16, Value) {
        let request = Request::post(path).header("authorization", format!("Bearer {token}"));
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }

    async fn get(&self, path: &str, token: &str) -> (u16, Value) {
        let request = Request::get(path).header("authorization", format!("Bearer {token}"));
        self.send(request.body(Body::empty()).unwrap()).await
    }

    /// What the caller of an agent reads that has given this back.
    async fn given_back(&self, value: &str) -> (u16, Value) {
        let (_, caller) = self.run("caller").await;
        self.define("callee").await;
        let call = json!({ "targetAgent": "callee", "context": "" });
        let (_, called) = self.post("/calls", &caller, call).await;
        let found = self.tell("callee", agent::Command::List).await;
        let agent::Reply::Overview(overview) = found else { panic!("no overview") };
        let callee = self.token("callee", Role::Worker, Some(overview.instances[0].id.clone()));
        let (status, told) = self.post("/signals/return", &callee, json!({ "value": value })).await;
        assert_eq!((status, &told["ok"]), (200, &json!(true)), "{told}");
        self.post("/signals/exit", &callee, json!({ "code": 0 })).await;
        self.get(&format!("/calls/{}?wait=5", called["callId"].as_str().unwrap()), &caller).await
    }

    async fn several_locks_each(&self) {
        self.lock_by(Settings { locks_per_holder: 2, ..Settings::default() }).await;
    }

    async fn lock_by(&self, settings: Settings) {
        let key = EntityKey::of(Kind::Lockspace, &name("default"));
        let command = lockspace::Command::Configure { settings };
        self.node.entities.ask::<Lockspace>(&key, Asking::once(Uuid::now_v7()), command).await.unwrap();
    }
}

/// The route, and a body that it would take.
fn routes() -> Vec<(&'static str, Value)> {
    vec![
        ("/locks/acquire", json!({ "resourceKey": KEY })),
        ("/locks/release", json!({ "resourceKey": KEY })),
        ("/locks/heartbeat", json!({ "resourceKey": KEY })),
        ("/calls", json!({ "targetAgent": "callee", "context": "" })),
        ("/signals/rerun", json!({})),
        ("/signals/status", json!({ "text": "at work" })),
        ("/signals/trigger", json!({ "targetAgent": "callee", "context": "go" })),
        ("/signals/return", json!({ "value": 1 })),
        ("/signals/exit", json!({ "code": 3 })),
        ("/shutdown", json!({})),
        ("/hook", json!({ "event": "PostToolUse" })),
    ]
}

#[tokio::test]
async fn every_route_tells_who_asks_before_anything_else() {
    let bed = Bed::new();
    let (_, ended) = bed.run("ended").await;
    assert_eq!(bed.post("/shutdown", &ended, json!({})).await.0, 200);
    let (runner, observer) = (bed.token("r", Role::Runner, None), bed.token("o", Role::Observer, None));
    for (path, body) in routes() {
        let plain = |body: String| Request::post(path).body(Body::from(body)).unwrap();
        let (status, answer) = bed.send(plain(body.to_string())).await;
        assert!(
            status == 400 && answer["error"].as_str().unwrap().starts_with("missing secret"),
            "{path}: {answer}"
        );
        for bad in ["{", "[]", "\"text\""] {
            let (status, answer) = bed.send(plain(bad.to_owned())).await;
            assert!(
                status == 400 && answer["error"].as_str().unwrap().starts_with("invalid JSON"),
                "{answer}"
            );
        }
        for wrong in ["nonsense", &ended, &runner, &observer] {
            let (status, answer) = bed.post(path, wrong, body.clone()).await;
            assert!(status == 403 && answer["error"].is_string(), "{path}: {status} {answer}");
            assert!(!answer.to_string().contains(&wrong[..8]) || wrong == "nonsense", "it told the token");
        }
        let mut secret = body.clone();
        secret["secret"] = json!("nonsense");
        assert_eq!(bed.send(plain(secret.to_string())).await.0, 403, "{path}");
    }
    for path in ["/locks/list", "/calls/0190d3a0-0000-7000-8000-000000000000"] {
        let worker = bed.worker("worker");
        let in_the_address = Request::get(format!("{path}?secret={worker}")).body(Body::empty()).unwrap();
        assert_eq!(bed.send(in_the_address).await.0, 400, "a secret in the address was taken");
        assert_eq!(bed.get(path, "nonsense").await.0, 403);
    }
    let health = Request::get("/health").body(Body::empty()).unwrap();
    assert_eq!(bed.send(health).await, (200, json!({ "status": "ok" })));
}

#[tokio::test]
async fn a_secret_in_the_body_does_as_well_as_one_in_the_header() {
    let bed = Bed::new();
    let body = json!({ "secret": bed.worker("worker"), "resourceKey": KEY });
    let request = Request::post("/locks/acquire").body(Body::from(body.to_string())).unwrap();
    let (status, answer) = bed.send(request).await;
    assert!(status == 200 && answer["ok"] == true && answer["resourceKey"] == KEY, "{answer}");
    let (_, locks) = bed.get("/locks/list", &bed.worker("worker")).await;
    assert_eq!(locks, json!([]), "a token of its own is another instance");
}

#[tokio::test]
async fn what_a_route_needs_is_named() {
    let bed = Bed::new();
    let (_, token) = bed.run("worker").await;
    for (path, body, named) in [
        ("/locks/acquire", json!({}), "missing resourceKey"),
        ("/locks/acquire", json!({ "resourceKey": "" }), "missing resourceKey"),
        ("/locks/acquire", json!({ "resourceKey": 7 }), "resourceKey must be a text"),
        ("/locks/acquire", json!({ "resourceKey": KEY, "ttl": 0 }), "ttl_seconds"),
        ("/locks/acquire", json!({ "resourceKey": KEY, "ttl": "long" }), "ttl_seconds"),
        ("/locks/release", json!({}), "missing resourceKey"),
        ("/locks/heartbeat", json!({}), "missing resourceKey"),
        ("/locks/heartbeat", json!({ "resourceKey": KEY, "ttl": -1 }), "ttl_seconds"),
        ("/calls", json!({ "context": "x" }), "missing targetAgent"),
        ("/calls", json!({ "targetAgent": "callee" }), "missing context"),
        ("/signals/status", json!({}), "missing text"),
        ("/signals/status", json!({ "text": "" }), "missing text"),
        ("/signals/trigger", json!({ "targetAgent": "callee", "context": "" }), "missing context"),
        ("/signals/trigger", json!({ "context": "x" }), "missing targetAgent"),
        ("/signals/return", json!({}), "missing value"),
        ("/signals/return", json!({ "value": null }), "missing value"),
        ("/hook", json!({}), "missing event"),
        ("/signals/exit", json!({ "code": 256 }), "0 to 255"),
        ("/signals/exit", json!({ "code": "no" }), "0 to 255"),
    ] {
        let (status, answer) = bed.post(path, &token, body.clone()).await;
        let told = answer["error"].as_str().unwrap_or_default();
        assert!(status == 400 && told.contains(named), "{path} {body}: {status} {answer}");
    }
    for path in ["/locks/acquire", "/locks/release", "/locks/heartbeat"] {
        let (status, answer) = bed.post(path, &token, json!({ "resourceKey": "no uri" })).await;
        assert!(status == 400 && answer["ok"] == false && answer["reason"].is_string(), "{path}: {answer}");
    }
    let (status, answer) = bed.get("/calls/x?wait=long", &token).await;
    assert!(status == 400 && answer["error"].as_str().unwrap().contains("wait"), "{answer}");
}

#[tokio::test]
async fn locks_answer_as_the_original_does() {
    let bed = Bed::new();
    let ((first, one), (_, two)) = (bed.run("one").await, bed.run("two").await);
    let key = json!({ "resourceKey": KEY });
    let before = bed.clock.now().millis();
    let (status, taken) = bed.post("/locks/acquire", &one, json!({ "resourceKey": KEY, "ttl": 60 })).await;
    assert_eq!((status, &taken["ok"], &taken["resourceKey"]), (200, &json!(true), &json!(KEY)));
    assert!(taken["fencingToken"].is_string(), "{taken}");
    let (expires, after) = (taken["expiresAt"].as_u64().unwrap(), bed.clock.now().millis());
    assert!((before + 60_000..=after + 60_000).contains(&expires), "{taken}");

    let (status, held) = bed.post("/locks/acquire", &two, key.clone()).await;
    assert_eq!((status, &held["ok"], &held["holder"]), (409, &json!(false), &json!(first)));
    let since = held["heldSince"].as_u64().unwrap();
    assert!((before..=after).contains(&since), "{held}");
    let (status, full) = bed.post("/locks/acquire", &one, json!({ "resourceKey": OTHER })).await;
    assert!(status == 409 && full["reason"].as_str().unwrap().starts_with("already holding"), "{full}");

    let (status, kept) = bed.post("/locks/heartbeat", &one, json!({ "resourceKey": KEY, "ttl": 600 })).await;
    assert!(status == 200 && kept["ok"] == true, "{kept}");
    assert!(kept["expiresAt"].as_u64().unwrap() > expires + 500_000, "{kept}");
    let (_, locks) = bed.get("/locks/list", &one).await;
    let listed = json!({
        "resourceKey": KEY, "holder": first, "heldSince": since, "expiresAt": kept["expiresAt"],
        "fencingToken": taken["fencingToken"],
    });
    assert_eq!(locks, json!([listed]));
    assert_eq!(bed.get("/locks/list", &two).await.1, json!([]));

    for path in ["/locks/release", "/locks/heartbeat"] {
        let (status, foreign) = bed.post(path, &two, key.clone()).await;
        assert_eq!((status, &foreign["reason"]), (409, &json!(format!("held by {first}"))), "{path}");
        let (status, none) = bed.post(path, &two, json!({ "resourceKey": OTHER })).await;
        assert_eq!(
            (status, &none["ok"], &none["reason"]),
            (404, &json!(false), &json!("lock not found")),
            "{path}"
        );
    }
    assert_eq!(bed.post("/locks/release", &one, key.clone()).await, (200, json!({ "ok": true })));
    let (status, next) = bed.post("/locks/acquire", &two, key).await;
    assert!(status == 200 && next["fencingToken"].as_str() > taken["fencingToken"].as_str(), "{next}");
}

#[tokio::test]
async fn a_lock_lasts_as_long_as_the_swarm_allows() {
    const DAY: u64 = 86_400;
    let bed = Bed::new();
    let (_, one) = bed.run("one").await;
    let asked = json!({ "resourceKey": KEY, "ttl": 2 * DAY });
    let (status, longer) = bed.post("/locks/acquire", &one, asked.clone()).await;
    assert!(
        status == 400 && longer["reason"].as_str().unwrap().contains("at most 86400 seconds"),
        "{longer}"
    );
    bed.lock_by(Settings { max_ttl_ms: 2 * DAY * 1000, ..Settings::default() }).await;
    let before = bed.clock.now().millis();
    let (status, taken) = bed.post("/locks/acquire", &one, asked).await;
    assert_eq!(status, 200, "{taken}");
    assert!(taken["expiresAt"].as_u64().unwrap() >= before + 2 * DAY * 1000, "{taken}");
}

#[tokio::test]
async fn a_deadlock_is_told_with_its_cycle() {
    let bed = Bed::new();
    bed.several_locks_each().await;
    let ((first, one), (second, two)) = (bed.run("one").await, bed.run("two").await);
    for (token, key) in [(&one, KEY), (&two, OTHER)] {
        assert_eq!(bed.post("/locks/acquire", token, json!({ "resourceKey": key })).await.0, 200);
    }
    assert_eq!(bed.post("/locks/acquire", &one, json!({ "resourceKey": OTHER })).await.0, 409);
    let (status, dead) = bed.post("/locks/acquire", &two, json!({ "resourceKey": KEY })).await;
    assert_eq!((status, &dead["ok"], &dead["deadlock"]), (409, &json!(false), &json!(true)), "{dead}");
    assert_eq!(dead["cycle"], json!([second, KEY, first, OTHER]), "{dead}");
}

#[tokio::test]
async fn a_call_goes_from_its_caller_to_its_answer() {
    let bed = Bed::new();
    let (_, caller) = bed.run("caller").await;
    bed.define("callee").await;
    let (status, called) =
        bed.post("/calls", &caller, json!({ "targetAgent": "callee", "context": "" })).await;
    assert_eq!((status, &called["ok"]), (200, &json!(true)));
    let path = format!("/calls/{}", called["callId"].as_str().unwrap());
    assert_eq!(bed.get(&path, &caller).await, (200, json!({ "status": "pending" })));
    let (status, foreign) = bed.get(&path, &bed.worker("stranger")).await;
    assert_eq!((status, &foreign["ok"], &foreign["reason"]), (404, &json!(false), &json!("call not found")));
    for unknown in ["nonsense", "0190d3a0-0000-7000-8000-000000000000"] {
        assert_eq!(bed.get(&format!("/calls/{unknown}"), &caller).await.0, 404);
    }

    let agent::Reply::Overview(overview) = bed.tell("callee", agent::Command::List).await else { panic!() };
    let callee = bed.token("callee", Role::Worker, Some(overview.instances[0].id.clone()));
    let waiting = format!("{path}?wait=5");
    let asked = bed.get(&waiting, &caller);
    let served = async {
        bed.post("/signals/return", &callee, json!({ "value": { "sum": 3 } })).await;
        bed.post("/signals/exit", &callee, json!({ "code": 0 })).await
    };
    let (over, served) = tokio::join!(asked, served);
    assert_eq!(served, (200, json!({ "ok": true })));
    assert_eq!(over, (200, json!({ "status": "completed", "returnValue": "{\"sum\":3}" })));

    let (_, called) =
        bed.post("/calls", &caller, json!({ "targetAgent": "callee", "context": "again" })).await;
    let agent::Reply::Overview(overview) = bed.tell("callee", agent::Command::List).await else { panic!() };
    let callee = bed.token("callee", Role::Worker, Some(overview.instances[0].id.clone()));
    assert_eq!(bed.post("/signals/exit", &callee, json!({})).await.0, 200);
    let (_, over) = bed.get(&format!("/calls/{}?wait=5", called["callId"].as_str().unwrap()), &caller).await;
    assert_eq!(over["status"], "error", "{over}");
    assert!(over["errorMessage"].as_str().unwrap().contains("status 15"), "{over}");
}

#[tokio::test]
async fn a_long_value_comes_back_whole() {
    let value = "é\n".repeat(250_000);
    let (status, over) = Bed::new().given_back(&value).await;
    assert_eq!((status, &over["status"]), (200, &json!("completed")));
    assert!(over["returnValue"] == value, "{} bytes", over["returnValue"].as_str().unwrap_or_default().len());
}

#[tokio::test]
async fn a_long_value_is_one_read_however_many_parts_it_has() {
    let bed = Bed::with(Gate::new(Limits { reads_per_second: 1, ..Limits::default() }));
    let value = "é\n".repeat(700_000);
    let (status, over) = bed.given_back(&value).await;
    assert_eq!((status, &over["status"]), (200, &json!("completed")), "{:?}", over.get("error"));
    assert!(over["returnValue"] == value, "{} bytes", over["returnValue"].as_str().unwrap_or_default().len());
}

#[tokio::test]
async fn a_call_that_is_refused_says_why() {
    let bed = Bed::new();
    let (_, caller) = bed.run("caller").await;
    bed.define("idle").await;
    bed.tell("idle", agent::Command::SetEnabled { enabled: false }).await;
    for (target, code) in
        [("caller", "self_call"), ("nobody", "not_found"), ("idle", "disabled"), ("No!", "invalid_argument")]
    {
        for path in ["/calls", "/signals/trigger"] {
            let (status, answer) =
                bed.post(path, &caller, json!({ "targetAgent": target, "context": "x" })).await;
            assert_eq!(
                (status, &answer["ok"], &answer["code"]),
                (409, &json!(false), &json!(code)),
                "{target}"
            );
            assert!(answer["reason"].is_string(), "{answer}");
        }
    }
}

#[tokio::test]
async fn signals_are_what_the_tools_are() {
    let bed = Bed::new();
    let (instance, token) = bed.run("worker").await;
    let ok = (200, json!({ "ok": true }));
    assert_eq!(bed.post("/signals/status", &token, json!({ "text": "half way" })).await, ok);
    assert_eq!(bed.post("/signals/return", &token, json!({ "value": "done" })).await, ok);
    assert_eq!(bed.post("/signals/rerun", &token, json!({})).await, ok);
    let agent::Reply::Overview(overview) = bed.tell("worker", agent::Command::List).await else { panic!() };
    let run = overview.instances.iter().find(|run| run.id == instance).unwrap();
    assert_eq!((run.returned.as_ref().map(agent::Returned::shown), run.again), (Some("done"), true));
    let key = EntityKey::agent(&name("default"), &name("worker"));
    let shown = bed.node.entities.body(&key, &format!("instance/{instance}")).await.unwrap().unwrap();
    assert_eq!(shown["statusText"], "half way", "{shown}");
    bed.define("callee").await;
    assert_eq!(
        bed.post("/signals/trigger", &token, json!({ "targetAgent": "callee", "context": "go" })).await,
        ok
    );
    let agent::Reply::Overview(called) = bed.tell("callee", agent::Command::List).await else { panic!() };
    assert_eq!(called.queue.len(), 1);

    let hand = bed.worker("by-hand");
    let (status, refused) = bed.post("/signals/rerun", &hand, json!({})).await;
    assert_eq!((status, &refused["ok"], &refused["code"]), (409, &json!(false), &json!("wrong_state")));
    let body = json!({ "reason": "lost", "details": "the disk is gone" });
    let killed = bed.post("/shutdown", &token, body).await;
    assert_eq!(killed, (200, json!({ "killed": true, "container": instance })));
    assert_eq!(bed.post("/signals/status", &token, json!({ "text": "x" })).await.0, 403, "it has ended");
}

#[tokio::test]
async fn a_request_that_comes_again_with_its_key_is_the_same_request() {
    let bed = Bed::new();
    let (_, caller) = bed.run("caller").await;
    bed.define("callee").await;
    let send = async |context: &str| {
        let body = json!({ "targetAgent": "callee", "context": context });
        let request = Request::post("/calls")
            .header("authorization", format!("Bearer {caller}"))
            .header("idempotency-key", "k1");
        bed.send(request.body(Body::from(body.to_string())).unwrap()).await
    };
    let first = send("x").await;
    assert_eq!((first.0, send("x").await), (200, first.clone()));
    let (status, other) = send("y").await;
    assert_eq!((status, &other["code"]), (409, &json!("idempotency_key_reused")), "{other}");
}

#[tokio::test]
async fn a_service_that_fails_says_so_and_nothing_counts_as_done() {
    let bed = Bed::with(Gate::new(Limits { writes_per_second: 1, ..Limits::default() }));
    let token = bed.worker("worker");
    bed.node.store.contents().faults().push(Fault::Refused);
    let (status, answer) = bed.post("/locks/acquire", &token, json!({ "resourceKey": KEY })).await;
    assert!(status == 503 && answer["error"].is_string() && answer.get("ok").is_none(), "{status} {answer}");
    let mut last = (0, Value::Null);
    for _ in 0..3 {
        last = bed.post("/locks/acquire", &token, json!({ "resourceKey": KEY })).await;
    }
    assert!(last.0 == 429 && last.1["error"].is_string(), "{last:?}");
}
