//! The swarm at a glance, and what is due.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use skein_shared::Refusal;
use skein_shared::cron;
use skein_shared::pool::Status;
use skein_shared::time::Timestamp;

use super::super::{Console, chart};
use super::{Look, PAGE, at_work};
use crate::auth::{Principal, Right, policy};
use crate::service::instances::{MOST, Runs};
use crate::service::lists::warning;
use crate::service::schedules::Wanted as Schedules;
use crate::service::views::Wanted;
use crate::service::{Freshness, Service};

/// Rows of each part.
const SOME: usize = 12;
const HOUR: Duration = Duration::from_secs(3600);
/// Firings of a schedule that are foretold.
const FIRINGS: usize = 3;

pub(super) async fn overview(console: &Console, who: &Principal, _: &Look) -> Result<Value, Refusal> {
    let service = &console.service;
    let list = |view, limit| service.rows(who, Wanted { view, limit: Some(limit), ..Wanted::default() });
    let ((counts, so_far), members, at_work, latest, locks, waits, schedules, ended) = tokio::try_join!(
        service.count_tasks(who, None),
        service.list_members(who),
        at_work(service, who),
        list("tasks", SOME),
        service.held_locks(who),
        list("waits", SOME),
        service.list_schedules(who, Schedules { enabled: Some(true), soonest: true, ..Schedules::default() }),
        throughput(service, who),
    )?;
    let (throughput, freshness) = ended;
    let warning = warning(members.freshness.and(so_far).and(freshness));
    let all = members.rows.len();
    let online = members.rows.iter().filter(|member| member["status"] != "offline").count();
    let mut members = members.rows;
    // Those at work first, then those who could be.
    members.sort_by_key(|member| match member["status"].as_str() {
        Some("busy") => 0,
        Some("idle") => 1,
        _ => 2,
    });
    members.truncate(2 * SOME);
    let (mut due, _) = schedules;
    due.truncate(SOME / 2);
    let names: BTreeMap<&str, &Value> =
        members.iter().filter_map(|member| Some((member["id"].as_str()?, &member["name"]))).collect();
    let waiting = counted(waits.rows.len(), !waits.next.is_empty());
    let (runs, troubles) = Box::pin(operators_part(console, who)).await?;
    Ok(json!({
        "counts": counts, "open": open(&counts), "members": members, "online": online, "all_members": all,
        "at_work": at_work, "latest": latest.rows, "names": names, "locks": locks.len(), "waiting": waiting,
        "due": due, "throughput": throughput, "runs": runs, "troubles": troubles, "warning": warning,
    }))
}

/// What operators alone see: the runs under way, and what is wrong.
async fn operators_part(console: &Console, who: &Principal) -> Result<(Value, Vec<Value>), Refusal> {
    let service = &console.service;
    if policy::require(who, Right::Administer).is_err() {
        return Ok((Value::Null, Vec::new()));
    }
    let list = |view, limit| service.rows(who, Wanted { view, limit: Some(limit), ..Wanted::default() });
    let (runs, letters, questions, node) = tokio::try_join!(
        service.instances(who, Runs { agent: None, live: true, limit: MOST }),
        // Those that were replayed stand among those that wait for it.
        list("dead-letters", MOST),
        list("questions", PAGE),
        service.node(who)
    )?;
    let live = counted(runs.rows.len(), runs.rows.len() >= MOST);
    let mut troubles = Vec::new();
    if let count @ 1.. = questions.rows.len() {
        let wait = if count == 1 { "question waits" } else { "questions wait" };
        let text = format!("{} {wait} for an answer", counted(count, !questions.next.is_empty()));
        troubles.push(json!({ "text": text, "page": "questions" }));
    }
    if let count @ 1.. = letters.rows.iter().filter(|letter| letter["replayable"] == true).count() {
        let runs = if count == 1 { "run was" } else { "runs were" };
        let text = format!("{} {runs} given up", counted(count, !letters.next.is_empty()));
        troubles.push(json!({ "text": text, "page": "deliveries" }));
    }
    if let Some(effects) = node["effectsGivenUp"].as_u64().filter(|effects| *effects > 0) {
        troubles
            .push(json!({ "text": format!("{effects} effects could not be delivered"), "page": "cluster" }));
    }
    let alarms = node["alarms"].as_array().into_iter().flatten();
    troubles.extend(alarms.map(|alarm| json!({ "text": alarm["problem"], "page": "cluster" })));
    Ok((json!(live), troubles))
}

