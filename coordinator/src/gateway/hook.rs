//! What a coding agent's hooks ask between its steps (spec: Agent Swarm 5.3): whether to go on, and what its model is
//! to be told. Each question is a sign of life of its agent, counts as a look, and changes nothing else.
//!
//! What is known is gathered by the service, and what is said of it stands in `words`, which is pure. That an agent
//! goes round in circles its own side sees, which has its calls.

mod words;

use std::time::Duration;

use axum::extract::State;
use serde_json::{Value, json};
use skein_shared::id::Kind;
use skein_shared::{Refusal, limits};
use tokio::time::Instant;
use uuid::Uuid;

use self::words::{Tray, UnderWay};
use super::answer::Answer;
use super::door::Asked;
use super::{Gateway, granted};
use crate::auth::{Principal, Right, Role, policy};
use crate::service::{Service, lists};

/// How long a cancelled task is told of.
const NEWS: Duration = Duration::from_secs(300);
/// How long a task counts as one that the lead has just handed out.
const RECENT: Duration = Duration::from_secs(300);
/// Rows of each kind that are looked at.
const SHOWN: usize = 10;
/// Events of a task that are looked through for its start.
const EVENTS: usize = 200;
const POLL: &str = "poll-task";

/// What is to be done about an event.
enum Said {
    Nothing,
    /// Its model is told this.
    Tell(String),
    /// It does not happen, for this reason.
    Block(String),
}

/// An event, as `{"event", "tool"?, "sessionAgeMs"?}`: the tool by its name in the catalogue, if it is the swarm's.
pub(super) async fn hook(State(gateway): State<Gateway>, asked: Asked) -> Answer {
    let (event, who) = (asked.some_text("event")?, &asked.who);
    policy::require(who, Right::Work)?;
    policy::require_writable(who)?;
    gateway.gate.quota.look(who, Instant::now())?;
    gateway.service.seen(who);
    let tool = asked.optional("tool").and_then(Value::as_str);
    let age = asked.optional("sessionAgeMs").and_then(Value::as_u64);
    let age = age.map_or(NEWS, Duration::from_millis).min(NEWS);
    let said = match event {
        "SessionStart" => start(&gateway.service, who).await?,
        "PreCompact" => compact(&gateway.service, who).await?,
        "PreToolUse" if tool == Some(POLL) => poll(&gateway.service, who).await?,
        "PreToolUse" | "UserPromptSubmit" => stop(&gateway.service, who, age).await?,
        _ => Said::Nothing,
    };
    granted(match said {
        Said::Nothing => json!({ "ok": true }),
        Said::Tell(text) => json!({ "ok": true, "say": text }),
        Said::Block(reason) => json!({ "ok": true, "block": reason }),
    })
}

/// Who it is, and what waits for it.
async fn start(service: &Service, who: &Principal) -> Result<Said, Refusal> {
    let Some(me) = service.me(who).await? else { return Ok(Said::Tell(words::stranger(who))) };
    let ((unread, mentions), (offered, pool)) = (service.unread(who).await?, service.open_work(who).await?);
    let tasks = in_progress(service, who, true).await?;
    let tray = Tray { unread, mentions, offered, pool, active: tasks.len() };
    let mut text = words::welcome(who, &me, &tray, &tasks);
    if me["isLead"] == true {
        let under_way = UnderWay {
            messages: service.messages_in_work(who, SHOWN).await?,
            handed_out: service.tasks_made_by(who, who.agent, RECENT, SHOWN).await?,
            active: in_progress(service, who, false).await?,
        };
        text += &words::under_way(&under_way);
    }
    Ok(Said::Tell(text))
}

/// What it is at, which a summary of its conversation must not lose.
async fn compact(service: &Service, who: &Principal) -> Result<Said, Refusal> {
    let tasks = in_progress(service, who, true).await?;
    Ok(if tasks.is_empty() { Said::Nothing } else { Said::Tell(words::reminder(&tasks)) })
}

/// Who has polled in vain so often has been told that it may go.
async fn poll(service: &Service, who: &Principal) -> Result<Said, Refusal> {
    let polls = service.me(who).await?.and_then(|me| me["emptyPollCount"].as_u64()).unwrap_or_default();
    let is_enough = polls >= u64::from(limits::EMPTY_POLLS);
    Ok(if is_enough { Said::Block(words::no_more_polls(polls)) } else { Said::Nothing })
}

/// Whether the task that a worker was at was cancelled in this time. One that has another in its hands goes on with
/// that: nobody can tell which of them a step is for. So does one that has made the task itself: it may have cancelled
/// it too, which its events do not say, and knows of it then.
async fn stop(service: &Service, who: &Principal, within: Duration) -> Result<Said, Refusal> {
    if who.role == Role::Lead || within.is_zero() {
        return Ok(Said::Nothing);
    }
    let cancelled = service.cancelled_of(who, within, SHOWN).await?;
    for task in cancelled.into_iter().filter(|task| task["creatorAgentId"] != json!(who.agent)) {
        if was_begun(service, who, &task).await? {
            let is_busy = !in_progress(service, who, true).await?.is_empty();
            return Ok(if is_busy { Said::Nothing } else { Said::Block(words::cancelled(&task)) });
        }
    }
    Ok(Said::Nothing)
}

/// Whether the caller had begun a task: one that was only assigned to it has cost it nothing yet.
async fn was_begun(service: &Service, who: &Principal, task: &Value) -> Result<bool, Refusal> {
    let id = task["id"].as_str().unwrap_or_default();
    let events = service.history(who, Kind::Pool, id, EVENTS).await?.rows;
    let is_own = |agent: &Value| agent.as_str().and_then(|id| Uuid::try_parse(id).ok()) == Some(who.agent);
    Ok(events.iter().any(|event| event.kind == "started" && is_own(&event.facts()["agent"])))
}

/// Tasks that are being worked on, by the caller or by anybody.
async fn in_progress(service: &Service, who: &Principal, mine: bool) -> Result<Vec<Value>, Refusal> {
    let wanted = lists::Tasks {
        status: Some("in_progress".to_owned()),
        mine,
        heartbeat: mine,
        limit: SHOWN,
        ..lists::Tasks::default()
    };
    Ok(service.list_tasks(who, wanted).await?.whole()?.rows)
}
