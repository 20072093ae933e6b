//! Agents: they register, say that they live, and are looked at.

use axum::extract::State;
use serde_json::{Map, Value, json};
use skein_shared::channels::Read;
use skein_shared::id::derived;
use skein_shared::{Code, Refusal, limits};
use uuid::Uuid;

use super::answer::{Answer, Problem, made, nothing, ok};
use super::door::{Asked, Path};
use super::{Compat, settings};
use crate::auth::{Principal, Role};
use crate::service::swarm::Introduction;
use crate::service::{Service, lists};

/// Makes the agent a member, or welcomes it back. Without a header it gets a new id.
pub(super) async fn register(State(compat): State<Compat>, asked: Asked) -> Answer {
    let who = match asked.who.role {
        Role::Operator => compat.shared.agent(derived(asked.request, "agent"))?,
        _ => asked.who.clone(),
    };
    let max_tasks = asked.fields.get("maxTasks").and_then(Value::as_u64);
    let max_tasks = max_tasks.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
    let lead = asked.fields.get("isLead") == Some(&json!(true));
    if let Some(known) = asked.service.me(&who).await? {
        let name = known["name"].as_str().unwrap_or_default().to_owned();
        let welcoming =
            welcome_back(&asked, &who, Introduction { name, lead, max_tasks, ..Introduction::default() });
        return ok(compat.like(&asked, "join-swarm", welcoming).await?.unwrap_or_default());
    }
    let texts = |field: &str| asked.fields.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    let introduction = Introduction {
        name: asked.need("name")?.to_owned(),
        lead,
        role: asked.text("role").map(str::to_owned),
        capabilities: texts("capabilities").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        description: asked.text("description").map(str::to_owned),
        max_tasks,
    };
    let joining = asked.service.join(&who, asked.request, introduction);
    made(compat.like(&asked, "join-swarm", joining).await?.0)
}

/// A member is here again: its empty polls count anew, and it takes so many tasks from now on, if it says so. Whoever
/// says that it leads has to: it takes the lead's place, or is refused while another one has it.
async fn welcome_back(
    asked: &Asked,
    who: &Principal,
    introduction: Introduction,
) -> Result<Option<Value>, Refusal> {
    let max_tasks = introduction.max_tasks;
    asked.service.join(who, derived(asked.request, "back"), introduction).await?;
    if let Some(max_tasks) = max_tasks {
        asked.service.set_capacity(who, derived(asked.request, "capacity"), max_tasks).await?;
    }
    asked.service.me(who).await
}

pub(super) async fn ping(State(compat): State<Compat>, asked: Asked) -> Answer {
    compat.look(&asked)?;
    asked.service.come_back(asked.agent()?, asked.request).await?;
    nothing()
}

/// A sign of life as a ping is one. Whoever names no agent as itself gives it for the one in the path.
pub(super) async fn active(compat: State<Compat>, Path(agent): Path<Uuid>, mut asked: Asked) -> Answer {
    compat.believe(&mut asked, Some(agent))?;
    ping(compat, asked).await
}

pub(super) async fn close(State(compat): State<Compat>, asked: Asked) -> Answer {
    compat.look(&asked)?;
    asked.service.go_offline(asked.agent()?, asked.request).await?;
    nothing()
}

/// The caller with its capacity, and with `?include=inbox` what waits for it.
pub(super) async fn me(State(compat): State<Compat>, asked: Asked) -> Answer {
    let who = asked.agent()?;
    let looking = async {
        let mut me = known(asked.service.me(who).await?)?;
        let name = me["name"].as_str().unwrap_or_default();
        let current = asked.service.member_named(who, name).await?.current;
        me["capacity"] = capacity(&me, current);
        me["shouldBlockPolling"] =
            json!(me["emptyPollCount"].as_u64().unwrap_or_default() >= u64::from(limits::EMPTY_POLLS));
        if asked.query("include") == Some("inbox") {
            me["inbox"] = inbox(&asked.service, who, current).await?;
        }
        Ok(me)
    };
    ok(compat.like(&asked, "my-agent-info", looking).await?)
}

async fn inbox(service: &Service, who: &Principal, current: usize) -> Result<Value, Refusal> {
    let (unread, mentions) = service.unread(who).await?;
    let (offers, pool) = service.open_work(who).await?;
    let read = Read { mentions_only: true, mark_as_read: false, limit: 3, ..Read::new(who.agent) };
    let found = service.read_messages(who, Uuid::now_v7(), read).await?;
    let newest = found.messages.iter().rev().take(3).map(|(channel, message)| {
        json!({
            "channelName": channel, "agentName": message["agentName"], "content": message["content"],
            "createdAt": message["createdAt"],
        })
    });
    Ok(json!({
        "unreadCount": unread, "mentionsCount": mentions, "offeredTasksCount": offers, "poolTasksCount": pool,
        "inProgressCount": current, "recentMentions": newest.collect::<Vec<_>>(),
    }))
}

