//! Points in time and spans, in milliseconds. `shared` never asks what time it is: it is told.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};

/// Milliseconds since the Unix epoch. Shown to people and clients as ISO 8601 UTC with milliseconds and `Z`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    pub const ZERO: Timestamp = Timestamp(0);
    /// Later than anything; used where something never ends.
    pub const NEVER: Timestamp = Timestamp(u64::MAX);

    pub fn millis(self) -> u64 {
        self.0
    }

    /// The time since `earlier`, or zero if that is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// ISO 8601 in UTC with milliseconds, as `2026-11-21T02:10:54.340Z`.
    pub fn iso(self) -> String {
        let millis = i64::try_from(self.0).unwrap_or(i64::MAX).min(253_402_300_799_999);
        match jiff::Timestamp::from_millisecond(millis) {
            Ok(time) => format!("{time:.3}"),
            Err(_) => "9999-12-31T23:59:59.999Z".to_owned(),
        }
    }

    /// Parses ISO 8601 with an offset or `Z`.
    pub fn parse_iso(text: &str) -> Option<Timestamp> {
        let time: jiff::Timestamp = text.parse().ok()?;
        u64::try_from(time.as_millisecond()).ok().map(Timestamp)
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;

    fn add(self, span: Duration) -> Timestamp {
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Timestamp(self.0.saturating_add(millis))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Timestamp;

    fn sub(self, span: Duration) -> Timestamp {
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Timestamp(self.0.saturating_sub(millis))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iso())
    }
}

/// A time that is written as people read it, where a [`Timestamp`] is written as its milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Iso(pub Timestamp);

impl Serialize for Iso {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.iso())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iso_form_has_milliseconds_and_z() {
        assert_eq!(Timestamp(1_790_000_000_340).iso(), "2026-09-21T14:13:20.340Z");
        assert_eq!(Timestamp(1_790_000_000_000).iso(), "2026-09-21T14:13:20.000Z");
        assert_eq!(Timestamp::parse_iso("2026-09-21T14:13:20.340Z"), Some(Timestamp(1_790_000_000_340)));
        assert_eq!(Timestamp::parse_iso("yesterday"), None);
    }
}
