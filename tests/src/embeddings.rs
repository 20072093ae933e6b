//! A stand-in on loopback for an endpoint that knows what texts mean, which checks what it is asked as OpenAI's does.
//! To it a text means the words that it has, and some words mean the same.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

pub const KEY: &str = "sk-a-key-that-nobody-prints";
const DIMENSIONS: usize = 64;
/// Words that mean the same as another.
const SAME: [(&str, &str); 4] =
    [("automobile", "car"), ("vehicle", "car"), ("petrol", "fuel"), ("gasoline", "fuel")];
/// How long something may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What goes wrong with requests until something else does.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Trouble {
    #[default]
    None,
    /// It takes none.
    Down,
    /// It takes them and does not answer.
    Silent,
    /// It answers with vectors of another length.
    Garbage,
    /// It refuses those that have this word in them.
    Refuses(&'static str),
    /// It fails at those that have this word in them.
    FailsAt(&'static str),
}

#[derive(Default)]
struct Asked {
    trouble: Trouble,
    /// The texts that were asked for, one list for each well made request, whatever came of it.
    requests: Vec<Vec<String>>,
    /// The same of those that were answered.
    answered: Vec<Vec<String>>,
    faults: Vec<String>,
}

#[derive(Clone)]
pub struct Embeddings {
    address: SocketAddr,
    asked: Arc<Mutex<Asked>>,
    /// Counts what happens, for those who wait for something.
    happened: watch::Sender<u64>,
}

impl Embeddings {
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let endpoint = Self { address, asked: Arc::default(), happened: watch::Sender::default() };
        let router = Router::new().route("/v1/embeddings", post(embed)).with_state(endpoint.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(endpoint)
    }

    /// The part of `config.toml` that names it.
    pub fn configuration(&self, model: &str) -> String {
        format!(
            "[embeddings]\nurl = \"http://{}/v1\"\nmodel = \"{model}\"\ndimensions = {DIMENSIONS}\napi_key = \"{KEY}\"\n",
            self.address
        )
    }

    pub fn trouble(&self, trouble: Trouble) {
        self.lock().trouble = trouble;
    }

    /// The texts of all requests that were answered.
    pub fn answered(&self) -> Vec<String> {
        self.lock().answered.concat()
    }

    /// What was wrong with requests, which never is.
    pub fn faults(&self) -> Vec<String> {
        self.lock().faults.clone()
    }

    /// Waits until so many requests have a text with this in it, answered or not.
    ///
    /// # Panics
    /// When they do not come.
    pub async fn until_asked(&self, part: &str, count: usize) {
        self.until(|asked| having(&asked.requests, part) >= count, part).await;
    }

    /// Waits until a request with a text with this in it was answered.
    ///
    /// # Panics
    /// When none is.
    pub async fn until_answered(&self, part: &str) {
        self.until(|asked| having(&asked.answered, part) > 0, part).await;
    }

    async fn until(&self, wanted: impl Fn(&Asked) -> bool, part: &str) {
        let mut happened = self.happened.subscribe();
        let waiting = async {
            while !wanted(&self.lock()) {
                let _ = happened.changed().await;
            }
        };
        let came = tokio::time::timeout(PATIENCE, waiting).await;
        came.unwrap_or_else(|_| panic!("nobody asked for {part}: {:?}", self.lock().requests));
    }

    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, note: impl FnOnce(&mut Asked)) {
        note(&mut self.lock());
        self.happened.send_modify(|count| *count += 1);
    }
}

fn having(requests: &[Vec<String>], part: &str) -> usize {
    requests.iter().filter(|texts| texts.iter().any(|text| text.contains(part))).count()
}

async fn embed(State(endpoint): State<Embeddings>, headers: HeaderMap, body: Bytes) -> Response {
    let (model, texts) = match read(&headers, &body) {
        Ok(asked) => asked,
        Err((status, fault)) => {
            endpoint.note(|asked| asked.faults.push(fault.clone()));
            return refused(status, &fault);
        }
    };
    endpoint.note(|asked| asked.requests.push(texts.clone()));
    let trouble = endpoint.lock().trouble.clone();
    let has = |word: &str| texts.iter().any(|text| text.contains(word));
    let dimensions = match trouble {
        Trouble::Down => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Trouble::Silent => return std::future::pending().await,
        Trouble::Refuses(word) if has(word) => {
            return refused(StatusCode::BAD_REQUEST, &format!("{word}, and that by {KEY}"));
        }
        Trouble::FailsAt(word) if has(word) => return StatusCode::BAD_GATEWAY.into_response(),
        Trouble::Garbage => DIMENSIONS - 1,
        _ => DIMENSIONS,
    };
    let vector = |text: &String| {
        let mut vector = meaning(&model, text);
        vector.truncate(dimensions);
        vector
    };
    // In another order than asked for, which their numbers tell.
    let data: Vec<Value> = texts
        .iter()
        .enumerate()
        .rev()
        .map(|(index, text)| json!({"object": "embedding", "index": index, "embedding": vector(text)}))
        .collect();
    endpoint.note(|asked| asked.answered.push(texts.clone()));
    Json(json!({"object": "list", "model": model, "data": data})).into_response()
}

fn refused(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({"error": {"message": message, "type": "invalid_request_error"}}))).into_response()
}

fn read(headers: &HeaderMap, body: &[u8]) -> Result<(String, Vec<String>), (StatusCode, String)> {
    let token = headers.get(AUTHORIZATION).map(|value| value.as_bytes().to_vec());
    if token != Some(format!("Bearer {KEY}").into_bytes()) {
        return Err((StatusCode::UNAUTHORIZED, "no such key".to_owned()));
    }
    let wrong = |what: &str| (StatusCode::BAD_REQUEST, what.to_owned());
    let body: Value = serde_json::from_slice(body).map_err(|_| wrong("no JSON"))?;
    let texts: Option<Vec<String>> = serde_json::from_value(body["input"].clone()).ok();
    let texts = texts.filter(|texts| !texts.is_empty() && texts.iter().all(|text| !text.is_empty()));
    if body["dimensions"] != DIMENSIONS || body["encoding_format"] != "float" {
        return Err(wrong("other dimensions or another format"));
    }
    let model = body["model"].as_str().ok_or_else(|| wrong("no model"))?;
    Ok((model.to_owned(), texts.ok_or_else(|| wrong("no texts"))?))
}

/// Each word is a direction, another one to each model.
fn meaning(model: &str, text: &str) -> Vec<f32> {
    // A text without words means something too.
    let mut vector = vec![0.001; DIMENSIONS];
    for word in text.to_lowercase().split(|letter: char| !letter.is_alphanumeric()) {
        let word = SAME.iter().find(|(known, _)| *known == word).map_or(word, |(_, same)| same);
        if word.len() > 2 {
            let mut hasher = DefaultHasher::new();
            (model, word).hash(&mut hasher);
            vector[usize::try_from(hasher.finish() % DIMENSIONS as u64).unwrap_or_default()] += 1.0;
        }
    }
    vector
}
