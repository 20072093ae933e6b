//! What happens in the swarm, as its log and its numbers tell it.

use skein_shared::which::Which;

use super::*;
use crate::auth::{Principal, Role};
use crate::service::swarm::Introduction;

#[tokio::test]
async fn the_log_the_numbers_and_what_is_under_way_tell_of_the_same_swarm() {
    let bed = Bed::swarm().await;
    let task = bed.task(json!({ "task": "count", "agentId": WORKER })).await;
    bed.task(json!({ "task": "for anybody" })).await;
    bed.poll(WORKER).await;
    bed.is(204, "POST", "/close", Some(LEAD), Value::Null).await;
    let stats = bed.is(200, "GET", "/api/stats", None, Value::Null).await;
    assert_eq!(stats["agents"], json!({ "total": 2, "idle": 0, "busy": 1, "offline": 1 }));
    let of = |status: &str| stats["tasks"][status].clone();
    assert_eq!(
        [of("in_progress"), of("unassigned"), of("failed"), of("total")],
        [1, 1, 0, 2].map(Value::from)
    );
    let context = bed.is(200, "GET", "/api/concurrent-context", Some(LEAD), Value::Null).await;
    let handed_out = context["recentTaskDelegations"].as_array().unwrap();
    assert_eq!(handed_out.len(), 2);
    assert_eq!(
        (&context["activeSwarmTasks"][0]["id"], &context["activeSwarmTasks"][0]["agentName"]),
        (&json!(task), &json!("worker-22222222"))
    );
    let kinds = async |path: &str| {
        let found = bed.is(200, "GET", path, None, Value::Null).await;
        let logs = found["logs"].as_array().unwrap().clone();
        logs.iter().map(|entry| entry["eventType"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = ["task_claimed", "task_created", "task_created", "agent_joined", "agent_joined"];
    assert_eq!(kinds("/api/logs").await, all);
    assert_eq!(kinds("/api/logs?limit=1").await, all[..1]);
    let of_lead = kinds(&format!("/api/logs?agentId={LEAD}")).await;
    assert_eq!(of_lead.first().map(String::as_str), Some("agent_status_change"));
}

#[tokio::test]
async fn the_log_of_the_swarm_has_what_is_news_and_who_did_it() {
    let bed = Bed::swarm().await;
    let task = bed.task(json!({ "task": "look at it", "offeredTo": WORKER })).await;
    bed.poll(WORKER).await;
    let said = json!({ "content": "have a look" });
    let general = format!("/api/channels/{}/messages", skein_shared::channels::GENERAL);
    bed.is(201, "POST", &general, Some(LEAD), said).await;
    // No news: what it is for.
    let epic = json!({ "name": "look", "goal": "see" });
    let epic = bed.is(201, "POST", "/api/epics", Some(LEAD), epic).await["id"].as_str().unwrap().to_owned();
    bed.is(201, "POST", &format!("/api/epics/{epic}/tasks"), Some(LEAD), json!({ "taskId": task })).await;
    let found = bed.is(200, "GET", "/api/logs", None, Value::Null).await;
    let told = |entry: &Value| ["eventType", "agentId", "taskId"].map(|field| entry[field].clone());
    let told: Vec<_> = found["logs"].as_array().unwrap().iter().map(told).collect();
    let [lead, worker] = [LEAD, WORKER].map(|agent| json!(agent));
    let none = || Value::Null;
    let news = [
        [json!("channel_message"), lead.clone(), none()],
        [json!("task_status_change"), none(), json!(task)],
        [json!("task_offered"), lead.clone(), json!(task)],
        [json!("agent_joined"), worker, none()],
        [json!("agent_joined"), lead, none()],
    ];
    assert_eq!(told, news, "{found}");
    let details = bed.is(200, "GET", &format!("/api/tasks/{task}"), None, Value::Null).await;
    assert_eq!(details["logs"].as_array().unwrap().len(), 3, "its own log leaves nothing out: {details}");
}

#[tokio::test]
async fn the_log_of_the_swarm_tells_who_has_come_to_lead() {
    let bed = Bed::swarm().await;
    let boss = Principal::named("boss", Role::Operator);
    bed.service.remove_member(&boss, Uuid::now_v7(), &Which::Id(LEAD)).await.unwrap();
    let name = "worker-22222222";
    let worker = Principal { agent: WORKER, ..Principal::named(name, Role::Lead) };
    let introduction = Introduction { name: name.to_owned(), lead: true, ..Introduction::default() };
    bed.service.join(&worker, Uuid::now_v7(), introduction).await.unwrap();
    let found = bed.is(200, "GET", "/api/logs", None, Value::Null).await;
    let told = |entry: &Value| ["eventType", "agentId", "newValue"].map(|field| entry[field].clone());
    let told: Vec<_> = found["logs"].as_array().unwrap().iter().take(2).map(told).collect();
    let leads = [json!("agent_joined"), json!(WORKER), json!("lead")];
    assert_eq!(told, [leads, [json!("agent_left"), json!(LEAD), Value::Null]], "{found}");
}
