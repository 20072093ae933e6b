//! Days of the calendar, in UTC.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::ToSpan;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

const HOURS_24: Duration = Duration::from_secs(86_400);

/// A day, shown and written as `2026-11-23`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Day(Date);

impl Day {
    pub const FIRST: Day = Day(Date::MIN);
    pub const LAST: Day = Day(Date::MAX);

    /// The day that a moment lies in.
    pub fn of(at: Timestamp) -> Self {
        let at =
            i64::try_from(at.millis()).ok().and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
        at.map_or(Self::LAST, |at| Self(at.to_zoned(jiff::tz::TimeZone::UTC).date()))
    }

    /// Its first moment. Days before 1970 have the first of all, those that no time reaches have none.
    pub fn begin(self) -> Timestamp {
        let Ok(midnight) = self.0.to_zoned(jiff::tz::TimeZone::UTC) else {
            return if self.0 < Date::constant(1970, 1, 1) { Timestamp::ZERO } else { Timestamp::NEVER };
        };
        Timestamp(u64::try_from(midnight.timestamp().as_millisecond()).unwrap_or_default())
    }

    /// The first moment after it.
    pub fn end(self) -> Timestamp {
        self.begin() + HOURS_24
    }

    #[must_use]
    pub fn first_of_month(self) -> Self {
        Self(self.0.first_of_month())
    }

    /// So many days before.
    #[must_use]
    pub fn before(self, days: u16) -> Self {
        Self(self.0.saturating_sub(i64::from(days).days()))
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Day {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        text.parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_its_moments() {
        let at = Timestamp::parse_iso("2026-11-23T23:59:59.999Z").unwrap();
        let day = Day::of(at);
        assert_eq!((day.to_string(), day), ("2026-11-23".to_owned(), "2026-11-23".parse().unwrap()));
        assert_eq!(day.begin().iso(), "2026-11-23T00:00:00.000Z");
        assert_eq!(day.end().iso(), "2026-11-24T00:00:00.000Z");
        assert_eq!(day.first_of_month().to_string(), "2026-11-01");
        assert_eq!(day.before(23).to_string(), "2026-10-31");
        assert_eq!(Day::of(Timestamp::NEVER), Day::LAST);
        assert_eq!(
            (Day::FIRST.begin(), Day::LAST.begin(), Day::LAST.end()),
            (Timestamp::ZERO, Timestamp::NEVER, Timestamp::NEVER)
        );
        assert_eq!(Day::FIRST.before(u16::MAX), Day::FIRST);
    }
}
