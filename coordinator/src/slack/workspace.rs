//! The methods that Skein calls, with their arguments.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use skein_shared::Refusal;
use skein_shared::id::Name;
use skein_shared::slack::Note;
use skein_shared::time::Timestamp;
use tokio::time::Instant;
use url::Url;
use uuid::Uuid;

use super::client::{Args, Client, Line, TRY};
use super::error::Error;
use super::method::{AUTH_TEST, CONNECT, HISTORY, LIST, Method, POST, REPLIES, UPDATE, USER};
use super::people::{Allowed, People};
use super::rests::Rests;
use crate::config;

/// What an agent's messages are shown with.
const AGENT_ICON: &str = ":robot_face:";
/// Most of something that one page may have.
const PAGE: u32 = 200;
/// How long after a failure Slack may take to show what it has taken.
pub const SHOWN: Duration = Duration::from_secs(5);
/// Until what another process had begun to write is shown: as long as its try may take, and Slack afterwards.
pub const SETTLED: Duration = TRY.saturating_add(SHOWN);
/// What messages of ours are marked with, where programs see it.
const EVENT: &str = "skein_message";
/// Most pages of a list that are read.
const PAGES: usize = 50;

/// Those who write one message come one after the other.
type Turns = tokio::sync::Mutex<Option<Instant>>;

/// A Slack workspace with its bot.
pub struct Workspace {
    pub(super) client: Arc<Client>,
    swarm: Name,
    people: Arc<People>,
    /// The lines of messages that are written just now, or whose writing failed a moment ago.
    lines: Mutex<BTreeMap<Uuid, Arc<Turns>>>,
    rests: Rests,
}

/// Shows no token, wherever it is printed.
impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workspace").field("swarm", &self.swarm).finish_non_exhaustive()
    }
}

/// A message to post.
#[derive(Clone, Debug, Default)]
pub struct Post<'a> {
    pub channel: &'a str,
    pub thread: Option<&'a str>,
    /// In Slack's own markup.
    pub text: &'a str,
    /// The name that it is shown under, with its emoji; the app's own without.
    pub name: Option<&'a str>,
    pub icon: Option<&'a str>,
}

/// Messages, and whether there are more.
#[derive(Clone, Debug)]
pub struct Page {
    pub messages: Vec<Value>,
    pub more: bool,
}

/// The fields of an object, which every list of arguments is.
pub(super) fn args(fields: Value) -> Args {
    match fields {
        Value::Object(fields) => fields,
        _ => Args::new(),
    }
}

impl Workspace {
    /// # Errors
    /// When the system's certificates cannot be read.
    pub fn new(settings: &config::Workspace) -> Result<Self, Error> {
        let bot = settings.bot_token.clone().unwrap_or_default();
        let client = Arc::new(Client::new(settings.api.clone(), bot, settings.app_token.clone())?);
        let swarm = settings.swarm.clone();
        let (users, domains) = (settings.allowed_users.clone(), settings.allowed_domains.clone());
        let people = People::new(Arc::clone(&client), swarm.clone(), Allowed { users, domains });
        Ok(Self { client, swarm, people, lines: Mutex::default(), rests: Rests::default() })
    }

    pub fn swarm(&self) -> &Name {
        &self.swarm
    }

    /// Whether it has the token that opens connections.
    pub fn has_socket_mode(&self) -> bool {
        self.client.has_app_token()
    }

    /// Who the token speaks for: `team`, `user`, `team_id`, `user_id`, `bot_id`.
    ///
    /// # Errors
    /// `slack_not_configured` for a token that is not good.
    pub async fn identity(&self) -> Result<Value, Error> {
        self.client.call(&AUTH_TEST, Args::new()).await
    }

