//! What an agent's definition subscribes to: a source, and what its events must be like, in the words of the
//! source's provider (spec: Action Llama 8.3).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::filter::{Envelope, Filter, FilterKind};
use crate::spelling::nearest;

/// Most values of one key.
const VALUES: usize = 50;
/// Keys that every subscription may have.
const COMMON: [&str; 3] = ["source", "event", "match"];

/// What a key of a subscription asks of an event. Providers have words of their own for some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Key {
    Actions,
    Assignee,
    Author,
    Branches,
    Channels,
    Commands,
    Conclusions,
    Events,
    Labels,
    /// What the event belongs to: a repository, a project, a team, an account.
    Repos,
    /// Whoever that belongs to in turn: the beginning of its path.
    Orgs,
}

/// The words of each provider, documented and usual ones.
const WORDS: [(&str, &[(&str, Key)]); 11] = [
    ("agentmail", &[("inboxes", Key::Repos), ("events", Key::Events), ("author", Key::Author)]),
    (
        "discord",
        &[
            ("events", Key::Events),
            ("guilds", Key::Repos),
            ("channels", Key::Channels),
            ("commands", Key::Commands),
        ],
    ),
    ("generic", FORGE),
    ("github", FORGE),
    (
        "gitlab",
        &[
            ("projects", Key::Repos),
            ("repos", Key::Repos),
            ("groups", Key::Orgs),
            ("events", Key::Events),
            ("actions", Key::Actions),
            ("labels", Key::Labels),
            ("assignee", Key::Assignee),
            ("author", Key::Author),
            ("branches", Key::Branches),
            ("conclusions", Key::Conclusions),
        ],
    ),
    (
        "linear",
        &[
            ("organizations", Key::Repos),
            ("events", Key::Events),
            ("actions", Key::Actions),
            ("labels", Key::Labels),
            ("assignee", Key::Assignee),
            ("author", Key::Author),
        ],
    ),
    (
        "mintlify",
        &[
            ("projects", Key::Repos),
            ("repos", Key::Repos),
            ("events", Key::Events),
            ("actions", Key::Actions),
            ("branches", Key::Branches),
        ],
    ),
    ("sentry", &[("resources", Key::Events)]),
    (
        "slack",
        &[
            ("events", Key::Events),
            ("channels", Key::Channels),
            ("team_ids", Key::Repos),
            ("commands", Key::Commands),
        ],
    ),
    ("test", FORGE),
    ("twitter", &[("users", Key::Repos), ("repos", Key::Repos), ("events", Key::Events)]),
];

const FORGE: &[(&str, Key)] = &[
    ("repos", Key::Repos),
    ("orgs", Key::Orgs),
    ("org", Key::Orgs),
    ("events", Key::Events),
    ("actions", Key::Actions),
    ("labels", Key::Labels),
    ("assignee", Key::Assignee),
    ("author", Key::Author),
    ("branches", Key::Branches),
    ("conclusions", Key::Conclusions),
];

/// Reads a subscription. Where `source` is the name of a provider only the words of that provider are known;
/// where it is the name of a source all are, for sources are configured elsewhere.
///
/// # Errors
/// A sentence that names the key at fault, and the one that was probably meant.
pub fn subscription(fields: &Map<String, Value>) -> Result<Filter, String> {
    let source = match fields.get("source") {
        Some(Value::String(source)) if !source.is_empty() => source.clone(),
        _ => return Err(sourceless(fields)),
    };
    let words: Vec<(&str, Key)> = match WORDS.iter().find(|(provider, _)| *provider == source) {
        Some((_, words)) => words.to_vec(),
        None => WORDS.iter().flat_map(|(_, words)| words.iter().copied()).collect(),
    };
    let mut filter = Filter {
        kind: FilterKind::Webhook,
        source: Some(source),
        event: None,
        matches: BTreeMap::new(),
        only: BTreeMap::new(),
        source_agent: None,
    };
    for (name, value) in fields {
        match (name.as_str(), value) {
            ("source", _) => {}
            ("event", Value::String(event)) => filter.event = Some(event.clone()),
            ("event", _) => return Err("`event` is a text; for several write `events`".to_owned()),
            ("match", Value::Object(predicates)) => {
                filter.matches =
                    predicates.iter().map(|(path, wanted)| (path.clone(), wanted.clone())).collect();
            }
            ("match", _) => return Err("`match` is a table of paths and values".to_owned()),
            (word, value) => {
                let Some((_, key)) = words.iter().find(|(known, _)| *known == word) else {
                    return Err(unknown(word, &filter, &words));
                };
                if filter.only.insert(*key, texts(word, value)?).is_some() {
                    return Err(format!("`{word}` says again what another key says; keep one of the two"));
                }
            }
        }
    }
    filter.validate().map_err(|refusal| refusal.message)?;
    Ok(filter)
}

