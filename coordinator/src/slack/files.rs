//! Files: up and down, as they come, with the token for Slack's own hosts alone.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use http::header::{AUTHORIZATION, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};
use skein_shared::Refusal;
use url::Url;

use super::client::Args;
use super::error::Error;
use super::http::{Body, whole};
use super::method::{FILE, UPLOAD_DONE, UPLOAD_URL};
use super::workspace::{Workspace, args};
use crate::https::{self, Coming, Failure};

/// Largest file, bytes (spec: Agent Swarm 2.4).
pub const LARGEST: u64 = 1024 * 1024 * 1024;
/// How long Slack may say nothing.
const PATIENCE: Duration = Duration::from_secs(120);
/// What a file that goes up may take longer for its size, bytes a second: it is read meanwhile, by a program for each
/// part.
const SLOWEST: u64 = 256 * 1024;
/// Longest answer to an upload, bytes.
const ANSWER: u64 = 64 * 1024;
/// How often Slack may point elsewhere.
const REDIRECTS: usize = 3;
const UPLOAD: &str = "the upload";
const DOWNLOAD: &str = "the download";

/// A file that is to go up.
pub struct Content {
    /// Bytes that the parts come to.
    pub length: u64,
    pub parts: BoxStream<'static, Result<Bytes, Refusal>>,
}

impl From<Bytes> for Content {
    fn from(content: Bytes) -> Self {
        let length = content.len() as u64;
        Self { length, parts: futures::stream::once(async { Ok(content) }).boxed() }
    }
}

/// A file that comes down.
#[derive(Debug)]
pub struct Download {
    /// As `files.info` describes it; null when only its address was known.
    pub info: Value,
    body: Coming,
    /// What may still come.
    left: u64,
}

impl Download {
    /// The next bytes; none after the last.
    ///
    /// # Errors
    /// `too_large`, and when Slack says nothing more.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let next = https::within(PATIENCE, https::next(&mut self.body)).await;
        let next = next.map_err(undone)?;
        let Some(bytes) = next else { return Ok(None) };
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or(Error::TooLarge(LARGEST))?;
        Ok(Some(bytes))
    }
}

