//! Which events a wait or a subscription is for.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value, json};

use super::command::Incoming;
use super::subscription::Key;
use crate::code::{Code, Refusal};

/// Most predicates of one filter, and the longest of their paths, bytes: every event is held against them.
const PREDICATES: usize = 50;
const PATH: usize = 256;
/// Where an event has the names of its source, and its own.
const SOURCE: [&str; 2] = ["sourceName", "source"];
const EVENT: &str = "event";
/// Longest value to compare with, bytes.
const VALUE: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilterKind {
    Webhook,
    AgentTrigger,
}

/// What an event must be like. Everything that is set must hold; there are no patterns, only equality.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Filter {
    pub kind: FilterKind,
    /// Webhooks: the configured name of the source, or its provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Webhooks: the event's normalised name, case and all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// Dotted path to the wanted value: a scalar, or an array of which one must do.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub matches: BTreeMap<String, Value>,
    /// Webhooks: what a subscription asks for in its provider's words; of each list one must do.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub only: BTreeMap<Key, Vec<String>>,
    /// Agent triggers: the agent that calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_agent: Option<String>,
}

/// What keeps an event from matching a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss<'a> {
    Kind,
    Source,
    Event,
    Key(Key),
    Path(&'a str),
}

impl fmt::Display for Miss<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Miss::Kind => formatter.write_str("it is another kind of trigger"),
            Miss::Source => formatter.write_str("`source` is another"),
            Miss::Event => formatter.write_str("`event` is another"),
            Miss::Key(key) => write!(formatter, "`{}` has no value that is the event's", key.word()),
            Miss::Path(path) => write!(formatter, "`match.{path}` is not what the event has there"),
        }
    }
}

/// An event as the agent gets it. Filters look at nothing else, so what an agent saw is what was matched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Envelope(pub Map<String, Value>);

impl Envelope {
    const AGENT_TRIGGER: &str = "agent-trigger";

    /// The normalised context with the raw body as `payload`.
    pub fn webhook(incoming: &Incoming) -> Self {
        let mut fields = incoming.context.as_object().cloned().unwrap_or_default();
        fields.insert("type".to_owned(), json!("webhook"));
        fields.insert("source".to_owned(), json!(incoming.provider));
        fields.insert("sourceName".to_owned(), json!(incoming.source));
        fields.insert("event".to_owned(), json!(incoming.event));
        fields.insert("receiptId".to_owned(), json!(incoming.receipt));
        fields.entry("timestamp").or_insert_with(|| json!(incoming.received_at.iso()));
        fields.insert("payload".to_owned(), incoming.payload.clone());
        Self(fields)
    }

    /// A call, or a signal without an answer, from another agent.
    pub fn agent_trigger(source_agent: &str, context: Value) -> Self {
        let mut fields = Map::new();
        fields.insert("type".to_owned(), json!(Self::AGENT_TRIGGER));
        fields.insert("sourceAgent".to_owned(), json!(source_agent));
        fields.insert("context".to_owned(), context);
        Self(fields)
    }

    pub fn kind(&self) -> FilterKind {
        match self.text("type") {
            Some(Self::AGENT_TRIGGER) => FilterKind::AgentTrigger,
            _ => FilterKind::Webhook,
        }
    }

    /// The configured name of the webhook source that it came from.
    pub fn source_name(&self) -> Option<&str> {
        self.text("sourceName")
    }

    /// The two names of its source: the configured one and the kind.
    pub(super) fn sources(&self) -> impl Iterator<Item = &str> {
        SOURCE.iter().filter_map(|field| self.text(field))
    }

    pub(super) fn event_name(&self) -> Option<&str> {
        self.text(EVENT)
    }

    pub(super) fn text(&self, field: &str) -> Option<&str> {
        self.0.get(field).and_then(Value::as_str)
    }

    /// Looks a path up in the context and then in the raw body; the prefixes `context.` and `payload.` say
    /// which of the two is meant. A null in the context stands for a field that the provider does not have,
    /// so the body's value comes before it.
    pub(super) fn find(&self, path: &str) -> Option<&Value> {
        if let Some(rest) = path.strip_prefix("context.") {
            return self.in_context(rest);
        }
        if let Some(rest) = path.strip_prefix("payload.") {
            return self.in_body(rest);
        }
        let context = self.in_context(path);
        context.filter(|value| !value.is_null()).or_else(|| self.in_body(path)).or(context)
    }

    fn in_context(&self, path: &str) -> Option<&Value> {
        match self.kind() {
            FilterKind::Webhook => walk_fields(&self.0, path),
            FilterKind::AgentTrigger => walk(self.0.get("context")?, path),
        }
    }

    fn in_body(&self, path: &str) -> Option<&Value> {
        match self.kind() {
            FilterKind::Webhook => walk(self.0.get("payload")?, path),
            FilterKind::AgentTrigger => walk_fields(&self.0, path),
        }
    }
}

impl Filter {
    /// Whether the event is one to wake up for.
    pub fn matches(&self, event: &Envelope) -> bool {
        self.miss(event).is_none()
    }

