//! What is known of the swarm's costs.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::command::{Report, Wanted};
use crate::day::Day;
use crate::limits::{COST_DAYS, COST_SUMS, COSTS_KEPT};
use crate::time::Timestamp;

/// The latest reports, and the sums of all there were in [`COST_DAYS`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    /// Their ids rise with the time.
    pub(super) reports: BTreeSet<Uuid>,
    pub(super) sums: BTreeMap<(Day, Uuid), Sum>,
}

/// What several pieces of work came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    pub reports: u64,
    /// Millionths of a US dollar.
    pub cost_micros: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
    pub duration_ms: u64,
}

impl From<&Report> for Sum {
    fn from(report: &Report) -> Self {
        let cost = &report.cost;
        Self {
            reports: 1,
            cost_micros: cost.micros(),
            input_tokens: cost.input_tokens.unwrap_or_default(),
            output_tokens: cost.output_tokens.unwrap_or_default(),
            cache_read_tokens: cost.cache_read_tokens.unwrap_or_default(),
            cache_write_tokens: cost.cache_write_tokens.unwrap_or_default(),
            duration_ms: cost.duration_ms.unwrap_or_default(),
        }
    }
}

impl Sum {
    pub(super) fn add(&mut self, more: &Sum) {
        for (sum, more) in [
            (&mut self.reports, more.reports),
            (&mut self.cost_micros, more.cost_micros),
            (&mut self.input_tokens, more.input_tokens),
            (&mut self.output_tokens, more.output_tokens),
            (&mut self.cache_read_tokens, more.cache_read_tokens),
            (&mut self.cache_write_tokens, more.cache_write_tokens),
            (&mut self.duration_ms, more.duration_ms),
        ] {
            *sum = sum.saturating_add(more);
        }
    }

    /// US dollars.
    pub fn dollars(&self) -> f64 {
        self.cost_micros as f64 / 1e6
    }

    /// As clients see it.
    pub fn view(&self) -> Value {
        json!({
            "costUsd": self.dollars(),
            "sessions": self.reports,
            "inputTokens": self.input_tokens,
            "outputTokens": self.output_tokens,
            "cacheReadTokens": self.cache_read_tokens,
            "cacheWriteTokens": self.cache_write_tokens,
            "durationMs": self.duration_ms,
        })
    }

    pub(super) fn body(&self, day: Day, agent: Uuid) -> Value {
        let mut body = self.view();
        body["date"] = json!(day);
        body["agentId"] = json!(agent);
        body
    }
}

impl Report {
    /// The shape `SessionCost` of Agent Swarm (spec 2.2, 5.4), with who says so.
    pub(super) fn body(&self, id: Uuid, at: Timestamp) -> Value {
        let cost = &self.cost;
        json!({
            "id": id,
            "source": self.source,
            "sessionId": self.session,
            "taskId": self.task,
            "agentId": self.agent,
            "totalCostUsd": cost.total_cost_usd,
            "inputTokens": cost.input_tokens.unwrap_or_default(),
            "outputTokens": cost.output_tokens.unwrap_or_default(),
            "cacheReadTokens": cost.cache_read_tokens.unwrap_or_default(),
            "cacheWriteTokens": cost.cache_write_tokens.unwrap_or_default(),
            "durationMs": cost.duration_ms.unwrap_or_default(),
            "numTurns": cost.num_turns.unwrap_or(1),
            "model": cost.model.as_deref().unwrap_or("unknown"),
            "isError": self.failed,
            "createdAt": at.iso(),
        })
    }
}

impl Costs {
    /// The sums of each agent on each day that are wanted.
    pub(super) fn wanted(&self, wanted: Wanted) -> impl Iterator<Item = (Day, Uuid, &Sum)> {
        let from = (wanted.from.unwrap_or(Day::FIRST), Uuid::nil());
        let to = wanted.to.unwrap_or(Day::LAST);
        let days = self.sums.range(from..).take_while(move |((day, _), _)| *day <= to);
        let of = days.filter(move |((_, agent), _)| wanted.agent.is_none_or(|wanted| wanted == *agent));
        of.map(|((day, agent), sum)| (*day, *agent, sum))
    }

    /// Reports that have to go for there are too many.
    pub(super) fn reports_past_limit(&self) -> Vec<Uuid> {
        self.reports.iter().take(self.reports.len().saturating_sub(COSTS_KEPT)).copied().collect()
    }

    /// Sums of days that are over for too long, or that are more than may be. A day goes with all its sums, so that
    /// those that are left are whole.
    pub(super) fn sums_past_limit(&self) -> Vec<(Day, Uuid)> {
        let Some(((today, _), _)) = self.sums.last_key_value() else { return Vec::new() };
        let many = self.sums.len().saturating_sub(COST_SUMS);
        let crowded = self.sums.keys().take(many).next_back().map(|(day, _)| *day);
        // Today stays, however much of it there is.
        let last = crowded.unwrap_or(Day::FIRST).min(today.before(1)).max(today.before(COST_DAYS));
        self.sums.keys().take_while(|(day, _)| *day <= last).copied().collect()
    }
}