    /// Posts a message, and gives its time stamp, which is its id in the channel. `id` is what the message can be told
    /// by later; people do not see it. If it may be there from an earlier try it is looked for, in its thread, or among
    /// what was written in the channel since that moment: Slack takes whatever it gets for new.
    ///
    /// # Errors
    /// What Slack says; `outcome_unknown` when it may be there.
    pub async fn post(&self, post: &Post<'_>, id: Uuid, earlier: Option<Timestamp>) -> Result<String, Error> {
        let mut line = Some(self.turn(id).await);
        let found = match (earlier, post.thread) {
            (None, _) => None,
            (Some(_), Some(thread)) => self.find_in_thread(post.channel, thread, id).await?,
            (Some(since), None) => {
                let fields = json!({"channel": post.channel, "oldest": stamp(since)});
                self.find(&HISTORY, fields, id).await.map_err(Error::unseen)?
            }
        };
        match found {
            Some(found) => Ok(found["ts"].as_str().unwrap_or_default().to_owned()),
            None => self.post_in(post, id, &mut line).await,
        }
    }

    async fn post_in(&self, post: &Post<'_>, id: Uuid, line: &mut Option<Line>) -> Result<String, Error> {
        let fields = json!({
            "channel": post.channel,
            "thread_ts": post.thread,
            "text": post.text,
            "username": post.name,
            "icon_emoji": post.icon,
            "metadata": {"event_type": EVENT, "event_payload": {"id": id}},
            "unfurl_links": false,
        });
        let answer = self.client.call_in(&POST, args(fields), line).await?;
        Ok(answer["ts"].as_str().unwrap_or_default().to_owned())
    }

    /// Brings a note into its thread, once: whoever does not know whether it is there looks.
    ///
    /// # Errors
    /// What Slack says, or has said a moment ago of this channel where an operator has to mend it.
    pub async fn tell(&self, note: &Note) -> Result<(), Error> {
        if let Some(problem) = self.rests.problem(&note.channel) {
            return Err(problem);
        }
        let told = self.tell_now(note).await;
        self.rests.note(&note.channel, &told);
        told
    }

    async fn tell_now(&self, note: &Note) -> Result<(), Error> {
        let (channel, thread) = (note.channel.as_str(), note.thread.as_str());
        let mut line = Some(self.turn(note.id).await);
        if let Some(found) = self.find_in_thread(channel, thread, note.id).await? {
            let ts = found["ts"].as_str().unwrap_or_default();
            let differs = note.edits && found["text"] != note.text.as_str();
            return if differs { self.update(channel, ts, &note.text, &mut line).await } else { Ok(()) };
        }
        let icon = note.name.is_some().then_some(AGENT_ICON);
        let post = Post { channel, thread: Some(thread), text: &note.text, name: note.name.as_deref(), icon };
        self.post_in(&post, note.id, &mut line).await.map(|_| ())
    }

    /// The turn of whoever writes this message: one comes after the other, and not before Slack has had time to show
    /// what it may have taken.
    async fn turn(&self, message: Uuid) -> Line {
        let line = self.line(message).lock_owned().await;
        if let Some(failed) = *line {
            tokio::time::sleep_until(failed + SHOWN).await;
        }
        line
    }

