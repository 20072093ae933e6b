//! Fences: who may write, and which grant of a lock is the newer one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The reign of one owner of the store, from a hybrid clock: `max(last + 1, wall milliseconds)`. It never
/// repeats and never goes back, not even when an old backup is restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A fencing token, ordered by epoch and then by number. Its wire form is of fixed width
/// (`1790000000000-0000000042`), so that the order of the bytes is the order of the tokens: a guarded
/// resource can compare tokens as strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    pub epoch: Epoch,
    pub number: u64,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:013}-{:010}", self.epoch.0, self.number)
    }
}

/// The text is no fencing token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fencing token looks like 1790000000000-0000000042")]
pub struct NotAToken;

impl FromStr for Token {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Self, NotAToken> {
        let (epoch, number) = text.split_once('-').ok_or(NotAToken)?;
        let epoch = epoch.parse().map_err(|_| NotAToken)?;
        let number = number.parse().map_err(|_| NotAToken)?;
        Ok(Self { epoch: Epoch(epoch), number })
    }
}

impl Serialize for Token {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_order_is_token_order() {
        let tokens =
            [(1, 99), (2, 1), (1_790_000_000_000, 42), (1_790_000_000_000, 43), (1_790_000_000_001, 1)];
        let texts: Vec<String> =
            tokens.iter().map(|&(e, number)| Token { epoch: Epoch(e), number }.to_string()).collect();
        assert_eq!(texts[2], "1790000000000-0000000042");
        assert!(texts.is_sorted());
        assert_eq!(texts[3].parse::<Token>().unwrap().number, 43);
    }
}
