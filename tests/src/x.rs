//! A stand-in on loopback for X's API, which checks what it is asked as the real one does: a webhook is taken once its
//! address has shown that it knows the consumer secret, and a refresh token is good for one use.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use url::form_urlencoded;

use crate::webhook;

pub const BEARER: &str = "the-token-of-the-app";
pub const CLIENT: &str = "client-1";
pub const CLIENT_SECRET: &str = "the-secret-of-the-client";
/// What came of the account's consent.
pub const REFRESH: &str = "refresh-0";
const CHALLENGE: &str = "a-token-to-sign";

#[derive(Default)]
struct World {
    /// The addresses of the app's webhooks; their ids are their places.
    webhooks: Vec<String>,
    /// So many checks have to be passed until it sends anything.
    invalid: usize,
    subscribed: bool,
    /// Exchanges of a refresh token so far: it tells the tokens that hold.
    exchanged: usize,
    faults: Vec<String>,
}

#[derive(Clone)]
pub struct X {
    address: SocketAddr,
    world: Arc<Mutex<World>>,
    /// Tells the number of subscriptions and exchanges, for those who wait for them.
    news: watch::Sender<(bool, usize)>,
    /// How many tokens were exchanged, and whether the answers are held back.
    exchanges: watch::Sender<(usize, bool)>,
}

impl X {
    /// # Errors
    /// When there is no free port.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let x = Self {
            address: listener.local_addr()?,
            world: Arc::default(),
            news: watch::channel((false, 0)).0,
            exchanges: watch::channel((0, false)).0,
        };
        let router = Router::new()
            .route("/2/webhooks", get(webhooks).post(register))
            .route("/2/webhooks/{webhook}", put(check_again))
            .route("/2/account_activity/webhooks/{webhook}/subscriptions/all", get(look).post(subscribe))
            .route("/2/oauth2/token", post(exchange))
            .with_state(x.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(x)
    }

    /// The part of `config.toml` that names a source whose account is to be subscribed.
    pub fn configuration(&self, name: &str, ingress: u16) -> String {
        format!(
            "[[ingress.source]]\nname = \"{name}\"\nprovider = \"twitter\"\nsecret = \"{secret}\"\n\
             [ingress.source.account]\nurl = \"http://127.0.0.1:{ingress}/webhooks/{name}\"\n\
             bearer_token = \"{BEARER}\"\nclient_id = \"{CLIENT}\"\nclient_secret = \"{CLIENT_SECRET}\"\n\
             refresh_token = \"{REFRESH}\"\napi = \"http://{address}\"\n",
            secret = webhook::SECRET,
            address = self.address,
        )
    }

    /// Waits until the account is subscribed and so many refresh tokens have been used.
    ///
    /// # Errors
    /// Never: the stand-in lives as long as this does.
    pub async fn until(&self, exchanged: usize) -> Result<()> {
        self.news.subscribe().wait_for(|news| *news == (true, exchanged)).await?;
        Ok(())
    }

    /// Sends nothing until the addresses have passed so many checks, for they did not pass one.
    pub fn marks_invalid(&self, checks: usize) {
        self.world().invalid = checks;
    }

    /// Whether it would send something.
    pub fn is_valid(&self) -> bool {
        self.world().invalid == 0
    }

    /// Holds back the answers to those who exchange a token, or does so no more.
    pub fn holds_answers(&self, held: bool) {
        self.exchanges.send_modify(|exchanges| exchanges.1 = held);
    }

    /// Waits until so many refresh tokens are used up, whether anybody has heard of it or not.
    ///
    /// # Errors
    /// Never: the stand-in lives as long as this does.
    pub async fn until_exchanged(&self, count: usize) -> Result<()> {
        self.exchanges.subscribe().wait_for(|(exchanged, _)| *exchanged == count).await?;
        Ok(())
    }

    /// What it was asked in a way that the real one refuses.
    pub fn faults(&self) -> Vec<String> {
        self.world().faults.clone()
    }

    /// The addresses that it would send to.
    pub fn webhooks(&self) -> Vec<String> {
        self.world().webhooks.clone()
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        let world = self.world();
        self.news.send_replace((world.subscribed, world.exchanged));
    }

    fn refuse(&self, status: u16, problem: &str) -> Response {
        self.world().faults.push(problem.to_owned());
        let status = StatusCode::from_u16(status).expect("a status that there is");
        (status, Json(json!({ "title": "refused", "detail": problem }))).into_response()
    }

    fn is_app(headers: &HeaderMap) -> bool {
        headers
            .get(AUTHORIZATION)
            .is_some_and(|shown| shown.as_bytes() == format!("Bearer {BEARER}").as_bytes())
    }

    /// Whether it is the account's newest access token.
    fn is_account(&self, headers: &HeaderMap) -> bool {
        let wanted = format!("Bearer access-{}", self.world().exchanged);
        headers.get(AUTHORIZATION).is_some_and(|shown| shown.as_bytes() == wanted.as_bytes())
    }
}

