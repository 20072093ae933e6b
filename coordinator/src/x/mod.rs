//! X, once Twitter, as far as it takes to have what happens around an account sent here: its API of webhooks, of
//! subscriptions, and of tokens.
//!
//! A refresh token is good for one use. The answer to it has the next one, which whoever asks must keep.

mod error;

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use url::form_urlencoded;

use crate::config::Account;
use crate::https::{self, Client, bearer};
pub use error::Error;

/// How long a request may take: before a webhook is there, X looks whether its address answers.
const PATIENCE: Duration = Duration::from_secs(30);
/// Largest answer, bytes.
const ANSWER: u64 = 1024 * 1024;

/// What a refresh token was exchanged for.
pub struct Tokens {
    pub access: SecretString,
    /// Takes the place of the one that was used.
    pub refresh: SecretString,
}

/// The API for one account.
pub struct Api {
    client: Client,
    account: Account,
}

impl Api {
    /// # Errors
    /// When the system trusts nobody.
    pub fn new(account: Account) -> Result<Self, Error> {
        let client = https::client(https::trusted(&account.api).map_err(Error::Certificates)?);
        Ok(Self { client, account })
    }

    /// The webhook of the app that sends to the account's address, which is made if there is none. X sends nothing by
    /// one whose address did not answer its check, until it is asked to check it again.
    ///
    /// # Errors
    /// When X does not answer, or refuses it; [`Error::Invalid`] when the address does not pass the check.
    pub async fn webhook(&self) -> Result<String, Error> {
        let bearer = bearer(&self.account.bearer_token())?;
        let Some(known) = self.known(&bearer, "url", self.account.url.as_str()).await? else {
            let wanted = json!({ "url": self.account.url });
            let answer = self.ask(Method::POST, "2/webhooks", &bearer, Some(wanted)).await?;
            // Not every answer to a POST wraps what was made.
            return id(answer.get("data").unwrap_or(&answer));
        };
        let id = id(&known)?;
        self.validate(&bearer, &id, &known).await?;
        Ok(id)
    }

    /// Sees to it that X sends by a webhook that it was sending by. Says whether there is one of this id still.
    ///
    /// # Errors
    /// As [`Self::webhook`].
    pub async fn keep(&self, webhook: &str) -> Result<bool, Error> {
        let bearer = bearer(&self.account.bearer_token())?;
        let Some(known) = self.known(&bearer, "id", webhook).await? else { return Ok(false) };
        self.validate(&bearer, webhook, &known).await.map(|()| true)
    }

    /// Has X check the address of a webhook again that did not answer when it was checked last.
    async fn validate(&self, bearer: &HeaderValue, id: &str, known: &Value) -> Result<(), Error> {
        if known["valid"] != false {
            return Ok(());
        }
        self.ask(Method::PUT, &format!("2/webhooks/{id}"), bearer, None).await?;
        let now = self.known(bearer, "id", id).await?;
        if now.is_none_or(|webhook| webhook["valid"] == false) { Err(Error::Invalid) } else { Ok(()) }
    }

    /// The webhook of the app that has this value in this field, if X has one.
    async fn known(&self, bearer: &HeaderValue, field: &str, is: &str) -> Result<Option<Value>, Error> {
        let known = self.ask(Method::GET, "2/webhooks", bearer, None).await?;
        let is_meant = |webhook: &&Value| webhook[field] == is;
        Ok(known["data"].as_array().and_then(|webhooks| webhooks.iter().find(is_meant)).cloned())
    }

    /// Has what happens around the account sent to a webhook. Says whether that is new.
    ///
    /// # Errors
    /// When X does not answer, or refuses it.
    pub async fn subscribe(&self, webhook: &str, access: &SecretString) -> Result<bool, Error> {
        let bearer = bearer(access)?;
        let path = format!("2/account_activity/webhooks/{webhook}/subscriptions/all");
        let subscribed = |answer: &Value| answer["data"]["subscribed"] == true;
        if subscribed(&self.ask(Method::GET, &path, &bearer, None).await?) {
            return Ok(false);
        }
        match self.ask(Method::POST, &path, &bearer, Some(json!({}))).await? {
            answer if subscribed(&answer) => Ok(true),
            _ => Err(Error::Garbled("it does not say that the account is subscribed".to_owned())),
        }
    }

    /// Exchanges a refresh token, which is used up by it.
    ///
    /// # Errors
    /// [`Error::Refused`] when X takes it no more; other ones leave it open whether it is used up.
    pub async fn refresh(&self, refresh: &SecretString) -> Result<Tokens, Error> {
        let Account { client_id, client_secret, .. } = &self.account;
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "refresh_token")
            .append_pair("refresh_token", refresh.expose_secret())
            .append_pair("client_id", client_id)
            .finish();
        let request = Request::post(self.address("2/oauth2/token"))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let request = match client_secret {
            Some(secret) => request.header(AUTHORIZATION, https::basic(client_id, secret)?),
            None => request,
        };
        let answer = self.send(request.body(Full::from(form))).await?;
        let token = |name: &str| {
            let token = answer[name].as_str().filter(|token| !token.is_empty());
            token.map(SecretString::from).ok_or_else(|| Error::Garbled(format!("it has no `{name}`")))
        };
        Ok(Tokens { access: token("access_token")?, refresh: token("refresh_token")? })
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        bearer: &HeaderValue,
        body: Option<Value>,
    ) -> Result<Value, Error> {
        let request = Request::builder()
            .method(method)
            .uri(self.address(path))
            .header(AUTHORIZATION, bearer)
            .header(CONTENT_TYPE, "application/json");
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        self.send(request.body(Full::from(body))).await
    }

    fn address(&self, path: &str) -> String {
        format!("{}{path}", self.account.api)
    }

    async fn send(&self, request: http::Result<Request<Full<Bytes>>>) -> Result<Value, Error> {
        let request = request.map_err(|problem| Error::Unanswered(problem.to_string()))?;
        let answer = https::send(&self.client, request, ANSWER, PATIENCE).await?;
        read(&answer)
    }
}

fn id(webhook: &Value) -> Result<String, Error> {
    let digits = |id: &&str| !id.is_empty() && id.bytes().all(|letter| letter.is_ascii_digit());
    let id = webhook["id"].as_str().filter(digits);
    id.map(str::to_owned).ok_or_else(|| Error::Garbled("it names no webhook".to_owned()))
}

fn read(answer: &Response<Bytes>) -> Result<Value, Error> {
    let status = answer.status();
    let said = serde_json::from_slice::<Value>(answer.body());
    if !status.is_success() {
        return Err(Error::refused(status, &said.unwrap_or_default()));
    }
    if status == StatusCode::NO_CONTENT {
        return Ok(Value::Null);
    }
    said.map_err(|problem| Error::Garbled(problem.to_string()))
}
