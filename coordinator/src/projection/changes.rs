//! What a group of commits makes of the documents: only the last state of each is written.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};
use skein_shared::entity::DocumentChange;
use skein_shared::harness::merge;
use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;

use crate::store::Version;

/// Changes by entity, then by document.
#[derive(Default)]
pub(super) struct Changes(HashMap<EntityKey, BTreeMap<String, Change>>);

/// All that happened to one document, as one change.
#[derive(Debug, PartialEq)]
pub(super) struct Change {
    /// The last version and time among them.
    pub(super) version: Version,
    pub(super) at: Timestamp,
    pub(super) state: State,
}

#[derive(Debug, PartialEq)]
pub(super) enum State {
    Deleted,
    /// Fields to be merged into those that the row has. A null removes a field.
    Merged {
        live: bool,
        fields: Map<String, Value>,
    },
    /// All of the fields: the document was deleted and made anew.
    Made {
        live: bool,
        fields: Map<String, Value>,
    },
}

impl Changes {
    pub(super) fn add(
        &mut self,
        key: &EntityKey,
        version: Version,
        at: Timestamp,
        documents: Vec<DocumentChange>,
    ) {
        if documents.is_empty() {
            return;
        }
        if !self.0.contains_key(key) {
            self.0.insert(key.clone(), BTreeMap::new());
        }
        let Some(changes) = self.0.get_mut(key) else { return };
        for document in documents {
            let (DocumentChange::Put { key, .. } | DocumentChange::Delete { key }) = &document;
            // Most documents change more than once in a group, so the name is seldom needed.
            if let Some(change) = changes.get_mut(key) {
                (change.version, change.at) = (version, at);
                change.state.follow(document);
                continue;
            }
            let name = key.clone();
            changes.insert(name, Change { version, at, state: State::first(document) });
        }
    }

    /// Forgets what is gathered of an entity, since its rows are read from the store.
    pub(super) fn forget(&mut self, key: &EntityKey) {
        self.0.remove(key);
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = (EntityKey, BTreeMap<String, Change>)> {
        self.0.into_iter()
    }
}

impl State {
    fn first(change: DocumentChange) -> Self {
        match change {
            DocumentChange::Delete { .. } => Self::Deleted,
            DocumentChange::Put { live, body, .. } => Self::Merged { live, fields: object(body) },
        }
    }

    fn follow(&mut self, change: DocumentChange) {
        let DocumentChange::Put { live: now, body, .. } = change else {
            *self = Self::Deleted;
            return;
        };
        match self {
            Self::Merged { live, fields } => {
                *live = now;
                // The row may have the field, so a null has to stay.
                fields.extend(object(body));
            }
            Self::Made { live, fields } => {
                *live = now;
                merge(fields, body.unwrap_or_default());
            }
            Self::Deleted => {
                let mut fields = Map::new();
                merge(&mut fields, body.unwrap_or_default());
                *self = Self::Made { live: now, fields };
            }
        }
    }
}

fn object(body: Option<Value>) -> Map<String, Value> {
    match body {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use skein_shared::id::{Kind, Name};

    use super::*;

    fn any_document() -> impl Strategy<Value = DocumentChange> {
        let value = prop_oneof![Just(Value::Null), (0..3_i64).prop_map(|number| json!(number))];
        let field = prop_oneof![Just("a"), Just("b"), Just("c")];
        let body = prop::option::of(prop::collection::btree_map(field, value, 0..3));
        (any::<bool>(), body, 0..4_u8).prop_map(|(live, body, dice)| match dice {
            0 => DocumentChange::Delete { key: "task/1".to_owned() },
            _ => {
                let body = body.map(|body| json!(body));
                DocumentChange::Put { key: "task/1".to_owned(), live, head: json!({}), body }
            }
        })
    }

    type Row = Option<(bool, Map<String, Value>)>;

    fn apply(row: Row, state: State) -> Row {
        match state {
            State::Deleted => None,
            State::Made { live, fields } => Some((live, fields)),
            State::Merged { live, fields } => {
                let mut merged = row.map(|(_, fields)| fields).unwrap_or_default();
                merge(&mut merged, Value::Object(fields));
                Some((live, merged))
            }
        }
    }

    proptest! {
        /// Whatever the row was, one change made of many leads to where they lead one by one.
        #[test]
        fn one_change_says_what_many_say(
            row in prop::option::of(Just(json!({"a": 7, "b": 8}))),
            documents in prop::collection::vec(any_document(), 1..8),
        ) {
            let row: Row = row.map(|body| (true, object(Some(body))));
            let one_by_one =
                documents.iter().fold(row.clone(), |row, change| apply(row, State::first(change.clone())));
            let key = EntityKey::of(Kind::Pool, &Name::parse("default").unwrap());
            let mut changes = Changes::default();
            for (number, document) in (1..).zip(documents) {
                changes.add(&key, Version(number), Timestamp(number), vec![document]);
            }
            let (_, mut gathered) = changes.into_iter().next().unwrap();
            let change = gathered.remove("task/1").unwrap();
            prop_assert_eq!(apply(row, change.state), one_by_one);
        }
    }
}
