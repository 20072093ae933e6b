//! URIs as the names of things to lock: two spellings of one URI are one resource.
//!
//! Parsing is the WHATWG URL standard's, which resolves dot segments, lower-cases the scheme, folds the host
//! names of the web's own schemes and drops their default ports. What it leaves open is settled here.

use unicode_normalization::UnicodeNormalization;
use url::Url;

use crate::code::{Code, Refusal};
use crate::limits;

/// Rounds until the form no longer changes. Undoing an escape can uncover something that the parser rewrites
/// (a drive letter, a character that must be escaped), which takes two or three.
const ROUNDS: usize = 8;

/// The canonical form of a URI: Unicode in NFC, scheme and host in lower case, no dot segments, percent
/// escapes in upper case and only where they are needed, no slash at the end, no default port, no fragment.
/// The query stays. A canonical form is its own canonical form.
///
/// # Errors
/// `invalid_argument` when `key` is no absolute URI, or longer than [`limits::LOCK_KEY`].
pub fn canonical(key: &str) -> Result<String, Refusal> {
    check_length(key)?;
    let mut form = rewrite(key)?;
    for _ in 0..ROUNDS {
        let next = rewrite(&form)?;
        if next == form {
            check_length(&form)?;
            return Ok(form);
        }
        form = next;
    }
    Err(invalid(format!("`{}` has no canonical form; write it without percent escapes", shown(key))))
}

/// Whether `key` is an absolute URI of a permitted length; its spelling does not matter.
///
/// # Errors
/// As [`canonical`].
pub fn check(key: &str) -> Result<(), Refusal> {
    check_length(key)?;
    parse(key).map(drop)
}

fn check_length(key: &str) -> Result<(), Refusal> {
    if key.len() <= limits::LOCK_KEY {
        return Ok(());
    }
    Err(invalid(format!(
        "the URI is {} bytes long with its escapes; at most {} are taken, so name the resource shorter",
        key.len(),
        limits::LOCK_KEY
    )))
}

fn parse(key: &str) -> Result<Url, Refusal> {
    Url::parse(key).map_err(|problem| {
        invalid(format!(
            "`{}` is not an absolute URI ({problem}); write a scheme, a colon and a name, such as github://acme/app/issues/42",
            shown(key)
        ))
    })
}

fn invalid(message: String) -> Refusal {
    Refusal::new(Code::InvalidArgument, message)
}

fn shown(key: &str) -> String {
    key.chars().take(80).collect()
}

fn rewrite(key: &str) -> Result<String, Refusal> {
    let url = parse(key)?;
    let mut form = format!("{}:", url.scheme());
    if url.has_authority() {
        form.push_str(&authority(&url));
    }
    form.push_str(&path(&url));
    if let Some(query) = url.query() {
        form.push('?');
        form.push_str(&respell(query, Case::Keep));
    }
    Ok(form)
}

fn authority(url: &Url) -> String {
    let mut form = "//".to_owned();
    let password = url.password();
    if !url.username().is_empty() || password.is_some() {
        form.push_str(&respell(url.username(), Case::Keep));
        if let Some(password) = password {
            form.push(':');
            form.push_str(&respell(password, Case::Keep));
        }
        form.push('@');
    }
    if let Some(host) = url.host_str() {
        // The parser folds host names of the web's schemes alone and takes others as they are.
        let host = if url.is_special() { host.to_owned() } else { respell(host, Case::Lower) };
        form.push_str(&host);
    }
    if let Some(port) = url.port() {
        form.push_str(&format!(":{port}"));
    }
    form
}

fn path(url: &Url) -> String {
    let path = respell(url.path(), Case::Keep);
    if url.cannot_be_a_base() {
        // Without a query or fragment after them the parser drops spaces at the end; dropping the fragment
        // must come to the same.
        let ends: &[char] = if url.query().is_none() { &['/', ' '] } else { &['/'] };
        return path.trim_end_matches(ends).to_owned();
    }
    let path = path.trim_end_matches('/');
    match url.has_authority() {
        true if path.is_empty() && url.is_special() => "/".to_owned(),
        false if path.is_empty() => "/".to_owned(),
        // Without this mark the path's first segment would be read as a host.
        false if path.starts_with("//") => format!("/.{path}"),
        _ => path.to_owned(),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    Keep,
    Lower,
}

/// Spells a component in the one right way: unreserved characters plain, all other escapes in upper case, the
/// text between them in NFC. A percent sign that begins no escape is escaped itself.
fn respell(component: &str, case: Case) -> String {
    let mut form = String::with_capacity(component.len());
    let mut plain = Vec::new();
    let mut rest = component.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            plain.push(first);
            continue;
        }
        let Some((byte, tail)) = escape(tail) else {
            spell_plain(&mut plain, case, &mut form);
            form.push_str("%25");
            continue;
        };
        rest = tail;
        if is_unreserved(byte) || !byte.is_ascii() {
            plain.push(byte);
            continue;
        }
        // The text ends here: NFC must not join an escape's last letter with an accent that follows it.
        spell_plain(&mut plain, case, &mut form);
        push_escape(byte, &mut form);
    }
    spell_plain(&mut plain, case, &mut form);
    form
}

/// The byte that two hexadecimal digits at the start of `text` stand for, and what follows them.
fn escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let digit = |at: usize| text.get(at).and_then(|&digit| char::from(digit).to_digit(16));
    let byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
    Some((byte, &text[2..]))
}

