//! Tokens as programs fetch, narrow and give them back, over HTTP, with entities on a store in memory behind it.

use std::time::Duration;

use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use skein_shared::access::{self, Of, Revocation};
use skein_shared::id::{EntityKey, InstanceId, Kind, Name};
use skein_shared::time::Timestamp;
use skein_shared::{agent, pool};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use uuid::Uuid;

use super::*;
use crate::auth::credential::STEPS;
use crate::auth::token::{Claims, Keys, OWN, Origin};
use crate::auth::{Principal, Rights, Role};
use crate::entity::tests::{Node, node};
use crate::entity::timers;
use crate::service::access::{Narrower, NewClient};

struct Bed {
    router: Router,
    access: Access,
    keys: Keys,
    node: Node,
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

impl Bed {
    fn new() -> Self {
        let (node, keys) = (node(), Keys::ephemeral().unwrap());
        let access = Access::new(keys.clone(), node.entities.clone());
        Self { router: router(access.clone(), None), access, keys, node }
    }

    fn claims(&self, of: &str, role: Role) -> Claims {
        Claims {
            swarm: name("default"),
            agent: Uuid::new_v5(&Uuid::nil(), of.as_bytes()),
            agent_name: name(of),
            role,
            view: None,
            instance: None,
            lifetime: Duration::from_secs(600),
        }
    }

    fn token(&self, of: &str, role: Role, origin: Origin) -> String {
        let now = self.node.entities.clock().wall();
        self.keys.issue_as(self.claims(of, role), origin, now).unwrap().text().to_owned()
    }

    async fn operator(&self) -> Principal {
        let token = self.token("operator", Role::Operator, Origin::default());
        self.access.identify(&token).await.unwrap()
    }

    async fn client(&self, called: &str, role: Role, rights: Rights) -> String {
        let client = NewClient {
            name: name(called),
            agent: None,
            agent_name: name(called),
            role,
            rights,
            view: None,
            lifetime: Duration::from_secs(900),
        };
        self.access.add_client(&self.operator().await, client).await.unwrap().1
    }

