//! The fields of a body, borrowed from where they were read.

use serde::{Serialize, Serializer};
use serde_json::Value;

/// In the order in which they were first set. A body has few enough to look through them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Fields<'a>(Vec<(&'a str, &'a Value)>);

impl<'a> Fields<'a> {
    /// The fields of an object; none of anything else.
    pub(super) fn of(body: &'a Value) -> Self {
        let fields = body.as_object().into_iter().flatten();
        Self(fields.map(|(name, value)| (name.as_str(), value)).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    pub(super) fn without(&self, name: &str) -> Self {
        Self(self.0.iter().copied().filter(|(known, _)| *known != name).collect())
    }

    /// Takes over the fields of a change. A null stays, to remove a field from what this is merged into.
    pub(super) fn follow(&mut self, change: &Fields<'a>) {
        for &(name, value) in &change.0 {
            match self.0.iter_mut().find(|(known, _)| *known == name) {
                Some(field) => field.1 = value,
                None => self.0.push((name, value)),
            }
        }
    }

    /// The fields after a change: a null removes one.
    pub(super) fn merge(&mut self, change: &Fields<'a>) {
        self.follow(change);
        self.0.retain(|(_, value)| !value.is_null());
    }
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}
