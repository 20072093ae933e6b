//! Files: where they are put up, shown and fetched.

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::{Args, BOT, Slack};

impl Slack {
    /// A file that somebody has put there.
    pub fn has_file(&self, id: &str, name: &str, content: &[u8]) {
        let address = format!("http://{}/files/{id}", self.address);
        let info = json!({"id": id, "name": name, "mimetype": "text/plain", "size": content.len(),
            "url_private": address, "url_private_download": address});
        self.lock().files.insert(id.to_owned(), (info, content.to_vec()));
    }

    /// What a file holds; nothing if there is none.
    pub fn content(&self, id: &str) -> Vec<u8> {
        self.lock().files.get(id).map(|(_, content)| content.clone()).unwrap_or_default()
    }

    /// Whoever asks for the file's content is sent elsewhere.
    pub fn redirects(&self, id: &str, to: &str) {
        self.lock().redirects.insert(id.to_owned(), to.to_owned());
    }

    /// All requests for a file's content: which file, and what was shown as the authorization.
    pub fn downloads(&self) -> Vec<(String, Option<String>)> {
        self.lock().downloads.clone()
    }

    pub(super) fn info(&self, id: &str) -> Result<Value, &'static str> {
        let file = self.lock().files.get(id).map(|(info, _)| info.clone());
        Ok(json!({"file": file.ok_or("file_not_found")?}))
    }

    pub(super) fn upload_url(&self, name: &str, length: &str) -> Result<Value, &'static str> {
        let length: usize = length.parse().map_err(|_| "invalid_arguments")?;
        let mut workspace = self.lock();
        let id = format!("F{}", workspace.files.len() + 1);
        let info = json!({"id": id, "name": name, "size": length});
        workspace.files.insert(id.clone(), (info, Vec::new()));
        Ok(json!({"upload_url": format!("http://{}/upload/{id}", self.address), "file_id": id}))
    }

    pub(super) fn complete(&self, args: &Args) -> Result<Value, &'static str> {
        let channel = args.get("channel_id").and_then(Value::as_str).unwrap_or_default();
        self.require_member(channel)?;
        let files = args["files"].as_array().ok_or("invalid_arguments")?;
        for file in files {
            let id = file["id"].as_str().unwrap_or_default();
            let (info, content) = self.lock().files.get(id).cloned().ok_or("file_not_found")?;
            if info["size"] != content.len() {
                return Err("file_not_found");
            }
            let thread = args.get("thread_ts").and_then(Value::as_str);
            let comment = args.get("initial_comment").cloned().unwrap_or_default();
            let ts = self.keep(
                channel,
                json!({"type": "message", "bot_id": "B1", "text": comment, "files": [info]}),
                thread,
            );
            if let Some((info, _)) = self.lock().files.get_mut(id) {
                info["shares"]["public"][channel] = json!([{"ts": ts}]);
            }
        }
        Ok(json!({"files": files}))
    }
}

/// Whoever has the address may put the content there, and needs no token for it.
pub(super) async fn upload(
    State(slack): State<Slack>,
    Path(file): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if headers.contains_key(AUTHORIZATION) {
        return (StatusCode::BAD_REQUEST, "the token does not belong here").into_response();
    }
    match slack.lock().files.get_mut(&file) {
        Some((_, content)) => *content = body.to_vec(),
        None => return StatusCode::NOT_FOUND.into_response(),
    }
    "OK".into_response()
}

pub(super) async fn download(
    State(slack): State<Slack>,
    Path(file): Path<String>,
    headers: HeaderMap,
) -> Response {
    let shown =
        headers.get(AUTHORIZATION).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let known = shown == Some(format!("Bearer {BOT}"));
    let mut workspace = slack.lock();
    workspace.downloads.push((file.clone(), shown));
    if !known {
        return (StatusCode::OK, [(CONTENT_TYPE, "text/html")], "sign in").into_response();
    }
    if let Some(to) = workspace.redirects.get(&file) {
        return (StatusCode::FOUND, [(LOCATION, to.clone())]).into_response();
    }
    let is_cut = workspace.trouble(&format!("files/{file}")).is_some();
    match workspace.files.get(&file) {
        Some((_, content)) if is_cut => {
            let half = Bytes::copy_from_slice(&content[..content.len() / 2]);
            let parts = [Ok(half), Err(std::io::Error::other("cut off"))];
            Body::from_stream(futures::stream::iter(parts)).into_response()
        }
        Some((_, content)) => content.clone().into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
