//! A stand-in issuer on this machine, whose keys and answers the test changes.

use std::sync::Mutex as Plain;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use futures::FutureExt;
use jsonwebtoken::{EncodingKey, Header};
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::json;
use skein_shared::Code;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::*;

const NOW: Timestamp = Timestamp(1_790_000_000_000);

pub(crate) struct Stand {
    address: String,
    served: Arc<Served>,
}

#[derive(Default)]
struct Served {
    keys: Plain<Vec<Value>>,
    asked: AtomicUsize,
    /// Tells that it was.
    news: Notify,
    /// While somebody has it no keys are shown.
    held: tokio::sync::Mutex<()>,
    base: Plain<String>,
}

pub(crate) struct Key {
    id: &'static str,
    signs: EncodingKey,
    shown: Value,
}

pub(crate) fn key(id: &'static str) -> Key {
    let document = Ed25519KeyPair::generate_pkcs8(&ring::rand::SystemRandom::new()).unwrap();
    let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
    let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
    let shown = json!({ "kty": "OKP", "crv": "Ed25519", "x": x, "kid": id, "alg": "EdDSA", "use": "sig" });
    Key { id, signs: EncodingKey::from_ed_der(document.as_ref()), shown }
}

impl Stand {
    pub(crate) async fn new(keys: &[&Key]) -> Self {
        let served = Arc::new(Served::default());
        *served.keys.lock().unwrap() = keys.iter().map(|key| key.shown.clone()).collect();
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(Self::discovery))
            .route("/keys", get(Self::keys))
            .with_state(Arc::clone(&served));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        served.base.lock().unwrap().clone_from(&address);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, served }
    }

    async fn discovery(State(served): State<Arc<Served>>) -> Json<Value> {
        let base = served.base.lock().unwrap().clone();
        Json(json!({ "issuer": base, "jwks_uri": format!("{base}/keys") }))
    }

    async fn keys(State(served): State<Arc<Served>>) -> Json<Value> {
        served.asked.fetch_add(1, Ordering::Relaxed);
        served.news.notify_one();
        let _shown = served.held.lock().await;
        // Keys of kinds that Skein does not know stand there too.
        let mut keys = served.keys.lock().unwrap().clone();
        keys.push(json!({ "kty": "new", "kid": "future" }));
        keys.push(json!({ "kty": "oct", "kid": "shared", "k": "c2VjcmV0" }));
        Json(json!({ "keys": keys }))
    }

    pub(crate) fn trust(&self) -> Trust {
        Trust {
            issuer: self.address.clone(),
            audience: "skein".to_owned(),
            jwks: None,
            swarm: Some(Name::parse("default").unwrap()),
            swarm_claim: Some("team".to_owned()),
            name_claim: Some("login".to_owned()),
            role: None,
            role_claim: Some("groups".to_owned()),
            roles: [("devs".to_owned(), Role::Worker), ("leads".to_owned(), Role::Lead)].into(),
        }
    }

    pub(crate) fn token(&self, key: &Key, more: Value) -> String {
        let seconds = NOW.millis() / 1000;
        let mut claims = json!({
            "iss": self.address, "aud": ["other", "skein"], "sub": "auth0|7", "iat": seconds, "exp": seconds + 600,
            "login": "ada", "groups": ["people", "devs"],
        });
        for (name, value) in more.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let header = Header { kid: Some(key.id.to_owned()), ..Header::new(Algorithm::EdDSA) };
        jsonwebtoken::encode(&header, &claims, &key.signs).unwrap()
    }
}

async fn read(issuers: &Issuers, token: &str) -> Result<Arc<Credential>, Refusal> {
    issuers.read(token, NOW).await.expect("it is of the issuer")
}

#[tokio::test]
async fn the_claims_say_who_it_is_here() {
    let signing = key("one");
    let stand = Stand::new(&[&signing]).await;
    let issuers = Issuers::new(vec![stand.trust()]).unwrap();
    let ada = read(&issuers, &stand.token(&signing, json!({}))).await.unwrap();
    assert_eq!((ada.who.agent_name.as_str(), ada.who.role), ("ada", Role::Worker));
    assert_eq!((ada.who.swarm.as_str(), ada.who.managed), ("default", false));
    let again = stand
        .token(&signing, json!({ "groups": "leads devs", "team": "build", "scope": "openid swarm:read" }));
    let again = read(&issuers, &again).await.unwrap();
    assert_eq!((again.who.agent, &again.who.instance), (ada.who.agent, &ada.who.instance));
    assert_eq!((again.who.role, again.who.swarm.as_str()), (Role::Lead, "build"));
    assert_eq!(again.who.rights.to_string(), "swarm:read");
    let other = read(&issuers, &stand.token(&signing, json!({ "sub": "auth0|8" }))).await.unwrap();
    assert_ne!(other.who.agent, ada.who.agent);
    assert_eq!(stand.served.asked.load(Ordering::Relaxed), 1, "its keys are fetched once");
    // Skein's own tokens, and those of others, are none of its business.
    assert!(issuers.read("x.y.z", NOW).await.is_none());
    assert!(
        issuers.read(&stand.token(&signing, json!({ "iss": "https://other.example" })), NOW).await.is_none()
    );
}

