//! How the bodies of documents are kept.
//!
//! An entity has them in two hashes, under the names of its documents. One has each body as it was made: one JSON object,
//! in the first line. The other has what was changed since, a JSON object with one field in each line, in order; a null
//! takes the field away. So a change needs no look at the body, and one command writes those of all documents. When there
//! are many changes, the script that commits the next one puts the last of each field behind the body (`commit.lua`),
//! which knows a field by what stands before the tab in its line.

use serde_json::{Map, Value};
use skein_shared::entity::DocumentChange;
use skein_shared::json::{Fields, Json};

use super::arguments::Arguments;
use super::connection::at;
use crate::store::{StoreError, lines};

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

    pub(super) fn is_changed(self) -> bool {
        self.beginning().is_none() && self.0.iter().any(|change| body_of(change).is_some())
    }

    /// Adds the body that is made, as one argument.
    pub(super) fn add_made(self, arguments: &mut Arguments) {
        let (begun, since) = self.0.split_at(self.beginning().map_or(0, |place| place + 1));
        arguments.part(begun.last().and_then(|change| body_of(change)).map_or("{}", Json::text));
        add_lines(since, "\n", arguments);
        arguments.end();
    }

    /// Adds what is changed of the body, as one argument.
    pub(super) fn add_changes(self, arguments: &mut Arguments) {
        add_lines(self.0, "", arguments);
        arguments.end();
    }
}

fn body_of(change: &DocumentChange) -> Option<&Json> {
    match change {
        DocumentChange::Put { body, .. } => body.as_ref(),
        DocumentChange::Delete { .. } => None,
    }
}

/// A line for each field, the first behind `before`.
fn add_lines(changes: &[&DocumentChange], mut before: &'static str, arguments: &mut Arguments) {
    for body in changes.iter().filter_map(|change| body_of(change)) {
        for (field, value) in Fields::of(body).iter() {
            arguments.part(before);
            arguments.part("{");
            arguments.quoted(field);
            arguments.part(":\t");
            arguments.part(value);
            arguments.part("}");
            before = "\n";
        }
    }
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
/// When a line is no JSON.
pub(super) fn read(document: &str, parts: [(&str, Option<&[u8]>); 2]) -> Result<Value, StoreError> {
    let mut body = Map::new();
    for (key, lines) in parts {
        lines::merge_into(&mut body, lines.unwrap_or_default())
            .map_err(|error| at(key, &format!("the body of `{document}` is no JSON: {error}")))?;
    }
    Ok(Value::Object(body))
}