impl Workspace {
    /// Puts a file up, where nobody sees it before it is shown, and gives its id.
    ///
    /// # Errors
    /// `too_large`, what Slack says, and why the content could not be had.
    pub async fn put(&self, name: &str, content: Content) -> Result<String, Error> {
        let Content { length, parts } = content;
        if length > LARGEST {
            return Err(Error::TooLarge(LARGEST));
        }
        let place = args(json!({"filename": name, "length": length}));
        let place = self.client.call(&UPLOAD_URL, place).await?;
        let missing = || Error::Garbled { method: UPLOAD_URL.name, problem: "it names no place".to_owned() };
        let (url, file) = place["upload_url"].as_str().zip(place["file_id"].as_str()).ok_or_else(missing)?;
        let url = self.client.http.own(url)?;
        let (body, broken) = streamed(parts);
        // The address itself is the permission, so it goes without the token.
        let request = Request::post(url.as_str())
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_LENGTH, length)
            .body(body)
            .map_err(|error| Error::Unreachable { method: UPLOAD, problem: error.to_string() })?;
        let patience = PATIENCE + Duration::from_secs(length / SLOWEST);
        let answer = self.client.http.send(request, ANSWER, patience).await;
        let answer = answer.map_err(|failure| match broken.get() {
            Some(refusal) => Error::Given(refusal.clone()),
            None => failure.of(UPLOAD),
        })?;
        require_success(UPLOAD, &answer)?;
        Ok(file.to_owned())
    }

    /// Shows people in a channel, or in a thread of it, a file that was put up.
    ///
    /// # Errors
    /// What Slack says; `outcome_unknown` when it may be there.
    pub async fn show(
        &self,
        file: &str,
        name: &str,
        channel: &str,
        thread: Option<&str>,
        comment: Option<&str>,
    ) -> Result<(), Error> {
        let done: Args = args(json!({
            "files": [{"id": file, "title": name}],
            "channel_id": channel,
            "thread_ts": thread,
            "initial_comment": comment,
        }));
        self.client.call(&UPLOAD_DONE, done).await.map(|_| ())
    }

    /// Whether people see a file in a channel. Slack says so a moment after it was shown.
    ///
    /// # Errors
    /// What Slack says.
    pub async fn is_shown(&self, file: &str, channel: &str) -> Result<bool, Error> {
        let info = match self.client.call(&FILE, args(json!({"file": file}))).await {
            Ok(mut found) => found["file"].take(),
            Err(Error::Refused { error, .. }) if error == "file_not_found" => return Ok(false),
            Err(problem) => return Err(problem),
        };
        let listed = |kind: &str| info[kind].as_array().is_some_and(|ids| ids.iter().any(|id| id == channel));
        let shared = |kind: &str| info["shares"][kind].get(channel).is_some();
        Ok(["channels", "groups", "ims"].into_iter().any(listed)
            || ["public", "private"].into_iter().any(shared))
    }

    /// A file by its id.
    ///
    /// # Errors
    /// `not_found`, `too_large`, `forbidden` for one that Slack keeps elsewhere.
    pub async fn file(&self, id: &str) -> Result<Download, Error> {
        let mut found = self.client.call(&FILE, args(json!({"file": id}))).await?;
        let info = found["file"].take();
        if info["size"].as_u64().is_some_and(|size| size > LARGEST) {
            return Err(Error::TooLarge(LARGEST));
        }
        let url = info["url_private_download"].as_str().or_else(|| info["url_private"].as_str());
        let missing = || Error::Garbled { method: FILE.name, problem: "it names no address".to_owned() };
        let url = self.client.http.own(url.ok_or_else(missing)?)?;
        let download = self.fetch(url).await?;
        Ok(Download { info, ..download })
    }

    /// The file behind an address of Slack's.
    ///
    /// # Errors
    /// `forbidden` for any other host, and for what is no file: neither is asked.
    pub async fn download(&self, address: &str) -> Result<Download, Error> {
        self.fetch(self.client.http.file(address)?).await
    }

    async fn fetch(&self, mut url: Url) -> Result<Download, Error> {
        for _ in 0..=REDIRECTS {
            let token = self.client.bot_header().map_err(undone)?;
            let request =
                Request::get(url.as_str())
                    .header(AUTHORIZATION, token)
                    .body(whole(Bytes::new()))
                    .map_err(|error| Error::Unreachable { method: DOWNLOAD, problem: error.to_string() })?;
            let answer = self.client.http.open(request, PATIENCE).await.map_err(undone)?;
            if !answer.status().is_redirection() {
                require_success(DOWNLOAD, &answer)?;
                require_file(&answer)?;
                return Ok(Download { info: Value::Null, body: answer.into_body(), left: LARGEST });
            }
            let next = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let next = next.and_then(|next| url.join(next).ok());
            let next = next.ok_or_else(|| garbled("it points nowhere"))?;
            url = self.client.http.own(next.as_str())?;
        }
        Err(garbled("it points elsewhere again and again"))
    }
}

/// The parts as what a request carries, and why there are no more of them, if they end too soon.
fn streamed(parts: BoxStream<'static, Result<Bytes, Refusal>>) -> (Body, Arc<OnceLock<Refusal>>) {
    let broken = Arc::new(OnceLock::new());
    let why = Arc::clone(&broken);
    let frames = parts.map(move |part| match part {
        Ok(bytes) => Ok(Frame::data(bytes)),
        Err(refusal) => {
            let problem = std::io::Error::other(refusal.message.clone());
            let _ = why.set(refusal);
            Err(problem)
        }
    });
    (StreamBody::new(frames).boxed_unsync(), broken)
}

/// A download changes nothing, so one that nobody knows the end of is one that was not.
fn undone(failure: Failure) -> Error {
    match failure {
        Failure::Unanswered(problem) => Error::Unreachable { method: DOWNLOAD, problem },
        failure => failure.of(DOWNLOAD),
    }
}

fn garbled(problem: &str) -> Error {
    Error::Garbled { method: DOWNLOAD, problem: problem.to_owned() }
}

/// For a file that it does not show to this token Slack shows its page for signing in, as a success.
fn require_file<B>(answer: &Response<B>) -> Result<(), Error> {
    let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_page = header(CONTENT_TYPE).starts_with("text/html") && header(CONTENT_DISPOSITION).is_empty();
    match is_page {
        true => Err(Error::Refused { method: DOWNLOAD, error: "access_denied".to_owned(), needed: None }),
        false => Ok(()),
    }
}

fn require_success<B>(method: &'static str, answer: &Response<B>) -> Result<(), Error> {
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let error = match status.as_u16() {
        404 => "file_not_found".to_owned(),
        401 | 403 => "access_denied".to_owned(),
        other => format!("http_status_{other}"),
    };
    Err(Error::Refused { method, error, needed: None })
}
