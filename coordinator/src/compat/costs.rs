//! What the sessions of Agent Swarm's runners cost.

use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::costs::{Cost, Report, Source, Sum, Sums, Wanted};
use skein_shared::day::Day;
use skein_shared::time::Timestamp;

use super::Compat;
use super::answer::{Answer, Problem, made, ok};
use super::door::Asked;
use crate::service::costs::Reports;
use crate::service::lists::Page;

/// Reports that are shown if nothing is said.
const SHOWN: usize = 100;
/// How often a runner may tell, and its line in the log: that of the tool by which agents tell it.
const LIKE: &str = "store-progress";

pub(super) async fn report(State(compat): State<Compat>, asked: Asked) -> Answer {
    let agent = match asked.field_id("agentId")? {
        Some(agent) => agent,
        None => asked.agent()?.agent,
    };
    let cost = Cost::deserialize(&Value::Object(asked.fields.clone()))
        .map_err(|error| Problem::bad_request(format!("the costs cannot be read: {error}")))?;
    let report = Report {
        source: Source::Session,
        session: asked.need("sessionId")?.to_owned(),
        agent,
        task: asked.field_id("taskId")?,
        failed: asked.fields.get("isError").and_then(Value::as_bool).unwrap_or_default(),
        cost,
    };
    let reporting = asked.service.report_cost(&asked.who, asked.request, report);
    made(json!({ "success": true, "cost": compat.like(&asked, LIKE, reporting).await? }))
}

pub(super) async fn list(State(compat): State<Compat>, asked: Asked) -> Answer {
    let wanted = Reports {
        agent: asked.id("agentId")?,
        task: asked.id("taskId")?,
        from: date(&asked, "startDate")?.map(|(from, _)| from),
        before: date(&asked, "endDate")?.map(|(_, before)| before),
        page: Page { limit: Some(asked.number("limit", SHOWN)?), ..Page::default() },
    };
    let listing = async { asked.service.list_costs(&asked.who, wanted).await?.whole() };
    ok(json!({ "costs": compat.like(&asked, "get-swarm", listing).await?.rows }))
}

pub(super) async fn sums(State(compat): State<Compat>, asked: Asked) -> Answer {
    let by = asked.query("groupBy").unwrap_or("both");
    if !["day", "agent", "both"].contains(&by) {
        return Err(Problem::bad_request(format!("groupBy is `{by}`; it must be day, agent or both")));
    }
    let day = |name| Ok::<_, Problem>(date(&asked, name)?.map(|(begin, _)| Day::of(begin)));
    let wanted = Wanted { agent: asked.id("agentId")?, from: day("startDate")?, to: day("endDate")? };
    let summing = asked.service.sum_costs(&asked.who, wanted);
    let Sums { all, days, agents } = compat.like(&asked, "get-swarm", summing).await?;
    let daily = days.iter().filter(|_| by != "agent");
    let daily: Vec<Value> = daily.map(|(day, sum)| shown("date", json!(day), sum)).collect();
    let by_agent = agents.iter().filter(|_| by != "day");
    let by_agent: Vec<Value> = by_agent.map(|(agent, sum)| shown("agentId", json!(agent), sum)).collect();
    ok(json!({ "totals": totals(&all), "daily": daily, "byAgent": by_agent }))
}

/// The sum of a day or an agent.
fn shown(of: &str, name: Value, sum: &Sum) -> Value {
    let mut shown = sum.view();
    shown[of] = name;
    shown
}

fn totals(all: &Sum) -> Value {
    let each = if all.reports == 0 { 0.0 } else { all.dollars() / all.reports as f64 };
    json!({
        "totalCostUsd": all.dollars(), "totalInputTokens": all.input_tokens,
        "totalOutputTokens": all.output_tokens, "totalCacheReadTokens": all.cache_read_tokens,
        "totalCacheWriteTokens": all.cache_write_tokens, "totalDurationMs": all.duration_ms,
        "totalSessions": all.reports, "avgCostPerSession": each,
    })
}

/// What today cost, and this month so far.
pub(super) async fn dashboard(State(compat): State<Compat>, asked: Asked) -> Answer {
    let today = Day::of(asked.service.clock().now());
    let month = Wanted { from: Some(today.first_of_month()), ..Wanted::default() };
    let sums = compat.like(&asked, "get-swarm", asked.service.sum_costs(&asked.who, month)).await?;
    let of_today = sums.days.last().filter(|(day, _)| *day == today).map_or(0.0, |(_, sum)| sum.dollars());
    ok(json!({ "costToday": of_today, "costMtd": sums.all.dollars() }))
}

/// The moments from which and before which something counts: a day counts from its begin, and to its end.
fn date(asked: &Asked, name: &str) -> Result<Option<(Timestamp, Timestamp)>, Problem> {
    let Some(text) = asked.query(name) else { return Ok(None) };
    if let Some(at) = Timestamp::parse_iso(text) {
        return Ok(Some((at, Timestamp(at.millis().saturating_add(1)))));
    }
    let day: Day = text.parse().map_err(|_| {
        Problem::bad_request(format!("{name} is `{text}`; write 2026-11-23 or 2026-11-23T08:00:00Z"))
    })?;
    Ok(Some((day.begin(), day.end())))
}
