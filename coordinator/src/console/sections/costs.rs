//! What the work cost.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use skein_shared::Refusal;
use skein_shared::costs::Wanted;
use skein_shared::day::Day;
use skein_shared::id::{Name, agent_id};

use super::super::{Console, chart};
use super::{Look, names, rows};
use crate::auth::Principal;
use crate::service::Service;

/// Days that the page looks back, with today.
const DAYS: u16 = 30;
/// Agents that it shows.
const AGENTS: usize = 100;

pub(super) async fn costs(console: &Console, who: &Principal, look: &Look) -> Result<Value, Refusal> {
    let service = &console.service;
    let today = Day::of(service.clock().now());
    let (first, month) = (today.before(DAYS - 1), today.first_of_month());
    let of_days = Wanted { from: Some(first), ..Wanted::default() };
    let of_month = Wanted { from: Some(month), ..Wanted::default() };
    let (lately, month, members, runners, (reports, pager)) = tokio::try_join!(
        service.sum_costs(who, of_days),
        service.sum_costs(who, of_month),
        names(service, who),
        async { Ok(of_runners(service, who).await) },
        rows(service, who, "costs", None, look),
    )?;
    let by_day: BTreeMap<Day, f64> = lately.days.iter().map(|(day, sum)| (*day, sum.dollars())).collect();
    let days: Vec<Option<f64>> = (0..DAYS)
        .rev()
        .map(|ago| Some(by_day.get(&today.before(ago)).copied().unwrap_or_default()))
        .collect();
    let agents = lately.agents.iter().take(AGENTS);
    let agents: Vec<Value> = agents.map(|(agent, sum)| json!({ "id": agent, "sum": sum.view() })).collect();
    Ok(json!({
        "today": by_day.get(&today).copied().unwrap_or_default(), "month": month.all.dollars(),
        "lately": lately.all.dollars(), "days": DAYS, "first": first, "line": chart::line(&days),
        "agents": agents, "all_agents": lately.agents.len(), "names": members, "runners": runners,
        "reports": reports.rows, "rebuilding": reports.rebuilding, "pager": pager,
    }))
}

/// Agents that runners start have an id before they join, and some never do.
async fn of_runners(service: &Service, who: &Principal) -> BTreeMap<String, Name> {
    // Without them, as while a node is away, the page has their ids.
    let names = service.defined_agents(who).await.unwrap_or_default();
    names.into_iter().map(|name| (agent_id(&who.swarm, &name).to_string(), name)).collect()
}
