//! What texts mean, as vectors, from an endpoint that speaks as OpenAI's does (`POST {url}/embeddings`).

mod answer;
mod error;

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http_body_util::Full;
use secrecy::SecretString;
use serde_json::json;
use skein_shared::memory::{Model, Vector};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use url::Url;

use crate::config;
use crate::https::{self, Client, bearer};
pub use error::Error;

/// Most texts of one request.
pub const TOGETHER: usize = 32;
/// As much of a text as is asked for, bytes. A token has one at least, so that this fits models that take 8,192.
const TEXT: usize = 8000;
/// How long a request may take that nobody waits for.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long somebody who searches waits for the meaning of what is searched for.
const QUERY: Duration = Duration::from_secs(1);
/// For so long an endpoint that gave no vector for a query is not asked for the next one.
const REST: Duration = Duration::from_secs(5);
/// Queries that are asked for at a time.
const QUERIES: usize = 8;
/// Largest answer, bytes: the most texts of the most dimensions, with every digit that a number may have.
const ANSWER: u64 = 8 * 1024 * 1024;

/// The endpoint that the settings name.
pub struct Endpoint {
    client: Client,
    address: Url,
    key: Option<SecretString>,
    model: Model,
    queries: Semaphore,
    rests_until: Mutex<Option<Instant>>,
}

/// Shows no key, wherever it is printed.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("model", &self.model).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// # Errors
    /// When the system's certificates cannot be read.
    pub fn new(settings: &config::Embeddings) -> Result<Self, Error> {
        // Plain text is for a server of one's own; the settings see to it that no key goes that way.
        let client = https::client(https::trusted(&settings.url).map_err(Error::Certificates)?);
        let mut address = settings.url.clone();
        address.set_path(&format!("{}embeddings", address.path()));
        Ok(Self {
            client,
            address,
            key: settings.api_key.clone(),
            model: Model { name: settings.model.clone(), dimensions: settings.dimensions },
            queries: Semaphore::new(QUERIES),
            rests_until: Mutex::default(),
        })
    }

    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The vectors of at most [`TOGETHER`] texts, in their order.
    ///
    /// # Errors
    /// When not each of them has one.
    pub async fn embed(&self, texts: &[&str]) -> Result<Vec<Vector>, Error> {
        self.ask(texts, PATIENCE).await
    }

    /// The vector of what somebody searches for, if it comes soon.
    ///
    /// # Errors
    /// When it does not; for a while after that it is not even tried.
    pub async fn query(&self, text: &str) -> Result<Vector, Error> {
        let end = Instant::now() + QUERY;
        if self.rests_until().is_some_and(|until| Instant::now() < until) {
            return Err(Error::Resting);
        }
        let late = |_| Error::Unanswered("too many searches at a time".to_owned());
        let turn = tokio::time::timeout_at(end, self.queries.acquire()).await.map_err(late)?;
        let vectors = self.ask(&[text], end.saturating_duration_since(Instant::now())).await;
        drop(turn);
        match vectors {
            Ok(vectors) => vectors.into_iter().next().ok_or(Error::Resting),
            Err(problem) => {
                if !problem.blames_texts() {
                    *self.rests_until() = Some(Instant::now() + REST);
                }
                Err(problem)
            }
        }
    }

    fn rests_until(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.rests_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, texts: &[&str], patience: Duration) -> Result<Vec<Vector>, Error> {
        let texts: Vec<&str> = texts.iter().map(|text| beginning(text)).collect();
        let mut asked = json!({ "model": self.model.name, "input": texts, "encoding_format": "float" });
        if let Some(dimensions) = self.model.dimensions {
            asked["dimensions"] = json!(dimensions);
        }
        let mut request = Request::post(self.address.as_str()).header(CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, bearer(key)?);
        }
        let request = request
            .body(Full::new(Bytes::from(asked.to_string())))
            .map_err(|error| Error::Unreachable(error.to_string()))?;
        let answer = https::send(&self.client, request, ANSWER, patience).await?;
        answer::vectors(&answer, texts.len(), &self.model, self.key.as_ref())
    }
}

/// No more of a text than the endpoint is to get.
fn beginning(text: &str) -> &str {
    let end = (0..=TEXT.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or_default()]
}
