//! The values that an instance is lent, in what it prints and in what its tools give back: each of their bytes becomes
//! a `*`.
//!
//! The length stays, so that a log can be masked in its place, and whoever follows it finds where he was. It is a guard
//! against carelessness: a value that was turned around, encoded or cut into pieces by its agent is not recognised.

use std::fs;
use std::path::Path;

use aho_corasick::AhoCorasick;

/// Shorter values are left alone, in bytes: they would be found in what has nothing to do with them.
const SHORTEST: usize = 8;
/// Longest part of a value, in bytes, that is looked for where a text was cut.
const PART: usize = 4096;
const STAR: u8 = b'*';

/// What is not to be seen.
#[derive(Default)]
pub struct Mask {
    values: Vec<Vec<u8>>,
    finder: Option<AhoCorasick>,
}

impl Mask {
    /// All values that lie in a folder of what an instance is lent; none if there is no such folder.
    pub fn of(lent: &Path) -> Self {
        let mut values = Vec::new();
        if let Err(error) = read(lent, &mut values)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::error!(%error, "what an instance is lent cannot be read, and is not masked");
        }
        Self::new(values)
    }

    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut values: Vec<Vec<u8>> = values.into_iter().flat_map(|value| forms(&value)).collect();
        values.sort();
        values.dedup();
        if values.is_empty() {
            return Self::default();
        }
        match AhoCorasick::new(&values) {
            Ok(finder) => Self { values, finder: Some(finder) },
            Err(error) => {
                tracing::error!(%error, "what an instance is lent is too much to be masked");
                Self::default()
            }
        }
    }

    /// Bytes of the longest value.
    pub fn longest(&self) -> usize {
        self.values.iter().map(Vec::len).max().unwrap_or_default()
    }

    /// Masks the values in a text. True if there were some.
    pub fn hide(&self, text: &mut [u8]) -> bool {
        let Some(finder) = &self.finder else { return false };
        let found: Vec<_> = finder.find_overlapping_iter(&*text).map(|found| found.range()).collect();
        for range in &found {
            text[range.clone()].fill(STAR);
        }
        !found.is_empty()
    }

    /// The same of a text that was cut somewhere, where there may be a part of a value.
    pub fn hide_in_part(&self, text: &mut [u8]) {
        self.hide(text);
        for value in &self.values {
            let longest = (value.len() - 1).min(PART).min(text.len());
            let parts = || (SHORTEST..=longest).rev();
            if let Some(end) = parts().find(|&part| text.starts_with(&value[value.len() - part..])) {
                text[..end].fill(STAR);
            }
            if let Some(part) = parts().find(|&part| text.ends_with(&value[..part])) {
                let start = text.len() - part;
                text[start..].fill(STAR);
            }
        }
    }

    /// The same of a sentence.
    pub fn hidden(&self, text: &str) -> String {
        if self.values.is_empty() {
            return text.to_owned();
        }
        let mut bytes = text.as_bytes().to_vec();
        self.hide_in_part(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// A value as it may be printed: as it stands, as a string of JSON, and line by line.
fn forms(value: &str) -> Vec<Vec<u8>> {
    let value = value.trim();
    let quoted = serde_json::Value::from(value).to_string();
    let lines = value.lines().map(str::trim);
    let all = [value, quoted.trim_matches('"')].into_iter().chain(lines);
    all.filter(|form| form.len() >= SHORTEST).map(|form| form.as_bytes().to_vec()).collect()
}

fn read(folder: &Path, values: &mut Vec<String>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read(&path, values)?;
        } else {
            values.push(fs::read_to_string(path)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mask(values: &[&str]) -> Mask {
        Mask::new(values.iter().map(|value| (*value).to_owned()))
    }

    fn hidden(values: &[&str], text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        mask(values).hide(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_value_is_masked_in_all_its_forms_and_a_short_one_is_left_alone() {
        assert_eq!(hidden(&["s3cret-token"], "use s3cret-token!"), "use ************!");
        assert_eq!(hidden(&["short"], "a short one"), "a short one");
        assert_eq!(hidden(&["with\"quote"], r#"{"a":"with\"quote"}"#), r#"{"a":"***********"}"#);
        let key = "-----BEGIN KEY-----\nabcdefghijkl\n-----END KEY-----";
        assert_eq!(hidden(&[key], "> abcdefghijkl"), "> ************");
        assert!(!hidden(&[key], &serde_json::json!({ "key": key }).to_string()).contains("BEGIN"));
    }

    #[test]
    fn values_that_overlap_are_masked_both() {
        assert_eq!(hidden(&["aaaabbbb", "bbbbcccc"], "aaaabbbbcccc."), "************.");
        assert_eq!(hidden(&["12345678", "1234567890"], "1234567890 12345678"), "********** ********");
    }

    #[test]
    fn what_is_left_of_a_value_where_a_text_was_cut_is_masked_too() {
        let mask = mask(&["0123456789abcdef"]);
        assert_eq!(mask.hidden("6789abcdef and 0123456789"), "********** and **********");
        assert_eq!(mask.hidden("9abcdef and 0123456"), "9abcdef and 0123456", "too little to tell");
    }

    proptest! {
        #[test]
        fn no_value_is_seen_and_nothing_else_is_touched(
            values in prop::collection::vec("[ab]{8,12}", 1..4),
            text in "[abc ]{0,200}",
        ) {
            let known: Vec<&str> = values.iter().map(String::as_str).collect();
            let seen = hidden(&known, &text);
            prop_assert_eq!(seen.len(), text.len());
            for value in &values {
                prop_assert!(!seen.contains(value.as_str()));
            }
            for (at, byte) in seen.bytes().enumerate().filter(|(at, byte)| *byte != text.as_bytes()[*at]) {
                prop_assert_eq!(byte, STAR);
                let covered = values.iter().any(|value| {
                    text.match_indices(value.as_str()).any(|(from, _)| (from..from + value.len()).contains(&at))
                        || (0..text.len()).any(|from| text[from..].starts_with(value.as_str())
                            && (from..from + value.len()).contains(&at))
                });
                prop_assert!(covered, "{} at {}", text, at);
            }
        }
    }
}
