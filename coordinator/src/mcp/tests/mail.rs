//! Mail: whose an inbox is, and what becomes of a letter.

use skein_shared::inboxes::{self, Deliver, Inboxes};
use skein_shared::mail::{Command, Ids, Letter, Mail};
use skein_shared::pool::{self, Pool};

use super::*;

fn inbox(action: &str, id: &str) -> Value {
    json!({ "action": action, "inboxId": id })
}

/// Somebody writes, and no agent waits for it.
async fn write(face: &Face, inbox: &str, thread: &str, text: &str) {
    let ids = Ids { inbox: inbox.to_owned(), message: text.to_owned(), thread: Some(thread.to_owned()) };
    let letter =
        Letter { ids, from: "ada@example.org".to_owned(), subject: String::new(), text: text.to_owned() };
    let key = EntityKey::of(Kind::Mail, &Name::parse("default").unwrap());
    let request = entity::Request::once(Uuid::now_v7());
    face.service.entities().ask::<Mail>(&key, request, Command::Receive(Box::new(letter))).await.unwrap();
}

/// The task whose text has the words, as soon as there is one.
async fn task(face: &Face, agent: &Agent, words: &str) -> Value {
    let look = async {
        loop {
            let found = face.facts(agent, "get-tasks", json!({ "search": words })).await;
            if let Some(task) = found["tasks"].as_array().and_then(|tasks| tasks.first()) {
                let id = json!({ "taskId": task["id"] });
                return face.facts(agent, "get-task-details", id).await["task"].clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), look).await.expect("no task came of the letter")
}

/// The message of the lead's inbox that somebody's letter becomes.
async fn letter(face: &Face, lead: &Agent, thread: &str, text: &str) -> Value {
    let look = json!({ "for": ["messages"], "timeout_s": 0 });
    let cursor = face.facts(lead, "wait", look).await["cursor"].clone();
    write(face, "nobody@agentmail.to", thread, text).await;
    let wait = json!({ "for": ["messages"], "timeout_s": 40, "cursor": cursor, "format": "rows" });
    let woken = face.facts(lead, "wait", wait).await;
    json!({ "inboxMessageId": woken["changed"][0]["id"] })
}

/// What the lead is shown of its inbox, as soon as so many messages are open in it.
async fn inbox_of(face: &Face, lead: &Agent, count: usize) -> Vec<Value> {
    let look = async {
        loop {
            let found = face.facts(lead, "get-inbox-message", json!({})).await;
            let shown = found["inboxMessages"].as_array().unwrap().clone();
            if found["openInboxMessages"] == json!(count) && shown.len() == count.min(5) {
                return shown;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), look).await.expect("the inbox has other messages")
}

fn answer(message: &Value, text: &str) -> Value {
    json!({ "inboxMessageId": message["id"], "message": text })
}

#[tokio::test]
async fn a_letter_can_be_ended_although_it_has_no_thread_in_slack() {
    let (face, lead, worker) = swarm().await;
    let message = letter(&face, &lead, "t1", "help").await;
    let ended = answer(&json!({ "id": message["inboxMessageId"] }), "answered by mail");
    let foreign = face.call(&worker, "slack-reply", ended.clone()).await;
    assert_eq!(foreign["structuredContent"]["code"], "not_found", "{foreign}");
    let said = face.facts(&lead, "slack-reply", ended.clone()).await["message"].clone();
    assert!(said.as_str().unwrap().contains("nothing was sent"), "{said}");
    let read = face.facts(&lead, "get-inbox-message", message).await["inboxMessage"].clone();
    assert_eq!((&read["status"], &read["responseText"]), (&json!("responded"), &json!("answered by mail")));
    assert!(inbox_of(&face, &lead, 0).await.is_empty());
    let again = face.call(&lead, "slack-reply", ended).await;
    assert_eq!(again["structuredContent"]["code"], "not_found", "{again}");
}

#[tokio::test]
async fn a_fresh_session_of_the_lead_finds_what_came_before_it() {
    let (face, lead, _) = swarm().await;
    let joins = json!({ "name": "Lead", "lead": true });
    let nothing = face.facts(&lead, "join-swarm", joins.clone()).await;
    assert_eq!(nothing.get("openInboxMessages"), None, "{nothing}");
    for number in 1..=6 {
        let text = format!("letter {number} {}", "x".repeat(2000));
        write(&face, "nobody@agentmail.to", &format!("t{number}"), &text).await;
        inbox_of(&face, &lead, number).await;
    }
    let fresh = face.agent("lead", Role::Lead);
    for (tool, arguments) in [("join-swarm", joins), ("my-agent-info", json!({}))] {
        let told = face.facts(&fresh, tool, arguments).await;
        assert_eq!(told["openInboxMessages"], 6, "{told}");
        assert!(told["message"].as_str().unwrap().contains("get-inbox-message"), "{told}");
    }
    let oldest = inbox_of(&face, &fresh, 6).await;
    for (number, message) in (1..).zip(&oldest) {
        let content = message["content"].as_str().unwrap();
        assert!(content.contains(&format!("letter {number} ")), "{content}");
        assert!(content.chars().count() <= 1001 && content.ends_with('…'), "it is shown in part: {content}");
    }
    let operator = face.agent("operator", Role::Operator);
    let told = face.facts(&operator, "get-inbox-message", json!({})).await;
    assert_eq!((&told["openInboxMessages"], &told["inboxMessages"]), (&json!(6), &json!([])));
    assert!(
        told["message"].as_str().unwrap().starts_with("6 messages of the lead's inbox are open"),
        "{told}"
    );
    face.facts(&fresh, "slack-reply", answer(&oldest[0], "answered")).await;
    assert_eq!(inbox_of(&face, &fresh, 5).await[0]["id"], oldest[1]["id"]);
}

#[tokio::test]
async fn what_a_lead_that_left_has_not_answered_is_the_next_ones() {
    let (face, lead, worker) = swarm().await;
    write(&face, "nobody@agentmail.to", "t1", "help").await;
    let left = inbox_of(&face, &lead, 1).await;
    let key = EntityKey::of(Kind::Pool, &Name::parse("default").unwrap());
    let request = entity::Request::once(Uuid::now_v7());
    let leave = pool::Command::Leave { agent: lead.id };
    face.service.entities().ask::<Pool>(&key, request, leave).await.unwrap();

    let next = face.agent("next", Role::Lead);
    let told = face.facts(&next, "join-swarm", json!({ "name": "Next", "lead": true })).await;
    assert_eq!(told["openInboxMessages"], 1, "{told}");
    let found = inbox_of(&face, &next, 1).await;
    assert_eq!((&found[0]["id"], &found[0]["agentId"]), (&left[0]["id"], &json!(next.id)));
    let work = json!({ "inboxMessageId": found[0]["id"], "agentId": worker.id });
    let made = face.facts(&next, "inbox-delegate", work).await["task"].clone();
    assert_eq!(made["agentmailThreadId"], "t1", "{made}");
}

#[tokio::test]
async fn a_message_is_delegated_once_and_not_at_all_when_the_pool_refuses() {
    let (face, lead, worker) = swarm().await;
    face.facts(&lead, "send-task", json!({ "task": "something else", "agentId": worker.id })).await;
    face.facts(&worker, "poll-task", json!({})).await;
    let message = letter(&face, &lead, "t1", "help").await;
    let delegate = async |message: &Value, words: &str, again: bool| {
        let mut of = message.clone();
        of.as_object_mut().unwrap().extend([
            ("agentId".to_owned(), json!(worker.id)),
            ("taskDescription".to_owned(), json!(words)),
            ("allowDuplicate".to_owned(), json!(again)),
        ]);
        face.call(&lead, "inbox-delegate", of).await["structuredContent"].clone()
    };
    let tasks = async || {
        let mine = face.facts(&worker, "get-tasks", json!({ "mineOnly": true })).await;
        mine["tasks"].as_array().unwrap().len()
    };
    // The worker has as much as it may have, and gets it all the same.
    let made = delegate(&message, "answer the person", false).await;
    assert_eq!((&made["success"], &made["task"]["status"]), (&json!(true), &json!("pending")), "{made}");
    assert_eq!((&made["task"]["creatorAgentId"], tasks().await), (&json!(lead.id), 2));
    let again = delegate(&message, "clean the other house", true).await;
    assert_eq!((&again["code"], tasks().await), (&json!("not_found"), 2));

    let second = letter(&face, &lead, "t2", "help me too").await;
    let refused = delegate(&second, "answer the person", false).await;
    assert_eq!((&refused["code"], tasks().await), (&json!("duplicate"), 2), "{refused}");
    let unread = face.facts(&lead, "get-inbox-message", second.clone()).await["inboxMessage"].clone();
    assert_eq!((&unread["status"], unread.get("delegatedToTaskId")), (&json!("unread"), None));
    let made = delegate(&second, "answer the person", true).await;
    assert_eq!((&made["success"], tasks().await), (&json!(true), 3), "{made}");
    let delegated = face.facts(&lead, "get-inbox-message", second).await["inboxMessage"].clone();
    assert_eq!(delegated["delegatedToTaskId"], made["task"]["id"]);
}

#[tokio::test]
async fn the_task_of_a_notice_says_that_it_is_the_swarms_own() {
    let (face, lead, worker) = swarm().await;
    let notice = Deliver {
        agent: lead.id,
        content: "some tasks can never start".to_owned(),
        source: inboxes::Source::System,
        slack: inboxes::Slack::default(),
        mail: None,
        dedupe: None,
    };
    let key = EntityKey::of(Kind::Inboxes, &Name::parse("default").unwrap());
    let (request, deliver) =
        (entity::Request::once(Uuid::now_v7()), inboxes::Command::Deliver(Box::new(notice)));
    let delivered = face.service.entities().ask::<Inboxes>(&key, request, deliver).await.unwrap();
    let inboxes::Reply::Delivered { message, .. } = delivered else { panic!("{delivered:?}") };
    let work = json!({ "inboxMessageId": message, "agentId": worker.id });
    let made = face.facts(&lead, "inbox-delegate", work).await["task"].clone();
    assert_eq!((&made["source"], made.get("slackChannelId")), (&json!("system"), None), "{made}");
}

#[tokio::test]
async fn an_inbox_belongs_to_one_agent_and_only_the_lead_takes_it_over() {
    let (face, lead, worker) = swarm().await;
    let other = face.agent("other", Role::Worker);
    let tool = "register-agentmail-inbox";
    let stranger = face.call(&other, tool, inbox("register", "dev@agentmail.to")).await;
    assert_eq!(stranger["structuredContent"]["code"], "not_joined");
    face.facts(&other, "join-swarm", json!({ "name": "Other" })).await;

    let made = face
        .facts(
            &worker,
            tool,
            json!({ "action": "register", "inboxId": "dev@agentmail.to", "inboxEmail": "dev@agentmail.to" }),
        )
        .await;
    assert_eq!(made["mappings"][0]["agentId"], json!(worker.id));
    assert_eq!(made["mappings"][0]["inboxEmail"], "dev@agentmail.to");
    for action in ["register", "unregister"] {
        let refused = face.call(&other, tool, inbox(action, "Dev@agentmail.to")).await;
        assert_eq!(refused["structuredContent"]["code"], "forbidden", "{refused}");
    }
    let none = face.facts(&other, tool, json!({ "action": "list" })).await;
    assert_eq!(none["mappings"], json!([]));
    face.facts(&lead, tool, inbox("register", "dev@agentmail.to")).await;
    let left = face.facts(&worker, tool, json!({ "action": "list" })).await;
    assert_eq!(left["mappings"], json!([]));
    face.facts(&lead, tool, inbox("unregister", "dev@agentmail.to")).await;
    for (arguments, code) in [
        (inbox("unregister", "dev@agentmail.to"), "not_found"),
        (json!({ "action": "register" }), "invalid_argument"),
        (json!({ "action": "steal" }), "invalid_argument"),
    ] {
        let refused = face.call(&lead, tool, arguments).await;
        assert_eq!(refused["structuredContent"]["code"], code, "{refused}");
    }
}

#[tokio::test]
async fn a_letter_becomes_a_task_of_its_worker_and_a_message_of_the_lead_and_its_thread_follows() {
    let (face, lead, worker) = swarm().await;
    face.facts(&worker, "register-agentmail-inbox", inbox("register", "dev@agentmail.to")).await;
    write(&face, "dev@agentmail.to", "t1", "it-does-not-start").await;
    let first = task(&face, &worker, "it-does-not-start").await;
    assert_eq!((&first["agentId"], &first["source"]), (&json!(worker.id), &json!("agentmail")));
    assert_eq!(
        (&first["taskType"], &first["agentmailThreadId"]),
        (&json!("agentmail-message"), &json!("t1"))
    );

    let message = letter(&face, &lead, "t2", "who-reads-this").await;
    let read = face.facts(&lead, "get-inbox-message", message.clone()).await["inboxMessage"].clone();
    assert_eq!((&read["source"], &read["agentmailThreadId"]), (&json!("agentmail"), &json!("t2")));

    let mut delegation = message;
    delegation["agentId"] = json!(worker.id);
    delegation["taskDescription"] = json!("answer the person");
    let delegated = face.facts(&lead, "inbox-delegate", delegation).await["task"].clone();
    assert_eq!((&delegated["source"], &delegated["agentmailThreadId"]), (&json!("agentmail"), &json!("t2")));
    write(&face, "nobody@agentmail.to", "t2", "thanks-and-more").await;
    let reply = task(&face, &worker, "thanks-and-more").await;
    assert_eq!((&reply["agentId"], &reply["taskType"]), (&json!(worker.id), &json!("agentmail-reply")));
    assert_eq!(reply["parentTaskId"], delegated["id"]);
}
