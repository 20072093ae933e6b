//! Files: up and down, with the token for Slack's own hosts alone.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_DISPOSITION, CONTENT_TYPE, LOCATION};
use http::{Request, Response};
use http_body_util::Full;
use serde_json::{Value, json};

use super::client::Args;
use super::error::Error;
use super::method::{FILE, UPLOAD_DONE, UPLOAD_URL};
use super::workspace::{Workspace, args};

/// Largest file that passes through a coordinator, which has it in memory meanwhile, bytes. An agent's instance takes a
/// command for each part of it.
pub const LARGEST: u64 = 8 * 1024 * 1024;
/// How long a file may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often Slack may point elsewhere.
const REDIRECTS: usize = 3;
const UPLOAD: &str = "the upload";
const DOWNLOAD: &str = "the download";

/// A file that came down.
#[derive(Clone, Debug)]
pub struct Download {
    pub content: Bytes,
    /// As `files.info` describes it; null when only its address was known.
    pub info: Value,
}

impl Workspace {
    /// Puts a file into a channel, or into a thread of it, and gives its id.
    ///
    /// # Errors
    /// `too_large`, and what Slack says.
    pub async fn upload(
        &self,
        name: &str,
        content: Bytes,
        channel: &str,
        thread: Option<&str>,
        comment: Option<&str>,
    ) -> Result<String, Error> {
        if content.len() as u64 > LARGEST {
            return Err(Error::TooLarge(LARGEST));
        }
        let place = args(json!({"filename": name, "length": content.len()}));
        let place = self.client.call(&UPLOAD_URL, place).await?;
        let missing = || Error::Garbled { method: UPLOAD_URL.name, problem: "it names no place".to_owned() };
        let (url, file) = place["upload_url"].as_str().zip(place["file_id"].as_str()).ok_or_else(missing)?;
        let url = self.client.http.own(url)?;
        // The address itself is the permission, so it goes without the token.
        let request = Request::post(url.as_str())
            .header(CONTENT_TYPE, "application/octet-stream")
            .body(Full::new(content))
            .map_err(|error| Error::Unreachable { method: UPLOAD, problem: error.to_string() })?;
        let answer = self.client.http.send(request, LARGEST, PATIENCE).await;
        let answer = answer.map_err(|failure| failure.of(UPLOAD, LARGEST))?;
        require_success(UPLOAD, &answer)?;
        let done: Args = args(json!({
            "files": [{"id": file, "title": name}],
            "channel_id": channel,
            "thread_ts": thread,
            "initial_comment": comment,
        }));
        self.client.call(&UPLOAD_DONE, done).await?;
        Ok(file.to_owned())
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
        let content = self.download(url.ok_or_else(missing)?).await?;
        Ok(Download { content, info })
    }

    /// The content behind an address of Slack's.
    ///
    /// # Errors
    /// `forbidden` for any other host, which is not asked.
    pub async fn download(&self, address: &str) -> Result<Bytes, Error> {
        let mut url = self.client.http.own(address)?;
        for _ in 0..=REDIRECTS {
            let token = self.client.bot_header().map_err(|failure| failure.of(DOWNLOAD, LARGEST))?;
            let request = Request::get(url.as_str())
                .header(AUTHORIZATION, token)
                .body(Full::default())
                .map_err(|error| Error::Unreachable { method: DOWNLOAD, problem: error.to_string() })?;
            let answer = self.client.http.send(request, LARGEST, PATIENCE).await;
            let answer = answer.map_err(|failure| failure.of(DOWNLOAD, LARGEST))?;
            if !answer.status().is_redirection() {
                require_success(DOWNLOAD, &answer)?;
                require_file(&answer)?;
                return Ok(answer.into_body());
            }
            let next = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let next = next.and_then(|next| url.join(next).ok());
            let next = next.ok_or_else(|| garbled("it points nowhere"))?;
            url = self.client.http.own(next.as_str())?;
        }
        Err(garbled("it points elsewhere again and again"))
    }
}

fn garbled(problem: &str) -> Error {
    Error::Garbled { method: DOWNLOAD, problem: problem.to_owned() }
}

/// For a file that it does not show to this token Slack shows its page for signing in, as a success.
fn require_file(answer: &Response<Bytes>) -> Result<(), Error> {
    let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_page = header(CONTENT_TYPE).starts_with("text/html") && header(CONTENT_DISPOSITION).is_empty();
    match is_page {
        true => Err(Error::Refused { method: DOWNLOAD, error: "access_denied".to_owned(), needed: None }),
        false => Ok(()),
    }
}

fn require_success(method: &'static str, answer: &Response<Bytes>) -> Result<(), Error> {
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
