//! What a person says in Slack, as the swarm hears it (spec: Agent Swarm 4.4).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::note::Thread;

/// What names an agent by its id, or all of them, wherever it stands in a text.
const SWARM: &str = "swarm#";
const ALL: &str = "all";
/// What is below the words of a thread. A message of an inbox becomes a task with the same words, so it names both ids.
pub(crate) const IN_THREAD: &str =
    "\n\n(Said in a thread: slack-read with this taskId or inboxMessageId shows what went before.)";
/// What the mention of a person or the bot begins with.
const MENTION: &str = "<@";

/// A message of a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    pub channel: String,
    /// The thread that it belongs to, or that an answer begins.
    pub thread: String,
    /// Its time stamp, which is its id in the channel.
    pub ts: String,
    pub user: String,
    /// As it was written, with a line for each file.
    pub text: String,
    /// The bot's id, by which people mention it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bot: Option<String>,
    /// It mentions the bot, or was said to nobody else.
    pub mentioned: bool,
}

/// Whom a text names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    pub agents: BTreeSet<Uuid>,
    pub all: bool,
}

impl Said {
    /// Reads the body of an event. None of what programs say, of what was edited or removed, and of what happened in a
    /// channel without words.
    pub fn of(body: &Value) -> Option<Self> {
        let event = &body["event"];
        let text = |field: &str| event[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let kind = text("type").filter(|kind| kind == "message" || kind == "app_mention")?;
        let said = matches!(event["subtype"].as_str(), None | Some("file_share" | "thread_broadcast"));
        if !said || event["bot_id"].is_string() {
            return None;
        }
        let lines = text("text").into_iter().chain(files(event));
        let words = lines.collect::<Vec<_>>().join("\n");
        let ts = text("ts").filter(|_| !words.trim().is_empty())?;
        let bot = body["authorizations"].as_array().into_iter().flatten();
        let bot = bot
            .filter(|one| one["is_bot"] == true)
            .find_map(|one| one["user_id"].as_str())
            .map(str::to_owned);
        let direct = event["channel_type"] == "im";
        let named = bot.as_ref().is_some_and(|bot| mentions(&words, bot));
        Some(Self {
            channel: text("channel")?,
            thread: text("thread_ts").unwrap_or_else(|| ts.clone()),
            ts,
            user: text("user")?,
            text: words,
            bot,
            mentioned: kind == "app_mention" || direct || named,
        })
    }

    /// The thread that it belongs to, or that an answer begins.
    pub fn thread(&self) -> Thread {
        Thread { channel: self.channel.clone(), ts: self.thread.clone() }
    }

    /// Whether it was said in a thread that had begun before.
    pub fn is_in_thread(&self) -> bool {
        self.thread != self.ts
    }

    /// Whether the swarm is asked for something, and not only hears what is said in a thread.
    pub fn is_request(&self) -> bool {
        self.mentioned || self.named() != Named::default()
    }

    /// Whether it can be meant for the swarm. All else is people among themselves.
    pub fn may_concern(&self) -> bool {
        self.is_in_thread() || self.is_request()
    }

    /// What tells it from everything else that was said: its mention comes as an event of its own.
    pub fn key(&self) -> String {
        format!("slack:{}:{}", self.channel, self.ts)
    }

    pub fn named(&self) -> Named {
        let mut named = Named::default();
        for (at, _) in self.text.match_indices(SWARM) {
            match addressee(&self.text[at + SWARM.len()..]) {
                Some(ALL) => named.all = true,
                Some(id) => named.agents.extend(Uuid::try_parse(id)),
                None => {}
            }
        }
        named
    }

    /// What it asks for, as it was typed: without the mention, and without those it names.
    pub fn request(&self) -> String {
        let mut rest = self.text.as_str();
        let mut words = String::with_capacity(rest.len());
        while let Some(letter) = rest.chars().next() {
            let id = rest.strip_prefix(SWARM).and_then(addressee).map(|id| SWARM.len() + id.len());
            let gone = id.or_else(|| mention(rest, self.bot.as_deref()?));
            if gone.is_none() {
                words.push(letter);
            }
            rest = &rest[gone.unwrap_or(letter.len_utf8())..];
        }
        typed(words.trim())
    }

    /// A request as agents read it. In a thread its words alone may say little: "yes, the second one".
    pub fn explained(&self, request: String) -> String {
        if self.is_in_thread() { format!("{request}{IN_THREAD}") } else { request }
    }
}

/// A text of Slack as it was typed: Slack writes these three letters in a way of its own (docs.slack.dev, Formatting
/// message text), and in code each counts. Links and mentions stay as Slack writes them, for they say where and whom.
pub fn typed(text: &str) -> String {
    // The last one last, for what it stands before may look like another.
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

/// A line for each file, since a file without words counts too.
fn files(event: &Value) -> impl Iterator<Item = String> {
    event["files"].as_array().into_iter().flatten().map(|file| {
        let field = |name: &str| file[name].as_str().unwrap_or("?");
        let size = file["size"].as_u64().unwrap_or_default();
        format!("[file {}, {}, {size} bytes, id {}]", field("name"), field("mimetype"), field("id"))
    })
}

fn mentions(text: &str, bot: &str) -> bool {
    text.match_indices(MENTION).any(|(at, _)| mention(&text[at..], bot).is_some())
}

/// How long the mention of the bot is with which a text begins: `<@U1>` or `<@U1|name>`.
fn mention(text: &str, bot: &str) -> Option<usize> {
    let behind = text.strip_prefix(MENTION)?.strip_prefix(bot)?;
    let name = match behind.strip_prefix('|') {
        Some(name) => 1 + name.find(['<', '>', '\n'])?,
        None => 0,
    };
    behind[name..].starts_with('>').then_some(MENTION.len() + bot.len() + name + 1)
}

/// `all`, or an id of 36 characters.
fn addressee(text: &str) -> Option<&str> {
    if let Some(id) = text.get(..36).filter(|id| Uuid::try_parse(id).is_ok()) {
        return Some(id);
    }
    let behind = text.strip_prefix(ALL)?;
    (!behind.starts_with(char::is_alphanumeric)).then_some(ALL)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn heard(event: Value) -> Option<Said> {
        let mut body = json!({"authorizations": [{"user_id": "UBOT", "is_bot": true}],
            "event": {"type": "message", "channel": "C1", "user": "U1", "ts": "5.0"}});
        for (name, value) in event.as_object().unwrap() {
            body["event"][name] = value.clone();
        }
        Said::of(&body)
    }

    #[test]
    fn people_are_heard_and_programs_are_not() {
        assert!(heard(json!({"text": "hi"})).is_some());
        assert!(heard(json!({"text": "", "files": [{"id": "F1"}]})).is_some());
        for event in [
            json!({"text": ""}),
            json!({"text": "hi", "bot_id": "B1"}),
            json!({"text": "hi", "subtype": "bot_message"}),
            json!({"text": "hi", "subtype": "message_changed"}),
            json!({"text": "hi", "user": null}),
            json!({"text": "hi", "type": "reaction_added"}),
            json!({"text": "hi", "channel": 7}),
        ] {
            assert_eq!(heard(event.clone()), None, "{event}");
        }
        for body in [json!(null), json!([]), json!({"event": []})] {
            assert_eq!(Said::of(&body), None);
        }
    }

    #[test]
    fn what_may_concern_the_swarm_is_told_from_chatter() {
        for (event, mentioned, concerns) in [
            (json!({"text": "hi all"}), false, false),
            (json!({"text": "hi <@UBOT>"}), true, true),
            (json!({"text": "hi <@UBOT|skein>"}), true, true),
            (json!({"text": "hi <@UBOTTLE>"}), false, false),
            (json!({"text": "hi <@UBOT|<@UBOT"}), false, false),
            (json!({"text": "hi", "type": "app_mention"}), true, true),
            (json!({"text": "hi", "channel_type": "im"}), true, true),
            (json!({"text": "and?", "thread_ts": "1.0"}), false, true),
            (json!({"text": "hi", "thread_ts": "5.0"}), false, false),
            (json!({"text": "swarm#all stop"}), false, true),
            (json!({"text": "swarm#allies"}), false, false),
        ] {
            let said = heard(event.clone()).unwrap();
            assert_eq!((said.mentioned, said.may_concern()), (mentioned, concerns), "{event}");
        }
    }

    /// Each letter is looked at a bounded number of times: the pool decides nothing else meanwhile.
    #[test]
    fn a_text_is_read_in_one_pass_however_long_it_is() {
        for word in ["a ", "<@UBOT", "<@UBOT|", "swarm#", "<@"] {
            let text = word.repeat(500_000 / word.len());
            let said = heard(json!({"text": format!("{text} <@UBOT>")})).unwrap();
            assert_eq!(said.request(), text.trim());
        }
    }

    #[test]
    fn names_and_mentions_are_no_part_of_the_request() {
        let agent = Uuid::from_u128(7);
        let text = format!("<@UBOT> swarm#{agent}, swarm#nobody and <@U2>: do é it");
        let said = heard(json!({"text": text, "files": [{"id": "F1", "name": "a.ogg", "size": 3}]})).unwrap();
        assert_eq!(said.named(), Named { agents: BTreeSet::from([agent]), all: false });
        let file = "[file a.ogg, ?, 3 bytes, id F1]";
        assert_eq!(said.request(), format!(", swarm#nobody and <@U2>: do é it\n{file}"));
        assert_eq!(heard(json!({"text": "<@UBOT> "})).unwrap().request(), "");
    }

    #[test]
    fn a_request_is_heard_as_it_was_typed() {
        let text = "<@UBOT> while a &lt; b &amp;&amp; c &gt; d write &amp;lt; &amp;amp; see <https://a.b/?x=1&amp;y=2>";
        let said = heard(json!({ "text": text })).unwrap();
        assert_eq!(said.request(), "while a < b && c > d write &lt; &amp; see <https://a.b/?x=1&y=2>");
    }
}
