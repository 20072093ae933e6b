//! Files between people in Slack and agents. A coordinator has no files of agents: those of an instance are read and
//! written in the instance, by its runner, part by part; none is ever here whole.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream;
use serde::Serialize;
use serde_json::{Value, json};
use skein_shared::id::derived;
use skein_shared::transport::{self, GetPart, Outcome, PART, Part, PutPart, Then, Tool};
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::slack::Address;
use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};
use crate::slack::{self, Content, Download, Error, Workspace};

/// How long an instance is left alone whose runner gave no answer, before it is asked for the same part once more.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];
/// What a part of a file may take longer than its time, on its way.
const MARGIN: Duration = Duration::from_secs(30);
/// Largest file that an answer holds, bytes.
const SHOWN: usize = 1024 * 1024;
/// Where files are kept, below the work folder, when nothing is said.
const FOLDER: &str = "downloads/slack/";

/// A file that an agent gives.
#[derive(Clone, Debug)]
pub enum Given {
    /// In the instance of the agent, below its work folder or anywhere.
    Path(String),
    /// In base64.
    Content(String),
}

/// What people shall get.
#[derive(Clone, Debug)]
pub struct Parcel {
    pub file: Option<Given>,
    pub name: Option<String>,
    pub comment: Option<String>,
}

/// Which file is wanted, and where it shall be kept.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub id: Option<String>,
    pub url: Option<String>,
    pub path: Option<String>,
    pub name: Option<String>,
}

/// A file that came from Slack.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Where it is in the agent's instance; its content in base64 for an agent that has none.
    pub path: Option<String>,
    pub content: Option<String>,
    pub info: Value,
}