/// A number, which is the least of what there may be where a list has been cut.
fn counted(count: usize, is_cut: bool) -> String {
    format!("{count}{}", if is_cut { "+" } else { "" })
}

/// Tasks that are not over.
fn open(counts: &BTreeMap<String, u64>) -> u64 {
    let open = Status::ALL.into_iter().filter(|status| !status.is_terminal());
    open.filter_map(|status| counts.get(status.as_str())).sum()
}

/// Tasks that ended in each minute of the last hour, and whether that may be old.
pub(super) async fn throughput(service: &Service, who: &Principal) -> Result<(Value, Freshness), Refusal> {
    let kinds = ["completed", "failed"];
    let ((completed, so_far), (failed, freshness)) = tokio::try_join!(
        service.count_ended(who, kinds[0], HOUR),
        service.count_ended(who, kinds[1], HOUR),
    )?;
    let minute = 60_000;
    let now = service.clock().wall().millis() / minute;
    let places = (now.saturating_sub(59)..=now).map(|place| {
        let at = Timestamp(place * minute);
        let of = |counts: &BTreeMap<Timestamp, u64>| counts.get(&at).copied().unwrap_or_default();
        (at.iso().get(11..16).unwrap_or_default().to_owned(), vec![of(&completed), of(&failed)])
    });
    Ok((chart::bars(&kinds, &places.collect::<Vec<_>>()), so_far.and(freshness)))
}

pub(super) async fn schedules(console: &Console, who: &Principal, look: &Look) -> Result<Value, Refusal> {
    let name = look.query.get("name").map(str::to_owned);
    let (mut schedules, left_out) =
        console.service.list_schedules(who, Schedules { name, ..Schedules::default() }).await?;
    // Those that never fire again have no time, and come last.
    schedules.sort_by_cached_key(|schedule| {
        let next = schedule["nextRunAt"].as_str().map(str::to_owned);
        (next.is_none(), next)
    });
    for schedule in &mut schedules {
        schedule["firings"] = json!(firings(schedule));
    }
    Ok(json!({ "schedules": schedules, "left_out": left_out, "name": look.query.get("name") }))
}

/// The next times of a schedule, as its rule has them.
fn firings(schedule: &Value) -> Vec<String> {
    let Some(first) = schedule["nextRunAt"].as_str().and_then(Timestamp::parse_iso) else {
        return Vec::new();
    };
    let zone = schedule["timezone"].as_str().unwrap_or("UTC");
    let after = |time: Timestamp| match (schedule["cronExpression"].as_str(), schedule["intervalMs"].as_u64())
    {
        _ if schedule["scheduleType"] == "one_time" => None,
        (Some(expression), _) => cron::next(expression, zone, time),
        (None, Some(every)) => Some(time + Duration::from_millis(every)),
        (None, None) => None,
    };
    std::iter::successors(Some(first), |time| after(*time)).take(FIRINGS).map(Timestamp::iso).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_counted_to_its_end_is_said_to_be_more() {
        assert_eq!([counted(MOST, true), counted(0, false)], ["1000+", "0"]);
    }

    #[test]
    fn firings_follow_the_rule() {
        let next = "2026-11-21T10:00:00.000Z";
        for (schedule, times) in [
            (json!({ "cronExpression": "0 * * * *", "timezone": "UTC" }), &["10", "11", "12"][..]),
            (json!({ "intervalMs": 7_200_000 }), &["10", "12", "14"]),
            (json!({ "scheduleType": "one_time" }), &["10"]),
        ] {
            let mut schedule = schedule;
            schedule["nextRunAt"] = json!(next);
            let firings = firings(&schedule);
            let hours: Vec<&str> = firings.iter().map(|time| &time[11..13]).collect();
            assert_eq!(hours, times, "{schedule}");
        }
        assert!(firings(&json!({ "cronExpression": "0 * * * *" })).is_empty());
    }
}
