//! Programs that have the key and name no agent, and what those of Agent Swarm send and expect beside their loop.

use std::time::Duration;

use skein_shared::channels::GENERAL;
use skein_shared::profiles::Field;

use super::*;
use crate::auth::token::Keys;
use crate::gateway;
use crate::service::access::Access;

#[tokio::test]
async fn who_names_no_agent_arranges_work_as_a_person() {
    let bed = Bed::swarm().await;
    let none = Value::Null;
    let schedule = json!({ "name": "daily", "taskTemplate": "sweep", "cronExpression": "0 3 * * *" });
    let schedule = bed.is(201, "POST", "/api/schedules", None, schedule).await;
    assert!(schedule.get("createdByAgentId").is_none(), "no agent made it: {schedule}");
    let path = format!("/api/schedules/{}", schedule["id"].as_str().unwrap());
    assert_eq!(bed.is(200, "PUT", &path, None, json!({ "priority": 70 })).await["priority"], 70);
    let ran = bed.is(200, "POST", &format!("{path}/run"), None, none.clone()).await;
    assert_eq!((&ran["schedule"]["priority"], &ran["task"]["task"]), (&json!(70), &json!("sweep")), "{ran}");
    bed.is(200, "DELETE", &path, None, none.clone()).await;

    let epic = bed.is(201, "POST", "/api/epics", None, json!({ "name": "Ship", "goal": "out" })).await;
    assert!(epic.get("createdByAgentId").is_none(), "{epic}");
    let path = format!("/api/epics/{}", epic["id"].as_str().unwrap());
    assert_eq!(bed.is(200, "PUT", &path, None, json!({ "status": "active" })).await["status"], "active");
    let part = bed.is(201, "POST", &format!("{path}/tasks"), None, json!({ "task": "a part" })).await;
    assert_eq!(part["epicId"], epic["id"]);
    bed.is(200, "DELETE", &path, None, none.clone()).await;

    let set = json!({ "scope": "global", "key": "MODEL_OVERRIDE", "value": "opus" });
    let set = bed.is(200, "PUT", "/api/config", None, set).await;
    let path = format!("/api/config/{}", set["id"].as_str().unwrap());
    bed.is(200, "DELETE", &path, None, none.clone()).await;

    let channel = bed.is(201, "POST", "/api/channels", None, json!({ "name": "people" })).await;
    assert!(channel.get("createdBy").is_none(), "{channel}");
    bed.is(200, "DELETE", &format!("/api/channels/{}", channel["id"].as_str().unwrap()), None, none).await;
}

#[tokio::test]
async fn a_message_is_a_persons_or_that_of_the_agent_it_names() {
    let bed = Bed::swarm().await;
    let path = format!("/api/channels/{}/messages", GENERAL);
    let said = json!({ "content": "/task water the plants", "mentions": [WORKER] });
    let said = bed.is(201, "POST", &path, None, said).await;
    assert_eq!((&said["agentId"], &said["agentName"]), (&Value::Null, &json!("Human")), "{said}");
    let trigger = bed.poll(WORKER).await;
    assert_eq!(trigger["type"], "task_assigned", "{trigger}");
    assert!(trigger["task"].get("creatorAgentId").is_none(), "{trigger}");

    let named = json!({ "content": "done", "agentId": WORKER });
    let named = bed.is(201, "POST", &path, None, named).await;
    assert_eq!((&named["agentId"], &named["agentName"]), (&json!(WORKER), &json!("worker-22222222")));
    // The header says who it is, whatever the body says.
    let both = json!({ "content": "good", "agentId": WORKER });
    assert_eq!(bed.is(201, "POST", &path, Some(LEAD), both).await["agentId"], json!(LEAD));
    let stranger = json!({ "content": "hello", "agentId": Uuid::from_u128(9) });
    bed.refuses("POST", &path, None, stranger, 404).await;
}

