//! The words that all senders share: one flat object (spec: Action Llama 6.3 and 8.3).

use serde_json::{Map, Value};
use skein_shared::text::excerpt;

/// Longest free text, characters. The whole of it stays in the event's body.
const LONGEST: usize = 4000;
/// Most texts of a list.
const TEXTS: usize = 100;

#[derive(Debug, Default, PartialEq)]
pub(super) struct Context(Map<String, Value>);

impl Context {
    /// Takes a text over, if there is any.
    pub(super) fn set(&mut self, field: &str, value: Option<&str>) {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.0.insert(field.to_owned(), excerpt(value, LONGEST).into());
        }
    }

    /// Takes over what is a whole number, as most senders number what they speak of.
    pub(super) fn number(&mut self, value: &Value) {
        if value.is_u64() {
            self.0.insert("number".to_owned(), value.clone());
        }
    }

    /// The names of the labels, which stand under `name` in each of them.
    pub(super) fn labels(&mut self, labels: &Value, name: &str) {
        if let Some(labels) = labels.as_array() {
            let names =
                labels.iter().filter_map(|label| label[name].as_str()).map(|text| excerpt(text, LONGEST));
            self.0.insert("labels".to_owned(), names.collect());
        }
    }

    /// Takes over the fields that a body of no particular form has under the shared names.
    pub(super) fn copy(&mut self, body: &Value) {
        const FIELDS: [&str; 14] = [
            "action",
            "repo",
            "number",
            "title",
            "body",
            "url",
            "author",
            "assignee",
            "labels",
            "branch",
            "conclusion",
            "comment",
            "sender",
            "timestamp",
        ];
        for field in FIELDS {
            match body.get(field) {
                None | Some(Value::Null | Value::Object(_)) => {}
                Some(Value::String(text)) => self.set(field, Some(text)),
                Some(Value::Array(items)) => {
                    let texts =
                        items.iter().filter_map(Value::as_str).take(TEXTS).map(|text| excerpt(text, LONGEST));
                    self.0.insert(field.to_owned(), texts.collect());
                }
                Some(value) => {
                    self.0.insert(field.to_owned(), value.clone());
                }
            }
        }
    }

    pub(super) fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}

/// A text somewhere in a body.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer)?.as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn long_texts_are_cut_and_empty_ones_left_out() {
        let mut context = Context::default();
        context.set("body", Some(&"é".repeat(5000)));
        context.set("title", Some(""));
        let context = context.into_value();
        let body = context["body"].as_str().unwrap();
        assert_eq!(body.chars().count(), LONGEST + 1);
        assert!(body.ends_with('…') && context.get("title").is_none());
    }

    #[test]
    fn lists_are_texts_and_as_bounded_as_they_are() {
        let mut context = Context::default();
        let many = vec!["x".repeat(5000); 200];
        context.copy(&json!({"labels": many, "assignee": ["ada", {"deep": [1]}, 7, null]}));
        let context = context.into_value();
        assert_eq!(context["assignee"], json!(["ada"]));
        let labels = context["labels"].as_array().unwrap();
        assert_eq!(labels.len(), TEXTS);
        assert_eq!(labels[0].as_str().unwrap().chars().count(), LONGEST + 1);
    }

    #[test]
    fn shared_fields_are_taken_over_and_the_rest_stays_in_the_body() {
        let mut context = Context::default();
        context.copy(&json!({"action": "deployed", "number": 7, "author": {"name": "x"}, "region": "eu"}));
        assert_eq!(context.into_value(), json!({"action": "deployed", "number": 7}));
    }
}
