//! The steps of Agent Swarm's runner loop, written down from its description (spec: Agent Swarm 5.1, 5.2), and each
//! route by the shape of its answer.

mod costs;
mod limits;
mod lists;
mod log;
mod mcp;
mod persons;
mod repos;
mod rights;
mod settings;
mod summons;

use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::json;
use skein_shared::id::{EntityKey, Kind, Name};
use skein_shared::which::Which;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt;
use uuid::Uuid;

use super::*;
use crate::auth::{Principal, Role};
use crate::entity::tests::{Node, node};
use crate::mcp::tests::NoRunners;
use crate::mcp::tools::catalogue;
use crate::outbox;
use crate::vault::Vault;

const KEY: &str = "hush";
const LEAD: Uuid = Uuid::from_u128(0x11111111_1111_4111_8111_111111111111);
const WORKER: Uuid = Uuid::from_u128(0x22222222_2222_4222_8222_222222222222);

struct Bed {
    router: Router,
    service: Service,
    node: Node,
    _stops: DropGuard,
}

impl Bed {
    fn new() -> Self {
        Self::behind(Gate::default())
    }

    fn behind(gate: Gate) -> Self {
        let (node, stop) = (node(), CancellationToken::new());
        let slack = crate::slack::Workspaces::default();
        tokio::spawn(outbox::pump::run(node.entities.clone(), Arc::new(NoRunners), slack, stop.clone()));
        let service = Service::new(node.entities.clone()).keeping_secrets(Vault::ephemeral().unwrap());
        let router = router(service.clone(), shared(), Arc::new(catalogue().unwrap()), gate);
        Self { router, service, node, _stops: stop.drop_guard() }
    }

    /// A swarm of a lead and a worker that have registered.
    async fn swarm() -> Self {
        Self::new().joined().await
    }

    async fn joined(self) -> Self {
        let bed = self;
        let lead = json!({ "name": "lead-11111111", "isLead": true, "maxTasks": 2 });
        bed.is(201, "POST", "/api/agents", Some(LEAD), lead).await;
        bed.is(201, "POST", "/api/agents", Some(WORKER), json!({ "name": "worker-22222222" })).await;
        bed
    }