    /// The first thing that keeps the event from matching.
    pub fn miss(&self, event: &Envelope) -> Option<Miss<'_>> {
        if self.kind != event.kind() {
            return Some(Miss::Kind);
        }
        let is = |wanted: &Option<String>, fields: &[&str]| match wanted {
            Some(wanted) => fields.iter().any(|field| event.text(field) == Some(wanted.as_str())),
            None => true,
        };
        let (source, name) = match self.kind {
            FilterKind::Webhook => (is(&self.source, &SOURCE), is(&self.event, &[EVENT])),
            FilterKind::AgentTrigger => (is(&self.source_agent, &["sourceAgent"]), true),
        };
        if !source {
            return Some(Miss::Source);
        }
        if !name {
            return Some(Miss::Event);
        }
        let key = self.only.iter().find(|(key, wanted)| !key.holds(wanted, event));
        key.map(|(key, _)| Miss::Key(*key)).or_else(|| self.missed_path(event))
    }

    fn missed_path(&self, event: &Envelope) -> Option<Miss<'_>> {
        let holds = |path: &str, wanted| event.find(path).is_some_and(|found| accepts(wanted, found));
        let (path, _) = self.matches.iter().find(|(path, wanted)| !holds(path, wanted))?;
        Some(Miss::Path(path))
    }

    /// # Errors
    /// `invalid_argument` when a predicate can never be compared, or there are too many.
    pub fn validate(&self) -> Result<(), Refusal> {
        if self.matches.len() > PREDICATES {
            return Err(invalid(format!(
                "a filter has at most {PREDICATES} predicates in `match`, this one {}; test less",
                self.matches.len()
            )));
        }
        for (path, wanted) in &self.matches {
            if path.len() > PATH || path.split('.').any(str::is_empty) {
                let shown: String = path.chars().take(80).collect();
                return Err(invalid(format!(
                    "match: `{shown}` is not a path; write property names joined by dots, such as pull_request.merged, at most {PATH} bytes"
                )));
            }
            let wanted_ok = match wanted {
                Value::Array(any) => !any.is_empty() && any.len() <= PREDICATES && any.iter().all(is_scalar),
                scalar => is_scalar(scalar),
            };
            if !wanted_ok {
                return Err(invalid(format!(
                    "match.{path}: compare with a string of at most {VALUE} bytes, a number, a boolean or null, or with an array of 1 to {PREDICATES} of them"
                )));
            }
        }
        Ok(())
    }
}

fn invalid(message: String) -> Refusal {
    Refusal::new(Code::InvalidArgument, message)
}

fn is_scalar(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() <= VALUE,
        Value::Array(_) | Value::Object(_) => false,
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

fn walk_fields<'a>(fields: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        Some((first, rest)) => walk(fields.get(first)?, rest),
        None => fields.get(path),
    }
}

fn walk<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, segment| match value {
        Value::Object(fields) => fields.get(segment),
        Value::Array(items) => items.get(segment.parse::<usize>().ok()?),
        _ => None,
    })
}

/// Compares by text. One wanted value of an array will do; against a list, such as labels, one in common.
fn accepts(wanted: &Value, found: &Value) -> bool {
    match (wanted, found) {
        (Value::Array(any), Value::Array(items)) => any.iter().any(|wanted| {
            let wanted = text_of(wanted);
            wanted == text_of(found) || items.iter().any(|item| wanted == text_of(item))
        }),
        (Value::Array(any), _) => any.iter().any(|wanted| accepts(wanted, found)),
        _ => text_of(wanted).is_some_and(|wanted| text_of(found) == Some(wanted)),
    }
}

/// The text that a value is compared by: `true`, `7`, `null`; a list joins its parts with commas, as the
/// original did. An object has none.
pub(super) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some("null".to_owned()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => Some(number_text(number)),
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => items.iter().map(text_of).collect::<Option<Vec<_>>>().map(|t| t.join(",")),
        Value::Object(_) => None,
    }
}