#[tokio::test]
async fn an_agent_is_shown_with_its_capacity_and_its_tasks() {
    let bed = Bed::swarm().await;
    let task = bed.task(json!({ "task": "dig", "agentId": WORKER })).await;
    bed.poll(WORKER).await;
    let path = format!("/api/agents/{WORKER}");
    let shown = bed.is(200, "GET", &path, None, Value::Null).await;
    assert_eq!(shown["capacity"], json!({ "current": 1, "max": 1, "available": 0 }));
    assert!(shown.get("tasks").is_none(), "{shown}");
    let shown = bed.is(200, "GET", &format!("{path}?include=tasks"), None, Value::Null).await;
    let tasks: Vec<&Value> = shown["tasks"].as_array().unwrap().iter().map(|task| &task["id"]).collect();
    assert_eq!(tasks, [&json!(task)]);
    bed.refuses("GET", &format!("/api/agents/{}", Uuid::from_u128(9)), None, Value::Null, 404).await;
}

#[tokio::test]
async fn a_profile_is_changed_by_its_agent_its_lead_and_persons_and_says_so() {
    let bed = Bed::swarm().await;
    let path = format!("/api/agents/{WORKER}/profile");
    let put = async |agent: Option<Uuid>, body: Value| bed.is(200, "PUT", &path, agent, body).await;
    let synced = json!({ "soulMd": "calm", "changeSource": "session_sync" });
    assert_eq!(put(Some(WORKER), synced).await["soulMd"], "calm");
    let coached = json!({ "soulMd": "bold", "changeReason": "it hid" });
    assert_eq!(put(Some(LEAD), coached).await["id"], json!(WORKER));
    put(None, json!({ "soulMd": "kind", "changedByAgentId": LEAD })).await;
    put(Some(WORKER), json!({ "soulMd": "neat" })).await;
    let lead = bed.service.me(&shared().agent(LEAD).unwrap()).await.unwrap().unwrap();
    assert_ne!(lead["soulMd"], "kind", "another one's are as they were");

    let who = shared().agent(WORKER).unwrap();
    let field = Some(Field::SoulMd);
    let history = bed.service.profile_history(&who, None, field, 4).await.unwrap().whole().unwrap().rows;
    let told = |field: &str| history.iter().map(|version| version[field].clone()).collect::<Vec<_>>();
    assert_eq!(told("changeSource"), ["api", "api", "lead_coaching", "session_sync"]);
    assert_eq!(told("changedByAgentId"), [json!(WORKER), json!(LEAD), json!(LEAD), json!(WORKER)]);
    assert_eq!(told("changeReason"), [Value::Null, Value::Null, json!("it hid"), Value::Null]);

    let of_lead = format!("/api/agents/{LEAD}/profile");
    bed.refuses("PUT", &of_lead, Some(WORKER), json!({ "soulMd": "meek" }), 403).await;
    bed.refuses("PUT", &path, Some(WORKER), json!({ "changeSource": "rumour", "soulMd": "x" }), 400).await;
    bed.refuses("PUT", &path, Some(WORKER), json!({ "changeReason": "none" }), 400).await;
    let stranger = format!("/api/agents/{}/profile", Uuid::from_u128(9));
    bed.refuses("PUT", &stranger, None, json!({ "soulMd": "x" }), 404).await;
}

#[tokio::test]
async fn a_schedule_that_runs_once_is_put_off_and_null_changes_nothing_else() {
    let bed = Bed::swarm().await;
    let once =
        json!({ "name": "once", "taskTemplate": "look", "scheduleType": "one_time", "delayMs": 3_600_000 });
    let mut once = bed.is(201, "POST", "/api/schedules", Some(LEAD), once).await;
    let path = format!("/api/schedules/{}", once["id"].as_str().unwrap());
    let later = json!({ "nextRunAt": "2999-01-01T00:00:00.000Z" });
    let moved = bed.is(200, "PUT", &path, Some(LEAD), later.clone()).await;
    assert_eq!(moved["nextRunAt"], later["nextRunAt"]);
    // Programs that send back all that they have read change what they mean to alone.
    once["nextRunAt"] = later["nextRunAt"].clone();
    once["priority"] = json!(80);
    once["cronExpression"] = Value::Null;
    let changed = bed.is(200, "PUT", &path, Some(LEAD), once).await;
    assert_eq!((&changed["priority"], &changed["nextRunAt"]), (&json!(80), &later["nextRunAt"]));
    bed.refuses("PUT", &path, Some(LEAD), json!({ "nextRunAt": "2001-01-01T00:00:00.000Z" }), 400).await;
    bed.refuses("PUT", &path, Some(LEAD), json!({ "nextRunAt": "soon" }), 400).await;

    let daily = json!({ "name": "daily", "taskTemplate": "sweep", "cronExpression": "0 3 * * *" });
    let daily = bed.is(201, "POST", "/api/schedules", Some(LEAD), daily).await;
    let path = format!("/api/schedules/{}", daily["id"].as_str().unwrap());
    let kept = bed.is(200, "PUT", &path, Some(LEAD), later).await;
    assert_eq!(kept["nextRunAt"], daily["nextRunAt"], "what recurs goes by its rule alone");
}