    async fn ask(
        &self,
        method: &str,
        path: &str,
        key: &str,
        agent: Option<Uuid>,
        body: Value,
    ) -> (StatusCode, Value) {
        let mut request =
            Request::builder().method(method).uri(path).header("authorization", format!("Bearer {key}"));
        if let Some(agent) = agent {
            request = request.header("X-Agent-ID", agent.to_string());
        }
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let response = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// Asks, and wants this status.
    async fn is(&self, status: u16, method: &str, path: &str, agent: Option<Uuid>, body: Value) -> Value {
        let (found, answer) = self.ask(method, path, KEY, agent, body).await;
        assert_eq!(found.as_u16(), status, "{method} {path}: {answer}");
        answer
    }

    async fn shows(
        &self,
        method: &str,
        path: &str,
        agent: Option<Uuid>,
        body: Value,
        status: u16,
        fields: &[&str],
    ) {
        has(&self.is(status, method, path, agent, body).await, fields);
    }

    async fn refuses(&self, method: &str, path: &str, agent: Option<Uuid>, body: Value, status: u16) {
        let answer = self.is(status, method, path, agent, body).await;
        assert!(answer["error"].is_string(), "{method} {path}: {answer}");
    }

    async fn poll(&self, agent: Uuid) -> Value {
        self.is(200, "GET", "/api/poll", Some(agent), Value::Null).await["trigger"].take()
    }

    async fn task(&self, body: Value) -> String {
        let task = self.is(201, "POST", "/api/tasks", Some(LEAD), body).await;
        task["id"].as_str().unwrap().to_owned()
    }
}

fn shared() -> SharedKey {
    SharedKey { key: KEY.into(), swarm: Name::parse("default").unwrap() }
}

fn has(answer: &Value, fields: &[&str]) {
    for field in fields {
        assert!(answer.get(field).is_some(), "{field} is missing: {answer}");
    }
}

#[tokio::test]
async fn who_registers_again_as_the_lead_leads_or_hears_who_does() {
    let bed = Bed::swarm().await;
    let leads = json!({ "name": "worker-22222222", "isLead": true, "maxTasks": 3 });
    let refused = bed.is(409, "POST", "/api/agents", Some(WORKER), leads.clone()).await;
    assert_eq!(refused["code"], "lead_exists", "{refused}");
    assert!(refused["error"].as_str().unwrap().starts_with("lead-11111111 leads"), "{refused}");

    let operator = Principal::named("boss", Role::Operator);
    bed.service.remove_member(&operator, Uuid::now_v7(), &Which::Id(LEAD)).await.unwrap();
    for _ in 0..2 {
        let told = bed.is(200, "POST", "/api/agents", Some(WORKER), leads.clone()).await;
        assert_eq!((&told["isLead"], &told["maxTasks"]), (&json!(true), &json!(3)), "{told}");
    }
    // Whoever leads and does not say so is told that it leads, as by join-swarm.
    let again = json!({ "name": "worker-22222222" });
    assert_eq!(bed.is(200, "POST", "/api/agents", Some(WORKER), again).await["isLead"], true);
}

#[tokio::test]
async fn a_runner_of_the_seed_goes_through_its_loop() {
    let bed = Bed::new();
    let worker = Some(WORKER);
    let lead = json!({ "name": "lead-11111111", "isLead": true, "maxTasks": 2 });
    bed.is(201, "POST", "/api/agents", Some(LEAD), lead).await;
    let set = json!({ "scope": "global", "key": "MODEL_OVERRIDE", "value": "sonnet" });
    bed.is(200, "PUT", "/api/config", Some(LEAD), set).await;
    let resolved = format!("/api/config/resolved?agentId={WORKER}&includeSecrets=true");
    let environment = async || {
        let found = bed.is(200, "GET", &resolved, worker, Value::Null).await;
        let configs = found["configs"].as_array().unwrap().clone();
        configs.iter().map(|config| (config["key"].clone(), config["value"].clone())).collect::<Vec<_>>()
    };
    // Its container starts before it is a member.
    assert_eq!(bed.is(200, "GET", "/ecosystem", worker, Value::Null).await["apps"], json!([]));
    assert_eq!(environment().await, [(json!("MODEL_OVERRIDE"), json!("sonnet"))]);
    assert_eq!(
        bed.is(200, "GET", "/api/repos?autoClone=true", worker, Value::Null).await["repos"],
        json!([])
    );
    bed.refuses("GET", &format!("/api/agents/{WORKER}/setup-script"), worker, Value::Null, 404).await;
    bed.is(201, "POST", "/api/agents", worker, json!({ "name": "worker-22222222" })).await;
    // One more start, after a crash.
    let again = json!({ "name": "worker-22222222", "maxTasks": 1 });
    has(&bed.is(200, "POST", "/api/agents", worker, again).await, &["id", "name", "status", "maxTasks"]);
    let clean = json!({ "agentId": WORKER });
    assert_eq!(bed.is(200, "POST", "/api/active-sessions/cleanup", worker, clean).await["cleaned"], 0);
    has(&bed.is(200, "GET", "/me", worker, Value::Null).await, &["id", "capacity", "shouldBlockPolling"]);
    let path = format!("/api/agents/{WORKER}/profile");
    let told = bed.is(200, "PUT", &path, worker, json!({ "soulMd": "calm" })).await;
    assert_eq!(told["soulMd"], "calm");
    assert_eq!(bed.is(200, "GET", "/api/paused-tasks", worker, Value::Null).await["tasks"], json!([]));
    bed.is(204, "POST", "/ping", worker, Value::Null).await;
    assert_eq!(bed.poll(WORKER).await, Value::Null);

    // A task of its own: given once, though its session has not begun when it is asked for again.
    let task = bed.task(json!({ "task": "write it down", "agentId": WORKER })).await;
    let trigger = bed.poll(WORKER).await;
    assert_eq!((&trigger["type"], &trigger["taskId"]), (&json!("task_assigned"), &json!(task)));
    assert_eq!(trigger["task"]["status"], "in_progress");
    let query = json!({ "query": trigger["task"]["task"], "limit": 5 });
    assert_eq!(bed.is(200, "POST", "/api/memory/search", worker, query).await["results"], json!([]));
    let own = json!({ "scope": "agent", "scopeId": WORKER, "key": "MODEL_OVERRIDE", "value": "haiku" });
    bed.is(200, "PUT", "/api/config", worker, own).await;
    assert_eq!(environment().await, [(json!("MODEL_OVERRIDE"), json!("haiku"))]);
    let session = json!({ "agentId": WORKER, "taskId": task, "triggerType": "task_assigned" });
    has(&bed.is(201, "POST", "/api/active-sessions", worker, session).await["session"], &["id", "taskId"]);
    assert_eq!(bed.poll(WORKER).await, Value::Null);
    let noted = json!({ "claudeSessionId": "s-1" });
    let path = format!("/api/tasks/{task}/claude-session");
    assert_eq!(bed.is(200, "PUT", &path, worker, noted).await["claudeSessionId"], "s-1");
    let beat = format!("/api/active-sessions/heartbeat/{task}");
    assert_eq!(bed.is(200, "PUT", &beat, worker, Value::Null).await["updated"], true);
    let path = format!("/cancelled-tasks?taskId={task}");
    assert_eq!(bed.is(200, "GET", &path, worker, Value::Null).await["cancelled"], json!([]));
    let lines = json!({ "sessionId": "s-1", "iteration": 1, "lines": ["a", "b"] });
    assert_eq!(bed.is(201, "POST", "/api/session-logs", worker, lines).await["count"], 2);
    let cost = json!({ "sessionId": "s-1", "totalCostUsd": 0.5 });
    assert_eq!(bed.is(201, "POST", "/api/session-costs", worker, cost).await["cost"]["totalCostUsd"], 0.5);
    let finish = format!("/api/tasks/{task}/finish");
    let done = json!({ "status": "completed", "output": "written" });
    let ended = bed.is(200, "POST", &finish, worker, done.clone()).await;
    assert_eq!((&ended["task"]["status"], ended.get("alreadyFinished")), (&json!("completed"), None));
    for report in [done, json!({ "status": "failed", "failureReason": "late" })] {
        let again = bed.is(200, "POST", &finish, worker, report).await;
        assert_eq!(
            (&again["alreadyFinished"], &again["task"]["status"]),
            (&json!(true), &json!("completed"))
        );
    }
    bed.is(200, "DELETE", &format!("/api/active-sessions/by-task/{task}"), worker, Value::Null).await;

    // An offer, a mention, and the pool, of which it gets a task and not the news of one.
    let offered = bed.task(json!({ "task": "look at it", "offeredTo": WORKER })).await;
    let general = format!("/api/channels/{}/messages", skein_shared::channels::GENERAL);
    let said = json!({ "content": "have a look", "mentions": [WORKER] });
    has(&bed.is(201, "POST", &general, Some(LEAD), said).await, &["id", "content", "mentions"]);
    let pooled = bed.task(json!({ "task": "anybody", "priority": 0 })).await;
    let trigger = bed.poll(WORKER).await;
    assert_eq!((&trigger["type"], &trigger["taskId"]), (&json!("task_offered"), &json!(offered)));
    assert_eq!(trigger["task"]["status"], "reviewing");
    bed.is(200, "POST", &format!("/api/tasks/{offered}/cancel"), Some(LEAD), json!({})).await;
    let trigger = bed.poll(WORKER).await;
    assert_eq!((&trigger["type"], &trigger["mentionsCount"]), (&json!("unread_mentions"), &json!(1)));
    let trigger = bed.poll(WORKER).await;
    assert_eq!((&trigger["type"], &trigger["taskId"]), (&json!("task_assigned"), &json!(pooled)));
    assert_eq!(trigger["task"]["priority"], 0);

    // It ends by a signal, and starts again.
    let paused = bed.is(200, "POST", &format!("/api/tasks/{pooled}/pause"), worker, Value::Null).await;
    assert_eq!(paused["task"]["status"], "paused");
    bed.is(204, "POST", "/close", worker, Value::Null).await;
    let path = format!("/api/agents/{WORKER}");
    assert_eq!(bed.is(200, "GET", &path, None, Value::Null).await["status"], "offline");
    bed.is(204, "POST", "/ping", worker, Value::Null).await;
    let kept = bed.is(200, "GET", "/api/paused-tasks", worker, Value::Null).await;
    assert_eq!(kept["tasks"][0]["id"], json!(pooled));
    let resumed = bed.is(200, "POST", &format!("/api/tasks/{pooled}/resume"), worker, Value::Null).await;
    assert_eq!(resumed["task"]["status"], "in_progress");
    bed.is(200, "POST", &format!("/api/tasks/{pooled}/cancel"), Some(LEAD), json!({ "reason": "no" })).await;
    let told = bed.is(200, "GET", "/cancelled-tasks", worker, Value::Null).await;
    assert_eq!(
        (&told["cancelled"][0]["id"], &told["cancelled"][0]["failureReason"]),
        (&json!(pooled), &json!("no"))
    );
    // The lead hears of what its worker has done.
    assert_eq!(bed.poll(LEAD).await["task"]["taskType"], "follow-up");
}

#[tokio::test]
async fn no_route_compares_a_task_with_others() {
    let bed = Bed::swarm().await;
    let epic = bed.is(201, "POST", "/api/epics", Some(LEAD), json!({ "name": "Ship", "goal": "out" })).await;
    let of_epic = format!("/api/epics/{}/tasks", epic["id"].as_str().unwrap());
    for path in ["/api/tasks", "/api/tasks", &of_epic, &of_epic] {
        bed.is(201, "POST", path, Some(LEAD), json!({ "task": "paint the fence" })).await;
    }
}

#[tokio::test]
async fn every_route_answers_in_the_seed_s_shape() {
    let bed = Bed::swarm().await;
    let task = bed.task(json!({ "task": "one", "tags": ["x"], "source": "github" })).await;
    let (lead, none) = (Some(LEAD), Value::Null);
    let schedule = json!({ "name": "daily", "taskTemplate": "sweep", "cronExpression": "0 3 * * *" });
    let schedule = bed.is(201, "POST", "/api/schedules", lead, schedule).await["id"].clone();
    let schedule = format!("/api/schedules/{}", schedule.as_str().unwrap());
    let epic = bed.is(201, "POST", "/api/epics", lead, json!({ "name": "Ship", "goal": "out" })).await;
    let epic = format!("/api/epics/{}", epic["id"].as_str().unwrap());
    let channel = bed.is(201, "POST", "/api/channels", lead, json!({ "name": "side" })).await;
    let channel = format!("/api/channels/{}", channel["id"].as_str().unwrap());
    let task = format!("/api/tasks/{task}");
    let messages = format!("{channel}/messages");
    let query = json!({ "query": "anything" });
    let agent = format!("/api/agents/{LEAD}");
    bed.shows("GET", "/me?include=inbox", lead, none.clone(), 200, &["inbox", "capacity"]).await;
    bed.shows("GET", "/ecosystem", lead, none.clone(), 200, &["apps"]).await;
    bed.shows("GET", "/api/agents?include=tasks", None, none.clone(), 200, &["agents"]).await;
    bed.shows("GET", &agent, None, none.clone(), 200, &["id", "name", "isLead"]).await;
    bed.shows("PUT", &format!("{agent}/name"), lead, json!({ "name": "boss" }), 200, &["name"]).await;
    bed.shows("PUT", &format!("{agent}/activity"), lead, none.clone(), 204, &[]).await;
    bed.shows("GET", &format!("{agent}/setup-script"), lead, none.clone(), 200, &["setupScript"]).await;
    bed.shows("GET", "/api/services", None, none.clone(), 200, &["services"]).await;
    bed.shows("GET", "/api/active-sessions", None, none.clone(), 200, &["sessions"]).await;
    bed.shows("GET", "/api/tasks?limit=5&status=unassigned", None, none.clone(), 200, &["tasks", "total"])
        .await;
    bed.shows("GET", &task, None, none.clone(), 200, &["id", "task", "status", "source", "logs"]).await;
    bed.shows("GET", "/api/scheduled-tasks", None, none.clone(), 200, &["scheduledTasks"]).await;
    bed.shows("GET", &schedule, None, none.clone(), 200, &["id", "cronExpression", "nextRunAt"]).await;
    bed.shows("PUT", &schedule, lead, json!({ "priority": 60 }), 200, &["priority"]).await;
    bed.shows("POST", &format!("{schedule}/run"), lead, none.clone(), 200, &["schedule", "task"]).await;
    bed.shows("DELETE", &schedule, lead, none.clone(), 200, &["success"]).await;
    bed.shows("GET", "/api/epics", None, none.clone(), 200, &["epics", "total"]).await;
    bed.shows("PUT", &epic, lead, json!({ "status": "active" }), 200, &["status"]).await;
    bed.shows(
        "POST",
        &format!("{epic}/tasks"),
        lead,
        json!({ "task": "a part of it" }),
        201,
        &["id", "epicId"],
    )
    .await;
    bed.shows("GET", &epic, None, none.clone(), 200, &["name", "tasks"]).await;
    bed.shows("DELETE", &epic, lead, none.clone(), 200, &["success"]).await;
    bed.shows("GET", "/api/channels", None, none.clone(), 200, &["channels"]).await;
    bed.shows("POST", &messages, lead, json!({ "content": "hello" }), 201, &["id", "content"]).await;
    bed.shows("GET", &messages, lead, none.clone(), 200, &["messages"]).await;
    let thread = format!("{messages}/{}/thread", Uuid::from_u128(1));
    bed.shows("GET", &thread, None, none.clone(), 200, &["messages"]).await;
    bed.shows("DELETE", &channel, lead, none.clone(), 200, &["success"]).await;
    bed.shows("POST", "/api/memory/search", lead, query, 200, &["results"]).await;
    bed.shows("GET", &format!("{task}/session-logs"), None, none.clone(), 200, &["logs"]).await;
    bed.shows("GET", "/api/session-costs?limit=5", None, none.clone(), 200, &["costs"]).await;
    let sums = "/api/session-costs/summary?groupBy=both";
    bed.shows("GET", sums, None, none.clone(), 200, &["totals", "daily", "byAgent"]).await;
    bed.shows("GET", "/api/session-costs/dashboard", None, none.clone(), 200, &["costToday", "costMtd"])
        .await;
    bed.refuses("GET", "/api/session-costs/summary?groupBy=week", None, none.clone(), 400).await;
    let session = format!("/api/active-sessions/{}", Uuid::from_u128(1));
    bed.shows("DELETE", &session, lead, none.clone(), 200, &["deleted"]).await;
    bed.shows("GET", "/api/logs?limit=5", None, none.clone(), 200, &["logs"]).await;
    bed.shows("GET", "/api/stats", None, none.clone(), 200, &["agents", "tasks"]).await;
    let context = ["processingInboxMessages", "recentTaskDelegations", "activeSwarmTasks"];
    bed.shows("GET", "/api/concurrent-context", lead, none.clone(), 200, &context).await;
    let reloaded = ["success", "configsLoaded", "keysUpdated", "integrationsReinitialized"];
    bed.shows("POST", "/internal/reload-config", lead, none.clone(), 200, &reloaded).await;
    bed.shows("GET", "/api/config", None, none.clone(), 200, &["configs"]).await;
    bed.shows("GET", "/api/repos", None, none, 200, &["repos"]).await;
}

#[tokio::test]
async fn every_schedule_is_listed_and_shown_however_many_there_are() {
    use skein_shared::schedules::{Command, Create, Schedules};

    let bed = Bed::swarm().await;
    let schedules = EntityKey::of(Kind::Schedules, &Name::parse("default").unwrap());
    for number in 0..1000 {
        let create = Create { interval_ms: Some(60_000), ..Create::new(format!("a{number}"), "sweep") };
        let (request, command) = (crate::entity::Request::read(), Command::Create(Box::new(create)));
        bed.node.entities.ask::<Schedules>(&schedules, request, command).await.unwrap();
    }
    let last = json!({ "name": "last", "taskTemplate": "sweep", "cronExpression": "0 3 * * *" });
    let made = bed.is(201, "POST", "/api/schedules", Some(LEAD), last).await;
    let listed = bed.is(200, "GET", "/api/scheduled-tasks", None, Value::Null).await;
    let listed = listed["scheduledTasks"].as_array().unwrap();
    let names: std::collections::BTreeSet<_> =
        listed.iter().map(|schedule| schedule["name"].as_str()).collect();
    assert_eq!((listed.len(), names.len(), listed.last()), (1001, 1001, Some(&made)));
    let few = "/api/scheduled-tasks?name=as&scheduleType=recurring&enabled=true&hideCompleted=false";
    let few = bed.is(200, "GET", few, None, Value::Null).await;
    assert_eq!(few["scheduledTasks"], json!([made]));
    for none in ["name=none", "enabled=false", "scheduleType=one_time"] {
        let path = format!("/api/scheduled-tasks?{none}");
        assert_eq!(bed.is(200, "GET", &path, None, Value::Null).await["scheduledTasks"], json!([]), "{none}");
    }
    bed.refuses("GET", "/api/scheduled-tasks?scheduleType=daily", None, Value::Null, 400).await;
    let path = format!("/api/schedules/{}", made["id"].as_str().unwrap());
    assert_eq!(bed.is(200, "GET", &path, None, Value::Null).await, made);
    let unknown = format!("/api/schedules/{}", Uuid::from_u128(9));
    bed.refuses("GET", &unknown, None, Value::Null, 404).await;
}

#[tokio::test]
async fn whoever_lacks_the_key_a_name_or_the_right_is_told_so() {
    let bed = Bed::swarm().await;
    let task = bed.task(json!({ "task": "mine", "agentId": LEAD })).await;
    let (status, answer) = bed.ask("GET", "/api/tasks", "other", Some(LEAD), Value::Null).await;
    assert_eq!(
        (status.as_u16(), answer),
        (401, json!({ "error": "Unauthorized", "code": "unauthenticated" }))
    );
    let stranger = Some(Uuid::from_u128(9));
    let finish = format!("/api/tasks/{task}/finish");
    let epic = json!({ "name": "Mine", "goal": "x" });
    bed.refuses("GET", "/api/poll", None, Value::Null, 400).await;
    bed.refuses("GET", "/api/poll", stranger, Value::Null, 404).await;
    bed.refuses("GET", "/me", stranger, Value::Null, 404).await;
    bed.refuses("POST", "/ping", stranger, Value::Null, 404).await;
    bed.refuses("POST", "/api/tasks", Some(LEAD), json!({}), 400).await;
    bed.refuses("POST", "/api/tasks", Some(LEAD), json!({ "task": "x", "agentId": "nobody" }), 400).await;
    bed.refuses("POST", &finish, Some(WORKER), json!({ "status": "completed" }), 403).await;
    bed.refuses("POST", "/api/epics", Some(WORKER), epic, 403).await;
    bed.refuses("PUT", &format!("/api/agents/{LEAD}/name"), Some(WORKER), json!({ "name": "lead" }), 403)
        .await;
    bed.refuses("POST", &format!("/api/tasks/{task}/frobnicate"), Some(LEAD), Value::Null, 404).await;
    bed.refuses("GET", "/api/tasks?limit=many", None, Value::Null, 400).await;
    let lead = json!({ "name": "usurper", "isLead": true });
    bed.is(409, "POST", "/api/agents", stranger, lead).await;
    bed.refuses("PUT", &format!("/api/repos/{}", Uuid::from_u128(1)), Some(LEAD), json!({}), 404).await;
    let logs = format!("/api/tasks/{}/session-logs", Uuid::from_u128(1));
    bed.refuses("GET", &logs, None, Value::Null, 404).await;
    for provider in ["github", "gitlab", "agentmail"] {
        let path = format!("/api/{provider}/webhook");
        let (status, answer) = bed.ask("POST", &path, "other", None, json!({})).await;
        let told = answer["error"].as_str().unwrap();
        assert!(status == StatusCode::NOT_FOUND && told.contains(&format!("/webhooks/{provider}")), "{told}");
    }
    let many = format!("{{\"tags\":[{}", "0,".repeat(300_000));
    for (body, told) in [("{not json", "invalid JSON"), (many.as_str(), "200000 values")] {
        let request = Request::post("/api/tasks").header("authorization", format!("Bearer {KEY}"));
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = bed.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        let answer = response.into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&answer).contains(told), "{answer:?}");
    }
}