fn capacity(agent: &Value, current: usize) -> Value {
    let max = agent["maxTasks"].as_u64().unwrap_or(1);
    json!({ "current": current, "max": max, "available": max.saturating_sub(current as u64) })
}

fn known(agent: Option<Value>) -> Result<Value, Refusal> {
    let problem = "Agent not found; POST /api/agents makes one";
    agent.ok_or_else(|| Refusal::new(Code::NotFound, problem))
}

/// All agents; `?include=tasks` with the tasks that they work on.
pub(super) async fn list(State(compat): State<Compat>, asked: Asked) -> Answer {
    let listing = async {
        let agents = asked.service.list_members(&asked.who).await?.whole()?.rows;
        Ok((agents, asked.service.list_tasks(&asked.who, under_way()).await?.whole()?.rows))
    };
    let (mut agents, tasks) = compat.like(&asked, "get-swarm", listing).await?;
    for agent in &mut agents {
        let own: Vec<&Value> = tasks.iter().filter(|task| task["agentId"] == agent["id"]).collect();
        agent["capacity"] = capacity(agent, own.len());
        if asked.query("include") == Some("tasks") {
            agent["tasks"] = json!(own);
        }
    }
    ok(json!({ "agents": agents }))
}

/// Tasks that are being worked on.
fn under_way() -> lists::Tasks {
    lists::Tasks {
        status: Some("in_progress".to_owned()),
        heartbeat: true,
        limit: 1000,
        ..lists::Tasks::default()
    }
}

/// An agent as the list of all shows it, with its texts.
pub(super) async fn one(State(compat): State<Compat>, Path(agent): Path<Uuid>, asked: Asked) -> Answer {
    let of = Principal { agent, ..asked.who.clone() };
    let looking = async {
        let mut shown = known(asked.service.me(&of).await?)?;
        let name = shown["name"].as_str().unwrap_or_default();
        let current = asked.service.member_named(&of, name).await?.current;
        shown["capacity"] = capacity(&shown, current);
        if asked.query("include") == Some("tasks") {
            let own = lists::Tasks { mine: true, ..under_way() };
            shown["tasks"] = asked.service.list_tasks(&of, own).await?.whole()?.rows.into();
        }
        Ok(shown)
    };
    ok(compat.like(&asked, "get-swarm", looking).await?)
}

async fn profile(compat: &Compat, asked: &Asked, agent: Uuid) -> Result<Value, Problem> {
    let of = Principal { agent, ..asked.who.clone() };
    let looking = async { known(asked.service.me(&of).await?) };
    compat.like(asked, "get-swarm", looking).await
}

pub(super) async fn setup_script(
    State(compat): State<Compat>,
    Path(agent): Path<Uuid>,
    asked: Asked,
) -> Answer {
    let own = profile(&compat, &asked, agent).await?["setupScript"].take();
    let global = settings::setup_script(&compat, &asked).await?;
    ok(json!({ "setupScript": own, "globalSetupScript": global }))
}

pub(super) async fn services(State(compat): State<Compat>, asked: Asked) -> Answer {
    let given = ["status", "agentId", "name"].into_iter();
    let arguments = given.filter_map(|name| Some((name.to_owned(), json!(asked.query(name)?)))).collect();
    let listed = compat.tool(&asked, "list-services", arguments).await?;
    ok(json!({ "services": listed["services"] }))
}

/// The caller's services in the words of a process manager.
pub(super) async fn ecosystem(State(compat): State<Compat>, asked: Asked) -> Answer {
    let own = Map::from_iter([("agentId".to_owned(), json!(asked.agent()?.agent))]);
    let listed = compat.tool(&asked, "list-services", own).await?;
    let app = |service: &Value| {
        let mut app: Map<String, Value> = ["name", "script", "cwd", "interpreter", "args"]
            .into_iter()
            .filter_map(|field| Some((field.to_owned(), service.get(field)?.clone())))
            .filter(|(_, value)| !value.is_null())
            .collect();
        let mut env = service["env"].as_object().cloned().unwrap_or_default();
        env.insert("PORT".to_owned(), json!(service["port"].to_string()));
        app.insert("env".to_owned(), Value::Object(env));
        Value::Object(app)
    };
    let apps: Vec<Value> = listed["services"].as_array().into_iter().flatten().map(app).collect();
    ok(json!({ "apps": apps }))
}
