//! What a group of commits makes of the documents: only the last state of each is written.

use std::collections::{BTreeMap, HashMap};

use skein_shared::entity::DocumentChange;
use skein_shared::id::EntityKey;
use skein_shared::json::{Fields, Json};
use skein_shared::time::Timestamp;

use crate::store::Version;

/// Changes by entity, then by document.
#[derive(Default)]
pub(super) struct Changes<'a>(HashMap<&'a EntityKey, BTreeMap<&'a str, Change<'a>>>);

/// All that happened to one document, as one change.
#[derive(Debug)]
pub(super) struct Change<'a> {
    /// The last version and time among them.
    pub(super) version: Version,
    pub(super) at: Timestamp,
    pub(super) state: State<'a>,
}

#[derive(Debug)]
pub(super) enum State<'a> {
    Deleted,
    /// Fields to be merged into those that the row has.
    Merged {
        live: bool,
        fields: Fields<'a>,
    },
    /// All of the fields: the document was deleted and made anew.
    Made {
        live: bool,
        fields: Fields<'a>,
    },
}

impl<'a> Changes<'a> {
    pub(super) fn add(
        &mut self,
        key: &'a EntityKey,
        version: Version,
        at: Timestamp,
        documents: &'a [DocumentChange],
    ) {
        let changes = self.0.entry(key).or_default();
        for document in documents {
            let (DocumentChange::Put { key, .. } | DocumentChange::Delete { key }) = document;
            match changes.get_mut(key.as_str()) {
                Some(change) => {
                    (change.version, change.at) = (version, at);
                    change.state.follow(document);
                }
                None => {
                    changes.insert(key, Change { version, at, state: State::first(document) });
                }
            }
        }
    }

    /// Forgets what is gathered of an entity, since its rows are read from the store.
    pub(super) fn forget(&mut self, key: &EntityKey) {
        self.0.remove(key);
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = (&'a EntityKey, BTreeMap<&'a str, Change<'a>>)> {
        self.0.into_iter()
    }
}

impl<'a> State<'a> {
    fn first(change: &'a DocumentChange) -> Self {
        match change {
            DocumentChange::Delete { .. } => Self::Deleted,
            DocumentChange::Put { live, body, .. } => {
                Self::Merged { live: *live, fields: fields(body.as_ref()) }
            }
        }
    }

    fn follow(&mut self, change: &'a DocumentChange) {
        let DocumentChange::Put { live: now, body, .. } = change else {
            *self = Self::Deleted;
            return;
        };
        let change = fields(body.as_ref());
        match self {
            Self::Merged { live, fields } => {
                *live = *now;
                fields.follow(change);
            }
            Self::Made { live, fields } => {
                *live = *now;
                fields.merge(change);
            }
            Self::Deleted => {
                let mut fields = Fields::default();
                fields.merge(change);
                *self = Self::Made { live: *now, fields };
            }
        }
    }
}

fn fields(body: Option<&Json>) -> Fields<'_> {
    body.map(Fields::of).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};
    use skein_shared::id::{Kind, Name};

    use super::*;

    fn any_document() -> impl Strategy<Value = DocumentChange> {
        let value = prop_oneof![Just(Value::Null), (0..3_i64).prop_map(|number| json!(number))];
        let field = prop_oneof![Just("a"), Just("b"), Just("c")];
        let body = prop::option::of(prop::collection::btree_map(field, value, 0..3));
        (any::<bool>(), body, 0..4_u8).prop_map(|(live, body, dice)| match dice {
            0 => DocumentChange::Delete { key: "task/1".to_owned() },
            _ => {
                let body = body.map(|body| json!(body).into());
                DocumentChange::Put {
                    key: "task/1".to_owned(),
                    live,
                    head: json!({}).into(),
                    body,
                    new: false,
                }
            }
        })
    }

    type Row = Option<(bool, Map<String, Value>)>;

    /// What one change makes of a row.
    fn apply(row: Row, state: &State<'_>) -> Row {
        let merge = |mut row: Map<String, Value>, fields: &Fields<'_>| {
            skein_shared::json::merge(&mut row, serde_json::to_value(fields).unwrap());
            row
        };
        match state {
            State::Deleted => None,
            State::Made { live, fields } => Some((*live, merge(Map::new(), fields))),
            State::Merged { live, fields } => {
                Some((*live, merge(row.map(|(_, fields)| fields).unwrap_or_default(), fields)))
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
            let row: Row = row.and_then(|body| Some((true, body.as_object()?.clone())));
            let one_by_one =
                documents.iter().fold(row.clone(), |row, change| apply(row, &State::first(change)));
            let key = EntityKey::of(Kind::Pool, &Name::parse("default").unwrap());
            let mut changes = Changes::default();
            for (number, document) in (1..).zip(&documents) {
                changes.add(&key, Version(number), Timestamp(number), std::slice::from_ref(document));
            }
            let (_, mut gathered) = changes.into_iter().next().unwrap();
            let change = gathered.remove("task/1").unwrap();
            prop_assert_eq!(apply(row, &change.state), one_by_one);
        }
    }
}
