//! One request of a sender, with the questions that all providers ask of it.

use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::{CONTENT_TYPE, ORIGIN};
use serde_json::{Map, Value};
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal, json};
use url::form_urlencoded;

/// Longest delivery id or event name, bytes. GitHub's are 36 and some 30.
pub(super) const NAME: usize = 256;
/// How far the clock of a signed request may be off, either way.
const WINDOW: Duration = Duration::from_secs(300);

pub(super) struct Delivery<'a> {
    pub headers: &'a HeaderMap,
    pub body: &'a [u8],
    /// What the wall clock shows.
    pub at: Timestamp,
}

impl<'a> Delivery<'a> {
    /// A header that is text; empty if it is none or not there.
    pub(super) fn header(&self, name: &str) -> &'a str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim).unwrap_or_default()
    }

    /// Whether a page in a browser has sent it. Browsers say where each POST comes from, by either header or both, and
    /// let no page leave that out; `none` is what the person typed.
    pub(super) fn is_of_a_page(&self) -> bool {
        let site = self.headers.get("sec-fetch-site");
        self.headers.contains_key(ORIGIN) || site.is_some_and(|site| site != "none")
    }

    /// # Errors
    /// `invalid_argument` when the header is missing, empty or too long.
    pub(super) fn required(&self, name: &str) -> Result<&'a str, Refusal> {
        let value = self.header(name);
        if value.is_empty() || value.len() > NAME {
            return Err(invalid(format!("the header {name} is missing, or longer than {NAME} bytes")));
        }
        Ok(value)
    }

    /// Whether the seconds since 1970 in a header are about now. What is older may be a recording.
    pub(super) fn is_recent(&self, header: &str) -> bool {
        let Ok(seconds) = self.header(header).parse::<u64>() else { return false };
        self.is_within(Timestamp(seconds.saturating_mul(1000)), WINDOW)
    }

    /// Whether a moment is not further from now than this, either way.
    pub(super) fn is_within(&self, then: Timestamp, span: Duration) -> bool {
        then.since(self.at) <= span && self.at.since(then) <= span
    }

    /// The body, which is JSON: by itself, or as the field `payload` of a form.
    ///
    /// # Errors
    /// `invalid_argument` when it is neither, nested too deep, or of too many values.
    pub(super) fn json(&self) -> Result<Value, Refusal> {
        if self.form()? {
            let mut fields = self.pairs();
            return match fields.find(|(name, _)| name == "payload") {
                Some((_, payload)) => parse(payload.as_bytes()),
                None => Err(invalid(
                    "the form has no field `payload`; send it, or choose the content type application/json"
                        .to_owned(),
                )),
            };
        }
        parse(self.body)
    }

    /// The fields of a form without a `payload`, as Slack sends its commands; `None` if it is no such form.
    ///
    /// # Errors
    /// `invalid_argument` for a content type that is neither form nor JSON.
    pub(super) fn fields(&self) -> Result<Option<Value>, Refusal> {
        if !self.form()? || self.pairs().any(|(name, _)| name == "payload") {
            return Ok(None);
        }
        let fields = self.pairs().map(|(name, value)| (name.into_owned(), Value::from(value.into_owned())));
        Ok(Some(Value::Object(fields.collect::<Map<_, _>>())))
    }

    /// Whether it is a form with this field.
    pub(super) fn has_field(&self, name: &str, value: &str) -> bool {
        self.form().unwrap_or_default() && self.pairs().any(|(known, given)| known == name && given == value)
    }

    fn pairs(&self) -> form_urlencoded::Parse<'a> {
        form_urlencoded::parse(self.body)
    }

    /// Whether the body is a form. Without a content type it is taken for JSON.
    fn form(&self) -> Result<bool, Refusal> {
        if !self.headers.contains_key(CONTENT_TYPE) {
            return Ok(false);
        }
        let full = self.header(CONTENT_TYPE.as_str());
        let kind = full.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "application/x-www-form-urlencoded" => Ok(true),
            "application/json" => Ok(false),
            kind if kind.starts_with("application/") && kind.ends_with("+json") => Ok(false),
            _ => Err(invalid(
                "the content type is neither application/json nor application/x-www-form-urlencoded; choose one of them".to_owned(),
            )),
        }
    }
}

