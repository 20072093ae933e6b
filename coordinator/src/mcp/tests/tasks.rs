//! Lists, logs and marks.

use std::collections::BTreeSet;

use skein_shared::time::Timestamp;

use super::*;
use crate::service::tasks::OFFERS;
use crate::store::TrimPlan;
use crate::store::conformance::nothing;

#[tokio::test]
async fn lists_are_ordered_and_filtered_before_they_are_cut() {
    let (face, lead, worker) = swarm().await;
    let make = async |text: &str, priority: u32, depends: Value| {
        let task = json!({ "action": "create", "task": text, "priority": priority, "dependsOn": depends });
        face.facts(&lead, "task-action", task).await["task"]["id"].clone()
    };
    let blocker = make("lay 100% of the pipes", 10, json!([])).await;
    for number in 0..30 {
        make(&format!("blocked {number}"), 90, json!([blocker])).await;
    }
    let urgent = make("lay 100 bricks", 70, json!([])).await;
    let ids = |found: &Value| -> Vec<Value> {
        found["tasks"].as_array().unwrap().iter().map(|task| task["id"].clone()).collect()
    };
    let ready = face.facts(&worker, "get-tasks", json!({ "readyOnly": true, "limit": 2 })).await;
    assert_eq!(ids(&ready), [urgent.clone(), blocker.clone()]);
    let literal = face.facts(&worker, "get-tasks", json!({ "search": "100%" })).await;
    assert_eq!(ids(&literal), std::slice::from_ref(&blocker));
    let cased = face.facts(&worker, "get-tasks", json!({ "search": "LAY 100" })).await;
    assert_eq!(ids(&cased), [urgent.clone(), blocker.clone()]);
    assert_eq!(ids(&face.facts(&worker, "get-tasks", json!({ "mineOnly": true })).await), [Value::Null; 0]);
    face.facts(&worker, "task-action", json!({ "action": "claim", "taskId": urgent })).await;
    assert_eq!(
        ids(&face.facts(&worker, "get-tasks", json!({ "mineOnly": true })).await),
        std::slice::from_ref(&urgent)
    );
    let offer = json!({ "task": "paint it", "agentId": worker.id, "offerMode": true });
    let offered = face.facts(&lead, "send-task", offer).await["task"]["id"].clone();
    let offers = json!({ "offeredToMe": true });
    assert_eq!(ids(&face.facts(&worker, "get-tasks", offers.clone()).await), std::slice::from_ref(&offered));
    face.facts(&worker, "task-action", json!({ "action": "accept", "taskId": offered })).await;
    assert_eq!(ids(&face.facts(&worker, "get-tasks", offers).await), [Value::Null; 0]);
}

#[tokio::test]
async fn a_list_of_long_tasks_shows_the_beginning_of_each() {
    let (face, lead, worker) = swarm().await;
    let make = async |number: u32| {
        let text = format!("{number} {}", "long ".repeat(12_000));
        let task = json!({ "action": "create", "task": text });
        face.facts(&lead, "task-action", task).await["task"]["id"].clone()
    };
    let length = |text: &Value| text.as_str().unwrap_or_default().len();
    let first = make(0).await;
    let one = face.facts(&worker, "get-tasks", json!({})).await;
    assert_eq!((length(&one["tasks"][0]["task"]), &one["warning"]), (60_002, &Value::Null));

    for number in 1..10 {
        make(number).await;
    }
    face.facts(&worker, "task-action", json!({ "action": "claim", "taskId": first })).await;
    let report = json!({ "taskId": first, "progress": "further ".repeat(9000) });
    face.facts(&worker, "store-progress", report).await;
    let answer = face.call(&worker, "get-tasks", json!({})).await;
    let ten = &answer["structuredContent"];
    assert_eq!(ten["tasks"].as_array().unwrap().len(), 10);
    assert!(ten.to_string().len() < 64 * 1024, "{} bytes", ten.to_string().len());
    let told = [&ten["warning"], &answer["content"][0]["text"]].map(|told| told.as_str().unwrap_or_default());
    assert!(told.iter().all(|told| told.contains("get-task-details shows one task whole")), "{told:?}");
    let whole = face.facts(&worker, "get-task-details", json!({ "taskId": first })).await;
    assert_eq!((length(&whole["task"]["task"]), length(&whole["task"]["progress"])), (60_002, 72_000));
}

