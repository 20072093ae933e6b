//! Nodes over one store that have the same account, and a stand-in for the one route of X that they share a token for.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::Notify;
use url::form_urlencoded;

use super::*;
use crate::entity::tests::{Node, node};
use crate::vault::Vault;

/// Where X sends to.
const ADDRESS: &str = "http://127.0.0.1/webhooks/bird";

/// Takes one refresh token, and gives the next for it.
#[derive(Default)]
struct X {
    takes: Mutex<String>,
    /// The tokens that it was shown.
    shown: Mutex<Vec<String>>,
    /// Tells of each.
    news: Notify,
    /// While somebody has it nobody is answered.
    held: tokio::sync::Mutex<()>,
    /// Whether its webhook sends, if it has it.
    webhook: Mutex<Option<bool>>,
    /// Tells of each time that it was asked to check the webhook's address.
    checks: Notify,
}

struct Bed {
    x: Arc<X>,
    api: String,
    service: Service,
    _node: Node,
}

impl X {
    async fn exchange(State(x): State<Arc<X>>, body: String) -> Result<Json<Value>, StatusCode> {
        let asked: HashMap<String, String> = form_urlencoded::parse(body.as_bytes()).into_owned().collect();
        let token = asked["refresh_token"].clone();
        let next = format!("{token}+");
        let is_taken = {
            let mut takes = x.takes.lock().unwrap_or_else(PoisonError::into_inner);
            let is_taken = *takes == token;
            if is_taken {
                takes.clone_from(&next);
            }
            is_taken
        };
        x.shown.lock().unwrap_or_else(PoisonError::into_inner).push(token);
        x.news.notify_one();
        let _answers = x.held.lock().await;
        match is_taken {
            true => Ok(Json(json!({ "access_token": "access", "refresh_token": next }))),
            false => Err(StatusCode::BAD_REQUEST),
        }
    }

    async fn webhooks(State(x): State<Arc<X>>) -> Json<Value> {
        let webhook = *x.webhook.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = |valid: bool| json!({ "id": "7", "url": ADDRESS, "valid": valid });
        Json(json!({ "data": webhook.into_iter().map(shown).collect::<Vec<_>>() }))
    }

    async fn register(State(x): State<Arc<X>>) -> Json<Value> {
        x.has_webhook(Some(true));
        Json(json!({ "data": { "id": "7", "url": ADDRESS, "valid": true } }))
    }

    async fn check(State(x): State<Arc<X>>, Path(id): Path<String>) -> Json<Value> {
        assert_eq!(id, "7");
        x.has_webhook(Some(true));
        x.checks.notify_one();
        Json(json!({ "data": { "valid": true } }))
    }

    fn has_webhook(&self, valid: Option<bool>) {
        *self.webhook.lock().unwrap_or_else(PoisonError::into_inner) = valid;
    }

    fn takes(&self, token: &str) {
        token.clone_into(&mut self.takes.lock().unwrap());
    }

    fn shown(&self) -> Vec<String> {
        self.shown.lock().unwrap().clone()
    }
}

impl Bed {
    async fn new() -> Self {
        let (x, node) = (Arc::new(X::default()), node());
        let router = Router::new()
            .route("/2/oauth2/token", post(X::exchange))
            .route("/2/webhooks", get(X::webhooks).post(X::register))
            .route("/2/webhooks/{webhook}", put(X::check))
            .with_state(Arc::clone(&x));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let service = Service::new(node.entities.clone()).keeping_secrets(Vault::ephemeral().unwrap());
        Self { x, api, service, _node: node }
    }

    /// A node whose settings have this token.
    fn node(&self, given: &str) -> Arc<Subscriber> {
        let account = json!({
            "url": ADDRESS, "bearer_token": "bearer", "client_id": "client",
            "refresh_token": given, "api": self.api,
        });
        let account: crate::config::Account = serde_json::from_value(account).unwrap();
        let (given, api) = (account.refresh_token(), Api::new(account).unwrap());
        let name = |text: &str| Name::parse(text).unwrap();
        Arc::new(Subscriber::new(&name("bird"), api, given, name("default"), self.service.clone()))
    }
}

#[tokio::test]
async fn nodes_take_turns_with_the_refresh_token_of_an_account() {
    let bed = Bed::new().await;
    bed.x.takes("first");
    let (one, other) = (bed.node("first"), bed.node("first"));
    let held = bed.x.held.lock().await;
    let exchange = tokio::spawn(async move { one.access_token().await });
    bed.x.news.notified().await;
    let turned_away = other.access_token().await;
    assert!(matches!(turned_away, Err(Trouble::Taken)), "{turned_away:?}");
    drop(held);
    exchange.await.unwrap().unwrap();
    other.access_token().await.unwrap();
    assert_eq!(bed.x.shown(), ["first", "first+"]);
}

#[tokio::test]
async fn the_refresh_token_of_the_settings_is_shown_once() {
    let bed = Bed::new().await;
    bed.x.takes("first");
    let node = bed.node("first");
    node.access_token().await.unwrap();
    // The account's consent is withdrawn, and then given anew.
    bed.x.takes("second");
    for _ in 0..2 {
        let refused = node.access_token().await;
        assert!(matches!(refused, Err(Trouble::Unauthorised(_))), "{refused:?}");
    }
    assert_eq!(bed.x.shown(), ["first", "first+", "first+"]);
    bed.node("second").access_token().await.unwrap();
    assert_eq!(bed.x.shown()[3..], ["first+", "second"]);
}

#[tokio::test]
async fn while_the_node_runs_a_webhook_that_x_marks_invalid_is_checked_again_and_one_that_is_gone_noticed() {
    const OFTEN: Duration = Duration::from_millis(1);
    const MINUTE: Duration = Duration::from_secs(60);
    let bed = Bed::new().await;
    let node = bed.node("first");
    let webhook = node.api.webhook().await.unwrap();
    assert_eq!(webhook, "7");
    // The address did not answer for a while.
    bed.x.has_webhook(Some(false));
    let checked = tokio::time::timeout(MINUTE, async {
        tokio::select! {
            () = bed.x.checks.notified() => {}
            () = node.keep_sending(&webhook, OFTEN) => panic!("it is there"),
        }
    });
    checked.await.expect("nobody has it checked again");
    bed.x.has_webhook(None);
    tokio::time::timeout(MINUTE, node.keep_sending(&webhook, OFTEN)).await.expect("it keeps what is gone");
}
