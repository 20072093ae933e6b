//! Files between people in Slack and agents. A coordinator has no files of agents: those of an instance are read and
//! written in the instance, by its runner, as `bash` is run there.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use skein_shared::transport::Tool;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::slack::Address;
use super::{Service, step};
use crate::auth::{Principal, Right, policy};
use crate::slack::{Error, LARGEST};

/// How much of a file one command reads, so that its output is not cut, and how much one writes, so that it can be started.
const READS: usize = 36_000;
const WRITES: usize = 60_000;
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
    /// Puts a file into a thread or channel, and gives its id.
    ///
    /// # Errors
    /// Of the address first, then of the file, `slack_not_configured`, and what Slack says.
    pub async fn slack_upload(
        &self,
        who: &Principal,
        request: Uuid,
        address: &Address,
        parcel: Parcel,
    ) -> Result<String, Refusal> {
        let place = self.slack_place(who, address).await?;
        let (content, name) = match parcel.file {
            Some(Given::Content(text)) => (decoded(&text)?, parcel.name),
            Some(Given::Path(path)) => {
                let name = parcel.name.or_else(|| path.rsplit('/').next().map(str::to_owned));
                (self.read_file(who, request, &path).await?, name)
            }
            None => return Err(invalid("give either filePath or content")),
        };
        let name = name.filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| invalid("filename: say what the content shall be called"))?;
        let workspace = self.slack.require(&who.swarm)?;
        let thread = place.thread.as_deref();
        let uploaded =
            workspace.upload(&name, content.into(), &place.channel, thread, parcel.comment.as_deref()).await;
        uploaded.map_err(Error::refusal)
    }

    /// Fetches a file of Slack's, and keeps it in the caller's instance.
    ///
    /// # Errors
    /// `not_joined`, `invalid_argument` without a file, `slack_not_configured`, what Slack says, `forbidden` for a foreign address,
    /// `too_large`.
    pub async fn slack_download(
        &self,
        who: &Principal,
        request: Uuid,
        wanted: Wanted,
    ) -> Result<Kept, Refusal> {
        policy::require(who, Right::Work)?;
        self.require_member(who).await?;
        if wanted.id.is_none() && wanted.url.is_none() {
            return Err(invalid("give fileId or url to say which file is meant"));
        }
        let workspace = self.slack.require(&who.swarm)?;
        let (content, info) = match (&wanted.id, &wanted.url) {
            (Some(id), _) => {
                let file = workspace.file(id).await.map_err(Error::refusal)?;
                (file.content, file.info)
            }
            (None, url) => {
                let url = url.as_deref().unwrap_or_default();
                (workspace.download(url).await.map_err(Error::refusal)?, Value::Null)
            }
        };
        let info = json!({
            "id": info["id"],
            "name": info["name"],
            "mimetype": info["mimetype"],
            "size": content.len(),
        });
        if !who.managed {
            if content.len() > SHOWN {
                let problem =
                    format!("the file has more than {SHOWN} bytes, and you have no instance to keep it in");
                return Err(Refusal::new(Code::TooLarge, problem));
            }
            return Ok(Kept { path: None, content: Some(STANDARD.encode(&content)), info });
        }
        let path = target(&wanted, &info);
        self.write_file(who, request, &path, &content).await?;
        Ok(Kept { path: Some(path), content: None, info })
    }

    async fn read_file(&self, who: &Principal, request: Uuid, path: &str) -> Result<Vec<u8>, Refusal> {
        let mut content = Vec::new();
        loop {
            let from = content.len() + 1;
            let command = format!("tail -c +{from} -- {0} | head -c {READS} | base64", quoted(path));
            // `tail` fails beside the pipe, so the file is looked at by itself first.
            let command = format!("test -r {0} && test -f {0} && {command}", quoted(path));
            let text = self.command(who, step(request, &format!("read {from}")), &command).await?;
            let text: String = text.split_whitespace().collect();
            let part = STANDARD.decode(text).map_err(|_| unreadable(path))?;
            let is_last = part.len() < READS;
            content.extend(part);
            if content.len() as u64 > LARGEST {
                return Err(Refusal::new(Code::TooLarge, format!("{path} has more than {LARGEST} bytes")));
            }
            if is_last {
                return Ok(content);
            }
        }
    }

    /// Under another name until it is whole.
    async fn write_file(
        &self,
        who: &Principal,
        request: Uuid,
        path: &str,
        content: &Bytes,
    ) -> Result<(), Refusal> {
        let part = quoted(&format!("{path}.part"));
        self.command(who, step(request, "begin"), &beginning(path)).await?;
        for (number, bytes) in content.chunks(WRITES).enumerate() {
            let command = format!("printf %s {} | base64 -d >> {part}", STANDARD.encode(bytes));
            self.command(who, step(request, &format!("write {number}")), &command).await?;
        }
        self.command(who, step(request, "end"), &format!("mv -- {part} {}", quoted(path))).await.map(|_| ())
    }

    /// Runs a command in the caller's instance, and gives its output.
    async fn command(&self, who: &Principal, request: Uuid, command: &str) -> Result<String, Refusal> {
        let outcome = self.use_tool(who, request, None, Tool::Bash, json!({ "command": command })).await?;
        match outcome.failed {
            true => {
                let said: String = outcome.text.chars().take(300).collect();
                Err(invalid(&format!("your instance could not do it: {said}")))
            }
            false => Ok(outcome.text),
        }
    }
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

/// For the shell, as it stands.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Begins the part of a file. Into a folder of the file's name `mv` would put it under the name of the part.
fn beginning(path: &str) -> String {
    let (whole, part) = (quoted(path), quoted(&format!("{path}.part")));
    let is_folder = format!("{path} is a folder; end savePath with a slash to keep the file in it");
    format!(
        "if test -d {whole}; then echo {}; false; else mkdir -p -- \"$(dirname -- {whole})\" && : > {part}; fi",
        quoted(&is_folder)
    )
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

    #[test]
    fn a_path_is_one_word_for_the_shell() {
        assert_eq!(quoted("a b;$(c)'d"), r"'a b;$(c)'\''d'");
    }

    #[test]
    fn a_file_takes_no_folders_place() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("v1.2")).unwrap();
        let begin = |path: &str| {
            let mut shell = std::process::Command::new("sh");
            shell.arg("-c").arg(beginning(path)).current_dir(folder.path()).output().unwrap()
        };
        let refused = begin("v1.2");
        assert!(!refused.status.success());
        assert!(String::from_utf8_lossy(&refused.stdout).contains("v1.2 is a folder; end savePath"));
        assert!(!folder.path().join("v1.2.part").exists());
        assert!(begin("new/it's.txt").status.success());
        assert!(folder.path().join("new/it's.txt.part").is_file());
    }
}