#[tokio::test]
async fn a_list_is_cut_for_the_texts_alone_that_are_wanted() {
    let (face, lead, worker) = swarm().await;
    for number in 0..2 {
        let task = json!({ "action": "create", "task": format!("{number} {}", "long ".repeat(12_000)) });
        face.facts(&lead, "task-action", task).await;
    }
    let list = async |fields: &[&str], format: &str| {
        let answer = face.call(&worker, "get-tasks", json!({ "fields": fields, "format": format })).await;
        let facts = answer["structuredContent"].clone();
        let is_told = answer["content"][0]["text"].as_str().unwrap_or_default().contains("cut: ");
        assert_eq!(facts["warning"].is_string(), is_told, "{answer}");
        (facts["tasks"].to_string().len(), is_told)
    };
    for format in ["rows", "columns"] {
        let (_, is_told) = list(&["id", "status", "progress"], format).await;
        assert!(!is_told, "nothing of these is cut");
        let (length, is_told) = list(&["id", "task"], format).await;
        assert!(is_told && length < 2000, "{length}");
    }
}

#[tokio::test]
async fn a_task_is_ready_though_what_it_waited_for_is_no_longer_kept() {
    let (face, lead, worker) = swarm().await;
    let make = async |text: &str, depends: Value| {
        let task = json!({ "action": "create", "task": text, "dependsOn": depends });
        face.facts(&lead, "task-action", task).await["task"]["id"].clone()
    };
    let (pipes, gold) = (make("lay the pipes", json!([])).await, make("dig for gold", json!([])).await);
    let water = make("let the water in", json!([pipes])).await;
    let palace = make("buy a palace", json!([gold])).await;
    face.facts(&worker, "task-action", json!({ "action": "claim", "taskId": pipes })).await;
    face.facts(&worker, "store-progress", json!({ "taskId": pipes, "status": "completed" })).await;
    face.facts(&lead, "cancel-task", json!({ "taskId": gold })).await;
    let entities = face.service.entities();
    let trimmed = entities.forget(&everything_that_is_over(face.clock.now())).await.unwrap();
    assert!(trimmed.documents >= 2, "{trimmed:?}");
    let ready = async || {
        let ready = face.facts(&worker, "get-tasks", json!({ "readyOnly": true })).await;
        let ids = ready["tasks"].as_array().unwrap().iter().map(|task| task["id"].clone());
        ids.collect::<Vec<_>>()
    };
    let now = ready().await;
    assert!(now.contains(&water) && !now.contains(&palace), "{now:?}");
    face.facts(&lead, "cancel-task", json!({ "taskId": palace })).await;
    let now = ready().await;
    assert!(now.contains(&water) && !now.contains(&palace), "{now:?}");
}

fn everything_that_is_over(now: Timestamp) -> TrimPlan {
    TrimPlan { now, archived_before: Timestamp::NEVER, ..nothing() }
}

#[tokio::test]
async fn a_poll_tells_all_that_there_is() {
    let (face, lead, worker) = swarm().await;
    let task = face.facts(&lead, "send-task", json!({ "task": "dig", "agentId": worker.id })).await;
    let first = face.facts(&worker, "poll-task", json!({})).await;
    assert_eq!((&first["task"]["id"], &first["redelivered"]), (&task["task"]["id"], &json!(false)));
    let again = face.facts(&worker, "poll-task", json!({})).await;
    assert_eq!((&again["task"]["id"], &again["redelivered"]), (&task["task"]["id"], &json!(true)));
    let end = json!({ "taskId": task["task"]["id"], "status": "completed", "output": "a hole" });
    face.facts(&worker, "store-progress", end).await;
    // Follow-ups are the lead's, so it polls as well.
    let follow_up = face.facts(&lead, "poll-task", json!({})).await;
    assert_eq!(follow_up["task"]["taskType"], "follow-up");
    let stranger = face.agent("stranger", Role::Worker);
    let stranger = face.call(&stranger, "poll-task", json!({})).await["structuredContent"].clone();
    assert_eq!((&stranger["code"], &stranger["success"]), (&json!("not_joined"), &json!(false)));
    assert_eq!(stranger["offeredTasks"], json!([]), "{stranger}");
    for count in ["offeredCount", "availableCount", "emptyPollCount", "waitedForSeconds"] {
        assert_eq!(stranger[count], 0, "{count}: {stranger}");
    }
}