/// Reads JSON of bounded depth and number.
fn parse(body: &[u8]) -> Result<Value, Refusal> {
    json::bounded(body).map_err(|excess| invalid(format!("the body is not read: {excess}")))?;
    serde_json::from_slice(body).map_err(|error| {
        invalid(format!("the body is not JSON ({error}); send JSON with the content type application/json"))
    })
}

pub(super) fn invalid(message: String) -> Refusal {
    Refusal::new(Code::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};
    use serde_json::json;
    use skein_shared::limits;

    use super::*;

    fn with<R>(headers: &[(&'static str, &str)], body: &[u8], ask: impl FnOnce(&Delivery<'_>) -> R) -> R {
        let pairs = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse::<HeaderValue>().unwrap()));
        let headers: HeaderMap = pairs.collect();
        ask(&Delivery { headers: &headers, body, at: Timestamp(1_790_000_000_000) })
    }

    #[test]
    fn a_body_is_read_by_its_content_type() {
        const FORM: &str = "application/x-www-form-urlencoded";
        let json = |kind: &str, body: &[u8]| with(&[("content-type", kind)], body, |d| d.json().ok());
        let object = Some(json!({"a": 1}));
        assert_eq!(with(&[], b"{\"a\":1}", |d| d.json().ok()), object);
        for kind in ["application/json", "application/JSON; charset=utf-8", "application/vnd.github+json"] {
            assert_eq!(json(kind, b"{\"a\":1}"), object, "{kind}");
            assert_eq!(json(kind, b"payload=%7B%22a%22%3A1%7D"), None, "{kind}");
        }
        assert_eq!(json(FORM, b"x=1&payload=%7B%22a%22%3A1%7D"), object);
        for (kind, body) in [
            (FORM, &b"{\"a\":1}"[..]),
            (FORM, b"payload=%7B"),
            ("text/plain", b"{\"a\":1}"),
            ("", b"{\"a\":1}"),
            ("application/json", b"\"\xff\""),
            ("application/json", b""),
        ] {
            assert_eq!(json(kind, body), None, "{kind} {body:?}");
        }
    }

    #[test]
    fn browsers_say_what_a_page_has_sent() {
        for (headers, is_of_a_page) in [
            (&[("sec-fetch-site", "none")][..], false),
            (&[("user-agent", "curl")], false),
            (&[("origin", "https://evil.example")], true),
            // A page in a frame of its own, or one of a file.
            (&[("origin", "null")], true),
            (&[("sec-fetch-site", "cross-site")], true),
            // Another port of this machine is the same site.
            (&[("sec-fetch-site", "same-site")], true),
        ] {
            assert_eq!(with(headers, b"{}", |d| d.is_of_a_page()), is_of_a_page, "{headers:?}");
        }
    }

    #[test]
    fn fields_are_those_of_a_form_without_payload() {
        let fields = |body: &[u8]| {
            with(&[("content-type", "application/x-www-form-urlencoded")], body, |d| d.fields().unwrap())
        };
        assert_eq!(fields(b"command=%2Fx&text=a+b"), Some(json!({"command": "/x", "text": "a b"})));
        assert_eq!(fields(b"payload=%7B%7D"), None);
        assert_eq!(with(&[], b"{}", |d| d.fields().unwrap()), None);
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(with(&[], nested(limits::JSON_DEPTH).as_bytes(), |d| d.json().is_ok()));
        for levels in [limits::JSON_DEPTH + 1, 100_000] {
            assert!(with(&[], nested(levels).as_bytes(), |d| d.json().is_err()));
        }
    }

    #[test]
    fn values_are_counted_before_they_are_read() {
        let refusal = with(&[], "0,".repeat(300_000).as_bytes(), |d| d.json().unwrap_err());
        assert!(refusal.message.contains("200000 values"), "{refusal}");
    }

    #[test]
    fn a_time_stamp_is_good_for_five_minutes_either_way() {
        for (seconds, good) in [
            ("1790000000", true),
            ("1789999700", true),
            ("1790000300", true),
            ("1789999699", false),
            ("1790000301", false),
            ("0", false),
            ("18446744073709551615", false),
            ("-1790000000", false),
            ("1790000000.0", false),
            ("", false),
        ] {
            assert_eq!(with(&[("x-time", seconds)], b"", |d| d.is_recent("x-time")), good, "{seconds}");
        }
    }
}