#[tokio::test]
async fn bad_tokens_of_an_issuer_are_refused() {
    let (signing, other) = (key("one"), key("one"));
    let stand = Stand::new(&[&signing]).await;
    let issuers = Issuers::new(vec![stand.trust()]).unwrap();
    let seconds = NOW.millis() / 1000;
    for (what, bad) in [
        ("signature", stand.token(&other, json!({}))),
        ("audience", stand.token(&signing, json!({ "aud": "other" }))),
        ("no audience", stand.token(&signing, json!({ "aud": null }))),
        ("ended", stand.token(&signing, json!({ "exp": seconds - 31 }))),
        ("no end", stand.token(&signing, json!({ "exp": null }))),
        ("future", stand.token(&signing, json!({ "iat": seconds + 31 }))),
        ("not yet", stand.token(&signing, json!({ "nbf": seconds + 31 }))),
        ("no subject", stand.token(&signing, json!({ "sub": null }))),
        ("no name", stand.token(&signing, json!({ "login": null }))),
        ("no proper name", stand.token(&signing, json!({ "login": "Ada L." }))),
        ("no role", stand.token(&signing, json!({ "groups": ["people"] }))),
        ("swarm", stand.token(&signing, json!({ "team": "../default" }))),
    ] {
        let refusal = read(&issuers, &bad).await.unwrap_err();
        assert_eq!(refusal.code, Code::Unauthenticated, "{what}");
        assert!(!refusal.message.contains(&bad[..20]), "{what}");
    }
    // A key that everybody sees is no secret to sign with, whatever the token says.
    let claims = stand.token(&signing, json!({}));
    let claims = URL_SAFE_NO_PAD.decode(claims.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    for kid in ["one", "shared"] {
        let header = Header { kid: Some(kid.to_owned()), ..Header::new(Algorithm::HS256) };
        for secret in [&b"secret"[..], signing.shown["x"].as_str().unwrap().as_bytes()] {
            let bad = jsonwebtoken::encode(&header, &claims, &EncodingKey::from_secret(secret)).unwrap();
            assert_eq!(read(&issuers, &bad).await.unwrap_err().code, Code::Unauthenticated);
        }
    }
    let none = URL_SAFE_NO_PAD.encode(json!({ "alg": "none", "kid": "one" }).to_string());
    let body = URL_SAFE_NO_PAD.encode(claims.to_string());
    assert!(read(&issuers, &format!("{none}.{body}.")).await.is_err());
}

#[tokio::test]
async fn an_unknown_key_is_asked_for_and_a_flood_of_them_is_not() {
    let (first, second) = (key("one"), key("two"));
    let stand = Stand::new(&[&first]).await;
    let issuers = Issuers::new(vec![stand.trust()]).unwrap();
    let old = stand.token(&first, json!({}));
    read(&issuers, &old).await.unwrap();
    *stand.served.keys.lock().unwrap() = vec![second.shown.clone()];
    let new = stand.token(&second, json!({}));
    for _ in 0..20 {
        assert_eq!(read(&issuers, &new).await.unwrap_err().code, Code::Unauthenticated);
    }
    assert_eq!(stand.served.asked.load(Ordering::Relaxed), 1, "not so soon after the last time");
    // As time goes by, with the clock of the fetches alone.
    let earlier = Instant::now().checked_sub(keys::PAUSE * 2).unwrap();
    *issuers.all[0].keys.tried.lock().await = Some(earlier);
    read(&issuers, &new).await.unwrap();
    assert_eq!(stand.served.asked.load(Ordering::Relaxed), 2);
    // The issuer has taken the old key out, and with it what was verified by it.
    assert!(read(&issuers, &old).await.is_err());
}

#[tokio::test]
async fn a_fetch_goes_on_when_whoever_asked_for_it_hangs_up() {
    let signing = key("one");
    let stand = Stand::new(&[&signing]).await;
    let issuers = Issuers::new(vec![stand.trust()]).unwrap();
    let token = stand.token(&signing, json!({}));
    let held = stand.served.held.lock().await;
    tokio::select! {
        answer = read(&issuers, &token) => panic!("without a key: {answer:?}"),
        () = stand.served.news.notified() => {}
    }
    for _ in 0..5 {
        assert!(read(&issuers, &token).now_or_never().is_none(), "it does not wait for the keys");
    }
    drop(held);
    read(&issuers, &token).await.unwrap();
    assert_eq!(stand.served.asked.load(Ordering::Relaxed), 1, "each of them has asked anew");
}

#[tokio::test]
async fn an_issuer_that_lies_or_is_away_lets_nobody_in() {
    let signing = key("one");
    let stand = Stand::new(&[&signing]).await;
    *stand.served.base.lock().unwrap() = "http://127.0.0.1:9".to_owned();
    let issuers = Issuers::new(vec![stand.trust()]).unwrap();
    let token = stand.token(&signing, json!({}));
    let refusal = read(&issuers, &token).await.unwrap_err();
    assert_eq!(refusal.code, Code::Unavailable);
    assert!(refusal.retry_after_ms.is_some());
    let keys = Url::parse(&format!("{}/keys", stand.address)).unwrap();
    let told = Issuers::new(vec![Trust { jwks: Some(keys), ..stand.trust() }]).unwrap();
    read(&told, &token).await.unwrap();
}

#[tokio::test]
async fn whose_key_is_known_waits_for_nobody_elses() {
    let signing = key("one");
    let stand = Stand::new(&[&signing]).await;
    let issuers = Issuers::new(vec![stand.trust()]).unwrap();
    read(&issuers, &stand.token(&signing, json!({}))).await.unwrap();
    // As while a fetch goes on that a forged token has asked for, of an issuer that hangs.
    let _fetching = issuers.all[0].keys.tried.lock().await;
    let another = stand.token(&signing, json!({ "sub": "auth0|8" }));
    tokio::time::timeout(Duration::from_secs(60), read(&issuers, &another)).await.unwrap().unwrap();
}
