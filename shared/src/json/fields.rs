//! The fields of an object, found in its text without a look into their values.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::Json;

const NULL: &str = "null";

/// Names and values, borrowed from the text, in the order in which they were first set. Our objects name each field
/// once, and have few enough to look through them.
#[derive(Clone, Debug, Default)]
pub struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Fields<'a> {
    /// The fields of an object; none of anything else.
    pub fn of(object: &'a Json) -> Self {
        serde_json::from_str(object.text()).unwrap_or_default()
    }

    /// The fields of all changes of one object, as one change; nothing if there are none.
    pub fn of_all(mut changes: impl Iterator<Item = &'a Json>) -> Option<Self> {
        let mut fields = Self::of(changes.next()?);
        changes.for_each(|change| fields.follow(Self::of(change)));
        Some(fields)
    }

    /// All that changes of one object do to it, as one change; nothing if there are none.
    pub fn joined(changes: impl Iterator<Item = &'a Json>) -> Option<Cow<'a, Json>> {
        let mut changes = changes.peekable();
        let first = changes.next()?;
        if changes.peek().is_none() {
            // Most change once, and are passed on as they are.
            return Some(Cow::Borrowed(first));
        }
        Self::of_all(std::iter::once(first).chain(changes)).map(|fields| Cow::Owned(Json::of(&fields)))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The fields with their values' texts, nulls too.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value.get()))
    }

    /// The fields that have a value.
    pub fn present(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.iter().filter(|(_, value)| *value != NULL)
    }

    /// The names of the fields that a change takes away.
    pub fn removed(&self) -> impl Iterator<Item = &str> {
        self.iter().filter(|(_, value)| *value == NULL).map(|(name, _)| name)
    }

    /// A value's text.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// A value, if there is one of this shape.
    pub fn read<T: Deserialize<'a>>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.get(name)?).ok()
    }

    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        Self(self.0.iter().filter(|(known, _)| *known != name).cloned().collect())
    }

    /// Takes over the fields of a change. A null stays, to remove a field from what this is merged into.
    pub fn follow(&mut self, change: Fields<'a>) {
        for (name, value) in change.0 {
            match self.0.iter_mut().find(|(known, _)| *known == name) {
                Some(field) => field.1 = value,
                None => self.0.push((name, value)),
            }
        }
    }

    /// The fields after a change: a null removes one.
    pub fn merge(&mut self, change: Fields<'a>) {
        self.follow(change);
        self.0.retain(|(_, value)| value.get() != NULL);
    }
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some((Name(name), value)) = object.next_entry()? {
                    debug_assert!(
                        fields.iter().all(|(known, _)| *known != name),
                        "two fields are named {name}"
                    );
                    fields.push((name, value));
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(Object).map(Self)
    }
}

/// A name as it stands in the text, or without its escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn fields_are_borrowed_from_the_text_and_written_as_they_were() {
        let object = Json::of(&json!({ "a": [1, { "x": null }], "b\"\n": "b", "c": null }));
        let fields = Fields::of(&object);
        let texts: Vec<_> = fields.iter().collect();
        assert_eq!(texts, [("a", r#"[1,{"x":null}]"#), ("b\"\n", r#""b""#), ("c", "null")]);
        assert_eq!(serde_json::to_string(&fields).unwrap(), object.text());
        assert_eq!(fields.read::<String>("b\"\n").as_deref(), Some("b"));
        assert_eq!(fields.read::<u64>("a"), None);
        assert_eq!(fields.without("c").get("c"), None);
    }

    #[test]
    fn a_null_stays_in_a_change_and_removes_what_it_is_merged_into() {
        let (object, change) =
            (Json::of(&json!({ "a": 1, "b": 2 })), Json::of(&json!({ "b": null, "c": 3 })));
        let (mut followed, mut merged) = (Fields::of(&object), Fields::of(&object));
        followed.follow(Fields::of(&change));
        assert_eq!(serde_json::to_value(&followed).unwrap(), json!({ "a": 1, "b": null, "c": 3 }));
        merged.merge(Fields::of(&change));
        assert_eq!(serde_json::to_value(&merged).unwrap(), json!({ "a": 1, "c": 3 }));
        assert_eq!(followed.present().collect::<Vec<_>>(), [("a", "1"), ("c", "3")]);
        assert_eq!(followed.removed().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn joined_changes_do_what_they_do_one_by_one() {
        let changes = [json!({ "a": 1, "b": 2 }), json!({ "b": null, "c": 3 }), json!({ "b": 4, "a": null })];
        let changes = changes.map(Json::from);
        assert_eq!(Fields::joined([].iter()), None);
        assert!(
            matches!(Fields::joined(changes[..1].iter()), Some(Cow::Borrowed(one)) if *one == changes[0])
        );
        assert_eq!(Fields::joined(changes.iter()).unwrap().text(), r#"{"a":null,"b":4,"c":3}"#);
    }

    #[test]
    fn what_is_no_object_has_no_fields() {
        for value in [Value::Null, json!([1]), json!("text")] {
            assert_eq!(Fields::of(&value.into()).iter().count(), 0);
        }
    }
}