#[tokio::test]
async fn a_poll_shows_the_oldest_offers_and_says_how_many_there_are() {
    const MORE: usize = 3;
    let (face, lead, worker) = swarm().await;
    let mut offered = BTreeSet::new();
    for number in 0..OFFERS + MORE {
        let offer = json!({
            "task": format!("paint wall {number}"), "agentId": worker.id, "offerMode": true, "allowDuplicate": true,
        });
        offered.insert(face.facts(&lead, "send-task", offer).await["task"]["id"].to_string());
    }
    for (shown, all) in [(OFFERS, OFFERS + MORE), (MORE, MORE)] {
        let polled = face.facts(&worker, "poll-task", json!({})).await;
        let said = polled["message"].as_str().unwrap();
        assert_eq!(polled["offeredCount"], all, "{polled}");
        assert!(said.starts_with(&format!("{all} tasks are offered to you")), "{said}");
        assert_eq!(said.contains(&format!("the oldest {shown};")), shown < all, "{said}");
        let offers = polled["offeredTasks"].as_array().unwrap();
        assert_eq!(offers.len(), shown, "{polled}");
        for offer in offers {
            assert!(offered.remove(&offer["id"].to_string()), "twice: {offer}");
            let reject = json!({ "action": "reject", "taskId": offer["id"], "reason": "busy" });
            face.facts(&worker, "task-action", reject).await;
        }
    }
    assert!(offered.is_empty(), "{offered:?}");
}

#[tokio::test]
async fn what_work_cost_is_taken_with_its_end_alone() {
    let (face, lead, worker) = swarm().await;
    let sent = face.facts(&lead, "send-task", json!({ "task": "dig", "agentId": worker.id })).await;
    face.facts(&worker, "poll-task", json!({})).await;
    let report = |part: &str, value: &str| {
        let mut report = json!({ "taskId": sent["task"]["id"], "costData": { "totalCostUsd": 0.5 } });
        report[part] = json!(value);
        report
    };
    let early = face.facts(&worker, "store-progress", report("progress", "half of it")).await;
    assert!(
        early["message"].as_str().is_some_and(|said| said.contains("give costData with the status")),
        "{early}"
    );
    assert_eq!(early["task"].get("costData"), None, "{early}");
    let ended = face.facts(&worker, "store-progress", report("status", "completed")).await;
    assert_eq!(ended["task"]["costData"]["totalCostUsd"], 0.5, "{ended}");
}