fn sourceless(fields: &Map<String, Value>) -> String {
    match fields.keys().find(|key| *key != "source" && nearest(key, ["source"]).is_some()) {
        Some(key) => format!("`{key}` is no key of a subscription; did you mean `source`?"),
        None => "`source` is missing; write the name of a webhook source or of a provider".to_owned(),
    }
}

fn unknown(word: &str, filter: &Filter, words: &[(&str, Key)]) -> String {
    let source = filter.source.as_deref().unwrap_or_default();
    let known = || COMMON.into_iter().chain(words.iter().map(|(known, _)| *known));
    match nearest(word, known()) {
        Some(right) => format!("`{word}` is no key for `{source}`; did you mean `{right}`?"),
        None => {
            let mut known: Vec<&str> = known().collect();
            known.sort_unstable();
            known.dedup();
            format!("`{word}` is no key for `{source}`; the keys are {}", known.join(", "))
        }
    }
}

/// One text, or a list of which any will do.
fn texts(word: &str, value: &Value) -> Result<Vec<String>, String> {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let texts = match value {
        Value::Array(any) if any.len() <= VALUES => any.iter().map(text).collect(),
        value => text(value).map(|text| vec![text]),
    };
    texts
        .filter(|texts| !texts.is_empty())
        .ok_or_else(|| format!("`{word}` is a text, or a list of 1 to {VALUES} texts of which any will do"))
}

impl Key {
    /// The usual word for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Key::Actions => "actions",
            Key::Assignee => "assignee",
            Key::Author => "author",
            Key::Branches => "branches",
            Key::Channels => "channels",
            Key::Commands => "commands",
            Key::Conclusions => "conclusions",
            Key::Events => "events",
            Key::Labels => "labels",
            Key::Repos => "repos",
            Key::Orgs => "orgs",
        }
    }

    /// Whether the event is as the key wants it. Labels have one in common; a branch and a conclusion are asked
    /// only of events that have one, and a command only of commands.
    pub(super) fn holds(self, wanted: &[String], event: &Envelope) -> bool {
        let is = |field: &str| event.text(field).is_some_and(|text| wanted.iter().any(|one| one == text));
        match self {
            Key::Actions => is("action"),
            Key::Assignee => is("assignee"),
            Key::Author => is("author"),
            Key::Branches => event.text("branch").is_none() || is("branch"),
            Key::Conclusions => event.text("conclusion").is_none() || is("conclusion"),
            Key::Events => is("event"),
            Key::Repos => is("repo"),
            Key::Orgs => event.text("repo").is_some_and(|repo| wanted.iter().any(|org| owns(org, repo))),
            Key::Commands => {
                let is_command = matches!(event.text("event"), Some("application_command" | "slash_command"));
                !is_command || is("action")
            }
            Key::Labels => {
                let labels = event.0.get("labels").and_then(Value::as_array);
                let mut names = labels.into_iter().flatten().filter_map(Value::as_str);
                names.any(|label| wanted.iter().any(|one| one == label))
            }
            Key::Channels => is("channel") && is_said_in_its_channel(event),
        }
    }
}

/// Slack names a channel for a reaction or a pin too: that of what it was given to. A filter of channels matches none
/// of these (spec: Action Llama 8.3).
fn is_said_in_its_channel(event: &Envelope) -> bool {
    event.text("source") != Some("slack") || event.text("comment").is_some()
}