#[tokio::test]
async fn a_page_of_another_host_may_ask_and_read_with_the_key_alone() {
    let bed = Bed::swarm().await;
    let ask = async |method: &str, path: &str, key: Option<&str>| {
        let mut request =
            Request::builder().method(method).uri(path).header("origin", "https://pages.example");
        if let Some(key) = key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let response = bed.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let allowed = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(allowed("access-control-allow-origin"), "*", "{method} {path}");
        assert!(allowed("access-control-allow-headers").contains("Authorization"), "{method} {path}");
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice::<Value>(&body).unwrap_or_default())
    };
    for path in ["/api/tasks", "/api/schedules", "/health"] {
        assert_eq!(ask("OPTIONS", path, None).await.0, 204, "{path}");
    }
    assert_eq!(ask("GET", "/api/tasks", None).await.0, 401);
    assert_eq!(ask("GET", "/api/tasks", Some(KEY)).await.0, 200);
    let (status, told) = ask("GET", "/health", None).await;
    assert_eq!((status, &told["status"]), (200, &json!("ok")));
    assert!(told["version"].is_string(), "{told}");
}

/// A node has both, and does not start with two routes of one path.
#[tokio::test]
async fn the_routes_stand_beside_those_for_scripts() {
    let bed = Bed::new();
    let access = Access::new(Keys::ephemeral().unwrap(), bed.node.entities.clone());
    let catalogue = Arc::new(catalogue().unwrap());
    let gateway = gateway::router(bed.service.clone(), access, catalogue, Gate::default());
    let health = Request::get("/health").body(Body::empty()).unwrap();
    let answer = gateway.merge(bed.router.clone()).oneshot(health).await.unwrap();
    assert_eq!(answer.headers()["access-control-allow-origin"], "*", "it is Agent Swarm's");
}

#[tokio::test]
async fn an_id_that_is_none_is_an_unknown_one() {
    let bed = Bed::swarm().await;
    for path in ["tasks", "agents", "schedules", "epics", "config", "repos"] {
        bed.refuses("GET", &format!("/api/{path}/no-id"), Some(LEAD), Value::Null, 404).await;
    }
    for id in ["no-id", "99999999-9999-4999-8999-999999999999"] {
        bed.refuses("GET", &format!("/api/channels/{id}/messages"), Some(LEAD), Value::Null, 404).await;
    }
}

#[tokio::test]
async fn a_sign_of_life_is_of_the_agent_that_is_named_somewhere() {
    let bed = Bed::swarm().await;
    let task = bed.task(json!({ "task": "dig", "agentId": WORKER })).await;
    bed.poll(WORKER).await;
    let session = json!({ "agentId": WORKER, "taskId": task });
    let session = bed.is(201, "POST", "/api/active-sessions", None, session).await;
    assert_eq!(session["session"]["agentId"], json!(WORKER));
    assert_eq!(bed.poll(WORKER).await, Value::Null, "its task has arrived");
    bed.refuses("POST", "/api/active-sessions", None, json!({ "taskId": task }), 400).await;
    bed.is(200, "POST", &format!("/api/tasks/{task}/cancel"), None, json!({})).await;

    bed.is(204, "POST", "/close", Some(WORKER), Value::Null).await;
    let path = format!("/api/agents/{WORKER}");
    assert_eq!(bed.is(200, "GET", &path, None, Value::Null).await["status"], "offline");
    bed.is(204, "PUT", &format!("{path}/activity"), None, Value::Null).await;
    assert_eq!(bed.is(200, "GET", &path, None, Value::Null).await["status"], "idle");
    let unknown = format!("/api/agents/{}/activity", Uuid::from_u128(9));
    bed.refuses("PUT", &unknown, None, Value::Null, 404).await;
}

