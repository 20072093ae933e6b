//! Cron expressions and their occurrences in a time zone.
//!
//! croner walks the calendar; the dialect and the days on which the clock is changed are ours. The dialect is
//! the one that Agent Swarm's users write (spec: Agent Swarm 4.1): five fields, or six with leading seconds,
//! names, `L`, `5L`, `1#2`, `?`, macros, and `H` for "some fixed moment", spread by a seed.
//!
//! When the clock goes forward, a run inside the gap moves forward by the gap; when it goes back, a run in the
//! repeated hour happens once, the first time. An expression that runs in every hour counts real hours instead:
//! nobody means to skip or to wait for an hour with `*/15 * * * *`.

use croner::Cron as Pattern;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp as Instant};
use uuid::Uuid;

use crate::code::{Code, Refusal};
use crate::time::Timestamp;

/// Longest expression, characters. Longer ones are lists that a few ranges say better.
const EXPRESSION: usize = 256;

/// No clock is set forward by more than this; how far back a run may stand that the gap moved on.
const GAP: SignedDuration = SignedDuration::from_hours(3);

/// Expressions with a name, in the five- or six-field form.
const MACROS: [(&str, &str); 11] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
    ("@minutely", "* * * * *"),
    ("@secondly", "* * * * * *"),
    ("@weekdays", "0 0 * * 1-5"),
    ("@weekends", "0 0 * * 0,6"),
];

const DAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];

/// A field of the expression: its name, the range that `H` draws from, and the last number that a range of its own may
/// reach. A day drawn by a bare `H` exists in every month, and Sunday comes once.
struct Field {
    name: &'static str,
    low: u32,
    high: u32,
    last: u32,
}

const FIELDS: [Field; 6] = [
    Field { name: "second", low: 0, high: 59, last: 59 },
    Field { name: "minute", low: 0, high: 59, last: 59 },
    Field { name: "hour", low: 0, high: 23, last: 23 },
    Field { name: "day of the month", low: 1, high: 28, last: 31 },
    Field { name: "month", low: 1, high: 12, last: 12 },
    Field { name: "day of the week", low: 0, high: 6, last: 7 },
];
const DAY_OF_MONTH: usize = 3;
const MONTH: usize = 4;
const DAY_OF_WEEK: usize = 5;

/// A valid expression in a known time zone.
#[derive(Clone, Debug)]
pub struct Cron {
    pattern: Pattern,
    zone: TimeZone,
    every_hour: bool,
}

/// The first occurrence of `expression` after `after`, or `None` when there is none or either text is invalid.
pub fn next(expression: &str, zone: &str, after: Timestamp) -> Option<Timestamp> {
    Cron::parse(expression, zone, expression).ok()?.next(after)
}

impl Cron {
    /// Reads an expression. `seed` fixes what `H` stands for: equal seeds give equal moments.
    ///
    /// # Errors
    /// `invalid_argument` when the expression is outside the dialect, can never occur, or the zone is unknown.
    pub fn parse(expression: &str, zone: &str, seed: &str) -> Result<Self, Refusal> {
        let zone = TimeZone::get(zone).map_err(|_| {
            let shown: String = zone.chars().take(60).collect();
            Refusal::new(
                Code::InvalidArgument,
                format!(
                    "timezone: `{shown}` is not an IANA time zone; write one such as UTC or America/New_York"
                ),
            )
        })?;
        let fields = fields(expression).map_err(|why| refuse(expression, &why))?;
        let fields: Vec<String> = fields
            .iter()
            .enumerate()
            .map(|(at, text)| dialect(at, text, seed))
            .collect::<Result<_, _>>()
            .map_err(|why| refuse(expression, &why))?;
        let pattern = CronParser::builder()
            .seconds(Seconds::Required)
            .year(Year::Disallowed)
            .build()
            .parse(&fields.join(" "))
            .map_err(|error| refuse(expression, &error.to_string()))?;
        let every_hour = (0..24).all(|hour| pattern.pattern.hour_match(hour).unwrap_or(false));
        let cron = Self { pattern, zone, every_hour };
        if cron.pattern.find_next_occurrence(&DateTime::constant(2000, 1, 1, 0, 0, 0, 0), true).is_err() {
            return Err(refuse(expression, "no such day ever comes"));
        }
        Ok(cron)
    }

