//! JSON as text: a value that is passed on unread, and what can be said of a text before it is read.

mod fields;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

pub use fields::Fields;

use crate::limits;

/// JSON that was written once, where the value was made, and is read where it is needed. What lies between
/// (a commit, the store, the wire) passes the text on.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Json(Box<RawValue>);

impl Json {
    /// # Panics
    /// Never for plain data: maps with keys that are no strings are the only values without a JSON form.
    pub fn of(value: &(impl Serialize + ?Sized)) -> Self {
        Self(serde_json::value::to_raw_value(value).expect("plain data has a JSON form"))
    }

    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// # Errors
    /// When the value has another shape.
    pub fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.text())
    }

    /// The value for looking into.
    pub fn value(&self) -> Value {
        self.read().unwrap_or_default()
    }
}

/// Equal texts. Equal values written in another order of fields are not equal.
impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Json {}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self::of(&value)
    }
}

/// Merges the top-level fields of `change` into `body`; a null removes a field.
pub fn merge(body: &mut serde_json::Map<String, Value>, change: Value) {
    let Value::Object(fields) = change else { return };
    for (name, value) in fields {
        if value.is_null() {
            body.remove(&name);
        } else {
            body.insert(name, value);
        }
    }
}

/// How long a value is as text, bytes, without the text.
///
/// # Panics
/// Never for plain data: maps with keys that are no strings are the only values without a JSON form.
pub fn length(value: &(impl Serialize + ?Sized)) -> usize {
    let mut counted = Counted(0);
    serde_json::to_writer(&mut counted, value).expect("plain data has a JSON form");
    counted.0
}

struct Counted(usize);

impl std::io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Why a text is given to no parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    #[error("JSON may be nested {} levels deep; send what is deeper as a text", limits::JSON_DEPTH)]
    Depth,
    #[error("JSON may hold {} values; send fewer at a time, or all of them as one text", limits::JSON_VALUES)]
    Values,
}

/// Whether a parser may have the text, whoever has sent it: it would recurse into what is nested, and a value of two
/// bytes takes many times as much memory once it is read. Nothing is parsed for it: brackets and commas outside of
/// strings are counted, up to the first that is too many.
///
/// # Errors
/// What there is too much of.
pub fn bounded(json: &[u8]) -> Result<(), Excess> {
    let (mut depth, mut values, mut quoted, mut escaped) = (0_usize, 0_usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => (depth, values) = (depth + 1, values + 1),
            b'}' | b']' if !quoted => depth = depth.saturating_sub(1),
            b',' if !quoted => values += 1,
            _ => continue,
        }
        if depth > limits::JSON_DEPTH {
            return Err(Excess::Depth);
        }
        if values > limits::JSON_VALUES {
            return Err(Excess::Values);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_length_is_that_of_the_text() {
        for value in [json!(null), json!({"a": [1.5, 1e30, "\u{1}\"ü"], "b": {}}), json!("")] {
            assert_eq!(length(&value), value.to_string().len());
        }
    }

    #[test]
    fn the_text_passes_through_serde_unchanged() {
        let value = Json::of(&json!({"b": [1, 2.5], "a": null}));
        assert_eq!(value.text(), r#"{"b":[1,2.5],"a":null}"#);
        let outer = serde_json::to_string(&[&value]).unwrap();
        assert_eq!(outer, format!("[{}]", value.text()));
        let back: Vec<Json> = serde_json::from_str(&outer).unwrap();
        assert_eq!(back, [value]);
    }

    #[test]
    fn depth_counts_brackets_and_not_texts() {
        let deep =
            |levels: usize| format!("{{\"a\":\"{}\\\"[[\",\"b\":{}", "[".repeat(100), "[".repeat(levels - 1));
        assert_eq!(bounded(deep(limits::JSON_DEPTH).as_bytes()), Ok(()));
        assert_eq!(bounded(deep(limits::JSON_DEPTH + 1).as_bytes()), Err(Excess::Depth));
        assert_eq!(bounded("[]]]]".repeat(100).as_bytes()), Ok(()));
    }

    #[test]
    fn values_are_counted_whatever_they_are_and_commas_in_texts_are_none() {
        let many =
            |value: &str, times: usize| format!("[\"{}\"{}]", ",[".repeat(300_000), value.repeat(times));
        for value in [",0", ",\"\"", ",[]", ",{\"a\":{}}"] {
            let times = limits::JSON_VALUES / value.matches([',', '[', '{']).count();
            assert_eq!(bounded(many(value, times - 1).as_bytes()), Ok(()), "{value}");
            assert_eq!(bounded(many(value, times + 1).as_bytes()), Err(Excess::Values), "{value}");
        }
    }
}
