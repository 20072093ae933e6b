//! What goes on and what has been, of all agents together, for operators' programs: the runs with what started each,
//! and what was to start one and was given up. Of each the latest thousand are looked through, and of the runs also all
//! that live.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use axum::extract::{RawQuery, State};
use serde_json::{Value, json};
use skein_shared::id::Name;
use url::form_urlencoded;

use super::answer::{Answer, Problem, millis};
use super::control::{LONGEST_PAGE, number};
use super::door::Operator;
use super::{Gateway, granted};
use crate::auth::Principal;
use crate::service::instances::{MOST, Runs};
use crate::service::views::{Rows, Wanted};

/// Rows of a page that names no number.
const PAGE: usize = 50;
const DEAD_LETTER: &str = "dead-letter";

/// Which rows a page has. What is left out of the address keeps none away.
#[derive(Debug, Default, PartialEq)]
struct Asked {
    agent: Option<Name>,
    trigger: Option<String>,
    /// Any of these.
    status: Vec<String>,
    /// Milliseconds since the epoch.
    since: Option<u64>,
    /// What was given up too, where it does not belong there anyway.
    all: bool,
    limit: usize,
    offset: usize,
}

/// Rows, and whether some may be missing for a moment.
struct Found {
    rows: Vec<Value>,
    rebuilding: bool,
}

/// Runs that wait, those that go on, and what is over: of each the latest first.
pub(super) async fn activity(
    State(gateway): State<Gateway>,
    RawQuery(query): RawQuery,
    Operator { who, .. }: Operator,
) -> Answer {
    let asked = Asked::read(&query.unwrap_or_default())?;
    let found = runs(&gateway, &who, &asked).await?.and(given_up(&gateway, &who, &asked).await?);
    page("activity", &asked, by_progress(found))
}

/// The same without what was given up.
pub(super) async fn jobs(
    State(gateway): State<Gateway>,
    RawQuery(query): RawQuery,
    Operator { who, .. }: Operator,
) -> Answer {
    let asked = Asked::read(&query.unwrap_or_default())?;
    let found = runs(&gateway, &who, &asked).await?;
    page("jobs", &asked, by_progress(found))
}

/// What started runs, the latest first; with `?all=1` also what was given up.
pub(super) async fn triggers(
    State(gateway): State<Gateway>,
    RawQuery(query): RawQuery,
    Operator { who, .. }: Operator,
) -> Answer {
    let asked = Asked::read(&query.unwrap_or_default())?;
    let mut found = runs(&gateway, &who, &asked).await?;
    if asked.all {
        found = found.and(given_up(&gateway, &who, &asked).await?);
    }
    found.rows.sort_by_key(|row| Reverse(row["ts"].as_u64()));
    page("triggers", &asked, found)
}

impl Asked {
    fn read(query: &str) -> Result<Self, Problem> {
        let given = |name: &str| {
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            let found = pairs.find_map(|(key, value)| (key == name).then(|| value.into_owned()));
            found.filter(|value| !value.is_empty())
        };
        let whole = |name: &str| {
            let wrong = |_| Problem::bad_request(format!("{name} must be a whole number"));
            given(name).map(|text| text.parse::<u64>().map_err(wrong)).transpose()
        };
        let limit = number(query, "limit", PAGE)?.min(LONGEST_PAGE);
        let before = (number(query, "page", 1)? - 1).saturating_mul(limit);
        let offset = whole("offset")?.map_or(before, |offset| usize::try_from(offset).unwrap_or(usize::MAX));
        let status = given("status").unwrap_or_default();
        Ok(Self {
            agent: given("agent").map(|agent| Name::parse(&agent)).transpose()?,
            trigger: given("triggerType"),
            status: status.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect(),
            since: whole("since")?,
            all: ["all", "deadLetter"].into_iter().filter_map(given).any(|is| is == "1" || is == "true"),
            limit,
            offset,
        })
    }

    fn wants(&self, row: &Value) -> bool {
        let is = |field: &str, wanted: &str| row[field] == wanted;
        self.trigger.as_deref().is_none_or(|trigger| is("triggerType", trigger))
            && (self.status.is_empty() || self.status.iter().any(|status| is("status", status)))
            && self.since.is_none_or(|since| row["ts"].as_u64().is_some_and(|at| at >= since))
    }
}

impl Found {
    fn and(mut self, other: Self) -> Self {
        self.rows.extend(other.rows);
        Self { rows: self.rows, rebuilding: self.rebuilding || other.rebuilding }
    }
}

/// The runs of runners. One that ends between the two looks stands in both, and has ended.
async fn runs(gateway: &Gateway, who: &Principal, asked: &Asked) -> Result<Found, Problem> {
    let of = |live| Runs { agent: asked.agent.as_ref(), live, limit: MOST };
    let live = gateway.service.instances(who, of(true)).await?;
    let latest = gateway.service.instances(who, of(false)).await?;
    let known: BTreeSet<String> = latest.rows.iter().map(|row| row["instance"].to_string()).collect();
    let older = live.rows.iter().filter(|row| !known.contains(&row["instance"].to_string()));
    let all = latest.rows.iter().chain(older).filter(|row| row["external"] != true);
    Ok(Found { rows: all.map(run).collect(), rebuilding: live.rebuilding || latest.rebuilding })
}