#[tokio::test]
async fn null_says_nothing_but_where_it_clears() {
    let bed = Bed::swarm().await;
    let made = async |path: &str, body: Value| bed.is(201, "POST", path, Some(LEAD), body).await;
    let schedule = json!({
        "name": "daily", "taskTemplate": "sweep", "cronExpression": "0 3 * * *", "intervalMs": null,
        "description": null, "targetAgentId": WORKER,
    });
    let schedule = made("/api/schedules", schedule).await;
    assert_eq!(schedule["targetAgentId"], json!(WORKER));
    let path = format!("/api/schedules/{}", schedule["id"].as_str().unwrap());
    let cleared = json!({ "targetAgentId": null, "taskTemplate": null });
    let cleared = bed.is(200, "PUT", &path, Some(LEAD), cleared).await;
    assert_eq!((&cleared["taskTemplate"], cleared.get("targetAgentId")), (&json!("sweep"), None));

    let epic = json!({ "name": "Ship", "goal": "out", "leadAgentId": WORKER, "plan": null });
    let epic = made("/api/epics", epic).await;
    let path = format!("/api/epics/{}", epic["id"].as_str().unwrap());
    let cleared = bed.is(200, "PUT", &path, Some(LEAD), json!({ "leadAgentId": null, "goal": null })).await;
    assert_eq!((&cleared["goal"], cleared.get("leadAgentId")), (&json!("out"), None));
    made(&format!("{path}/tasks"), json!({ "task": "a part", "agentId": null })).await;

    let channel = made("/api/channels", json!({ "name": "side", "description": null })).await;
    let path = format!("/api/channels/{}/messages", channel["id"].as_str().unwrap());
    made(&path, json!({ "content": "hello", "replyToId": null, "mentions": null })).await;
}

#[tokio::test]
async fn a_schedule_is_told_by_its_tool_and_its_route_to_skip() {
    let bed = Bed::swarm().await;
    let often =
        json!({ "name": "often", "taskTemplate": "sweep", "intervalMs": 60_000, "skipIfActive": true });
    let often = bed.is(201, "POST", "/api/schedules", Some(LEAD), often).await;
    assert_eq!(often["skipIfActive"], true, "{often}");
    let path = format!("/api/schedules/{}", often["id"].as_str().unwrap());
    let changed = bed.is(200, "PUT", &path, Some(LEAD), json!({ "skipIfActive": false })).await;
    assert!(changed.get("skipIfActive").is_none(), "{changed}");
    let kept = bed.is(200, "GET", &path, None, Value::Null).await;
    assert!(kept.get("skipIfActive").is_none(), "{kept}");
    let once = json!({ "name": "once", "taskTemplate": "x", "scheduleType": "one_time", "delayMs": 60_000 });
    let once = bed.is(201, "POST", "/api/schedules", Some(LEAD), once).await;
    let path = format!("/api/schedules/{}", once["id"].as_str().unwrap());
    bed.refuses("PUT", &path, Some(LEAD), json!({ "skipIfActive": true }), 400).await;
}

#[tokio::test]
async fn who_registers_again_counts_its_empty_polls_anew() {
    let bed = Bed::swarm().await;
    let worker = shared().agent(WORKER).unwrap();
    for _ in 0..2 {
        bed.service.poll_task(&worker, Uuid::now_v7(), Duration::ZERO).await.unwrap();
    }
    let blocked = async || {
        let me = bed.is(200, "GET", "/me", Some(WORKER), Value::Null).await;
        (me["emptyPollCount"].clone(), me["shouldBlockPolling"].clone())
    };
    assert_eq!(blocked().await, (json!(2), json!(true)));
    // As after a crash: nobody had said that it goes.
    bed.is(200, "POST", "/api/agents", Some(WORKER), json!({ "name": "worker-22222222" })).await;
    assert_eq!(blocked().await, (json!(0), json!(false)));
}