    /// The first occurrence later than `after`.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let after = Instant::from_millisecond(i64::try_from(after.millis()).ok()?).ok()?;
        let next = if self.every_hour { self.next_elapsed(after)? } else { self.next_local(after)? };
        u64::try_from(next.as_millisecond()).ok().map(Timestamp)
    }

    fn next_elapsed(&self, after: Instant) -> Option<Instant> {
        let next = self.pattern.find_next_occurrence(&after.to_zoned(self.zone.clone()), false).ok()?;
        Some(next.timestamp())
    }

    /// Walks the local calendar as if every local time existed exactly once, and asks the zone for the instant.
    /// Around a gap the instants are not in the calendar's order, so the walk starts before a gap that has
    /// just passed, and goes on until nothing later in the calendar can come first.
    fn next_local(&self, after: Instant) -> Option<Instant> {
        let local = self.zone.to_datetime(after);
        let earlier = after.checked_sub(GAP).ok()?;
        let shifted = self.zone.to_offset(earlier) != self.zone.to_offset(after);
        let mut at = if shifted { local.checked_sub(GAP).ok()? } else { local };
        let mut best: Option<Instant> = None;
        loop {
            at = self.pattern.find_next_occurrence(&at, false).ok()?;
            if let Some(best) = best
                && at >= self.zone.to_datetime(best)
            {
                return Some(best);
            }
            let instant = self.zone.to_ambiguous_zoned(at).compatible().ok()?.timestamp();
            if instant > after && best.is_none_or(|best| instant < best) {
                best = Some(instant);
            }
        }
    }
}

fn refuse(expression: &str, why: &str) -> Refusal {
    let shown: String = expression.chars().take(80).collect();
    Refusal::new(
        Code::InvalidArgument,
        format!(
            "cronExpression: `{shown}` cannot be used: {why}; write minute, hour, day of the month, month and day of the week, such as `30 9 * * MON-FRI`"
        ),
    )
}

/// The six fields of an expression, with second 0 where it names none.
fn fields(expression: &str) -> Result<Vec<String>, String> {
    if expression.chars().count() > EXPRESSION {
        return Err(format!("it is longer than {EXPRESSION} characters"));
    }
    let trimmed = expression.trim();
    let expanded = match trimmed.strip_prefix('@') {
        None => trimmed,
        Some(_) => MACROS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(trimmed))
            .map(|(_, expression)| *expression)
            .ok_or("there is no such macro")?,
    };
    let mut fields: Vec<String> = expanded.split_whitespace().map(str::to_ascii_uppercase).collect();
    match fields.len() {
        5 => fields.insert(0, "0".to_owned()),
        6 => {}
        count => return Err(format!("it has {count} fields instead of five, or six with seconds")),
    }
    Ok(fields)
}

/// Turns one field into croner's dialect and refuses what croner takes beyond ours: `W`, `+`, and names in
/// fields that have none.
fn dialect(at: usize, text: &str, seed: &str) -> Result<String, String> {
    let name = FIELDS[at].name;
    let parts: Vec<String> = text
        .split(',')
        .map(|part| if part.starts_with('H') { hashed(at, part, seed) } else { named(at, part) })
        .collect::<Result<_, _>>()?;
    let text = parts.join(",");
    let letters = match at {
        DAY_OF_MONTH => "L?",
        DAY_OF_WEEK => "L?#",
        _ => "?",
    };
    let legal = |c: char| c.is_ascii_digit() || "*,-/".contains(c) || letters.contains(c);
    if let Some(wrong) = text.chars().find(|&c| !legal(c)) {
        return Err(format!("`{wrong}` cannot stand in the field of the {name}"));
    }
    Ok(if text == "?" { "*".to_owned() } else { text })
}

/// Replaces the names of months and days by their numbers. A range up to Sunday ends at 7, unless it begins there, too.
fn named(at: usize, part: &str) -> Result<String, String> {
    let (names, first): (&[&str], usize) = match at {
        MONTH => (&MONTHS, 1),
        DAY_OF_WEEK => (&DAYS, 0),
        _ => return Ok(part.to_owned()),
    };
    let mut number = part.to_owned();
    if at == DAY_OF_WEEK {
        number = number.replace("SUN-SUN", "0-0").replace("-SUN", "-7");
    }
    for (position, name) in names.iter().enumerate() {
        number = number.replace(name, &(position + first).to_string());
    }
    Ok(number)
}