    async fn post(
        &self,
        path: &str,
        form: &[(&str, &str)],
        basic: Option<(&str, &str)>,
    ) -> (StatusCode, Value) {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let mut request = Request::post(path)
            .header("host", "skein.test")
            .header("content-type", "application/x-www-form-urlencoded");
        if let Some((id, secret)) = basic {
            use base64::Engine;
            let pair = base64::engine::general_purpose::STANDARD.encode(format!("{id}:{secret}"));
            request = request.header("authorization", format!("Basic {pair}"));
        }
        let response = self.router.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
        let status = response.status();
        assert!(status.is_success() || status.is_client_error(), "{path}: {status}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    async fn exchange(&self, token: &str, more: &[(&str, &str)]) -> (StatusCode, Value) {
        let mut form = vec![
            ("grant_type", grant::EXCHANGE),
            ("subject_token_type", "urn:ietf:params:oauth:token-type:access_token"),
            ("subject_token", token),
        ];
        form.extend(more);
        self.post(TOKEN, &form, None).await
    }

    async fn give_back(&self, token: &str) {
        assert_eq!(self.post(REVOKE, &[("token", token)], None).await.0, StatusCode::OK);
    }

    /// What the owner of the swarm has kept.
    async fn revoked(&self) -> Vec<Revocation> {
        let key = EntityKey::of(Kind::Access, &name("default"));
        let (asking, asked) =
            (crate::entity::Request::read(), access::Command::Revoked { after: Timestamp::ZERO });
        match self.node.entities.ask::<access::Access>(&key, asking, asked).await.unwrap() {
            access::Reply::Revoked(revoked) => revoked,
            other => panic!("{other:?}"),
        }
    }

    /// Lets time pass for entities, whose timers fire meanwhile. The wall clock stands.
    async fn pass(&self, span: Duration) {
        let stop = CancellationToken::new();
        let pump = tokio::spawn(timers::pump(self.node.entities.clone(), stop.clone()));
        tokio::time::pause();
        tokio::time::sleep(span).await;
        tokio::time::resume();
        stop.cancel();
        pump.await.unwrap();
    }

    /// What the token lets its holder do, if it holds.
    async fn holder(&self, token: &Value) -> Option<Principal> {
        self.access.identify(token["access_token"].as_str().unwrap()).await.ok()
    }
}

#[tokio::test]
async fn a_client_fetches_tokens_that_end_with_it() {
    let bed = Bed::new();
    let secret = bed.client("ci", Role::Worker, Rights::ALL).await;
    let form = [("grant_type", "client_credentials"), ("resource", "http://skein.test/mcp")];
    let (status, first) = bed.post(TOKEN, &form, Some(("default%2Fci", &secret))).await;
    assert_eq!((status, &first["expires_in"]), (StatusCode::OK, &json!(900)), "{first}");
    assert_eq!((&first["token_type"], &first["scope"]), (&json!("Bearer"), &json!("swarm:read swarm:work")));
    let posted = [form[0], ("client_id", "ci"), ("client_secret", &secret), ("scope", "swarm:read")];
    let (_, second) = bed.post(TOKEN, &posted, None).await;
    let (one, other) = (bed.holder(&first).await.unwrap(), bed.holder(&second).await.unwrap());
    assert_eq!(
        (one.agent, &one.instance),
        (other.agent, &other.instance),
        "what it holds outlives its tokens"
    );
    assert_eq!(other.rights.to_string(), "swarm:read");

    // One is given back, and the other holds.
    let given = [("token", first["access_token"].as_str().unwrap())];
    assert_eq!(bed.post(REVOKE, &given, None).await.0, StatusCode::OK);
    assert!(bed.holder(&first).await.is_none() && bed.holder(&second).await.is_some());
    bed.access.remove_client(&bed.operator().await, name("ci")).await.unwrap();
    assert!(bed.holder(&second).await.is_none());
    let (status, no) = bed.post(TOKEN, &form, Some(("ci", &secret))).await;
    assert_eq!((status, &no["error"]), (StatusCode::UNAUTHORIZED, &json!("invalid_client")));
    // Nor does a new client of the name bring them back.
    bed.client("ci", Role::Worker, Rights::ALL).await;
    assert!(bed.holder(&second).await.is_none());
}

#[tokio::test]
async fn bad_requests_for_tokens_are_told_what_is_wrong() {
    let bed = Bed::new();
    let secret = bed.client("ci", Role::Worker, "swarm:read".parse().unwrap()).await;
    let grant = ("grant_type", "client_credentials");
    let who = Some(("ci", secret.as_str()));
    for (form, basic, wanted) in [
        (vec![], who, "invalid_request"),
        (vec![("grant_type", "password")], who, "unsupported_grant_type"),
        (vec![grant], None, "invalid_client"),
        (vec![grant], Some(("ci", "wrong")), "invalid_client"),
        (vec![grant], Some(("nobody", secret.as_str())), "invalid_client"),
        (vec![grant], Some(("nowhere/ci", secret.as_str())), "invalid_client"),
        (vec![grant], Some(("../ci", secret.as_str())), "invalid_client"),
        (vec![grant, ("client_secret", "x")], who, "invalid_request"),
        (vec![grant, ("scope", "swarm:work")], who, "invalid_scope"),
        (vec![grant, ("scope", "openid")], who, "invalid_scope"),
        (vec![grant, grant], who, "invalid_request"),
        (vec![grant, ("resource", "http://evil.example/mcp")], who, "invalid_target"),
        (vec![grant, ("resource", "http://skein.test.evil.example/mcp")], who, "invalid_target"),
        (vec![grant, ("resource", "http://skein.test/mcpx")], who, "invalid_target"),
    ] {
        let (status, no) = bed.post(TOKEN, &form, basic).await;
        assert_eq!(no["error"], wanted, "{form:?} {basic:?}: {no}");
        assert!(no["error_description"].is_string() && !no.to_string().contains(&secret));
        assert_eq!(status == StatusCode::UNAUTHORIZED, wanted == "invalid_client");
    }
    // What does not hold anyway is no fault.
    assert_eq!(bed.post(REVOKE, &[("token", "x.y.z")], None).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_lead_hands_on_less_than_it_has() {
    let bed = Bed::new();
    let lead = bed.token("lead", Role::Lead, Origin::default());
    let (status, worker) = bed.exchange(&lead, &[("agent", "w1"), ("lifetime", "60")]).await;
    assert_eq!(status, StatusCode::OK, "{worker}");
    assert_eq!((&worker["agent"], &worker["expires_in"]), (&json!("lead-w1"), &json!(60)));
    let who = bed.holder(&worker).await.unwrap();
    assert_eq!((who.role, who.rights.and(Rights::of(who.role))), (Role::Worker, Rights::of(Role::Worker)));
    // The same worker again is the same agent and the same instance.
    let (_, again) = bed.exchange(&lead, &[("agent", "w1")]).await;
    let same = bed.holder(&again).await.unwrap();
    assert_eq!((who.agent, &who.instance), (same.agent, &same.instance));
    assert_ne!(who.agent, Uuid::new_v5(&Uuid::nil(), b"lead"));
    assert!(again["expires_in"].as_u64().unwrap() <= 600, "it ends no later than the lead's");

    let reader =
        bed.exchange(&lead, &[("agent", "eye"), ("role", "observer"), ("view", "full/readonly")]).await.1;
    let reader = bed.holder(&reader).await.unwrap();
    assert!(reader.role == Role::Observer && reader.view.unwrap().readonly);
    let text = worker["access_token"].as_str().unwrap();
    let narrowed = bed.token(
        "lead",
        Role::Lead,
        Origin { rights: "swarm:read swarm:lead".parse().unwrap(), ..Origin::default() },
    );
    for (token, more) in [
        (text, vec![("agent", "w2")]),
        (text, vec![("scope", "swarm:lead")]),
        (text, vec![("role", "lead")]),
        (&lead, vec![("agent", "boss"), ("role", "operator")]),
        (&lead, vec![("agent", "box"), ("role", "runner")]),
        (&lead, vec![("role", "operator")]),
        (&lead, vec![("agent", "w2"), ("scope", "swarm:read swarm:lead")]),
        (&narrowed, vec![("agent", "w2")]),
        (&narrowed, vec![("scope", "swarm:work")]),
        (&lead, vec![("lifetime", "0")]),
        (&lead, vec![("agent", "W_2")]),
        (&lead, vec![("actor_token", "x")]),
        ("x.y.z", vec![]),
    ] {
        let (status, no) = bed.exchange(token, &more).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{more:?}: {no}");
    }

    // An agent that a runner has speaks for itself.
    let group = name("default");
    let define = agent::Command::Define { definition: agent::Definition::default(), group };
    let key = EntityKey::agent(&name("default"), &name("lead-dev"));
    let asking = crate::entity::Request::once(Uuid::now_v7());
    bed.node.entities.ask::<agent::Agent>(&key, asking, define).await.unwrap();
    let (_, no) = bed.exchange(&lead, &[("agent", "dev")]).await;
    assert!(no["error_description"].as_str().unwrap().contains("lead-dev"), "{no}");

    // So does one that the swarm or a client knows: the names of leads may have hyphens too.
    let key = EntityKey::of(Kind::Pool, &name("default"));
    let join = json!({ "agent": Uuid::from_u128(7), "name": "lead-a-b" });
    let join = pool::Command::Join(serde_json::from_value(join).unwrap());
    let asking = crate::entity::Request::once(Uuid::now_v7());
    bed.node.entities.ask::<pool::Pool>(&key, asking, join).await.unwrap();
    bed.client("lead-a-c", Role::Worker, Rights::ALL).await;
    for worker in ["a-b", "a-c"] {
        let (_, no) = bed.exchange(&lead, &[("agent", worker)]).await;
        let taken = format!("lead-{worker}");
        assert!(no["error_description"].as_str().unwrap_or_default().contains(&taken), "{no}");
    }

    // What ends the lead's token ends those that came of it.
    assert!(bed.holder(&worker).await.is_some());
    bed.post(REVOKE, &[("token", &lead)], None).await;
    assert!(bed.holder(&worker).await.is_none() && bed.holder(&again).await.is_none());
}

#[tokio::test]
async fn a_token_is_renewed_as_long_as_it_says() {
    let bed = Bed::new();
    let now = bed.node.entities.clock().wall();
    let renewable = Some(now + Duration::from_secs(1000));
    let first = bed.token("worker", Role::Worker, Origin { renewable, ..Origin::default() });
    let (status, later) = bed.exchange(&first, &[]).await;
    assert_eq!(status, StatusCode::OK, "{later}");
    let (_, longest) = bed.exchange(&first, &[("lifetime", "5000")]).await;
    assert!((601..=1000).contains(&longest["expires_in"].as_u64().unwrap()), "{longest}");
    let (one, other) = (bed.access.identify(&first).await.unwrap(), bed.holder(&longest).await.unwrap());
    assert_eq!((one.agent, &one.instance), (other.agent, &other.instance), "it goes on as the same instance");
    let plain = bed.token("worker", Role::Worker, Origin::default());
    let (_, renewed) = bed.exchange(&plain, &[("lifetime", "5000")]).await;
    assert!(renewed["expires_in"].as_u64().unwrap() <= 600, "{renewed}");

    // One of them given back ends them all.
    bed.post(REVOKE, &[("token", later["access_token"].as_str().unwrap())], None).await;
    assert!(bed.access.identify(&first).await.is_err() && bed.holder(&longest).await.is_none());
    assert!(bed.access.identify(&plain).await.is_ok());
}

#[tokio::test]
async fn what_is_revoked_holds_no_more_and_what_comes_after_does() {
    let bed = Bed::new();
    let operator = bed.operator().await;
    let lasting = Duration::from_secs(3600);
    let worker = bed.token("worker", Role::Worker, Origin::default());
    let other = bed.token("other", Role::Worker, Origin::default());
    let who = bed.access.identify(&worker).await.unwrap();
    bed.access.revoke(&operator, Of::Agent(who.agent), lasting).await.unwrap();
    let refusal = bed.access.identify(&worker).await.unwrap_err();
    assert!(refusal.message.contains("revoked") && !refusal.message.contains(&worker[..20]));
    bed.access.identify(&other).await.unwrap();
    // The revocation has a moment of its own: what is issued after it is good.
    tokio::time::sleep(Duration::from_millis(3)).await;
    let fresh = bed.token("worker", Role::Worker, Origin::default());
    bed.access.identify(&fresh).await.unwrap();

    bed.access.revoke(&operator, Of::Everyone, lasting).await.unwrap();
    assert!(bed.access.identify(&fresh).await.is_err() && bed.access.identify(&other).await.is_err());
    bed.operator().await;
    let not_his = bed.access.revoke(&who, Of::Everyone, lasting).await.unwrap_err();
    assert_eq!(not_his.code, Code::Forbidden);
    // Another node reads it from the owner.
    let elsewhere = Access::new(bed.keys.clone(), bed.node.entities.clone());
    assert!(elsewhere.identify(&other).await.is_err());
}

#[tokio::test]
async fn what_was_renewed_before_a_node_had_heard_of_a_revocation_ends_with_it() {
    let bed = Bed::new();
    let now = bed.node.entities.clock().wall();
    let renewable = Some(now + Duration::from_secs(1000));
    let first = bed.token("worker", Role::Worker, Origin { renewable, ..Origin::default() });
    let who = bed.access.identify(&first).await.unwrap();
    // The copy of another node is fresh, and does not know it yet.
    let elsewhere = Access::new(bed.keys.clone(), bed.node.entities.clone());
    elsewhere.identify(&first).await.unwrap();
    bed.access.revoke(&bed.operator().await, Of::Agent(who.agent), Duration::from_secs(3600)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(3)).await;
    let refusal = match elsewhere.exchange(&first, Narrower::default()).await {
        Ok(renewed) => bed.access.identify(renewed.issued.text()).await.unwrap_err(),
        // On a slow machine it has heard meanwhile.
        Err(refusal) => refusal,
    };
    assert!(refusal.message.contains("revoked"), "{refusal:?}");
}

fn text(token: &Value) -> &str {
    token["access_token"].as_str().unwrap()
}

#[tokio::test]
async fn what_is_revoked_stays_so_as_long_as_any_of_its_family_could_hold() {
    let bed = Bed::new();
    let hours = Duration::from_secs(7200);
    let now = bed.node.entities.clock().wall();
    let lasting = |of, role| {
        let claims = Claims { lifetime: hours, ..bed.claims(of, role) };
        bed.keys.issue(claims, now).unwrap().text().to_owned()
    };
    // A short renewal of a renewal, of one that lasts; and a worker's short token beside a longer one.
    let (first, lead) = (lasting("worker", Role::Worker), lasting("lead", Role::Lead));
    let (_, renewed) = bed.exchange(&first, &[("lifetime", "900")]).await;
    let (_, renewed) = bed.exchange(text(&renewed), &[("lifetime", "600")]).await;
    let (_, short) = bed.exchange(&lead, &[("agent", "w1"), ("lifetime", "900")]).await;
    let (_, long) = bed.exchange(&lead, &[("agent", "w1"), ("lifetime", "5000")]).await;
    bed.give_back(text(&renewed)).await;
    bed.give_back(text(&short)).await;
    for passes in [0, 1000] {
        bed.pass(Duration::from_secs(passes)).await;
        // A node that has just begun knows what the owner does.
        let elsewhere = Access::new(bed.keys.clone(), bed.node.entities.clone());
        for ended in [first.as_str(), text(&long)] {
            let refusal = elsewhere.identify(ended).await.unwrap_err();
            assert!(refusal.message.contains("revoked"), "after {passes} s: {refusal:?}");
        }
        elsewhere.identify(&lead).await.unwrap();
    }
    bed.pass(hours).await;
    assert!(bed.revoked().await.is_empty(), "what no token needs any more is forgotten");
}

#[tokio::test]
async fn a_revocation_is_kept_longest_where_no_token_says_when_its_family_ends() {
    let bed = Bed::new();
    let begun = bed.node.entities.clock().wall();
    // A renewed one of before.
    let family = Some(Uuid::now_v7());
    let older = bed.token("worker", Role::Worker, Origin { family, ..Origin::default() });
    let (_, renewed) = bed.exchange(&older, &[("lifetime", "60")]).await;
    bed.give_back(text(&renewed)).await;
    let kept = bed.revoked().await.pop().unwrap();
    assert!(Some(kept.of) == family.map(Of::Token) && kept.until >= begun + OWN, "{kept:?}");

    // A client's tokens overlap: each may hand on to the same worker, and the next is fetched before this one ends.
    let secret = bed.client("boss", Role::Lead, Rights::ALL).await;
    let (_, boss) = bed.post(TOKEN, &[("grant_type", "client_credentials")], Some(("boss", &secret))).await;
    let (_, boss) = bed.exchange(text(&boss), &[("lifetime", "300")]).await;
    let (_, worker) = bed.exchange(text(&boss), &[("agent", "w1"), ("lifetime", "60")]).await;
    bed.give_back(text(&worker)).await;
    let kept = bed.revoked().await.pop().unwrap();
    let last = begun + Duration::from_secs(2 * 900 - 2);
    assert!((last..last + Duration::from_secs(100)).contains(&kept.until), "{kept:?}");
}

#[tokio::test]
async fn a_worker_whose_token_was_revoked_is_handed_another_that_holds() {
    let bed = Bed::new();
    let lead = bed.token("lead", Role::Lead, Origin::default());
    let (_, first) = bed.exchange(&lead, &[("agent", "w1")]).await;
    let before = bed.holder(&first).await.unwrap();
    // The copy of another node is fresh, and does not know it yet.
    let elsewhere = Access::new(bed.keys.clone(), bed.node.entities.clone());
    elsewhere.identify(text(&first)).await.unwrap();
    bed.give_back(text(&first)).await;
    tokio::time::sleep(Duration::from_millis(3)).await;
    let refusal = match elsewhere.exchange(text(&first), Narrower::default()).await {
        Ok(renewed) => bed.access.identify(renewed.issued.text()).await.unwrap_err(),
        // On a slow machine it has heard meanwhile.
        Err(refusal) => refusal,
    };
    assert!(refusal.message.contains("revoked"), "{refusal:?}");

    let (_, next) = bed.exchange(&lead, &[("agent", "w1")]).await;
    let after = bed.holder(&next).await.unwrap();
    assert_eq!((before.agent, &before.instance), (after.agent, &after.instance));
    let (status, renewed) = bed.exchange(text(&next), &[]).await;
    assert_eq!(status, StatusCode::OK, "{renewed}");
    assert!(bed.holder(&renewed).await.is_some() && bed.holder(&first).await.is_none());
    // It ends like the first one, whichever of its renewals is given back.
    bed.give_back(text(&renewed)).await;
    assert!(bed.holder(&next).await.is_none() && bed.holder(&renewed).await.is_none());
}

#[tokio::test]
async fn a_token_of_a_clock_that_is_ahead_ends_when_it_is_revoked() {
    let bed = Bed::new();
    let now = bed.node.entities.clock().wall();
    let issue = |of, origin, ahead| {
        let claims = bed.claims(of, Role::Worker);
        bed.keys.issue_as(claims, origin, now + Duration::from_secs(ahead)).unwrap()
    };
    let lead = bed.keys.issue(bed.claims("lead", Role::Lead), now).unwrap();
    let from = bed.keys.read(lead.text(), now).unwrap();
    let (family, actor) = (Some(Uuid::now_v7()), Some(from.as_actor()));
    let worker = issue("worker", Origin { family, actor, ..Origin::default() }, 10);
    let (_, renewed) = bed.exchange(worker.text(), &[]).await;
    bed.give_back(text(&renewed)).await;
    assert!(bed.access.identify(worker.text()).await.is_err() && bed.holder(&renewed).await.is_none());

    // By its id alone nobody knows when it began.
    let first = issue("other", Origin::default(), 20);
    let (_, renewed) = bed.exchange(first.text(), &[]).await;
    assert!(bed.holder(&renewed).await.is_some());
    let operator = bed.keys.issue(bed.claims("operator", Role::Operator), now).unwrap();
    let operator = bed.access.identify(operator.text()).await.unwrap();
    bed.access.revoke(&operator, Of::Token(first.id), OWN).await.unwrap();
    assert!(bed.access.identify(first.text()).await.is_err() && bed.holder(&renewed).await.is_none());
}

#[tokio::test]
async fn a_clients_token_ends_with_the_one_that_it_was_renewed_from() {
    let bed = Bed::new();
    let secret = bed.client("ci", Role::Worker, Rights::ALL).await;
    let form = [("grant_type", "client_credentials")];
    let (_, first) = bed.post(TOKEN, &form, Some(("ci", &secret))).await;
    let (_, other) = bed.post(TOKEN, &form, Some(("ci", &secret))).await;
    let text = first["access_token"].as_str().unwrap();
    let (_, renewed) = bed.exchange(text, &[]).await;
    assert!(bed.holder(&renewed).await.is_some());
    bed.post(REVOKE, &[("token", text)], None).await;
    assert!(bed.holder(&renewed).await.is_none() && bed.holder(&other).await.is_some());
    let mut last = other;
    for _ in 0..=STEPS {
        let (status, next) = bed.exchange(last["access_token"].as_str().unwrap(), &[]).await;
        if status == StatusCode::BAD_REQUEST {
            return;
        }
        last = next;
    }
    panic!("a token must not grow without end");
}

#[tokio::test]
async fn the_token_of_an_ended_run_is_exchanged_for_nothing() {
    let bed = Bed::new();
    let instance = Some(InstanceId("lead-00000001".to_owned()));
    let claims = Claims { instance, ..bed.claims("lead", Role::Lead) };
    let ended = bed.keys.issue(claims, bed.node.entities.clock().wall()).unwrap();
    for more in [vec![], vec![("agent", "w1")]] {
        let (status, no) = bed.exchange(ended.text(), &more).await;
        assert_eq!((status, &no["error"]), (StatusCode::BAD_REQUEST, &json!("invalid_grant")), "{no}");
        assert!(no["error_description"].as_str().unwrap().contains("has ended"), "{no}");
    }
}

#[tokio::test]
async fn a_node_finds_out_about_what_others_revoke() {
    let bed = Bed::new();
    let elsewhere = Access::new(bed.keys.clone(), bed.node.entities.clone());
    let worker = bed.token("worker", Role::Worker, Origin::default());
    elsewhere.identify(&worker).await.unwrap();
    bed.post(REVOKE, &[("token", &worker)], None).await;
    let found_out = async {
        while elsewhere.identify(&worker).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), found_out).await.unwrap();
}

#[tokio::test]
async fn the_metadata_names_the_way_to_a_token() {
    let bed = Bed::new();
    let request = Request::get(METADATA).header("host", "skein.test").body(Body::empty()).unwrap();
    let response = bed.router.clone().oneshot(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let metadata: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(metadata["issuer"], "http://skein.test");
    assert_eq!(metadata["token_endpoint"], "http://skein.test/oauth/token");
    assert_eq!(metadata["grant_types_supported"], json!(["client_credentials", grant::EXCHANGE]));
}
