//! Mail: whose an inbox is, and what becomes of a letter.

use skein_shared::mail::{Command, Ids, Letter, Mail};

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
