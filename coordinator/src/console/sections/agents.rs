//! Agents: the members of the pool, and those that runners start.

use serde_json::{Value, json};
use skein_shared::id::{Name, parse_uuid};
use skein_shared::{Code, Refusal};

use super::super::Console;
use super::{Look, at_work, names, rows};
use crate::auth::{Principal, Right, policy};

/// Members on the page.
const MEMBERS: usize = 200;

pub(super) async fn list(console: &Console, who: &Principal, _: &Look) -> Result<Value, Refusal> {
    let service = &console.service;
    let (members, at_work, agents) =
        tokio::try_join!(service.list_members(who), at_work(service, who), service.agents(who))?;
    let warning = members.warning();
    let all = members.rows.len();
    let members: Vec<Value> = members.rows.into_iter().take(MEMBERS).collect();
    Ok(json!({
        "members": members, "all_members": all, "at_work": at_work, "agents": agents, "warning": warning,
    }))
}

/// An agent that a runner has defined.
pub(super) async fn one(console: &Console, who: &Principal, look: &Look) -> Result<Value, Refusal> {
    let (service, name) = (&console.service, Name::parse(look.subject())?);
    let agent = service.agent(who, &name).await?;
    let runs = match policy::require(who, Right::Administer) {
        Ok(()) => rows(service, who, "runs", Some(("agent", name.as_str())), look).await?,
        Err(_) => Default::default(),
    };
    Ok(json!({ "title": name, "agent": agent, "runs": runs.0.rows, "pager": runs.1 }))
}

pub(super) async fn member(console: &Console, who: &Principal, look: &Look) -> Result<Value, Refusal> {
    let service = &console.service;
    let id = parse_uuid("member", look.subject())?.to_string();
    let members = service.list_members(who).await?.whole()?.rows;
    let member = members.into_iter().find(|member| member["id"] == id.as_str()).ok_or_else(|| {
        Refusal::new(
            Code::NotFound,
            format!("there is no member {id} in this swarm; the page of agents lists them"),
        )
    })?;
    let (tasks, pager) = rows(service, who, "tasks-by-priority", Some(("agentId", &id)), look).await?;
    let names = names(service, who).await?;
    Ok(json!({
        "title": member["name"], "member": member, "tasks": tasks.rows, "names": names, "pager": pager,
        "rebuilding": tasks.rebuilding,
    }))
}