async fn webhooks(State(x): State<X>, headers: HeaderMap) -> Response {
    if !X::is_app(&headers) {
        return x.refuse(401, "webhooks are listed for the app alone");
    }
    let (webhooks, valid) = (x.webhooks(), x.is_valid());
    let found: Vec<Value> = (1..)
        .zip(webhooks)
        .map(|(id, url)| json!({ "id": id.to_string(), "url": url, "valid": valid }))
        .collect();
    Json(json!({ "data": found, "meta": { "result_count": found.len() } })).into_response()
}

async fn register(State(x): State<X>, headers: HeaderMap, Json(wanted): Json<Value>) -> Response {
    let Some(url) = wanted["url"].as_str().filter(|_| X::is_app(&headers)) else {
        return x.refuse(401, "a webhook needs the app's token and an address");
    };
    if let Err(problem) = check(url).await {
        return x.refuse(400, &problem);
    }
    let id = {
        let mut world = x.world();
        world.webhooks.push(url.to_owned());
        world.webhooks.len()
    };
    Json(json!({ "data": { "id": id.to_string(), "url": url, "valid": true } })).into_response()
}

/// Whether an address shows that it knows the consumer secret.
async fn check(url: &str) -> Result<(), String> {
    let asked = reqwest::get(format!("{url}?crc_token={CHALLENGE}")).await;
    let shown = match asked {
        Ok(answer) => answer.json::<Value>().await.unwrap_or_default(),
        Err(problem) => return Err(format!("the address does not answer: {problem}")),
    };
    match shown["response_token"] == format!("sha256={}", webhook::proof(CHALLENGE)) {
        true => Ok(()),
        false => Err("the address does not know the consumer secret".to_owned()),
    }
}

async fn check_again(State(x): State<X>, Path(webhook): Path<usize>, headers: HeaderMap) -> Response {
    let url = webhook.checked_sub(1).and_then(|at| x.webhooks().get(at).cloned());
    let Some(url) = url.filter(|_| X::is_app(&headers)) else {
        return x.refuse(401, "a webhook is checked for the app alone");
    };
    if let Err(problem) = check(&url).await {
        return x.refuse(400, &problem);
    }
    let mut world = x.world();
    world.invalid = world.invalid.saturating_sub(1);
    Json(json!({ "data": { "valid": world.invalid == 0 } })).into_response()
}

async fn look(State(x): State<X>, headers: HeaderMap) -> Response {
    if !x.is_account(&headers) {
        return x.refuse(403, "subscriptions are the account's to see");
    }
    let subscribed = x.world().subscribed;
    if subscribed {
        x.tell();
    }
    Json(json!({ "data": { "subscribed": subscribed } })).into_response()
}

async fn subscribe(State(x): State<X>, Path(webhook): Path<usize>, headers: HeaderMap) -> Response {
    if !x.is_account(&headers) || !(1..=x.webhooks().len()).contains(&webhook) {
        return x.refuse(403, "the account subscribes itself, to a webhook of the app");
    }
    if std::mem::replace(&mut x.world().subscribed, true) {
        return x.refuse(409, "the account is subscribed already");
    }
    x.tell();
    Json(json!({ "data": { "subscribed": true } })).into_response()
}

async fn exchange(State(x): State<X>, headers: HeaderMap, body: Bytes) -> Response {
    let asked: HashMap<String, String> = form_urlencoded::parse(&body).into_owned().collect();
    let said = |name: &str| asked.get(name).map_or("", String::as_str);
    let basic = format!("Basic {}", STANDARD.encode(format!("{CLIENT}:{CLIENT_SECRET}")));
    let is_client = headers.get(AUTHORIZATION).is_some_and(|shown| shown.as_bytes() == basic.as_bytes());
    if !is_client || said("grant_type") != "refresh_token" || said("client_id") != CLIENT {
        return x.refuse(401, "the client is unknown");
    }
    let number = {
        let mut world = x.world();
        if said("refresh_token") != format!("refresh-{}", world.exchanged) {
            drop(world);
            return x.refuse(400, "the refresh token was used before");
        }
        world.exchanged += 1;
        world.exchanged
    };
    let tokens = json!({
        "token_type": "bearer", "expires_in": 7200, "access_token": format!("access-{number}"),
        "refresh_token": format!("refresh-{number}"), "scope": "tweet.read users.read offline.access",
    });
    x.exchanges.send_modify(|exchanges| exchanges.0 = number);
    let _ = x.exchanges.subscribe().wait_for(|(_, held)| !held).await;
    Json(tokens).into_response()
}
