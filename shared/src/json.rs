//! JSON as text: a value that is passed on unread, and what can be said of a text before it is read.

mod fields;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

pub use fields::Fields;

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

/// The deepest nesting of brackets outside of strings: what a text would ask of a parser that recurses into it.
pub fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut quoted, mut escaped) = (0_usize, 0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
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
        assert_eq!(depth(br#"{"a":[{"b":"[[[[\"[["}]}"#), 3);
        assert_eq!(depth(b"[]]]]["), 1);
        assert_eq!(depth("[".repeat(100).as_bytes()), 100);
    }
}
