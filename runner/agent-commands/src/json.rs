//! As much JSON as this program needs: it writes texts and objects of them, and finds a field of an object.

use std::fmt::Write;

/// A text as JSON.
pub(crate) fn text(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    for letter in text.chars() {
        match letter {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            control if control < ' ' => {
                // Writing to a text cannot fail.
                let _ = write!(json, "\\u{:04x}", u32::from(control));
            }
            other => json.push(other),
        }
    }
    json.push('"');
    json
}

/// The text that a value of JSON is. None if it is no text.
pub(crate) fn plain(json: &str) -> Option<String> {
    let mut letters = json.strip_prefix('"')?.strip_suffix('"')?.chars();
    let mut text = String::new();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            text.push(letter);
            continue;
        }
        text.push(match letters.next()? {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => {
                let digits: String = letters.by_ref().take(4).collect();
                // One half of a letter that JSON writes as two is none.
                char::from_u32(u32::from_str_radix(&digits, 16).ok()?).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            other => other,
        });
    }
    Some(text)
}

/// An object of values that are JSON already.
pub(crate) fn object(fields: &[(String, String)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, json)| format!("{}:{json}", text(name))).collect();
    format!("{{{}}}", fields.join(","))
}

/// The value of a field of an object, as it stands in the JSON. None if there is no such field, or the JSON is not one
/// whole object.
pub(crate) fn field<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let wanted = text(name);
    fields(json)?.into_iter().find(|(name, _)| *name == wanted).map(|(_, value)| value)
}

/// Whether this is one whole array or object, as far as its brackets and texts tell.
pub(crate) fn is_whole(json: &str) -> bool {
    let json = json.trim();
    json.starts_with(['{', '[']) && value_end(json) == Some(json.len())
}

/// The fields of an object: each name with its quotes, and its value.
fn fields(json: &str) -> Option<Vec<(&str, &str)>> {
    let mut rest = json.trim().strip_prefix('{')?.trim_start();
    let mut found = Vec::new();
    while !rest.starts_with('}') {
        let end = value_end(rest).filter(|_| rest.starts_with('"'))?;
        let (name, behind) = rest.split_at(end);
        let value = behind.trim_start().strip_prefix(':')?.trim_start();
        let (value, behind) = value.split_at(value_end(value)?);
        found.push((name, value));
        let behind = behind.trim_start();
        rest = behind.strip_prefix(',').map_or(behind, str::trim_start);
    }
    (rest.trim_end() == "}").then_some(found)
}

/// Where the value ends that the JSON begins with.
fn value_end(json: &str) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, byte) in json.bytes().enumerate() {
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            if !quoted && depth == 0 {
                return Some(at + 1);
            }
            continue;
        }
        match byte {
            b'"' => quoted = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return (at > 0).then_some(at),
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            b',' | b' ' | b'\n' | b'\r' | b'\t' if depth == 0 => return (at > 0).then_some(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(text("a \"b\"\\\n\t\u{1} ü"), "\"a \\\"b\\\"\\\\\\n\\t\\u0001 ü\"");
    }

    #[test]
    fn texts_are_read_as_they_were() {
        for whole in ["", "a \"b\"\\\n\t\r\u{1} ü\u{1f986}"] {
            assert_eq!(plain(&text(whole)).as_deref(), Some(whole));
        }
        assert_eq!(plain(r#""\/ \u00fc \ud83e""#).as_deref(), Some("/ ü \u{fffd}"));
        for other in ["", "7", "{}", "\"", r#""\u12"#, r#""\uzzzz""#, "null"] {
            assert_eq!(plain(other), None, "{other}");
        }
    }

    #[test]
    fn a_field_is_found_among_others() {
        let json = r#" {"a":"}\",{","b" : [1, {"status":"no"}],"status":"completed", "n":12,"t":true} "#;
        assert_eq!(field(json, "status"), Some("\"completed\""));
        assert_eq!(field(json, "b"), Some(r#"[1, {"status":"no"}]"#));
        assert_eq!((field(json, "n"), field(json, "t"), field(json, "x")), (Some("12"), Some("true"), None));
    }

    #[test]
    fn what_is_cut_off_is_nothing() {
        let whole = r#"{"ok":true,"resourceKey":"a:b"}"#;
        assert!(is_whole(whole) && is_whole("[]\n") && is_whole("{}"));
        for end in 1..whole.len() {
            assert!(!is_whole(&whole[..end]), "{end}");
            assert_eq!(field(&whole[..end], "ok"), None, "{end}");
        }
        for other in ["", "ok", "<html></html>", "{}{}", "{\"ok\" true}"] {
            assert_eq!(field(other, "ok"), None, "{other}");
        }
        assert!(!is_whole("{}{}") && !is_whole("true"));
    }

    #[test]
    fn objects_are_put_together() {
        let fields = [("a".to_owned(), "1".to_owned()), ("b\"".to_owned(), "{}".to_owned())];
        assert_eq!(object(&fields), r#"{"a":1,"b\"":{}}"#);
        assert_eq!(object(&[]), "{}");
    }
}
