//! What an answer names is there when the answer comes.

use skein_shared::pool::{self, Pool};

use super::*;

#[tokio::test]
async fn the_channel_of_a_new_epic_is_there() {
    let (face, lead, _) = swarm().await;
    let made = face.facts(&lead, "create-epic", json!({ "name": "Launch!", "goal": "Fly" })).await;
    assert_eq!(made["channel"]["name"], "epic-launch", "{made}");
    assert_eq!(made["channel"]["id"], made["epic"]["channelId"]);
    let listed = face.facts(&lead, "list-channels", json!({})).await;
    assert!(listed["channels"].as_array().unwrap().contains(&made["channel"]), "{listed}");
}

#[tokio::test]
async fn the_task_of_a_schedule_that_was_run_is_there() {
    let (face, lead, worker) = swarm().await;
    let schedule = json!({
        "name": "sweep", "taskTemplate": "sweep the floor", "intervalMs": 3_600_000, "targetAgentId": worker.id,
    });
    face.facts(&lead, "create-schedule", schedule).await;
    let ran = face.facts(&lead, "run-schedule-now", json!({ "name": "sweep" })).await;
    let task =
        face.facts(&lead, "get-task-details", json!({ "taskId": ran["taskId"] })).await["task"].clone();
    assert_eq!((&task["task"], &task["agentId"]), (&json!("sweep the floor"), &json!(worker.id)));
}

#[tokio::test]
async fn a_schedule_whose_task_the_pool_refuses_says_so_when_it_is_run() {
    let (face, lead, worker) = swarm().await;
    let schedule = json!({
        "name": "sweep", "taskTemplate": "sweep the floor", "intervalMs": 3_600_000, "targetAgentId": worker.id,
    });
    face.facts(&lead, "create-schedule", schedule).await;
    let key = EntityKey::of(Kind::Pool, &Name::parse("default").unwrap());
    let request = entity::Request::once(Uuid::now_v7());
    let leave = pool::Command::Leave { agent: worker.id };
    face.service.entities().ask::<Pool>(&key, request, leave).await.unwrap();

    let run = json!({ "name": "sweep" });
    let refused = face.call(&lead, "run-schedule-now", run.clone()).await["structuredContent"].take();
    assert_eq!((&refused["success"], &refused["code"]), (&json!(false), &json!("wrong_state")), "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("is not a member"), "{refused}");
    // The next one is not taken for refused by what the schedule says of this one.
    face.facts(&lead, "update-schedule", json!({ "name": "sweep", "targetAgentId": null })).await;
    let ran = face.facts(&lead, "run-schedule-now", run).await;
    let task = face.facts(&lead, "get-task-details", json!({ "taskId": ran["taskId"] })).await;
    assert_eq!(task["task"]["status"], "unassigned");
}

#[tokio::test]
async fn whoever_wants_a_channel_that_there_is_gets_that() {
    let (face, lead, worker) = swarm().await;
    let first = json!({ "name": "geese", "description": "About geese" });
    let first = face.facts(&lead, "create-channel", first).await["channel"].clone();
    let second = face.call(&worker, "create-channel", json!({ "name": "geese" })).await;
    let refused = &second["structuredContent"];
    assert_eq!((&second["isError"], &refused["success"]), (&json!(false), &json!(false)), "{second}");
    assert_eq!((&refused["code"], &refused["channel"]), (&json!("already_exists"), &first), "{second}");
    assert!(refused["message"].as_str().unwrap().contains("use it"), "{second}");
}
