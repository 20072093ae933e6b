//! What sessions cost, as Agent Swarm's runner tells it and its dashboards read it.

use skein_shared::pool::Finish;

use super::*;

impl Bed {
    /// Asks until as many reports are there: those of tasks come a moment after the tasks' ends.
    async fn costs(&self, query: &str, count: usize) -> Vec<Value> {
        let path = format!("/api/session-costs{query}");
        let all = async {
            loop {
                let costs = self.is(200, "GET", &path, None, Value::Null).await["costs"].take();
                match costs.as_array() {
                    Some(costs) if costs.len() == count => return costs.clone(),
                    _ => tokio::task::yield_now().await,
                }
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), all).await.unwrap()
    }
}

fn session(agent: Uuid, task: &str, dollars: f64) -> Value {
    json!({
        "sessionId": "s-1", "taskId": task, "agentId": agent, "totalCostUsd": dollars, "inputTokens": 1000,
        "outputTokens": 50, "cacheReadTokens": 7, "cacheWriteTokens": 8, "durationMs": 9000, "numTurns": 4,
        "model": "opus", "isError": false,
    })
}

#[tokio::test]
async fn what_sessions_cost_is_kept_and_added_up() {
    let bed = Bed::swarm().await;
    let task = bed.task(json!({ "task": "count the geese", "agentId": WORKER })).await;
    let path = "/api/session-costs";
    let told = bed.is(201, "POST", path, Some(WORKER), session(WORKER, &task, 0.5)).await;
    assert_eq!((&told["success"], &told["cost"]["source"]), (&json!(true), &json!("session")));
    bed.is(201, "POST", path, Some(LEAD), json!({ "sessionId": "s-2", "totalCostUsd": 0.25 })).await;
    // Who says only what the key says is the operator, and may tell of any member.
    bed.is(201, "POST", path, None, session(LEAD, &task, 1.0)).await;
    for (agent, wrong, status) in [
        (Some(WORKER), session(LEAD, &task, 1.0), 403),
        (None, session(Uuid::from_u128(7), &task, 1.0), 404),
        (None, json!({ "sessionId": "s-3", "totalCostUsd": 1.0 }), 400),
        (Some(WORKER), json!({ "totalCostUsd": 1.0 }), 400),
        (Some(WORKER), json!({ "sessionId": "s-3" }), 400),
        (Some(WORKER), session(WORKER, &task, -1.0), 400),
    ] {
        bed.refuses("POST", path, agent, wrong, status).await;
    }

    let all = bed.costs("", 3).await;
    let fields = ["sessionId", "taskId", "agentId", "totalCostUsd", "numTurns", "model", "createdAt"];
    all.iter().for_each(|cost| has(cost, &fields));
    assert_eq!(bed.costs(&format!("?agentId={WORKER}"), 1).await[0]["cacheWriteTokens"], 8);
    bed.costs(&format!("?taskId={task}"), 2).await;
    bed.costs("?limit=1", 1).await;
    let today = &all[0]["createdAt"].as_str().unwrap()[..10];
    bed.costs(&format!("?startDate={today}&endDate={today}"), 3).await;
    bed.costs("?endDate=2020-01-01", 0).await;
    bed.costs("?startDate=2999-01-01T00:00:00Z", 0).await;
    bed.refuses("GET", "/api/session-costs?startDate=yesterday", None, Value::Null, 400).await;

    let summary = async |query: &str| {
        bed.is(200, "GET", &format!("/api/session-costs/summary{query}"), None, Value::Null).await
    };
    let sums = summary("").await;
    assert_eq!(
        (&sums["totals"]["totalCostUsd"], &sums["totals"]["totalSessions"]),
        (&json!(1.75), &json!(3))
    );
    assert_eq!(sums["daily"][0]["costUsd"], 1.75);
    let by_agent = [(json!(LEAD), json!(1.25)), (json!(WORKER), json!(0.5))];
    let agent =
        |place: usize| (sums["byAgent"][place]["agentId"].clone(), sums["byAgent"][place]["costUsd"].clone());
    assert_eq!([agent(0), agent(1)], by_agent);
    assert_eq!(summary(&format!("?agentId={WORKER}&groupBy=day")).await["byAgent"], json!([]));
    assert_eq!(summary("?groupBy=agent").await["daily"], json!([]));
    assert_eq!(summary("?endDate=2020-01-01").await["totals"]["totalCostUsd"], 0.0);
    let dashboard = bed.is(200, "GET", "/api/session-costs/dashboard", None, Value::Null).await;
    assert_eq!(dashboard, json!({ "costToday": 1.75, "costMtd": 1.75 }));
}

#[tokio::test]
async fn what_an_agent_says_that_its_task_cost_is_a_report_too() {
    let bed = Bed::swarm().await;
    let task = bed.task(json!({ "task": "count the geese", "agentId": WORKER })).await;
    let cost = json!({ "totalCostUsd": 0.125, "inputTokens": 10 });
    let worker = shared().agent(WORKER).unwrap();
    let reported = bed.service.report(
        &worker,
        Uuid::now_v7(),
        task.parse().unwrap(),
        None,
        Some((Finish::Failed { reason: Some("they flew".to_owned()) }, serde_json::from_value(cost).ok())),
    );
    reported.await.unwrap();
    let costs = bed.costs("", 1).await;
    assert_eq!(
        (&costs[0]["source"], &costs[0]["taskId"], &costs[0]["agentId"], &costs[0]["isError"]),
        (&json!("task"), &json!(task), &json!(WORKER), &json!(true))
    );
    assert!(costs[0]["sessionId"].as_str().unwrap().starts_with(&format!("mcp-{task}-")));
}
