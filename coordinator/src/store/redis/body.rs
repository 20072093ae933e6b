//! How the bodies of documents are kept.
//!
//! An entity has them in two hashes, under the names of its documents. One has each body as it was made: one JSON
//! object, in the first line. The other has what was changed since: two lines for each set of fields that was changed
//! together, behind a line end each, the first of them a `#` and the names, the second the values, JSON with tabs
//! between; a null takes the field away. So a change needs no look at the body, one command writes those of all
//! documents, and a change takes the place of the last one of the very same fields. When there are many changes all the
//! same, the script that commits the next one puts the last of each field behind the body, as two such lines
//! (`commit.lua`).

use serde::de::Error;
use serde_json::{Map, Value};
use skein_shared::entity::DocumentChange;
use skein_shared::json::merge;
use skein_shared::json::{Fields, Json};

use super::arguments::Arguments;
use super::connection::at;
use crate::store::StoreError;

/// What a batch does to one document, in order. There is something of it.
#[derive(Clone, Copy)]
pub(super) struct Document<'a, 'b>(&'b [&'a DocumentChange]);

impl<'a> Document<'a, '_> {
    pub(super) fn name(self) -> &'a str {
        self.0[0].key()
    }

    /// Whether it is live, and its head; none where it is deleted in the end.
    pub(super) fn head(self) -> Option<(bool, &'a Json)> {
        match self.0[self.0.len() - 1] {
            DocumentChange::Put { live, head, .. } => Some((*live, head)),
            DocumentChange::Delete { .. } => None,
        }
    }

    /// Where its body begins anew, if it does.
    fn beginning(self) -> Option<usize> {
        self.0.iter().rposition(|change| match change {
            DocumentChange::Put { new, body, .. } => *new && body.is_some(),
            DocumentChange::Delete { .. } => true,
        })
    }

    /// Whether nothing of the body is left that was there before.
    pub(super) fn is_made(self) -> bool {
        self.head().is_some() && self.beginning().is_some()
    }

    /// Adds the body that is made, as one argument.
    pub(super) fn add_made(self, arguments: &mut Arguments) {
        let since = &self.0[self.beginning().unwrap_or_default()..];
        let body = Fields::joined(since.iter().filter_map(|change| body_of(change)));
        arguments.text(body.as_deref().map_or("{}", Json::text));
    }

    /// What is changed of the body that was there before; nothing if it is left alone, or made anew.
    pub(super) fn changed(self) -> Option<Fields<'a>> {
        if self.beginning().is_some() {
            return None;
        }
        let changed = Fields::of_all(self.0.iter().filter_map(|change| body_of(change)))?;
        (!changed.is_empty()).then_some(changed)
    }
}

fn body_of(change: &DocumentChange) -> Option<&Json> {
    match change {
        DocumentChange::Put { body, .. } => body.as_ref(),
        DocumentChange::Delete { .. } => None,
    }
}

/// Adds what is changed of a body, as one argument.
pub(super) fn add_changes(changed: &Fields<'_>, arguments: &mut Arguments) {
    for (place, (name, _)) in changed.iter().enumerate() {
        arguments.part(if place == 0 { "\n#" } else { "\t" });
        arguments.quoted(name);
    }
    for (place, (_, value)) in changed.iter().enumerate() {
        arguments.part(if place == 0 { "\n" } else { "\t" });
        arguments.part(value);
    }
    arguments.end();
}

/// What a batch does to documents, those in order of which one is the first that it names.
pub(super) struct Documents<'a>(Vec<&'a DocumentChange>);

impl<'a> Documents<'a> {
    pub(super) fn new(changes: &'a [DocumentChange]) -> Self {
        let mut changes: Vec<_> = changes.iter().collect();
        changes.sort_by_key(|change| change.key());
        Self(changes)
    }

    pub(super) fn each(&self) -> impl Iterator<Item = Document<'a, '_>> {
        self.0.chunk_by(|one, other| one.key() == other.key()).map(Document)
    }
}

