//! What becomes of messages: their orders, and whom they mention.

use super::*;

#[tokio::test]
async fn an_order_goes_to_those_whom_its_parent_mentions_wherever_that_is() {
    let (face, lead, worker) = swarm().await;
    face.facts(&lead, "create-channel", json!({ "name": "side" })).await;
    let asked = json!({ "channel": "side", "content": "Who paints it?", "mentions": [worker.id] });
    let parent = face.facts(&lead, "post-message", asked).await["posted"]["id"].clone();
    let order = json!({ "content": "/task paint it", "replyTo": parent });
    let posted = face.facts(&lead, "post-message", order).await;
    let tasks = posted["taskIds"].as_array().unwrap();
    assert_eq!(tasks.len(), 1, "{posted}");
    let details = face.facts(&worker, "get-task-details", json!({ "taskId": tasks[0] })).await;
    assert_eq!(details["task"]["agentId"], json!(worker.id));

    let lost = json!({ "content": "/task dig", "replyTo": Uuid::from_u128(7) });
    let refused = face.call(&lead, "post-message", lost).await["structuredContent"].clone();
    assert_eq!(refused["code"], "not_found", "{refused}");
    let read = face.facts(&worker, "read-messages", json!({})).await;
    assert_eq!(read["messages"].as_array().unwrap().len(), 2, "what is refused is not posted: {read}");
}

#[tokio::test]
async fn whoever_orders_what_makes_no_task_is_told_so() {
    let (face, lead, worker) = swarm().await;
    let parent =
        face.facts(&lead, "post-message", json!({ "content": "Hello." })).await["posted"]["id"].clone();
    for order in [json!({ "content": "/task dig" }), json!({ "content": "/task dig", "replyTo": parent })] {
        let posted = face.facts(&lead, "post-message", order).await;
        let said = posted["message"].as_str().unwrap();
        assert!(said.contains("No task was made of it") && posted.get("taskIds").is_none(), "{posted}");
    }
    let order = json!({ "content": "/task dig", "mentions": [worker.id] });
    let said = face.facts(&lead, "post-message", order).await["message"].clone();
    assert_eq!(said, "Posted in general. 1 task was made of it.");
}

#[tokio::test]
async fn strangers_are_not_mentioned_and_the_author_is_told() {
    let (face, lead, worker) = swarm().await;
    let stranger = face.agent("stranger", Role::Worker);
    let said = json!({ "content": "Look.", "mentions": [worker.id, stranger.id] });
    let posted = face.facts(&lead, "post-message", said).await;
    assert_eq!(posted["posted"]["mentions"], json!([worker.id]));
    assert_eq!(posted["strangers"], json!([stranger.id]));
    let told = posted["message"].as_str().unwrap();
    assert!(told.contains("no members") && told.contains(&stranger.id.to_string()), "{told}");
    face.facts(&stranger, "join-swarm", json!({ "name": "Stranger" })).await;
    let read = face.facts(&stranger, "read-messages", json!({ "mentionsOnly": true })).await;
    assert_eq!(read["messages"], json!([]), "nobody mentioned it when it was no member");
}