impl Service {
    /// Puts a file into a thread or channel, and gives its id. With `repeats` the same request may come again, and a
    /// file that people see already is not shown to them a second time. Slack cannot be asked for a request; so the
    /// file that is about to be shown is noted under it.
    ///
    /// # Errors
    /// Of the address first, then of the file, `slack_not_configured`, and what Slack says; `outcome_unknown` when an
    /// earlier try of the request may have shown it.
    pub async fn slack_upload(
        &self,
        who: &Principal,
        request: Uuid,
        address: &Address,
        parcel: Parcel,
        repeats: bool,
    ) -> Result<String, Refusal> {
        let place = self.slack_place(who, address).await?;
        let (content, name) = match parcel.file {
            Some(Given::Content(text)) => (Bytes::from(decoded(&text)?).into(), parcel.name),
            Some(Given::Path(path)) => {
                let name = parcel.name.or_else(|| path.rsplit('/').next().map(str::to_owned));
                (self.file_of(who, path).await?, name)
            }
            None => return Err(invalid("give either filePath or content")),
        };
        let name = name.filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| invalid("filename: say what the content shall be called"))?;
        let workspace = self.slack.require(&who.swarm)?;
        let file = workspace.put(&name, content).await.map_err(Error::refusal)?;
        if repeats {
            let first = self.first_attempt(who, request, file.clone()).await?;
            if first != file {
                return seen_already(workspace, first, &place.channel).await;
            }
        }
        let (thread, comment) = (place.thread.as_deref(), parcel.comment.as_deref());
        let shown = workspace.show(&file, &name, &place.channel, thread, comment).await;
        shown.map(|()| file).map_err(Error::refusal)
    }

    /// Fetches a file of Slack's, and keeps it in the caller's instance.
    ///
    /// # Errors
    /// `not_joined`, `invalid_argument` without a file, `slack_not_configured`, what Slack says, `forbidden` for a
    /// foreign address, `too_large`.
    pub async fn slack_download(&self, who: &Principal, wanted: Wanted) -> Result<Kept, Refusal> {
        policy::require(who, Right::Work)?;
        self.require_member(who).await?;
        if wanted.id.is_none() && wanted.url.is_none() {
            return Err(invalid("give fileId or url to say which file is meant"));
        }
        let workspace = self.slack.require(&who.swarm)?;
        let download = match &wanted.id {
            Some(id) => workspace.file(id).await,
            None => workspace.download(wanted.url.as_deref().unwrap_or_default()).await,
        };
        let mut download = download.map_err(Error::refusal)?;
        let info = download.info.take();
        if !who.managed {
            let content = shown(download).await?;
            let info = described(&info, content.len() as u64);
            return Ok(Kept { path: None, content: Some(STANDARD.encode(&content)), info });
        }
        let path = target(&wanted, &info);
        let size = self.keep_file(who, &path, download).await?;
        Ok(Kept { path: Some(path), content: None, info: described(&info, size) })
    }

    /// A file of the caller's instance, which is read as it is sent.
    async fn file_of(&self, who: &Principal, path: String) -> Result<Content, Refusal> {
        // Each try reads for itself: a part that an earlier one has read may be of an older file.
        let (service, who, transfer) = (self.clone(), who.clone(), Uuid::now_v7());
        let first = service.file_part(&who, transfer, &path, 0).await?;
        let (length, from, version) = (first.size, first.bytes.len() as u64, first.version);
        if from > length {
            return Err(invalid(&format!(
                "{path} is no usual file, or it grows; copy it, and send the copy"
            )));
        }
        let rest = stream::try_unfold(from, move |from| {
            let (service, who, path) = (service.clone(), who.clone(), path.clone());
            let version = version.clone();
            async move {
                if from >= length {
                    return Ok(None);
                }
                let part = service.file_part(&who, transfer, &path, from).await?;
                let next = from + part.bytes.len() as u64;
                if part.version != version || part.bytes.is_empty() || next > length {
                    return Err(invalid(&format!("{path} was changed while it was sent; send it again")));
                }
                Ok(Some((part.bytes, next)))
            }
        });
        Ok(Content { length, parts: stream::iter([Ok(first.bytes)]).chain(rest).boxed() })
    }

    async fn file_part(
        &self,
        who: &Principal,
        transfer: Uuid,
        path: &str,
        from: u64,
    ) -> Result<Piece, Refusal> {
        let wanted = GetPart { path: path.to_owned(), from };
        let text = self.carry(who, derived(transfer, &from.to_string()), Tool::GetPart, &wanted).await?;
        let part: Part = serde_json::from_str(&text).map_err(|_| unreadable(path))?;
        let bytes = STANDARD.decode(part.data).map_err(|_| unreadable(path))?;
        Ok(Piece { size: part.size, version: part.version, bytes: bytes.into() })
    }

    /// Writes a file into the caller's instance as it comes down, and gives its size.
    async fn keep_file(&self, who: &Principal, path: &str, mut download: Download) -> Result<u64, Refusal> {
        let (service, who, path) = (self.clone(), who.clone(), path.to_owned());
        let transfer = Transfer { service, who, path, id: Uuid::now_v7() };
        let mut unkept = Unkept(Some(transfer.clone()));
        let (mut from, mut gathered) = (0, BytesMut::new());
        while let Some(bytes) = download.next().await.map_err(Error::refusal)? {
            gathered.extend_from_slice(&bytes);
            while gathered.len() > PART {
                let part = gathered.split_to(PART);
                transfer.put(from, &part, Then::More).await?;
                from += part.len() as u64;
            }
        }
        transfer.put(from, &gathered, Then::Keep).await?;
        unkept.0 = None;
        Ok(from + gathered.len() as u64)
    }

    /// Asks once more with the same id, which is not done twice, when the runner's stream broke or its node has gone: a
    /// file of a thousand parts shall not end with one of them.
    async fn use_again(
        &self,
        who: &Principal,
        request: Uuid,
        tool: Tool,
        arguments: Value,
    ) -> Result<Outcome, Refusal> {
        for pause in PAUSES {
            match self.use_tool(who, request, None, tool, arguments.clone()).await {
                Err(refusal) if refusal.code.is_passing() => {
                    tokio::time::sleep(pause).await;
                }
                done => return done,
            }
        }
        self.use_tool(who, request, None, tool, arguments).await
    }

    /// Has the caller's instance give a part of a file or take one, and gives what it says.
    async fn carry(
        &self,
        who: &Principal,
        request: Uuid,
        tool: Tool,
        arguments: &impl Serialize,
    ) -> Result<String, Refusal> {
        let arguments = serde_json::to_value(arguments).map_err(|_| unexpected("a part of a file"))?;
        let outcome = self.use_again(who, request, tool, arguments).await?;
        match outcome.failed {
            true => {
                let said: String = outcome.text.chars().take(300).collect();
                Err(invalid(&format!("your instance could not do it: {said}")))
            }
            false => Ok(outcome.text),
        }
    }
}

/// The file that an earlier try of a request was about to show, if people see it.
async fn seen_already(workspace: &Workspace, file: String, channel: &str) -> Result<String, Refusal> {
    for pause in [Duration::ZERO, slack::SHOWN] {
        tokio::time::sleep(pause).await;
        if workspace.is_shown(&file, channel).await.map_err(Error::refusal)? {
            return Ok(file);
        }
    }
    let problem = format!(
        "this was sent before under the same idempotency_key, as file {file}, and Slack does not say whether it is there; look at the channel first, and if it is not there send it with another key"
    );
    Err(Refusal::new(Code::Unknown, problem))
}

