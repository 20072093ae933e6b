//! The form of documents' bodies, and the limits of the texts in them.

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::code::{Code, Refusal};
use crate::limits;
use crate::time::Timestamp;

/// A body as it is shown: a field without a value is left out, except those of `kept`, which the shape has
/// as null. (The store's merge drops nulls, so a reader of bodies passes them through here, too.)
pub fn shown(body: Value, kept: &[&str]) -> Value {
    let Value::Object(mut fields) = body else { return body };
    fields.retain(|_, value| !value.is_null());
    for &field in kept {
        fields.entry(field).or_insert(Value::Null);
    }
    Value::Object(fields)
}

/// A time as clients see it, or null, which removes the field.
pub fn iso(time: Option<Timestamp>) -> Value {
    time.map_or(Value::Null, |time| json!(time.iso()))
}

/// Tells "not given" (`None`) from "cleared" (`Some(None)`), for fields that null clears.
///
/// # Errors
/// When the value is neither null nor a `T`.
pub fn cleared<'de, T, D>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::<T>::deserialize(deserializer).map(Some)
}

/// Checks the length of a text in characters.
///
/// # Errors
/// `invalid_argument` when it is shorter than `least`, `too_large` when it is longer than `most`.
pub fn length(field: &str, text: &str, least: usize, most: usize) -> Result<(), Refusal> {
    let count = text.chars().count();
    if count < least {
        return Err(Refusal::new(Code::InvalidArgument, format!("{field}: it is empty; write something")));
    }
    if count > most {
        return Err(Refusal::new(
            Code::TooLarge,
            format!("{field}: it has {count} characters and at most {most} are kept; shorten it"),
        ));
    }
    Ok(())
}

/// Checks the size of a long text in bytes.
///
/// # Errors
/// `invalid_argument` when it must not be empty and is, `too_large` when it exceeds [`limits::TEXT`].
pub fn text(field: &str, text: &str, least: usize) -> Result<(), Refusal> {
    if text.len() < least {
        return Err(Refusal::new(Code::InvalidArgument, format!("{field}: it is empty; write something")));
    }
    if text.len() > limits::TEXT {
        return Err(Refusal::new(
            Code::TooLarge,
            format!(
                "{field}: it has {} bytes and at most {} are kept; put the rest into a file and name it",
                text.len(),
                limits::TEXT
            ),
        ));
    }
    Ok(())
}

/// Checks a list of tags.
///
/// # Errors
/// `too_large` when there are too many or one is too long.
pub fn tags(tags: &[String]) -> Result<(), Refusal> {
    if tags.len() > limits::TAGS {
        return Err(Refusal::new(
            Code::TooLarge,
            format!("tags: there are {} and at most {} are kept; drop some", tags.len(), limits::TAGS),
        ));
    }
    tags.iter().try_for_each(|tag| length("tags", tag, 1, limits::TAG))
}

/// A tag that is made of a name, as long as tags may be.
pub fn tag(text: &str) -> String {
    text.chars().take(limits::TAG).collect()
}

/// Checks a priority.
///
/// # Errors
/// `invalid_argument` above 100.
pub fn priority(priority: u8) -> Result<(), Refusal> {
    if priority <= 100 {
        return Ok(());
    }
    Err(Refusal::new(Code::InvalidArgument, format!("priority: {priority} is above 100; use 0 to 100")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_fields_are_left_out_unless_the_shape_has_them_as_null() {
        let body = json!({"a": 1, "b": null});
        assert_eq!(shown(body.clone(), &[]), json!({"a": 1}));
        assert_eq!(shown(body, &["b", "c"]), json!({"a": 1, "b": null, "c": null}));
    }

    #[test]
    fn limits_count_characters() {
        assert!(length("x", "äöü", 1, 3).is_ok());
        assert_eq!(length("x", "äöüß", 1, 3).unwrap_err().code, Code::TooLarge);
        assert_eq!(length("x", "", 1, 3).unwrap_err().code, Code::InvalidArgument);
        assert!(tags(&vec!["t".to_owned(); 51]).is_err());
        assert!(priority(101).is_err());
    }
}
