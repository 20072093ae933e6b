//! Durations as people and agents write them.

use std::time::Duration;

use crate::code::{Code, Refusal};

/// Parses `30m`, `1h30m`, `1h 15m`, `500ms`, `2d`, or a bare number of seconds.
///
/// The grammar is strict (spec: Action Llama 6.4): sums of `<integer><unit>` with the units `ms`, `s`, `m`,
/// `h`, `d`. The original picked fragments out of any text and took `500ms` for 500 minutes.
///
/// # Errors
/// `invalid_argument`, naming the grammar, when the text has another form or is zero.
pub fn parse(field: &str, text: &str) -> Result<Duration, Refusal> {
    let refusal = || {
        let shown: String = text.chars().take(60).collect();
        Refusal::new(
            Code::InvalidArgument,
            format!(
                "{field}: `{shown}` is not a duration; write sums of a whole number and a unit (ms, s, m, h, d), such as 30m, 1h30m or 2d; a bare number means seconds"
            ),
        )
    };
    let trimmed = text.trim();
    if let Ok(seconds) = trimmed.parse::<u64>() {
        return if seconds == 0 { Err(refusal()) } else { Ok(Duration::from_secs(seconds)) };
    }
    let mut total: u64 = 0;
    let mut rest = trimmed;
    if rest.is_empty() {
        return Err(refusal());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(refusal)?;
        let number: u64 = rest[..digits].parse().map_err(|_| refusal())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len());
        let millis = match &rest[..letters] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(refusal()),
        };
        total = number.checked_mul(millis).and_then(|part| total.checked_add(part)).ok_or_else(refusal)?;
        rest = rest[letters..].trim_start();
    }
    if total == 0 { Err(refusal()) } else { Ok(Duration::from_millis(total)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_grammar() {
        let seconds = |s| Some(Duration::from_secs(s));
        for (text, want) in [
            ("30m", seconds(1800)),
            ("1h30m", seconds(5400)),
            ("1h 15m", seconds(4500)),
            ("90", seconds(90)),
            ("2d", seconds(172_800)),
            ("500ms", Some(Duration::from_millis(500))),
            ("0s", None),
            ("1.5h", None),
            ("-5m", None),
            ("soon", None),
            ("", None),
            ("5 m", None),
            ("99999999999999999999d", None),
        ] {
            assert_eq!(parse("timeout", text).ok(), want, "{text}");
        }
    }
}