/// A body of its parts, each with the key that has it: as it was made, and what was changed since.
///
/// # Errors
/// When a part has something else than what belongs there.
pub(super) fn read(
    document: &str,
    [(bodies, made), (changes, changed)]: [(&str, Option<&[u8]>); 2],
) -> Result<Value, StoreError> {
    let mut body = Map::new();
    let spoilt = |key, problem| at(key, &format!("the body of `{document}` is none: {problem}"));
    merge_made(&mut body, made.unwrap_or_default()).map_err(|problem| spoilt(bodies, problem))?;
    merge_changes(&mut body, changed.unwrap_or_default()).map_err(|problem| spoilt(changes, problem))?;
    Ok(Value::Object(body))
}

/// Merges into a body what was made, and the changes that were put behind it.
fn merge_made(body: &mut Map<String, Value>, made: &[u8]) -> serde_json::Result<()> {
    let end = made.iter().position(|byte| *byte == b'\n').unwrap_or(made.len());
    let (made, changes) = made.split_at(end);
    if !made.is_empty() {
        merge(body, serde_json::from_slice(made)?);
    }
    merge_changes(body, changes)
}

/// Merges changes into a body, each of whose lines is behind a line end.
fn merge_changes(body: &mut Map<String, Value>, changes: &[u8]) -> serde_json::Result<()> {
    let changes = std::str::from_utf8(changes).map_err(serde_json::Error::custom)?;
    let mut lines = changes.split('\n');
    if lines.next() != Some("") {
        return Err(serde_json::Error::custom("something before the first change"));
    }
    while let Some(names) = lines.next() {
        let names =
            names.strip_prefix('#').ok_or_else(|| serde_json::Error::custom("a line without names"))?;
        let values = lines.next().ok_or_else(|| serde_json::Error::custom("names without values"))?;
        merge(body, Value::Object(change(names, values)?));
    }
    Ok(())
}

/// What two lines change.
fn change(names: &str, values: &str) -> serde_json::Result<Map<String, Value>> {
    if names.split('\t').count() != values.split('\t').count() {
        return Err(serde_json::Error::custom("names and values that do not go together"));
    }
    let fields = names.split('\t').zip(values.split('\t'));
    fields.map(|(name, value)| Ok((serde_json::from_str(name)?, serde_json::from_str(value)?))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_of(made: &str, changes: &str) -> Result<Value, StoreError> {
        read("task/1", [("bodies", Some(made.as_bytes())), ("changes", Some(changes.as_bytes()))])
    }

    #[test]
    fn what_is_changed_is_read_as_it_was_written() {
        let changed = json!({"a\"\t\n#": "x\t\n#y", "b": null, "": [1, {"c": 2}]});
        let changed = Json::of(&changed);
        let mut arguments = Arguments::default();
        add_changes(&Fields::of(&changed), &mut arguments);
        let changes = std::str::from_utf8(arguments.iter().next().unwrap()).unwrap();
        assert_eq!(changes.matches('\n').count(), 2, "{changes}");
        let body = read_of(r#"{"b":1,"d":true}"#, changes).unwrap();
        assert_eq!(body, json!({"a\"\t\n#": "x\t\n#y", "": [1, {"c": 2}], "d": true}));
        let again = read_of(r#"{"b":1}"#, &format!("{changes}\n#\"b\"\n3")).unwrap();
        assert_eq!(again["b"], 3, "what comes later counts");
    }

    #[test]
    fn what_is_no_change_is_named_with_the_key_that_has_it() {
        for garbage in [
            "\n",
            "\n#",
            "\n#\"a\"",
            "\n#\"a\"\n",
            "\n\"a\"\n1",
            "\n#a\n1",
            "\n#\"a\"\t\"b\"\n1",
            "\n#\"a\"\n1\n",
        ] {
            let StoreError(told) = read_of("{}", garbage).unwrap_err();
            assert!(told.contains("changes") && told.contains("`task/1`"), "{garbage:?}: {told}");
            let StoreError(told) = read_of(&format!("{{}}{garbage}"), "").unwrap_err();
            assert!(told.contains("bodies"), "{garbage:?}: {told}");
        }
        for garbage in ["scribble", "{}{}"] {
            assert!(read_of(garbage, "").is_err(), "{garbage}");
        }
        assert!(read_of("{}", r#"{"a":1}"#).is_err(), "no change stands in the first line");
    }
}