/// `H`, `H/n`, `H(a-b)` and `H(a-b)/n`: a value, or the start of a step, drawn by the seed.
fn hashed(at: usize, part: &str, seed: &str) -> Result<String, String> {
    let field = &FIELDS[at];
    let wrong = || format!("`{part}` is not a form of H; write H, H/n, H(a-b) or H(a-b)/n");
    let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
    let rest = &part[1..];
    let (range, step) = match rest.split_once('/') {
        Some((range, step)) => (range, Some(number(step)?)),
        None => (rest, None),
    };
    let (low, high) = match range {
        "" => (field.low, field.high),
        _ => {
            let inner = range.strip_prefix('(').and_then(|r| r.strip_suffix(')')).ok_or_else(wrong)?;
            let (low, high) = inner.split_once('-').ok_or_else(wrong)?;
            (number(low)?, number(high)?)
        }
    };
    if high < low || step == Some(0) {
        return Err(wrong());
    }
    if low < field.low || high > field.last {
        let Field { name, low, last, .. } = field;
        return Err(format!("`{part}` leaves the field of the {name}, which goes from {low} to {last}"));
    }
    let hash = draw(at, seed);
    Ok(match step {
        None => (low + hash % (high - low + 1)).to_string(),
        Some(step) => format!("{}-{high}/{step}", low + hash % step.min(high - low + 1)),
    })
}

