//! Times, spans, statuses and long texts, as people read them.

use minijinja::{Environment, Value};
use skein_shared::time::Timestamp;
use url::form_urlencoded::byte_serialize;

/// Gives the templates their filters.
pub(super) fn teach(templates: &mut Environment<'static>) {
    templates.add_filter("ago", |time: &Value, now: &str| relative(time.as_str().unwrap_or_default(), now));
    templates.add_filter("span", |millis: Option<u64>| millis.map_or_else(String::new, span));
    templates.add_filter("clip", |text: &Value, most: usize| clip(text.as_str().unwrap_or_default(), most));
    templates.add_filter("short", |id: &Value| short(id.as_str().unwrap_or_default()));
    templates.add_filter("words", |text: &Value| text.as_str().unwrap_or_default().replace(['_', '-'], " "));
    templates.add_filter("sign", |status: &Value| sign(status.as_str().unwrap_or_default()));
    templates.add_filter("number", number);
    templates.add_filter("dollars", dollars);
    templates.add_filter("part", |text: &str| byte_serialize(text.as_bytes()).collect::<String>());
    templates.add_filter("pretty", pretty);
    templates.add_filter("web", |text: &Value| web(text.as_str().unwrap_or_default()).to_owned());
    templates.add_filter("clock", |time: &Value| clock(time.as_str().unwrap_or_default()));
}

/// `3 min ago`, `in 2 h`, as seen from `now`.
fn relative(time: &str, now: &str) -> String {
    let (Some(at), Some(now)) = (Timestamp::parse_iso(time), Timestamp::parse_iso(now)) else {
        return time.to_owned();
    };
    let (ago, ahead) = (now.since(at).as_millis(), at.since(now).as_millis());
    let millis = |millis: u128| span(u64::try_from(millis).unwrap_or(u64::MAX));
    match (ago, ahead) {
        (0..1000, 0..1000) => "now".to_owned(),
        (ago, 0) => format!("{} ago", millis(ago)),
        (_, ahead) => format!("in {}", millis(ahead)),
    }
}

/// An address that may be followed; empty for what would do something else, for it comes from outside.
fn web(address: &str) -> &str {
    let is_web = ["https://", "http://"].into_iter().any(|scheme| address.starts_with(scheme));
    if is_web { address } else { "" }
}

/// The day and the minute.
fn clock(time: &str) -> String {
    time.get(..16).unwrap_or(time).replace('T', " ")
}

/// In the largest unit of which there is one.
pub(super) fn span(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0 if millis > 0 => format!("{millis} ms"),
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// The first line of a text, cut where it gets too long.
pub(super) fn clip(text: &str, most: usize) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let is_cut = line.chars().nth(most).is_some() || text.trim().lines().nth(1).is_some();
    let mut cut: String = line.chars().take(most).collect();
    if is_cut {
        cut.truncate(cut.trim_end().len());
        cut.push('…');
    }
    cut
}

/// The end of an id, which differs where its beginning is the time.
fn short(id: &str) -> String {
    let letters = id.chars().count();
    if letters <= 12 { id.to_owned() } else { id.chars().skip(letters - 8).collect() }
}

/// Which shape and colour stand beside the word.
pub(super) fn sign(status: &str) -> &'static str {
    match status {
        "in_progress" | "running" | "busy" | "active" | "processing" => "go",
        "offered" | "reviewing" | "open" | "starting" | "resuming" | "freezing" | "triggered" => "ask",
        "completed" | "answered" | "ready" | "responded" | "delegated" | "delivered" | "matched"
        | "online" => "ok",
        "failed" | "error" | "killed" | "lost" | "timed_out" | "dead" | "dead_letter" | "timeout" => "bad",
        "cancelled" | "declined" | "withdrawn" | "expired" | "offline" | "disabled" | "left" | "backlog"
        | "ended" | "dropped" | "unmatched" => "off",
        "paused" | "frozen" | "draining" | "stopping" => "hold",
        _ => "wait",
    }
}

/// US dollars, in cents unless that would hide all there is.
fn dollars(amount: f64) -> String {
    if amount > 0.0 && amount < 0.01 { format!("${amount:.4}") } else { format!("${amount:.2}") }
}

/// With thin spaces between the thousands.
fn number(value: &Value) -> String {
    let Some(number) = i64::try_from(value.clone()).ok() else { return value.to_string() };
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "−" } else { "" });
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A document for people who want all of it.
fn pretty(value: &Value) -> String {
    let json = serde_json::to_value(value).unwrap_or_default();
    serde_json::to_string_pretty(&json).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_as_seen_from_now() {
        let now = "2026-11-21T12:00:00.000Z";
        for (time, said) in [
            ("2026-11-21T11:59:59.900Z", "now"),
            ("2026-11-21T11:59:20.000Z", "40 s ago"),
            ("2026-11-21T11:57:00.000Z", "3 min ago"),
            ("2026-11-20T18:00:00.000Z", "18 h ago"),
            ("2026-11-11T12:00:00.000Z", "10 d ago"),
            ("2026-11-21T14:30:00.000Z", "in 2 h"),
            ("tomorrow", "tomorrow"),
        ] {
            assert_eq!(relative(time, now), said);
        }
    }

    #[test]
    fn only_addresses_of_the_web_are_followed() {
        assert_eq!(web("https://github.com/acme/api/pull/7"), "https://github.com/acme/api/pull/7");
        assert_eq!(["javascript:alert(1)", "//evil.example", ""].map(web), ["", "", ""]);
    }

    #[test]
    fn long_texts_are_cut_by_letters() {
        assert_eq!(clip("  one line ", 20), "one line");
        assert_eq!(clip("one\ntwo", 20), "one…");
        assert_eq!(clip("äöüäöü", 3), "äöü…");
        assert_eq!(short("0195f3a0-0000-7000-8000-00000000abcd"), "0000abcd");
        assert_eq!(number(&Value::from(1_234_567)), "1\u{202f}234\u{202f}567");
        assert_eq!([0.0, 0.000_56, 0.01, 12.345_6].map(dollars), ["$0.00", "$0.0006", "$0.01", "$12.35"]);
    }
}