/// RFC 3986, 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Appends the gathered text and empties it. Bytes that are no UTF-8 stay as they are, escaped.
fn spell_plain(plain: &mut Vec<u8>, case: Case, form: &mut String) {
    for chunk in plain.utf8_chunks() {
        for mut letter in chunk.valid().nfc() {
            if case == Case::Lower {
                letter.make_ascii_lowercase();
            }
            if letter.is_ascii() {
                form.push(letter);
            } else {
                letter.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| push_escape(byte, form));
            }
        }
        chunk.invalid().iter().for_each(|&byte| push_escape(byte, form));
    }
    plain.clear();
}

fn push_escape(byte: u8, form: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    form.push('%');
    form.push(char::from(DIGITS[usize::from(byte >> 4)]));
    form.push(char::from(DIGITS[usize::from(byte & 15)]));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings_of_one_resource_are_one() {
        for (spelling, form) in [
            ("GITHUB://Acme/app/issues/1", "github://acme/app/issues/1"),
            ("github://acme/app/issues/1/", "github://acme/app/issues/1"),
            ("github://acme/app/./x/../issues//1", "github://acme/app/issues//1"),
            ("github://acme/App", "github://acme/App"),
            ("github://acme/", "github://acme"),
            ("https://Example.COM:443/a/#top", "https://example.com/a"),
            ("https://example.com", "https://example.com/"),
            ("https://example.com//", "https://example.com/"),
            ("https://example.com:8443/a", "https://example.com:8443/a"),
            ("http://example.com/%7euser/%2fx", "http://example.com/~user/%2Fx"),
            ("http://example.com/a/%2e%2E/b", "http://example.com/b"),
            ("http://example.com/a?b=%61/&c#d", "http://example.com/a?b=a/&c"),
            ("http://example.com/a/?q", "http://example.com/a?q"),
            ("http://example.com/100%", "http://example.com/100%25"),
            ("http://example.com/%%341", "http://example.com/%2541"),
            ("db://host:5432/table", "db://host:5432/table"),
            ("pg://U%73er@HOST/x", "pg://User@host/x"),
            ("x://H%2Fa%C3%84/", "x://h%2Fa%C3%84"),
            ("x:y", "x:y"),
            ("urn:isbn:0451450523/", "urn:isbn:0451450523"),
            ("x:y  #part", "x:y"),
            ("x:/.//a/", "x:/.//a"),
            ("file:///etc/passwd/", "file:///etc/passwd"),
            ("file:///%43%7C/x", "file:///C%7C/x"),
            ("  x:y\n", "x:y"),
        ] {
            assert_eq!(canonical(spelling).unwrap(), form, "{spelling}");
            assert_eq!(canonical(form).unwrap(), form, "{form} again");
        }
    }

    #[test]
    fn unicode_is_composed_whether_escaped_or_not() {
        let form = "doc://x/caf%C3%A9";
        for spelling in ["doc://x/café", "doc://x/cafe\u{301}", "doc://x/caf%65%cc%81", "doc://x/caf%c3%a9"]
        {
            assert_eq!(canonical(spelling).unwrap(), form, "{spelling}");
        }
        // An accent after an escape belongs to no letter of the escape.
        assert_eq!(canonical("doc://x/%2A\u{301}").unwrap(), "doc://x/%2A%CC%81");
        // Bytes that are no UTF-8 stay what they are.
        assert_eq!(canonical("doc://x/%ff%41").unwrap(), "doc://x/%FFA");
    }

    #[test]
    fn what_is_no_uri_is_refused() {
        for bad in ["", "not a uri", "word", "/path", "//host/path", "http://", "http://[::1", "1x:y"] {
            let refusal = canonical(bad).unwrap_err();
            assert_eq!(refusal.code, Code::InvalidArgument, "{bad}");
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn length_counts_before_and_after() {
        let fits = format!("x:{}", "a".repeat(limits::LOCK_KEY - 2));
        assert_eq!(canonical(&fits).unwrap(), fits);
        assert!(canonical(&format!("{fits}a")).is_err());
        let grows = format!("x:{}", "é".repeat(limits::LOCK_KEY / 2 - 1));
        assert!(check(&grows).is_ok());
        assert_eq!(canonical(&grows).unwrap_err().code, Code::InvalidArgument);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_canonical_form_is_its_own(
            scheme in "(http|https|file|ws|github|x|URN)",
            rest in "(:|:/|://|:///)([a-zA-Z]{0,3}(:80|:443)?)?(/|[.]{1,2}|%2[eEfF]|%[0-9a-fA-F]{2}|[ %?#@:|'`\\\\]|[a-zA-Z]|\\PC){0,12}",
        ) {
            if let Ok(form) = canonical(&format!("{scheme}{rest}")) {
                prop_assert_eq!(canonical(&form).unwrap(), form);
            }
        }

        #[test]
        fn any_text_is_answered(text in "\\PC{0,40}") {
            if let Ok(form) = canonical(&text) {
                prop_assert!(form.is_ascii());
                prop_assert!(check(&form).is_ok());
            }
        }

        #[test]
        fn escaping_more_changes_nothing(path in "[a-zA-Z0-9._~-]{1,12}") {
            prop_assume!(!path.chars().all(|c| c == '.'));
            let escaped: String = path.bytes().map(|byte| format!("%{byte:02x}")).collect();
            prop_assert_eq!(canonical(&format!("x://h/{escaped}")), canonical(&format!("x://h/{path}")));
        }
    }
}
