//! What of a message says how it is passed on. All else is passed over: an instance chooses how much it is, and once it
//! is read it takes many times as much memory as its text.

use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Default, Deserialize)]
pub(super) struct Message<'a> {
    /// By which its answer names it.
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

impl<'a> Message<'a> {
    /// Of what is no message nothing is known.
    pub(super) fn read(text: &'a [u8]) -> Self {
        serde_json::from_slice(text).unwrap_or_default()
    }

    /// Whether it must be answered.
    pub(super) fn is_request(&self) -> bool {
        self.method.is_some() && self.id.is_some()
    }

    /// The texts of the name and the arguments of the tool that it calls.
    pub(super) fn called(&self) -> Option<(&'a str, &'a str)> {
        let params = self.params.filter(|_| self.method.as_deref() == Some("tools/call"))?;
        let Params { name, arguments } = serde_json::from_str(params.get()).ok()?;
        let text = |value: Option<&'a RawValue>| value.map_or("null", RawValue::get);
        Some((text(name), text(arguments)))
    }
}

/// Whether a text is several messages of which one must be answered.
pub(super) fn has_request(text: &[u8]) -> bool {
    let messages = serde_json::from_slice::<Vec<Message<'_>>>(text);
    messages.is_ok_and(|messages| messages.iter().any(Message::is_request))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_known_by_its_method_and_its_id() {
        let call =
            br#"{"id":"a","method":"tools\/call","params":{"name":"x","arguments":{"b":[1, 2]},"_meta":{}}}"#;
        let message = Message::read(call);
        assert_eq!(message.id.map(RawValue::get), Some("\"a\""));
        assert_eq!(message.called(), Some(("\"x\"", "{\"b\":[1, 2]}")));
        assert!(message.is_request());
        let list = Message::read(br#"{"id":1,"method":"tools/list","params":{"name":"x"}}"#);
        assert!(list.is_request() && list.called().is_none());
        for other in
            ["", "{", "7", "[]", r#"{"method":"x"}"#, r#"{"id":1,"result":{}}"#, r#"{"id":1,"method":7}"#]
        {
            assert!(!Message::read(other.as_bytes()).is_request(), "{other}");
        }
    }

    #[test]
    fn of_several_messages_one_may_be_a_request() {
        assert!(has_request(br#"[{"method":"x"}, {"id":1,"method":"y"}]"#));
        for other in [r#"[{"method":"x"}]"#, "[]", r#"{"id":1,"method":"y"}"#] {
            assert!(!has_request(other.as_bytes()), "{other}");
        }
    }
}
