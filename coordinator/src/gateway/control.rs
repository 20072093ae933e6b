//! What operators do over HTTP, with an operator's token: the same services as those of `skein agent …` and
//! `skein webhooks …`. `?swarm=NAME` names a swarm other than the usual one.

use std::num::NonZeroU32;

use axum::extract::{Path, RawQuery, State};
use http::StatusCode;
use serde_json::{Map, Value, json};
use skein_shared::id::{InstanceId, Name, parse_uuid};
use skein_shared::{Code, Refusal};

use super::answer::{Answer, Problem};
use super::door::Operator;
use super::{Gateway, granted};
use crate::service::agents::Steer;
use crate::service::instances::{MOST, Runs};
use crate::service::scale::USUAL_GROUP;
use crate::service::views::Rows;

/// Runs on a page that names no number, and most on any.
const PAGE: usize = 10;
pub(super) const LONGEST_PAGE: usize = 100;

/// The agents with their runs, and what waits.
pub(super) async fn status(State(gateway): State<Gateway>, Operator { who, .. }: Operator) -> Answer {
    let agents = gateway.service.agents(&who).await?;
    let field = |agent: &Value, name: &str| agent[name].clone();
    let queues =
        agents.iter().filter_map(|agent| Some((agent["agent"].as_str()?.to_owned(), field(agent, "queued"))));
    let running: u64 = agents.iter().filter_map(|agent| agent["running"].as_u64()).sum();
    let live = Runs { agent: None, live: true, limit: MOST };
    let runs = gateway.service.instances(&who, live).await?;
    granted(json!({
        "scheduler": { "version": env!("CARGO_PKG_VERSION"), "swarm": who.swarm },
        "running": running,
        "queueSizes": queues.collect::<Map<_, _>>(),
        "agents": agents,
        "instances": runs.rows.iter().map(run).collect::<Vec<_>>(),
        "rebuilding": runs.rebuilding,
    }))
}

/// The latest runs, also those that have ended.
pub(super) async fn instances(State(gateway): State<Gateway>, Operator { who, .. }: Operator) -> Answer {
    let latest = Runs { agent: None, live: false, limit: LONGEST_PAGE };
    let Rows { rows, rebuilding, .. } = gateway.service.instances(&who, latest).await?;
    granted(json!({ "instances": rows.iter().map(run).collect::<Vec<_>>(), "rebuilding": rebuilding }))
}

/// A page of the runs of an agent, the latest first: `?page=1&limit=10`.
pub(super) async fn runs(
    State(gateway): State<Gateway>,
    Path(agent): Path<String>,
    RawQuery(query): RawQuery,
    Operator { who, .. }: Operator,
) -> Answer {
    let query = query.unwrap_or_default();
    let (page, limit) = (number(&query, "page", 1)?, number(&query, "limit", PAGE)?.min(LONGEST_PAGE));
    let all = page.saturating_mul(limit);
    if all > MOST {
        return Err(Problem::bad_request(format!("page: only the latest {MOST} runs are listed")));
    }
    let agent = Name::parse(&agent)?;
    let wanted = Runs { agent: Some(&agent), live: false, limit: all };
    let Rows { rows, rebuilding, .. } = gateway.service.instances(&who, wanted).await?;
    let runs: Vec<_> = rows.iter().skip(all - limit).collect();
    granted(json!({ "runs": runs, "page": page, "limit": limit, "rebuilding": rebuilding }))
}

pub(super) async fn pause(Operator { who, request, service, .. }: Operator) -> Answer {
    let told = service.pause_swarm(&who, request, true).await?;
    done(format!("{told} agents are paused: they take work and start none"))
}

pub(super) async fn resume(Operator { who, request, service, .. }: Operator) -> Answer {
    let told = service.pause_swarm(&who, request, false).await?;
    done(format!("{told} agents go on"))
}

/// Limits how many runs of the swarm are under way at a time, on the default group of runners.
pub(super) async fn scale(Operator { who, request, service, fields }: Operator) -> Answer {
    let scale = most(&fields)?;
    service.set_scale(&who, request, &Name::parse(USUAL_GROUP)?, Some(scale)).await?;
    done(format!("at most {scale} runs are under way at a time on the runners of the group {USUAL_GROUP}"))
}

/// Limits how many runs of an agent are under way at a time.
pub(super) async fn scale_agent(
    Path(agent): Path<String>,
    Operator { who, request, service, fields }: Operator,
) -> Answer {
    let (agent, scale) = (Name::parse(&agent)?, most(&fields)?);
    service.scale_agent(&who, request, &agent, Some(scale)).await?;
    done(format!("at most {scale} runs of {agent} are under way at a time"))
}

/// The most runs at a time that a body says.
fn most(fields: &Map<String, Value>) -> Result<NonZeroU32, Problem> {
    let scale = fields.get("scale").and_then(Value::as_u64).and_then(|scale| u32::try_from(scale).ok());
    scale.and_then(NonZeroU32::new).ok_or_else(|| {
        Problem::bad_request("scale must be a whole number from 1 on; pause or disable to let none run")
    })
}