fn draw(at: usize, seed: &str) -> u32 {
    let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{at} {seed}").as_bytes()).into_bytes();
    u32::from_be_bytes([id[0], id[1], id[2], id[3]])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse_iso(text).unwrap()
    }

    fn after(expression: &str, zone: &str, from: &str) -> String {
        next(expression, zone, at(from)).unwrap().iso()
    }

    #[test]
    fn the_dialect() {
        let from = "2026-11-21T10:00:00Z"; // a Saturday
        for (expression, want) in [
            ("0 9 * * *", "2026-11-22T09:00:00.000Z"),
            ("*/5 * * * * *", "2026-11-21T10:00:05.000Z"),
            ("0 9 * * MON-FRI", "2026-11-23T09:00:00.000Z"),
            ("0 9 * * fri-sun", "2026-11-22T09:00:00.000Z"),
            ("0 12 * * sun-sun", "2026-11-22T12:00:00.000Z"),
            ("0 0 1 JAN *", "2027-01-01T00:00:00.000Z"),
            ("0 0 L * *", "2026-11-30T00:00:00.000Z"),
            ("0 0 * * 5L", "2026-11-27T00:00:00.000Z"),
            ("0 0 * * 1#2", "2026-12-14T00:00:00.000Z"),
            ("0 0 * * 7", "2026-11-22T00:00:00.000Z"),
            ("0 0 * * 0", "2026-11-22T00:00:00.000Z"),
            ("0 0 ? * ?", "2026-11-22T00:00:00.000Z"),
            ("0 0 25 * MON", "2026-11-23T00:00:00.000Z"),
            ("0 0 29 2 *", "2028-02-29T00:00:00.000Z"),
            ("@yearly", "2027-01-01T00:00:00.000Z"),
            ("@Monthly", "2026-12-01T00:00:00.000Z"),
            ("@weekly", "2026-11-22T00:00:00.000Z"),
            ("@daily", "2026-11-22T00:00:00.000Z"),
            ("@hourly", "2026-11-21T11:00:00.000Z"),
            ("@weekdays", "2026-11-23T00:00:00.000Z"),
        ] {
            assert_eq!(after(expression, "UTC", from), want, "{expression}");
        }
    }

    #[test]
    fn what_is_refused() {
        for bad in [
            "",
            "* * * *",
            "5",
            "* * * * * * *",
            "0 0 15W * *",
            "0 0 LW * *",
            "*/0 * * * *",
            "30-10 * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * 32 * *",
            "* * * 13 *",
            "* * * * 8",
            "0 0 30 2 *",
            "0 0 31 4,6 *",
            "0 0 * * +1",
            "MON * * * *",
            "@never",
            "H/0 * * * *",
            "H(9-3) * * * *",
            "H(0-60) * * * *",
            "H(0-4294967295) * * * *",
            "H(0-4294967295)/7 * * * *",
            "H(0-4294967296) * * * *",
            "* H(0-24) * * *",
            "* * H(0-5) * *",
            "* * H(1-32) * *",
            "* * * H(1-13) *",
            "* * * * H(0-8)",
            "é * * * *",
        ] {
            let refusal = Cron::parse(bad, "UTC", "").unwrap_err();
            assert_eq!(refusal.code, Code::InvalidArgument, "{bad}");
        }
        let refusal = Cron::parse("H(0-60) * * * *", "UTC", "").unwrap_err();
        assert!(refusal.message.contains("the field of the minute, which goes from 0 to 59"), "{refusal}");
        assert!(Cron::parse("* * * * *", "Mars/Olympus", "").is_err());
    }

    #[test]
    fn the_clock_goes_forward() {
        // New York, 2026-03-08: 02:00 becomes 03:00.
        let zone = "America/New_York";
        assert_eq!(after("30 2 * * *", zone, "2026-03-08T05:00:00Z"), "2026-03-08T07:30:00.000Z");
        assert_eq!(after("30 2 * * *", zone, "2026-03-08T07:10:00Z"), "2026-03-08T07:30:00.000Z");
        assert_eq!(after("30 2 * * *", zone, "2026-03-08T07:30:00Z"), "2026-03-09T06:30:00.000Z");
        // The moved 02:30 comes after 03:00, which the calendar has later.
        assert_eq!(after("0,30 2,3 * * *", zone, "2026-03-08T06:59:00Z"), "2026-03-08T07:00:00.000Z");
        assert_eq!(after("0,30 2,3 * * *", zone, "2026-03-08T07:00:00Z"), "2026-03-08T07:30:00.000Z");
        assert_eq!(after("0,30 2,3 * * *", zone, "2026-03-08T07:30:00Z"), "2026-03-09T06:00:00.000Z");
        assert_eq!(after("*/15 * * * *", zone, "2026-03-08T06:50:00Z"), "2026-03-08T07:00:00.000Z");
    }

    #[test]
    fn the_clock_goes_back() {
        // New York, 2026-11-01: 01:00 to 02:00 happens twice.
        let zone = "America/New_York";
        assert_eq!(after("30 1 * * *", zone, "2026-11-01T04:00:00Z"), "2026-11-01T05:30:00.000Z");
        assert_eq!(after("30 1 * * *", zone, "2026-11-01T05:30:00Z"), "2026-11-02T06:30:00.000Z");
        assert_eq!(after("*/30 * * * *", zone, "2026-11-01T05:30:00Z"), "2026-11-01T06:00:00.000Z");
    }

    #[test]
    fn h_is_drawn_by_the_seed() {
        let from = at("2026-11-21T10:00:00Z");
        let run = |seed: &str| Cron::parse("H H(2-5) * * *", "UTC", seed).unwrap().next(from).unwrap();
        assert_eq!(run("a"), run("a"));
        assert!((0..20).any(|seed| run(&seed.to_string()) != run("a")));
        let hours = run("a").iso()[11..13].parse::<u32>().unwrap();
        assert!((2..=5).contains(&hours));
        assert!(Cron::parse("H/15 * * * *", "UTC", "x").is_ok());
    }

    /// One that a field may have, mostly, and sometimes any.
    fn number() -> impl Strategy<Value = u32> {
        prop_oneof![8 => 0..70_u32, 1 => any::<u32>(), 1 => (0..3_u32).prop_map(|less| u32::MAX - less)]
    }

    proptest! {
        #[test]
        fn occurrences_always_move_on(
            from in 1_600_000_000_000u64..1_900_000_000_000,
            expression in prop::sample::select(vec!["*/7 * * * *", "30 2 * * *", "0,30 1,2 * * *", "15 */6 1 * *"]),
            zone in prop::sample::select(vec!["UTC", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]),
        ) {
            let cron = Cron::parse(expression, zone, "").unwrap();
            let from = Timestamp(from);
            let first = cron.next(from).unwrap();
            prop_assert!(first > from);
            // Nothing lies between: from any moment before it, the same occurrence comes next.
            let between = Timestamp(from.0 + (first.0 - from.0) / 2);
            if between < first {
                prop_assert_eq!(cron.next(between), Some(first));
            }
            prop_assert!(cron.next(first).unwrap() > first);
        }

        /// Whatever range `H` is given: it is one of the field, and the moment is drawn from it, or it is refused.
        #[test]
        fn a_range_of_h_is_one_of_its_field(
            at in 0..FIELDS.len(),
            low in number(),
            high in number(),
            step in prop::option::of(number()),
            seed in "[a-z]{0,8}",
        ) {
            let part = match step {
                Some(step) => format!("H({low}-{high})/{step}"),
                None => format!("H({low}-{high})"),
            };
            let is_one = FIELDS[at].low <= low && low <= high && high <= FIELDS[at].last && step != Some(0);
            let drawn = hashed(at, &part, &seed);
            prop_assert_eq!(drawn.is_ok(), is_one, "{}: {:?}", part, drawn);
            if let Ok(drawn) = &drawn {
                let first: u32 = drawn.split(['-', '/']).next().unwrap().parse().unwrap();
                prop_assert!((low..=high).contains(&first), "{} became {}", part, drawn);
            }
            let mut fields = ["0", "*", "*", "*", "*", "*"].map(str::to_owned);
            fields[at] = part;
            let parsed = Cron::parse(&fields.join(" "), "UTC", &seed);
            prop_assert!(is_one || parsed.is_err(), "{:?}", parsed);
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}") {
            let _ = Cron::parse(&text, "UTC", "seed");
        }
    }
}