fn owns(org: &str, repo: &str) -> bool {
    repo.strip_prefix(org).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(fields: Value) -> Result<Filter, String> {
        subscription(fields.as_object().unwrap())
    }

    fn event(provider: &str, event: &str, context: Value) -> Envelope {
        let Value::Object(mut fields) = context else { panic!("an object") };
        let named = [("type", "webhook"), ("source", provider), ("sourceName", "door"), ("event", event)];
        fields.extend(named.map(|(name, value)| (name.to_owned(), json!(value))));
        Envelope(fields)
    }

    #[test]
    fn every_word_of_every_provider_is_understood() {
        for (provider, words) in WORDS {
            for (word, key) in words {
                let mut fields = json!({"source": provider});
                fields[*word] = json!(["x"]);
                let filter = read(fields).unwrap();
                assert_eq!(filter.only, BTreeMap::from([(*key, vec!["x".to_owned()])]), "{provider} {word}");
                let stored = serde_json::to_value(&filter).unwrap();
                assert_eq!(serde_json::from_value::<Filter>(stored).unwrap(), filter);
            }
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_was() {
        for (fields, said) in [
            (json!({"source": "github", "repo": ["x"]}), "did you mean `repos`"),
            (json!({"source": "github", "evnts": ["x"]}), "did you mean `events`"),
            (json!({"source": "sentry", "resource": ["x"]}), "did you mean `resources`"),
            (json!({"source": "discord", "guild": ["x"]}), "did you mean `guilds`"),
            (json!({"source": "sentry", "repos": ["x"]}), "the keys are event, match, resources, source"),
            (json!({"source": "github", "channels": ["x"]}), "no key for `github`"),
            (json!({"source": "hub", "weather": ["x"]}), "no key for `hub`"),
            (json!({"sauce": "github"}), "did you mean `source`"),
            (json!({"events": ["push"]}), "`source` is missing"),
            (json!({"source": ""}), "`source` is missing"),
            (json!({"source": "github", "event": ["push"]}), "write `events`"),
            (json!({"source": "github", "repos": []}), "`repos` is a text"),
            (json!({"source": "github", "repos": [7]}), "`repos` is a text"),
            (json!({"source": "github", "repos": {}}), "`repos` is a text"),
            (json!({"source": "github", "org": "a", "orgs": ["b"]}), "keep one"),
            (json!({"source": "github", "match": "x"}), "`match` is a table"),
            (json!({"source": "github", "match": {"a..b": 1}}), "is not a path"),
        ] {
            let problem = read(fields.clone()).unwrap_err();
            assert!(problem.contains(said), "{fields}: {problem}");
        }
        assert!(read(json!({"source": "hub", "channels": "C1", "repos": "T1"})).is_ok());
    }

    #[test]
    fn each_key_asks_what_it_says() {
        let issue = || {
            event(
                "github",
                "issues",
                json!({"repo": "acme/api", "action": "opened", "labels": ["bug", "ui"],
            "author": "ada", "assignee": "bob"}),
            )
        };
        let run = || {
            event(
                "github",
                "workflow_run",
                json!({"repo": "acme/api", "branch": "main", "conclusion": "failure"}),
            )
        };
        let said =
            || event("slack", "message", json!({"repo": "T1", "channel": "C1", "comment": "channel:C1"}));
        let thumb = || event("slack", "reaction_added", json!({"repo": "T1", "channel": "C1"}));
        let slash = || event("slack", "slash_command", json!({"action": "/go", "channel": "C1"}));
        let typed =
            || event("discord", "application_command", json!({"repo": "g", "channel": "c", "action": "go"}));
        let click =
            || event("discord", "message_component", json!({"repo": "g", "channel": "c", "action": "ok"}));
        for (source, key, wanted, event, hit) in [
            ("github", "repos", json!(["x/y", "acme/api"]), issue(), true),
            ("github", "repos", json!("acme/app"), issue(), false),
            ("github", "orgs", json!(["acme"]), issue(), true),
            ("github", "org", json!("acm"), issue(), false),
            ("github", "events", json!(["issues"]), issue(), true),
            ("github", "events", json!(["push"]), issue(), false),
            ("github", "actions", json!(["opened", "closed"]), issue(), true),
            ("github", "actions", json!(["opened"]), run(), false),
            ("github", "labels", json!(["docs", "ui"]), issue(), true),
            ("github", "labels", json!(["docs"]), issue(), false),
            ("github", "labels", json!(["docs"]), run(), false),
            ("github", "author", json!("ada"), issue(), true),
            ("github", "assignee", json!("ada"), issue(), false),
            ("github", "branches", json!(["main"]), run(), true),
            ("github", "branches", json!(["next"]), run(), false),
            ("github", "branches", json!(["next"]), issue(), true),
            ("github", "conclusions", json!(["failure"]), run(), true),
            ("github", "conclusions", json!(["success"]), run(), false),
            ("github", "conclusions", json!(["success"]), issue(), true),
            ("slack", "channels", json!(["C1"]), said(), true),
            ("slack", "channels", json!(["C2"]), said(), false),
            ("slack", "channels", json!(["C1"]), thumb(), false),
            ("slack", "events", json!(["reaction_added"]), thumb(), true),
            ("slack", "team_ids", json!(["T1"]), said(), true),
            ("slack", "commands", json!(["/go"]), slash(), true),
            ("slack", "commands", json!(["/stop"]), slash(), false),
            ("discord", "guilds", json!(["g"]), typed(), true),
            ("discord", "channels", json!(["c"]), typed(), true),
            ("discord", "channels", json!(["d"]), typed(), false),
            ("discord", "commands", json!(["go"]), typed(), true),
            ("discord", "commands", json!(["stop"]), typed(), false),
            ("discord", "commands", json!(["stop"]), click(), true),
            ("slack", "channels", json!(["C1"]), typed(), false),
        ] {
            let mut fields = json!({"source": source});
            fields[key] = wanted.clone();
            assert_eq!(read(fields).unwrap().matches(&event), hit, "{key} = {wanted} of {event:?}");
        }
    }

    #[test]
    fn all_keys_must_hold() {
        let both = |action: &str| {
            read(
                json!({"source": "door", "repos": ["acme/api"], "actions": [action], "match": {"number": 7}}),
            )
            .unwrap()
        };
        let event = event("github", "issues", json!({"repo": "acme/api", "action": "opened", "number": 7}));
        assert!(both("opened").matches(&event));
        let miss = both("closed").miss(&event).map(|miss| miss.to_string());
        assert_eq!(miss.as_deref(), Some("`actions` has no value that is the event's"));
    }
}