/// `7.0` and `7` are one number, so they have one text.
fn number_text(number: &Number) -> String {
    /// Whole numbers up to here survive the way through a float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() <= EXACT => {
            format!("{float:.0}")
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    fn event() -> Envelope {
        Envelope::webhook(&Incoming {
            receipt: uuid::Uuid::from_u128(1),
            delivery: "d-1".to_owned(),
            source: "acme-github".to_owned(),
            provider: "github".to_owned(),
            event: "pull_request".to_owned(),
            context: json!({
                "action": "closed", "number": 7, "body": null, "labels": ["bug", "ui"], "title": "context",
            }),
            payload: json!({
                "action": "raw", "body": "raw body", "context": "ci/build", "draft": null, "size": 7.0,
                "pull_request": { "merged": true, "labels": [{ "name": "bug" }] },
            }),
            received_at: Timestamp(1_790_000_000_000),
            unsigned: false,
            said: None,
            letter: None,
            activity: None,
        })
    }

    fn webhook(predicates: Value) -> Filter {
        let fields = json!({ "kind": "webhook", "matches": predicates });
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn predicates_compare_by_text() {
        for (path, wanted, hit) in [
            ("action", json!("closed"), true),
            ("action", json!("Closed"), false),
            ("payload.action", json!("raw"), true),
            ("context.action", json!("raw"), false),
            ("number", json!(7), true),
            ("number", json!("7"), true),
            ("number", json!(7.0), true),
            ("number", json!(70), false),
            ("size", json!(7), true),
            ("pull_request.merged", json!(true), true),
            ("pull_request.merged", json!("true"), true),
            ("context.pull_request.merged", json!(true), false),
            ("pull_request.labels.0.name", json!("bug"), true),
            ("pull_request.labels.1.name", json!("bug"), false),
            ("labels.0", json!("bug"), true),
            ("labels", json!("bug,ui"), true),
            ("labels", json!("bug"), false),
            ("labels", json!(["docs", "ui"]), true),
            ("labels", json!(["docs"]), false),
            ("action", json!(["opened", "closed"]), true),
            ("action", json!(["opened"]), false),
            ("body", json!("raw body"), true),
            ("context.body", json!(null), true),
            ("context", json!("ci/build"), true),
            ("draft", json!(null), true),
            ("draft", json!("null"), true),
            ("missing", json!(null), false),
            ("missing", json!("undefined"), false),
            ("action.length", json!("6"), false),
            ("pull_request", json!("[object Object]"), false),
            ("source", json!("github"), true),
            ("sourceName", json!("acme-github"), true),
        ] {
            let mut predicates = Map::new();
            predicates.insert(path.to_owned(), wanted.clone());
            let filter = webhook(Value::Object(predicates));
            assert_eq!(filter.matches(&event()), hit, "{path} = {wanted}");
        }
    }

    #[test]
    fn all_that_is_set_must_hold() {
        let with = |source: Option<&str>, event: Option<&str>| Filter {
            source: source.map(str::to_owned),
            event: event.map(str::to_owned),
            ..webhook(json!({ "action": "closed" }))
        };
        for (source, name, hit) in [
            (None, None, true),
            (Some("acme-github"), None, true),
            (Some("github"), Some("pull_request"), true),
            (Some("slack"), Some("pull_request"), false),
            (Some("github"), Some("Pull_Request"), false),
        ] {
            assert_eq!(with(source, name).matches(&event()), hit, "{source:?} {name:?}");
        }
        let several = webhook(json!({ "action": "closed", "number": 8 }));
        assert_eq!(several.miss(&event()), Some(Miss::Path("number")));
        assert_eq!(with(Some("slack"), None).miss(&event()), Some(Miss::Source));
        assert_eq!(with(None, Some("push")).miss(&event()), Some(Miss::Event));
    }

    #[test]
    fn agent_triggers_match_by_their_source_agent() {
        let event = Envelope::agent_trigger("lead", json!({ "ticket": 5 }));
        let filter = |source_agent: Option<&str>, predicates: Value| Filter {
            kind: FilterKind::AgentTrigger,
            source_agent: source_agent.map(str::to_owned),
            source: Some("ignored".to_owned()),
            ..webhook(predicates)
        };
        assert!(filter(None, json!({})).matches(&event));
        assert!(filter(Some("lead"), json!({ "ticket": "5", "context.ticket": 5 })).matches(&event));
        assert!(!filter(Some("other"), json!({})).matches(&event));
        assert!(!filter(None, json!({ "ticket": 6 })).matches(&event));
        assert!(!webhook(json!({})).matches(&event));
        assert!(!filter(None, json!({})).matches(&self::event()));
    }

    #[test]
    fn a_body_cannot_pass_for_another_kind_of_event() {
        let mut incoming: Incoming = serde_json::from_value(json!({
            "receipt": uuid::Uuid::nil(), "delivery": "", "source": "test", "provider": "test",
            "event": "ping", "payload": {}, "received_at": 0,
            "context": { "type": "agent-trigger", "sourceAgent": "lead", "event": "push", "source": "github" },
        }))
        .unwrap();
        let event = Envelope::webhook(&incoming);
        assert_eq!(event.kind(), FilterKind::Webhook);
        assert_eq!((&event.0["event"], &event.0["source"]), (&json!("ping"), &json!("test")));
        incoming.context = json!("no object");
        assert_eq!(Envelope::webhook(&incoming).0["payload"], json!({}));
    }

    #[test]
    fn predicates_that_can_never_hold_are_refused() {
        for bad in [
            json!({ "a": {} }),
            json!({ "a": [] }),
            json!({ "a": [[1]] }),
            json!({ "": 1 }),
            json!({ "a..b": 1 }),
            json!({ "a": "x".repeat(VALUE + 1) }),
        ] {
            assert_eq!(webhook(bad.clone()).validate().unwrap_err().code, Code::InvalidArgument, "{bad}");
        }
        assert!(webhook(json!({ "a.0.b": [1, "x", null, true] })).validate().is_ok());
    }
}
