//! What only a lead is called to.

use skein_shared::id::{EntityKey, Kind};
use skein_shared::inboxes::{Command, Deliver, Inboxes, Slack, Source};

use super::*;
use crate::entity::Request as Asking;

impl Bed {
    async fn write_to_lead(&self, content: &str) {
        let slack = Slack { channel_id: Some("C1".to_owned()), ..Slack::default() };
        let deliver = Deliver {
            agent: LEAD,
            content: content.to_owned(),
            source: Source::Slack,
            slack,
            mail: None,
            dedupe: None,
        };
        let key = EntityKey::of(Kind::Inboxes, &Name::parse("default").unwrap());
        let asking = Asking::once(Uuid::now_v7());
        self.node.entities.ask::<Inboxes>(&key, asking, Command::Deliver(Box::new(deliver))).await.unwrap();
    }

    /// Polls until there is something: news of other entities come a moment after what they tell of.
    async fn summoned(&self, agent: Uuid) -> Value {
        let summoned = async {
            loop {
                let trigger = self.poll(agent).await;
                if !trigger.is_null() {
                    return trigger;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), summoned).await.unwrap()
    }
}

#[tokio::test]
async fn a_lead_is_given_its_letters_five_at_a_time_and_once() {
    let bed = Bed::swarm().await;
    for number in 0..6 {
        bed.write_to_lead(&format!("letter {number}")).await;
    }
    assert_eq!(bed.poll(WORKER).await, Value::Null);
    let trigger = bed.poll(LEAD).await;
    assert_eq!((&trigger["type"], &trigger["count"]), (&json!("slack_inbox_message"), &json!(5)));
    let messages = trigger["messages"].as_array().unwrap();
    let told: Vec<&Value> = messages.iter().map(|message| &message["content"]).collect();
    assert_eq!(told, ["letter 0", "letter 1", "letter 2", "letter 3", "letter 4"]);
    let first = &messages[0];
    assert_eq!((&first["status"], &first["slackChannelId"]), (&json!("processing"), &json!("C1")));
    let context = bed.is(200, "GET", "/api/concurrent-context", Some(LEAD), Value::Null).await;
    assert_eq!(context["processingInboxMessages"].as_array().unwrap().len(), 5);
    let trigger = bed.poll(LEAD).await;
    assert_eq!((&trigger["count"], &trigger["messages"][0]["content"]), (&json!(1), &json!("letter 5")));
    assert_eq!(bed.poll(LEAD).await, Value::Null);
}

#[tokio::test]
async fn a_lead_hears_once_of_what_ended_in_an_active_epic() {
    let bed = Bed::swarm().await;
    let epic = bed.is(201, "POST", "/api/epics", Some(LEAD), json!({ "name": "Ship", "goal": "out" })).await;
    let epic = epic["id"].as_str().unwrap();
    let path = format!("/api/epics/{epic}");
    bed.is(200, "PUT", &path, Some(LEAD), json!({ "status": "active" })).await;
    let mut tasks = Vec::new();
    for task in ["first half", "second half"] {
        tasks.push(bed.task(json!({ "task": task, "agentId": LEAD, "epicId": epic })).await);
    }
    // A lead's own tasks go before its news.
    for _ in &tasks {
        let trigger = bed.poll(LEAD).await;
        assert_eq!(trigger["type"], "task_assigned");
        let session = json!({ "agentId": LEAD, "taskId": trigger["taskId"] });
        bed.is(201, "POST", "/api/active-sessions", Some(LEAD), session).await;
    }
    bed.write_to_lead("read me first").await;
    let done = json!({ "status": "completed", "output": "half" });
    bed.is(200, "POST", &format!("/api/tasks/{}/finish", tasks[0]), Some(LEAD), done).await;
    assert_eq!(bed.poll(LEAD).await["type"], "slack_inbox_message");
    let trigger = bed.summoned(LEAD).await;
    assert_eq!((&trigger["type"], &trigger["count"]), (&json!("epic_progress_changed"), &json!(1)));
    let told = &trigger["epics"][0];
    assert_eq!((&told["epic"]["id"], &told["epic"]["progress"]), (&json!(epic), &json!(50)));
    assert_eq!(told["finishedTasks"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&told["finishedTasks"][0]["id"], &told["finishedTasks"][0]["output"]),
        (&json!(tasks[0]), &json!("half"))
    );
    assert_eq!(bed.poll(LEAD).await, Value::Null);
}