#[tokio::test]
async fn messages_are_read_from_the_end_backwards_and_by_thread() {
    let bed = Bed::swarm().await;
    let path = format!("/api/channels/{}/messages", skein_shared::channels::GENERAL);
    let mut posted = Vec::new();
    for number in 0..4 {
        let parent: Option<&Value> = (number == 3).then(|| &posted[1]);
        let reply = parent.map(|parent: &Value| parent["id"].clone());
        let said = json!({ "content": format!("message {number}"), "replyToId": reply });
        posted.push(bed.is(201, "POST", &path, Some(LEAD), wire(said)).await);
        // Times have milliseconds, and each of these needs its own.
        let now = bed.service.clock().now();
        while bed.service.clock().now() == now {
            tokio::task::yield_now().await;
        }
    }
    let said = async |path: String| {
        let found = bed.is(200, "GET", &path, Some(WORKER), Value::Null).await;
        let messages = found["messages"].as_array().unwrap().clone();
        messages
            .iter()
            .map(|message| message["content"].as_str().unwrap()[8..].to_owned())
            .collect::<String>()
    };
    let at = |number: usize| posted[number]["createdAt"].as_str().unwrap();
    assert_eq!(said(format!("{path}?limit=3")).await, "123");
    assert_eq!(said(format!("{path}?before={}", at(2))).await, "01");
    assert_eq!(said(format!("{path}?before={}&limit=1", at(2))).await, "1");
    assert_eq!(said(format!("{path}?since={}&before={}", at(0), at(3))).await, "12");
    assert_eq!(said(format!("{path}/{}/thread", posted[1]["id"].as_str().unwrap())).await, "3");
    bed.refuses("GET", &format!("{path}?before=yesterday"), Some(WORKER), Value::Null, 400).await;
    let me = bed.is(200, "GET", "/me?include=inbox", Some(WORKER), Value::Null).await;
    assert_eq!(me["inbox"]["unreadCount"], 4, "a look marks nothing as read");
}