    fn line(&self, message: Uuid) -> Arc<Turns> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.retain(|_, line| {
            let is_recent = |failed: Option<Instant>| failed.is_some_and(|at| at.elapsed() < SHOWN);
            Arc::strong_count(line) > 1 || line.try_lock().is_ok_and(|failed| is_recent(*failed))
        });
        Arc::clone(lines.entry(message).or_default())
    }

    /// Whether an event of this person may reach the swarm: all may speak to it unless some are named, by id or by the
    /// domain of their address. What nobody does is let in, and what nobody says is not.
    ///
    /// # Errors
    /// `unavailable` while Slack does not say whose address it is, for whatever reason.
    pub async fn may_speak(&self, event: &str, user: Option<&str>) -> Result<bool, Refusal> {
        self.people.may_speak(event, user).await
    }

    /// Writes a message anew that the bot has posted.
    ///
    /// # Errors
    /// What Slack says.
    async fn update(
        &self,
        channel: &str,
        message: &str,
        text: &str,
        line: &mut Option<Line>,
    ) -> Result<(), Error> {
        let fields = json!({"channel": channel, "ts": message, "text": text});
        self.client.call_in(&UPDATE, args(fields), line).await.map(|_| ())
    }

    /// The messages of a thread, the oldest first.
    ///
    /// # Errors
    /// What Slack says.
    pub async fn thread(&self, channel: &str, thread: &str, limit: u32) -> Result<Page, Error> {
        let fields = json!({"channel": channel, "ts": thread, "limit": limit});
        self.messages(self.client.call(&REPLIES, args(fields)).await?)
    }

    async fn find_in_thread(&self, channel: &str, thread: &str, id: Uuid) -> Result<Option<Value>, Error> {
        self.find(&REPLIES, json!({"channel": channel, "ts": thread}), id).await
    }

    /// Looks for a message of ours among those that a method lists, page by page.
    async fn find(&self, method: &Method, mut fields: Value, id: Uuid) -> Result<Option<Value>, Error> {
        fields["limit"] = json!(PAGE);
        fields["include_all_metadata"] = json!(true);
        for _ in 0..PAGES {
            let answer = self.client.call(method, args(fields.clone())).await?;
            let mut messages = answer["messages"].as_array().into_iter().flatten();
            if let Some(found) = messages.find(|message| is_of(message, id)) {
                return Ok(Some(found.clone()));
            }
            match next(&answer) {
                Some(next) => fields["cursor"] = json!(next),
                None => break,
            }
        }
        Ok(None)
    }

    /// The messages of a channel, the newest first.
    ///
    /// # Errors
    /// What Slack says.
    pub async fn history(&self, channel: &str, limit: u32) -> Result<Page, Error> {
        let fields = json!({"channel": channel, "limit": limit});
        self.messages(self.client.call(&HISTORY, args(fields)).await?)
    }

    fn messages(&self, mut answer: Value) -> Result<Page, Error> {
        let more = answer["has_more"].as_bool().unwrap_or_default();
        match answer["messages"].take() {
            Value::Array(messages) => Ok(Page { messages, more }),
            _ => Err(Error::Garbled { method: HISTORY.name, problem: "it has no messages".to_owned() }),
        }
    }

    /// The channels of these kinds that the bot is a member of, so many at most. Slack lists those too that it is not
    /// in, so it may take several pages to find them.
    ///
    /// # Errors
    /// What Slack says.
    pub async fn channels(&self, kinds: &[&str], limit: usize) -> Result<Vec<Value>, Error> {
        let fields = json!({"types": kinds.join(","), "exclude_archived": true, "limit": PAGE});
        let (mut found, mut cursor) = (Vec::new(), None);
        for _ in 0..PAGES {
            let mut fields = args(fields.clone());
            fields.insert("cursor".to_owned(), json!(cursor));
            let mut answer = self.client.call(&LIST, fields).await?;
            let Value::Array(channels) = answer["channels"].take() else { break };
            found.extend(channels.into_iter().filter(is_member));
            match next(&answer) {
                Some(next) if found.len() < limit => cursor = Some(next),
                _ => break,
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    /// A person's record.
    ///
    /// # Errors
    /// `not_found`, and what else Slack says.
    pub async fn user(&self, id: &str) -> Result<Value, Error> {
        let mut answer = self.client.call(&USER, args(json!({"user": id}))).await?;
        Ok(answer["user"].take())
    }

    /// Where a connection for Socket Mode can be opened, once and soon.
    ///
    /// # Errors
    /// Without an app token, and what Slack says.
    pub async fn connection(&self) -> Result<Url, Error> {
        if !self.client.has_app_token() {
            return Err(Error::NoAppToken);
        }
        let answer = self.client.call(&CONNECT, Args::new()).await?;
        let url = answer["url"].as_str().and_then(|url| Url::parse(url).ok());
        url.ok_or_else(|| Error::Garbled { method: CONNECT.name, problem: "it names no address".to_owned() })
    }
}

/// A moment as Slack writes it.
fn stamp(at: Timestamp) -> String {
    format!("{}.{:03}000", at.0 / 1000, at.0 % 1000)
}

/// Whether a message of ours carries this id.
fn is_of(message: &Value, id: Uuid) -> bool {
    message["bot_id"].is_string() && message["metadata"]["event_payload"]["id"] == json!(id)
}

/// Messages to the bot itself have no membership.
fn is_member(channel: &Value) -> bool {
    channel["is_member"] == true || channel["is_im"] == true || channel["is_mpim"] == true
}

fn next(answer: &Value) -> Option<String> {
    let cursor = answer["response_metadata"]["next_cursor"].as_str()?;
    (!cursor.is_empty()).then(|| cursor.to_owned())
}
