//! The seed's runner loop as it was recorded, and each route by the shape of its answer.

use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::json;
use skein_shared::id::Name;
use tower::ServiceExt;
use uuid::Uuid;

use super::*;
use crate::entity::tests::{Node, node};
use crate::mcp::tools::catalogue;

const KEY: &str = "hush";
const LEAD: Uuid = Uuid::from_u128(0x11111111_1111_4111_8111_111111111111);
const WORKER: Uuid = Uuid::from_u128(0x22222222_2222_4222_8222_222222222222);

struct Bed {
    router: Router,
    _node: Node,
}

impl Bed {
    fn new() -> Self {
        let node = node();
        let service = Service::new(node.entities.clone());
        let shared = SharedKey { key: KEY.into(), swarm: Name::parse("default").unwrap() };
        Self { router: router(service, shared, Arc::new(catalogue().unwrap()), Gate::default()), _node: node }
    }

    /// A swarm of a lead and a worker that have registered.
    async fn swarm() -> Self {
        let bed = Self::new();
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

fn has(answer: &Value, fields: &[&str]) {
    for field in fields {
        assert!(answer.get(field).is_some(), "{field} is missing: {answer}");
    }
}

#[tokio::test]
async fn a_runner_of_the_seed_goes_through_its_loop() {
    let bed = Bed::swarm().await;
    let worker = Some(WORKER);
    // A start, and one more after a crash.
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
    has(&bed.is(201, "POST", "/api/session-costs", worker, cost).await, &["success", "cost"]);
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
    bed.shows("DELETE", &channel, lead, none.clone(), 200, &["success"]).await;
    bed.shows("POST", "/api/memory/search", lead, query, 200, &["results"]).await;
}

#[tokio::test]
async fn whoever_lacks_the_key_a_name_or_the_right_is_told_so() {
    let bed = Bed::swarm().await;
    let task = bed.task(json!({ "task": "mine", "agentId": LEAD })).await;
    let (status, answer) = bed.ask("GET", "/api/tasks", "other", Some(LEAD), Value::Null).await;
    assert_eq!((status.as_u16(), answer), (401, json!({ "error": "Unauthorized" })));
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
    let request = Request::post("/api/tasks")
        .header("authorization", format!("Bearer {KEY}"))
        .body(Body::from("{not json"))
        .unwrap();
    assert_eq!(bed.router.clone().oneshot(request).await.unwrap().status(), StatusCode::BAD_REQUEST);
}