/// Dead letters of agents, and webhooks that nobody took. A webhook whose run an agent has given up is that letter.
async fn given_up(gateway: &Gateway, who: &Principal, asked: &Asked) -> Result<Found, Problem> {
    let only = asked.agent.as_ref().map(|agent| ("agent", agent.as_str()));
    let list = |view, only| Wanted { view, only, limit: Some(MOST), ..Wanted::default() };
    let letters = gateway.service.rows(who, list("dead-letters", only)).await?;
    let mut found = Found { rows: letters.rows.iter().map(letter).collect(), rebuilding: letters.rebuilding };
    if asked.agent.is_some() {
        return Ok(found);
    }
    let Rows { rows, rebuilding, .. } = gateway.service.rows(who, list("webhooks", None)).await?;
    let known: BTreeSet<String> = letters.rows.iter().map(|letter| letter["receipt"].to_string()).collect();
    let dead = rows.iter().filter(|row| row["status"] == "dead_letter");
    let dead = dead.filter(|row| !known.contains(&row["receiptId"].to_string()));
    found.rows.extend(dead.map(webhook));
    found.rebuilding |= rebuilding;
    Ok(found)
}

fn by_progress(mut found: Found) -> Found {
    let rank = |row: &Value| match row["status"].as_str() {
        Some("pending") => 0,
        Some("running" | "waiting") => 1,
        _ => 2,
    };
    found.rows.sort_by_key(|row| (rank(row), Reverse(row["ts"].as_u64())));
    found
}

fn page(name: &str, asked: &Asked, found: Found) -> Answer {
    let wanted: Vec<Value> = found.rows.into_iter().filter(|row| asked.wants(row)).collect();
    let total = wanted.len();
    let shown: Vec<Value> = wanted.into_iter().skip(asked.offset).take(asked.limit).collect();
    granted(json!({
        name: shown, "total": total, "limit": asked.limit, "offset": asked.offset, "rebuilding": found.rebuilding,
    }))
}

/// A run, by the words that Action Llama has for how it is.
fn run(row: &Value) -> Value {
    let status = match row["state"].as_str().unwrap_or_default() {
        "queued" => "pending",
        "completed" if row["rerunWanted"] == true => "rerun",
        over @ ("completed" | "error" | "killed") => over,
        "waiting" | "freezing" | "frozen" | "resuming" => "waiting",
        _ => "running",
    };
    json!({
        "status": status,
        "agentName": row["agent"],
        "instanceId": row["instance"],
        "triggerType": trigger(row),
        "triggerSource": row["source"],
        "webhookReceiptId": row["receipt"],
        "ts": millis(&row["createdAt"]),
        "startedAt": millis(&row["startedAt"]),
        "endedAt": millis(&row["endedAt"]),
        "durationMs": row["durationMs"],
        "exitCode": row["exit"]["code"],
        "reason": row["exit"]["reason"],
    })
}

fn letter(row: &Value) -> Value {
    json!({
        "status": DEAD_LETTER,
        "agentName": row["agent"],
        "instanceId": row["replayedAs"],
        "deadLetterId": row["id"],
        "triggerType": trigger(row),
        "triggerSource": row["source"],
        "webhookReceiptId": row["receipt"],
        "ts": millis(&row["at"]),
        "reason": row["reason"],
    })
}

fn webhook(row: &Value) -> Value {
    json!({
        "status": DEAD_LETTER,
        "triggerType": "webhook",
        "triggerSource": row["source"],
        "webhookReceiptId": row["receiptId"],
        "ts": millis(&row["receivedAt"]),
        "reason": row["reason"],
    })
}

/// What kind of thing wanted it.
fn trigger(row: &Value) -> &str {
    match row["class"].as_str().unwrap_or_default() {
        "call" => "agent",
        class => class,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_of_the_rows_is_wanted_stands_in_the_address() {
        let read = |query: &str| Asked::read(query).ok();
        let usual = || Asked { limit: PAGE, ..Asked::default() };
        assert_eq!(read("swarm=geese&agent=&status="), Some(usual()));
        let status = vec!["pending".to_owned(), "dead-letter".to_owned()];
        assert_eq!(read("status=pending,dead-letter"), Some(Asked { status, ..usual() }));
        let pages = Asked { limit: 20, offset: 40, ..Asked::default() };
        assert_eq!(
            (read("limit=20&page=3"), read("limit=20&offset=40")),
            (Some(pages), read("limit=20&page=3"))
        );
        let narrow = Asked {
            agent: Some(Name::parse("dev").unwrap()),
            trigger: Some("webhook".to_owned()),
            since: Some(5),
            all: true,
            ..usual()
        };
        assert_eq!(read("agent=dev&triggerType=webhook&since=5&all=1"), Some(narrow));
        for wrong in ["limit=0", "page=0", "offset=-1", "since=today", "agent=No%20Name"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn runs_are_told_by_the_words_of_those_who_ask() {
        let status = |state: &str, again: bool| {
            run(&json!({ "state": state, "rerunWanted": again }))["status"].clone()
        };
        for (state, again, told) in [
            ("queued", false, "pending"),
            ("starting", false, "running"),
            ("running", true, "running"),
            ("frozen", false, "waiting"),
            ("completed", false, "completed"),
            ("completed", true, "rerun"),
            ("error", true, "error"),
            ("killed", false, "killed"),
        ] {
            assert_eq!(status(state, again), told, "{state}");
        }
        assert_eq!(run(&json!({ "class": "call" }))["triggerType"], "agent");
        assert_eq!(run(&json!({ "class": "schedule" }))["triggerType"], "schedule");
    }
}
