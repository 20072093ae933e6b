//! Tokens as programs fetch, narrow and give them back, over HTTP, with entities on a store in memory behind it.

mod revocations;

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
use crate::auth::issuer::Issuers;
use crate::auth::issuer::tests::{Stand, key};
use crate::auth::token::{Claims, Keys, LEEWAY, LONGEST, OWN, Origin};
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
        Self::trusting(Issuers::default())
    }

    fn trusting(issuers: Issuers) -> Self {
        let (node, keys) = (node(), Keys::ephemeral().unwrap());
        let access = Access::new(keys.clone(), node.entities.clone()).trusting(issuers);
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
async fn what_an_issuers_token_is_exchanged_for_goes_on_as_the_same_instance() {
    let signing = key("one");
    let stand = Stand::new(&[&signing]).await;
    let bed = Bed::trusting(Issuers::new(vec![stand.trust()]).unwrap());
    let seconds = bed.node.entities.clock().wall().millis() / 1000;
    // What it says of an instance is not the issuer's to say.
    let token = |id: &str| {
        let claims = json!({
            "jti": id, "iat": seconds, "exp": seconds + 600, "instance": "ada-00000001", "goes_on_as": "ada-00000001",
        });
        stand.token(&signing, claims)
    };
    let (one, other) = (token("1"), token("2"));
    let ada = bed.access.identify(&one).await.unwrap();
    assert_eq!((ada.instance.as_str(), ada.managed), (ada.agent.to_string().as_str(), false));
    let (status, later) = bed.exchange(&one, &[]).await;
    assert_eq!(status, StatusCode::OK, "{later}");
    let text = later["access_token"].as_str().unwrap();
    let (again, beside) = (bed.exchange(text, &[]).await.1, bed.exchange(&other, &[]).await.1);
    for exchanged in [&later, &again, &beside] {
        let who = bed.holder(exchanged).await.unwrap();
        assert_eq!((who.agent, &who.instance, who.managed), (ada.agent, &ada.instance, false), "{exchanged}");
    }

    // All the same each ends with the one that it came of alone.
    bed.give_back(again["access_token"].as_str().unwrap()).await;
    assert!(bed.access.identify(&one).await.is_err() && bed.holder(&later).await.is_none());
    assert!(bed.access.identify(&other).await.is_ok() && bed.holder(&beside).await.is_some());
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

#[tokio::test]
async fn a_form_that_never_ends_is_refused() {
    let bed = Bed::new();
    tokio::time::pause();
    for path in [TOKEN, REVOKE] {
        let endless = futures::stream::pending::<Result<axum::body::Bytes, std::io::Error>>();
        let request = Request::post(path).header("content-type", "application/x-www-form-urlencoded");
        let request = request.body(Body::from_stream(endless)).unwrap();
        let answered = bed.router.clone().oneshot(request);
        let response = tokio::time::timeout(Duration::from_secs(60), answered).await.expect(path).unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let told: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(told["error"], "invalid_request");
        assert!(told["error_description"].as_str().unwrap().contains("send it faster"), "{told}");
    }
}