#[tokio::test]
async fn logs_come_oldest_first() {
    let (face, lead, worker) = swarm().await;
    let task =
        face.facts(&lead, "send-task", json!({ "task": "dig", "agentId": worker.id })).await["task"]["id"]
            .clone();
    face.facts(&worker, "poll-task", json!({})).await;
    for step in ["a", "b"] {
        face.facts(&worker, "store-progress", json!({ "taskId": task, "progress": step })).await;
    }
    let details = face.facts(&lead, "get-task-details", json!({ "taskId": task })).await;
    let kinds: Vec<&str> = details["logs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["eventType"].as_str().unwrap())
        .collect();
    assert_eq!(kinds.first(), Some(&"task_created"));
    assert_eq!(kinds.iter().filter(|kind| **kind == "task_progress").count(), 2, "{kinds:?}");
    let times: Vec<_> =
        details["logs"].as_array().unwrap().iter().map(|entry| entry["createdAt"].to_string()).collect();
    assert!(times.is_sorted(), "{times:?}");
    let offer = json!({ "task": "paint", "agentId": worker.id, "offerMode": true });
    let offered = face.facts(&lead, "send-task", offer).await["task"]["id"].clone();
    let details = face.facts(&lead, "get-task-details", json!({ "taskId": offered })).await;
    assert_eq!(details["logs"][0]["eventType"], "task_offered");
}

#[tokio::test]
async fn only_what_was_returned_is_marked_as_read() {
    let (face, lead, worker) = swarm().await;
    for text in ["one", "two", "three"] {
        face.facts(&lead, "post-message", json!({ "content": text })).await;
    }
    let texts = |read: &Value| -> Vec<String> {
        let messages = read["messages"].as_array().unwrap();
        messages.iter().map(|message| message["content"].as_str().unwrap().to_owned()).collect()
    };
    let peek = face.facts(&worker, "read-messages", json!({ "markAsRead": false })).await;
    assert_eq!(
        (texts(&peek), &peek["totalUnreadCount"]),
        (vec!["one".into(), "two".into(), "three".into()], &json!(3))
    );
    let own = face.facts(&lead, "read-messages", json!({})).await;
    assert_eq!(texts(&own), [""; 0]);
    let read =
        face.facts(&worker, "read-messages", json!({ "channel": "general", "unreadOnly": true })).await;
    assert_eq!((texts(&read).len(), &read["unreadCount"]), (3, &json!(0)));
    let offset = json!({ "since": "2026-01-01T00:00:00+02:00" });
    assert_eq!(face.call(&worker, "read-messages", offset).await["isError"], false);
    let bad = face.call(&worker, "read-messages", json!({ "since": "yesterday" })).await;
    assert_eq!(bad["isError"], true);
}

#[tokio::test]
async fn what_a_read_leaves_out_stays_unread() {
    let (face, lead, worker) = swarm().await;
    for number in 0..25 {
        let mentions = if number == 22 { json!([worker.id]) } else { json!([]) };
        let said = json!({ "content": format!("m{number}"), "mentions": mentions });
        face.facts(&lead, "post-message", said).await;
    }
    let read = async |arguments: Value| {
        let read = face.facts(&worker, "read-messages", arguments).await;
        let messages = read["messages"].as_array().unwrap().clone();
        let texts = messages.iter().map(|message| message["content"].as_str().unwrap().to_owned()).collect();
        (texts, read["totalUnreadCount"].clone(), read["message"].as_str().unwrap().to_owned())
    };
    let named = |numbers: &[u32]| -> Vec<String> { numbers.iter().map(|n| format!("m{n}")).collect() };
    let (texts, total, _): (Vec<String>, _, _) = read(json!({ "mentionsOnly": true })).await;
    assert_eq!((texts, total), (named(&[22]), json!(25)));
    let (texts, total, said) = read(json!({})).await;
    let newest: Vec<u32> = (4..25).filter(|number| *number != 22).collect();
    assert_eq!((texts, total), (named(&newest), json!(24)));
    assert!(said.contains("4 more are still unread"), "{said}");
    let (texts, total, _) = read(json!({})).await;
    assert_eq!((texts, total), (named(&[0, 1, 2, 3]), json!(4)));
    assert_eq!(read(json!({})).await.1, 0);
}

#[tokio::test]
async fn a_read_since_a_moment_leaves_what_came_before_unread() {
    let (face, lead, worker) = swarm().await;
    let mut times = Vec::new();
    while times.len() < 5 {
        let said = json!({ "content": format!("m{}", times.len()) });
        let posted = face.facts(&lead, "post-message", said).await;
        times.push(posted["posted"]["createdAt"].clone());
        // Each message has a moment of its own.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let texts = async |arguments: Value| {
        let read = face.facts(&worker, "read-messages", arguments).await;
        let messages = read["messages"].as_array().unwrap().iter();
        messages.map(|message| message["content"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(texts(json!({ "since": times[4] })).await, [""; 0]);
    assert_eq!(texts(json!({ "since": times[2], "channel": "general" })).await, ["m3", "m4"]);
    assert_eq!(texts(json!({ "since": times[0] })).await, ["m1", "m2"]);
    assert_eq!(texts(json!({})).await, ["m0"]);
}

#[tokio::test]
async fn the_tasks_of_a_message_can_be_read_as_soon_as_it_is_posted() {
    let (face, lead, worker) = swarm().await;
    for number in 0..20 {
        let order = json!({ "content": format!("/task part {number}"), "mentions": [worker.id, lead.id] });
        let posted = face.facts(&lead, "post-message", order).await;
        for task in posted["taskIds"].as_array().unwrap() {
            let details = face.facts(&worker, "get-task-details", json!({ "taskId": task })).await;
            assert_eq!(&details["task"]["id"], task);
        }
    }
}

#[tokio::test]
async fn the_next_task_is_claimed_by_tag_and_waited_for() {
    let (face, lead, worker) = swarm().await;
    let make = async |text: &str, priority: u32, tags: Value| {
        let task = json!({ "action": "create", "task": text, "priority": priority, "tags": tags });
        face.facts(&lead, "task-action", task).await["task"]["id"].clone()
    };
    make("paint it", 90, json!(["design"])).await;
    let rust = make("borrow it", 60, json!(["rust", "urgent"])).await;
    let got = face.facts(&worker, "task_claim_next", json!({ "tags": ["rust", "docs"] })).await;
    assert_eq!((&got["task"]["id"], &got["redelivered"]), (&rust, &json!(false)));
    assert_eq!(got["task"]["status"], "in_progress");
    let end = json!({ "taskId": rust, "status": "completed", "output": "done" });
    face.facts(&worker, "store-progress", end).await;
    let none = face.facts(&worker, "task_claim_next", json!({ "tags": ["docs"] })).await;
    assert_eq!(none.get("task"), None);
    // Nobody looks by itself here: whoever waits is woken by the task that comes.
    let wait = json!({ "tags": ["docs"], "wait_seconds": 60 });
    let (waited, made) =
        tokio::join!(face.facts(&worker, "task_claim_next", wait), make("write it", 10, json!(["docs"])));
    assert_eq!(waited["task"]["id"], made);
    let full = face.call(&worker, "task_claim_next", json!({})).await["structuredContent"].clone();
    assert_eq!((&full["task"]["id"], &full["redelivered"]), (&made, &json!(true)), "no report, given again");
}

#[tokio::test]
async fn routine_tasks_are_listed_for_those_alone_who_ask_and_make_no_page_short() {
    let (face, lead, _) = swarm().await;
    for (text, more) in [
        ("plain", json!({})),
        ("typed", json!({ "taskType": "heartbeat" })),
        ("other", json!({ "taskType": "chore", "tags": ["docs"] })),
        ("tagged", json!({ "tags": ["heartbeat"] })),
    ] {
        let mut task = more;
        task["task"] = json!(text);
        face.facts(&lead, "send-task", task).await;
    }
    let listed = async |arguments: Value| {
        let mut arguments = arguments;
        let mut found = Vec::new();
        loop {
            let page = face.facts(&lead, "get-tasks", arguments.clone()).await;
            let rows = page["tasks"]["rows"].as_array().unwrap();
            found.extend(rows.iter().map(|row| row[0].as_str().unwrap().to_owned()));
            match page["cursor"].as_str() {
                Some(next) => arguments["cursor"] = json!(next),
                None => break found,
            }
        }
    };
    let pages = json!({ "limit": 1, "format": "columns", "fields": ["task"] });
    let mut usual = listed(pages.clone()).await;
    usual.sort();
    assert_eq!(usual, ["other", "plain"]);
    let mut with_routine = pages;
    with_routine["includeHeartbeat"] = json!(true);
    let mut all = listed(with_routine).await;
    all.sort();
    assert_eq!(all, ["other", "plain", "tagged", "typed"]);
}

#[tokio::test]
async fn an_epic_says_how_many_tasks_it_has_whatever_part_of_them_is_shown() {
    let (face, lead, worker) = swarm().await;
    let epic = face.facts(&lead, "create-epic", json!({ "name": "Launch", "goal": "ship it" })).await;
    let epic = epic["epic"]["id"].clone();
    for text in ["quarry the stones", "mix mortar", "build"] {
        face.facts(&lead, "send-task", json!({ "task": text, "epicId": epic })).await;
    }
    let part = face.facts(&worker, "get-epic-details", json!({ "epicId": epic, "limit": 2 })).await;
    assert_eq!(part["tasks"].as_array().unwrap().len(), 2, "{part}");
    let message = part["message"].as_str().unwrap();
    assert!(message.starts_with("Epic Launch has 3 tasks and is "), "{message}");
}