/// Starts a run by hand.
pub(super) async fn trigger(
    Path(agent): Path<String>,
    Operator { who, request, service, fields }: Operator,
) -> Answer {
    let prompt = match fields.get("prompt") {
        None | Some(Value::Null) => None,
        Some(Value::String(prompt)) => Some(prompt.as_str()).filter(|prompt| !prompt.is_empty()),
        Some(_) => return Err(Problem::bad_request("prompt must be a text")),
    };
    let instance = service.run_agent(&who, request, &Name::parse(&agent)?, prompt).await?;
    granted(json!({ "success": true, "message": format!("{instance} is queued"), "instanceId": instance }))
}

pub(super) async fn kill(
    Path(instance): Path<String>,
    Operator { who, request, service, .. }: Operator,
) -> Answer {
    let agent = service.agent_of(&who.swarm, &instance).await?;
    let reason = "killed by the operator".to_owned();
    service.kill(&who, request, &agent, InstanceId(instance.clone()), reason).await?;
    done(format!("{instance} is being ended"))
}

/// Pauses, resumes, enables, disables or removes an agent, or kills its runs.
pub(super) async fn steer(
    Path((agent, order)): Path<(String, String)>,
    Operator { who, request, service, .. }: Operator,
) -> Answer {
    let agent = Name::parse(&agent)?;
    if order == "kill" {
        let killed = service.kill_runs(&who, request, &agent).await?;
        let message = format!("{killed} runs of {agent} are being ended");
        return granted(json!({ "success": true, "message": message, "killed": killed }));
    }
    let wanted: Steer = order.parse().map_err(|_| {
        let text = format!("`{order}` is no order; use pause, resume, enable, disable, remove or kill");
        Problem::error(StatusCode::NOT_FOUND, text)
    })?;
    service.steer(&who, request, &agent, wanted).await?;
    // It is done; if nobody can say just now what stands against it all the same, nothing is said of that.
    let held = match wanted {
        Steer::Resume | Steer::Enable => service.agent(&who, &agent).await.unwrap_or_default(),
        _ => Value::Null,
    };
    let held = wanted.still_held(&held, "POST /control/resume").map(|held| format!("; {held}"));
    done(format!("{agent}: {order}{}", held.unwrap_or_default()))
}

/// Says something to the agent that works on a task.
pub(super) async fn tell(
    Path(task): Path<String>,
    Operator { who, request, service, fields }: Operator,
) -> Answer {
    let task = parse_uuid("task", &task)?;
    let Some(text) = fields.get("message").and_then(Value::as_str) else {
        return Err(Problem::bad_request("missing message: put it into the JSON body"));
    };
    service.steer_task(&who, request, task, text.to_owned()).await?;
    done(format!("the agent of task {task} gets this with its next tool call"))
}

/// Every held lock of the swarm.
pub(super) async fn locks(State(gateway): State<Gateway>, Operator { who, .. }: Operator) -> Answer {
    let locks = gateway.service.held_locks(&who).await?;
    let holders = locks.iter().map(|lock| lock.holder.to_string()).collect();
    // Who holds what is known though the read side may not answer how they are.
    let states = gateway.service.holder_states(&who, holders).await.unwrap_or_default();
    let now = gateway.service.clock().wall();
    let shown = locks.iter().map(|lock| {
        json!({
            "resourceKey": lock.key,
            "agentName": lock.agent,
            "holder": lock.holder,
            "holderState": states.get(lock.holder.as_str()),
            "heldSince": lock.held_since.millis(),
            "ageMs": u64::try_from(now.since(lock.held_since).as_millis()).unwrap_or(u64::MAX),
            "expiresAt": lock.expires_at.millis(),
        })
    });
    granted(json!({ "locks": shown.collect::<Vec<_>>() }))
}

/// A webhook as it was taken in, with what it led to.
pub(super) async fn webhook(
    State(gateway): State<Gateway>,
    Path(receipt): Path<String>,
    Operator { who, .. }: Operator,
) -> Answer {
    granted(gateway.service.webhook(&who, parse_uuid("receipt", &receipt)?).await?)
}

/// Hands a webhook on once more.
pub(super) async fn replay(
    Path(receipt): Path<String>,
    Operator { who, request, service, .. }: Operator,
) -> Answer {
    let receipt = parse_uuid("receipt", &receipt)?;
    let replayed = service.replay_webhook(&who, request, receipt).await.map_err(unreadable)?;
    granted(json!({
        "ok": true,
        "matched": replayed["matched"],
        "replayReceiptId": replayed["receipt"],
        "resumed": replayed["resumed"],
        "started": replayed["started"],
    }))
}

/// Of what could not be read nothing is stored that could be replayed.
fn unreadable(refusal: Refusal) -> Problem {
    match refusal.code {
        Code::WrongState => Problem::bad_request(refusal.message),
        _ => refusal.into(),
    }
}

/// A run in the original's words.
fn run(row: &Value) -> Value {
    json!({
        "id": row["instance"],
        "agentName": row["agent"],
        "status": row["state"],
        "startedAt": row["startedAt"],
        "trigger": row["source"],
        "statusText": row["statusText"],
    })
}

fn done(message: String) -> Answer {
    granted(json!({ "success": true, "message": message }))
}

/// A number of the address from 1 on.
pub(super) fn number(query: &str, name: &str, usual: usize) -> Result<usize, Problem> {
    let given = query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name);
    let Some((_, text)) = given else { return Ok(usual) };
    let wrong = || Problem::bad_request(format!("{name} must be a whole number from 1"));
    text.parse().ok().filter(|number| *number > 0).ok_or_else(wrong)
}