/// A file on its way into an instance.
#[derive(Clone)]
struct Transfer {
    service: Service,
    who: Principal,
    path: String,
    /// Each try writes for itself: what an earlier one has written may not go on, and may still be written.
    id: Uuid,
}

impl Transfer {
    async fn put(&self, from: u64, bytes: &[u8], then: Then) -> Result<(), Refusal> {
        let data = STANDARD.encode(bytes);
        let part = PutPart { path: self.path.clone(), transfer: self.id, from, data, then };
        let request = derived(self.id, &format!("{then:?} {from}"));
        self.service.carry(&self.who, request, Tool::PutPart, &part).await.map(|_| ())
    }
}

/// Takes away again what came of a transfer that was not kept, also when nobody waits for it any more.
struct Unkept(Option<Transfer>);

impl Drop for Unkept {
    fn drop(&mut self) {
        let (Some(transfer), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        runtime.spawn(async move {
            // Twice: a part that was on its way just now could begin the file anew. What cannot be told at all goes
            // with a later file, by the runner.
            for pause in [Duration::ZERO, transport::QUICK + MARGIN] {
                tokio::time::sleep(pause).await;
                let _ = transfer.put(0, &[], Then::Drop).await;
            }
        });
    }
}

/// A part of a file that was read.
struct Piece {
    /// Of the whole file.
    size: u64,
    version: String,
    bytes: Bytes,
}

/// All of a file, for an answer.
async fn shown(mut download: Download) -> Result<Bytes, Refusal> {
    let mut content = BytesMut::new();
    while let Some(bytes) = download.next().await.map_err(Error::refusal)? {
        content.extend_from_slice(&bytes);
        if content.len() > SHOWN {
            let problem = format!(
                "the file has more than {SHOWN} bytes, and you have no instance to keep it in; let an agent of a runner fetch it"
            );
            return Err(Refusal::new(Code::TooLarge, problem));
        }
    }
    Ok(content.freeze())
}

/// As Agent Swarm describes a file of Slack's.
fn described(info: &Value, size: u64) -> Value {
    json!({ "id": info["id"], "name": info["name"], "mimetype": info["mimetype"], "size": size })
}

fn invalid(problem: &str) -> Refusal {
    Refusal::new(Code::InvalidArgument, problem)
}

fn unreadable(path: &str) -> Refusal {
    invalid(&format!("filePath: {path} cannot be read in your instance; look for it with ls"))
}

fn decoded(content: &str) -> Result<Vec<u8>, Refusal> {
    STANDARD
        .decode(content.trim())
        .map_err(|_| invalid("content: this is no base64; encode the file's bytes"))
}

/// Where a file goes. A path that ends in a slash, or has no dot in it, is a folder.
fn target(wanted: &Wanted, info: &Value) -> String {
    let of_url = wanted.url.as_deref().and_then(|url| url.rsplit('/').next());
    let of_url = of_url.map(|name| name.split(['?', '#']).next().unwrap_or(name));
    let name = wanted.name.as_deref().or_else(|| info["name"].as_str()).or(of_url).unwrap_or_default();
    // What somebody in Slack has called a file must not lead elsewhere.
    let name = name.replace(['/', '\\', '\0'], "_");
    let name = if matches!(name.as_str(), "" | "." | "..") { "file".to_owned() } else { name };
    match wanted.path.as_deref().filter(|path| !path.is_empty()) {
        None => format!("{FOLDER}{name}"),
        Some(path) if path.ends_with('/') => format!("{path}{name}"),
        Some(path) if !path.contains('.') => format!("{path}/{name}"),
        Some(path) => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_goes_where_it_is_wanted_and_nowhere_else() {
        let text = |text: &str| Some(text.to_owned());
        for (path, name, called, target_path) in [
            (None, None, "a.txt", "downloads/slack/a.txt"),
            (Some("in/"), None, "a.txt", "in/a.txt"),
            (Some("in"), None, "a.txt", "in/a.txt"),
            (Some("in/b.md"), None, "a.txt", "in/b.md"),
            (Some("in"), Some("c.md"), "a.txt", "in/c.md"),
            (None, None, "../../etc/passwd", "downloads/slack/.._.._etc_passwd"),
            (None, None, "..", "downloads/slack/file"),
            (None, Some(""), "a.txt", "downloads/slack/file"),
        ] {
            let wanted = Wanted { path: path.and_then(text), name: name.and_then(text), ..Wanted::default() };
            assert_eq!(target(&wanted, &json!({ "name": called })), target_path);
        }
        let wanted = Wanted { url: text("https://files.slack.com/T1-F1/x.png?t=1"), ..Wanted::default() };
        assert_eq!(target(&wanted, &Value::Null), "downloads/slack/x.png");
    }
}