/// Without the fields that are null, as programs send it.
fn wire(body: Value) -> Value {
    skein_shared::wire::shown(body, &[])
}

#[tokio::test]
async fn a_file_that_is_indexed_again_replaces_what_it_left() {
    let bed = Bed::swarm().await;
    let index = |agent: Uuid, content: String, scope: &str| {
        json!({
            "agentId": agent, "content": content, "name": "notes", "scope": scope, "source": "file_index",
            "sourcePath": "/workspace/personal/memory/notes.md",
        })
    };
    let path = "/api/memory/index";
    let long = format!("# Zebras\n{}\n# Gnus\n{}", "zebra ".repeat(200), "gnu ".repeat(300));
    let first = bed.is(202, "POST", path, Some(WORKER), index(WORKER, long, "agent")).await;
    assert_eq!((&first["queued"], first["memoryIds"].as_array().unwrap().len()), (&json!(true), 2));
    let found = async |agent: Uuid, query: &str| {
        let query = json!({ "query": query });
        bed.is(200, "POST", "/api/memory/search", Some(agent), query).await["results"]
            .as_array()
            .unwrap()
            .clone()
    };
    let zebras = found(WORKER, "zebra").await;
    assert_eq!(zebras.len(), 1);
    assert!(zebras[0]["content"].as_str().unwrap().starts_with("Zebras\n\nzebra"), "{zebras:?}");
    let short = index(WORKER, "only gnus".to_owned(), "swarm");
    bed.is(202, "POST", path, Some(WORKER), short).await;
    assert!(found(WORKER, "zebra").await.is_empty());
    assert_eq!(found(LEAD, "gnus").await.len(), 1);
    // Nobody remembers for another but the lead.
    bed.refuses("POST", path, Some(WORKER), index(LEAD, "mine now".to_owned(), "agent"), 403).await;
    bed.is(202, "POST", path, Some(LEAD), index(WORKER, "okapis".to_owned(), "agent")).await;
    assert_eq!(found(WORKER, "okapis").await.len(), 1);
    bed.refuses("POST", path, Some(WORKER), index(WORKER, "x".to_owned(), "all"), 400).await;
}
