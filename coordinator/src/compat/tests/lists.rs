//! Lists that are behind, and lists that are long.

use super::*;
use crate::entity::tests::lists::arriving;
use crate::service::resources::{Resource, Sort};
use crate::service::views;

#[tokio::test]
async fn a_list_that_may_be_old_is_refused_for_now() {
    let bed = Bed::swarm().await;
    let (worker, none) = (Some(WORKER), Value::Null);
    let task = bed.task(json!({ "task": "write it down", "agentId": WORKER })).await;
    assert_eq!(bed.poll(WORKER).await["taskId"], json!(task));
    let hold = arriving(&bed.node, "coder-1").await;
    bed.is(200, "POST", &format!("/api/tasks/{task}/pause"), worker, none.clone()).await;
    tokio::time::pause();
    for path in [
        "/api/paused-tasks",
        "/cancelled-tasks",
        "/api/tasks",
        &format!("/api/tasks/{task}"),
        "/api/active-sessions",
        "/api/agents",
        "/api/stats",
        "/api/concurrent-context",
    ] {
        let answer = bed.is(503, "GET", path, worker, none.clone()).await;
        assert_eq!(answer["code"], "unavailable", "{path}: {answer}");
        assert!(answer["error"].is_string() && answer["retryAfterMs"].is_number(), "{path}: {answer}");
    }
    let me = bed.is(200, "GET", "/me", worker, none.clone()).await;
    assert_eq!(me["capacity"]["current"], 0, "what the pool itself knows is told: {me}");
    tokio::time::resume();
    drop(hold);
    let kept = bed.is(200, "GET", "/api/paused-tasks", worker, none).await;
    assert_eq!(kept["tasks"][0]["id"], json!(task));
}

#[tokio::test]
async fn a_list_of_tasks_goes_on_behind_the_first_thousand() {
    let bed = Bed::swarm().await;
    let make = |number: usize| bed.task(json!({ "task": format!("task {number}"), "tags": ["many"] }));
    // Nobody has more than some hundred calls under way.
    for some in (0..1003).collect::<Vec<_>>().chunks(100) {
        futures::future::join_all(some.iter().map(|number| make(*number))).await;
    }
    bed.task(json!({ "task": "a sign of life", "tags": ["heartbeat"] })).await;
    bed.task(json!({ "task": "another", "taskType": "heartbeat" })).await;
    let page = bed.is(200, "GET", "/api/tasks?offset=1001&limit=5", None, Value::Null).await;
    assert_eq!((&page["total"], page["tasks"].as_array().unwrap().len()), (&json!(1003), 2));
    let all = bed.is(200, "GET", "/api/tasks?includeHeartbeat=true&limit=0", None, Value::Null).await;
    assert_eq!((&all["total"], &all["tasks"]), (&json!(1005), &json!([])));
    let found = bed.is(200, "GET", "/api/tasks?search=task%20100&limit=2", None, Value::Null).await;
    assert_eq!((&found["total"], found["tasks"].as_array().unwrap().len()), (&json!(4), 2));
}

#[tokio::test]
async fn tasks_outlive_their_epic_and_name_none_then() {
    let (bed, none) = (Bed::swarm().await, Value::Null);
    let mut epics = Vec::new();
    for name in ["Ship", "Sell"] {
        let epic = json!({ "name": name, "goal": "out" });
        let epic = bed.is(201, "POST", "/api/epics", Some(LEAD), epic).await;
        epics.push(epic["id"].as_str().unwrap().to_owned());
    }
    let part = |epic: &str| json!({ "task": format!("a part of {epic}"), "epicId": epic });
    let [lost, kept] = [bed.task(part(&epics[0])).await, bed.task(part(&epics[1])).await];
    bed.is(200, "DELETE", &format!("/api/epics/{}", epics[0]), Some(LEAD), none.clone()).await;
    let operator = Principal::named("operator", Role::Operator);
    let wanted = views::Wanted { view: "tasks", ..views::Wanted::default() };
    let lists = [
        bed.is(200, "GET", "/api/tasks", None, none.clone()).await["tasks"].take(),
        bed.service.show(&operator, &Resource::All(Sort::Tasks)).await.unwrap()["tasks"].take(),
        Value::Array(bed.service.rows(&operator, wanted).await.unwrap().rows),
    ];
    for (task, epic) in [(lost, None), (kept, Some(&json!(epics[1])))] {
        let shown = bed.is(200, "GET", &format!("/api/tasks/{task}"), None, none.clone()).await;
        assert_eq!(shown.get("epicId"), epic, "{shown}");
        for list in &lists {
            let row = list.as_array().unwrap().iter().find(|row| row["id"] == task.as_str()).unwrap();
            assert_eq!(row.get("epicId"), epic, "{row}");
        }
    }
}

#[tokio::test]
async fn the_sessions_of_an_agent_are_listed_however_many_others_have() {
    let bed = Bed::swarm().await;
    let rare = bed.task(json!({ "task": "what can wait", "agentId": WORKER, "priority": 1 })).await;
    assert_eq!(bed.poll(WORKER).await["taskId"], json!(rare));
    for number in 1..=5 {
        let other = Uuid::from_u128(number);
        let joining = json!({ "name": format!("other-{number}"), "maxTasks": 20 });
        bed.is(201, "POST", "/api/agents", Some(other), joining).await;
        for of_twenty in 1..=20 {
            let text = format!("task {of_twenty} of {number}");
            let task = bed.task(json!({ "task": text, "agentId": other })).await;
            assert_eq!(bed.poll(other).await["taskId"], json!(task));
            // Until it tells of a session it is given the same again.
            let session = json!({ "agentId": other, "taskId": task, "triggerType": "task_assigned" });
            bed.is(201, "POST", "/api/active-sessions", Some(other), session).await;
        }
    }
    let sessions = async |query: &str| {
        let path = format!("/api/active-sessions{query}");
        let mut answer = bed.is(200, "GET", &path, None, Value::Null).await;
        let Value::Array(sessions) = answer["sessions"].take() else { panic!("{answer}") };
        sessions
    };
    let own = sessions(&format!("?agentId={WORKER}")).await;
    let named: Vec<_> = own.iter().map(|session| (&session["taskId"], &session["agentId"])).collect();
    assert_eq!(named, [(&json!(rare), &json!(WORKER))]);
    let all = sessions("").await;
    assert!(all.len() == 100 && all.iter().all(|session| session["taskId"] != rare), "{all:?}");
}
