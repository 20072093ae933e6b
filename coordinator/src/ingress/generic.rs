//! Events of senders that Skein knows nothing about.

use serde_json::{Map, Value};

use super::excerpt;
use super::provider::Normalised;

/// Fields that are taken over under their own names when the body has them at its top.
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

pub(super) fn normalise(body: &Value) -> Normalised {
    let mut context = Map::new();
    for field in FIELDS {
        match body.get(field) {
            None | Some(Value::Null | Value::Object(_)) => {}
            Some(Value::String(text)) => {
                context.insert(field.to_owned(), excerpt(text).into());
            }
            Some(value) => {
                context.insert(field.to_owned(), value.clone());
            }
        }
    }
    Normalised::Event(context)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shared_fields_are_taken_over_and_the_rest_stays_in_the_body() {
        let body = json!({"action": "deployed", "number": 7, "author": {"name": "x"}, "region": "eu"});
        let Normalised::Event(context) = normalise(&body) else { panic!("an event") };
        assert_eq!(Value::Object(context), json!({"action": "deployed", "number": 7}));
        assert_eq!(normalise(&json!([1])), Normalised::Event(Map::new()));
    }
}
