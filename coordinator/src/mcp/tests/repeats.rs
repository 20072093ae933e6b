//! The same key: the same answer for the same arguments, a refusal for others.

use skein_shared::inboxes::{self, Inboxes};
use skein_shared::pool::{self, Pool};

use super::*;

/// Calls twice with one key and then once with other arguments, and gives both answers.
async fn twice(face: &Face, agent: &Agent, tool: &str, arguments: Value, others: Value) -> (Value, Value) {
    let keyed = |mut arguments: Value| {
        arguments["idempotency_key"] = json!("once");
        arguments
    };
    let first = face.call(agent, tool, keyed(arguments.clone())).await;
    assert_eq!(first["isError"], false, "{tool}: {first}");
    let second = face.call(agent, tool, keyed(arguments)).await;
    let refused = face.call(agent, tool, keyed(others)).await;
    assert_eq!(refused["structuredContent"]["code"], "idempotency_key_reused", "{tool}: {refused}");
    (first["structuredContent"].clone(), second["structuredContent"].clone())
}

#[tokio::test]
async fn a_key_stands_for_one_request_in_every_tool() {
    let (face, lead, worker) = swarm().await;
    let (first, second) =
        twice(&face, &lead, "send-task", json!({ "task": "one" }), json!({ "task": "another" })).await;
    assert_eq!(first, second);
    let task = first["task"]["id"].clone();

    let claim = json!({ "action": "claim", "taskId": task });
    let (first, second) =
        twice(&face, &worker, "task-action", claim, json!({ "action": "release", "taskId": task })).await;
    assert_eq!(first["success"], true, "{first}");
    assert_eq!(first, second);

    let key = |name: &str| json!({ "resource_key": format!("file:///{name}") });
    let (first, second) = twice(&face, &worker, "acquire_lock", key("a"), key("b")).await;
    assert_eq!((&first["ok"], &first), (&json!(true), &second));

    let other = face.agent("other", Role::Worker);
    face.facts(&other, "join-swarm", json!({ "name": "Other" })).await;
    let define = agent::Command::Define {
        definition: agent::Definition::default(),
        group: Name::parse("default").unwrap(),
    };
    face.tell("worker", define.clone()).await;
    face.tell("other", define).await;
    let call = |target: &str| json!({ "target_agent": target, "context": "sum" });
    let (first, second) = twice(&face, &lead, "call_agent", call("worker"), call("other")).await;
    assert!(first["call_id"].is_string(), "{first}");
    assert_eq!(first["call_id"], second["call_id"]);

    let post = |text: &str| json!({ "content": text });
    let (first, second) = twice(&face, &lead, "post-message", post("hello"), post("bye")).await;
    assert_eq!(first["posted"]["id"], second["posted"]["id"]);
    let read = face.facts(&worker, "read-messages", json!({})).await;
    assert_eq!(read["messages"].as_array().unwrap().len(), 1, "{read}");
}

/// An agent hears of a hand-made instance when it is first asked about it, and of one that has ended no more.
#[tokio::test]
async fn an_end_that_is_repeated_brings_no_instance_back() {
    let (face, _, worker) = swarm().await;
    let live = async || match face.tell("worker", agent::Command::List).await {
        agent::Reply::Overview(overview) => overview.instances.len(),
        other => panic!("no overview: {other:?}"),
    };
    assert_eq!(live().await, 0);
    face.facts(&worker, "set_status", json!({ "text": "here" })).await;
    face.facts(&worker, "set_status", json!({ "text": "still here" })).await;
    assert_eq!(live().await, 1);
    let (first, second) =
        twice(&face, &worker, "exit_run", json!({ "status": 0 }), json!({ "status": 1 })).await;
    assert_eq!((&first["status"], &first), (&json!(0), &second));
    assert_eq!(live().await, 0);
}

#[tokio::test]
async fn a_wait_is_gone_on_with_and_not_begun_again() {
    let (face, _, worker) = swarm().await;
    let wait = |timeout: &str| json!({ "type": "webhook", "event": "push", "timeout": timeout });
    let (first, second) = twice(&face, &worker, "wait_for_trigger", wait("50ms"), wait("1h")).await;
    assert_eq!((&first["code"], &second["code"]), (&json!("wait_timeout"), &json!("wait_timeout")));
}

#[tokio::test]
async fn a_repeated_task_is_the_same_whatever_became_of_its_dependencies() {
    let (face, lead, worker) = swarm().await;
    let make = async |text: &str| {
        face.facts(&lead, "send-task", json!({ "task": text, "agentId": worker.id })).await["task"]["id"]
            .clone()
    };
    let finish = async |task: &Value| {
        face.facts(&worker, "poll-task", json!({})).await;
        face.facts(&worker, "store-progress", json!({ "taskId": task, "status": "completed" })).await;
    };
    let ended = make("quarry the stones").await;
    finish(&ended).await;
    let open = make("mix mortar").await;
    let arguments = json!({ "task": "build", "dependsOn": [ended, open], "idempotency_key": "build" });
    let first = face.facts(&lead, "send-task", arguments.clone()).await;
    finish(&open).await;
    let second = face.facts(&lead, "send-task", arguments).await;
    assert_eq!(first["task"]["id"], second["task"]["id"]);
}

/// What the service looks up for a request may be another by the time of its repeat.
#[tokio::test]
async fn a_repeat_is_the_same_whatever_its_caller_is_called_by_then_and_whoever_leads() {
    let (face, lead, worker) = swarm().await;
    let keyed = |mut arguments: Value| {
        arguments["idempotency_key"] = json!("once");
        arguments
    };
    let said = [
        ("post-message", json!({ "content": "/task mend it", "mentions": [worker.id] }), "/posted/id"),
        ("ask_human", json!({ "question": "Red or blue?" }), "/question_id"),
    ];
    let ask = async || {
        let mut ids = Vec::new();
        for (tool, arguments, id) in &said {
            let answer = face.facts(&worker, tool, keyed(arguments.clone())).await;
            ids.push(answer.pointer(id).unwrap_or_else(|| panic!("{tool}: {answer}")).clone());
        }
        ids
    };
    let before = ask().await;
    face.facts(&worker, "update-profile", json!({ "name": "Renamed" })).await;
    assert_eq!(before, ask().await);

    let family = Uuid::now_v7();
    let (plain, _) = face.of_family("lead", Role::Worker, family);
    let (leading, _) = face.of_family("lead", Role::Lead, family);
    let schedule = json!({ "name": "sweep", "taskTemplate": "sweep up", "intervalMs": 3_600_000 });
    face.facts(&lead, "create-schedule", schedule).await;
    for (tool, arguments) in [
        ("set-config", json!({ "scope": "agent", "scopeId": lead.id, "key": "TONE", "value": "short" })),
        ("run-schedule-now", json!({ "name": "sweep" })),
        ("update-schedule", json!({ "name": "sweep", "enabled": false })),
        ("delete-schedule", json!({ "name": "sweep" })),
    ] {
        let first = face.facts(&plain, tool, keyed(arguments.clone())).await;
        assert_eq!(first, face.facts(&leading, tool, keyed(arguments)).await, "{tool}");
    }
}

#[tokio::test]
async fn a_call_through_the_finder_keeps_its_key() {
    let (face, lead, _) = swarm().await;
    let call = |goal: &str| {
        json!({
            "name": "create-epic", "arguments": { "name": "Launch", "goal": goal }, "idempotency_key": "e",
        })
    };
    let first = face.facts(&lead, "tools_call", call("ship")).await;
    let second = face.facts(&lead, "tools_call", call("ship")).await;
    assert_eq!(first["epic"]["id"], second["epic"]["id"]);
    let other = face.call(&lead, "tools_call", call("wait")).await;
    assert_eq!(other["structuredContent"]["code"], "idempotency_key_reused", "{other}");
}

#[tokio::test]
async fn a_repeat_is_answered_though_what_it_named_has_gone_since() {
    let (face, lead, worker) = swarm().await;
    let keyed = |mut arguments: Value, key: &str| {
        arguments["idempotency_key"] = json!(key);
        arguments
    };
    let epic = face.facts(&lead, "create-epic", json!({ "name": "Launch", "goal": "ship it" })).await;
    let epic = epic["epic"]["id"].clone();
    let fly = json!({ "task": "fly", "epicId": epic });
    let sent = face.facts(&lead, "send-task", keyed(fly.clone(), "first")).await["task"]["id"].clone();
    face.facts(&worker, "task-action", json!({ "action": "claim", "taskId": sent })).await;
    let where_to = json!({ "question": "Where to?", "task_id": sent });
    let asked =
        face.facts(&worker, "ask_human", keyed(where_to.clone(), "first")).await["question_id"].clone();

    face.facts(&lead, "delete-epic", json!({ "epicId": epic })).await;
    face.facts(&worker, "task-action", json!({ "action": "release", "taskId": sent })).await;
    let again = face.facts(&lead, "send-task", keyed(fly.clone(), "first")).await;
    assert_eq!(again["task"]["id"], sent, "{again}");
    let again = face.facts(&worker, "ask_human", keyed(where_to.clone(), "first")).await;
    assert_eq!(again["question_id"], asked, "{again}");
    // What is asked for the first time is refused.
    let refused = face.call(&lead, "send-task", keyed(fly, "second")).await;
    assert_eq!(refused["structuredContent"]["code"], "not_found", "{refused}");
    let refused = face.call(&worker, "ask_human", keyed(where_to, "second")).await;
    assert_eq!(refused["structuredContent"]["code"], "forbidden", "{refused}");
}

/// A person has written to the lead.
async fn written(face: &Face, lead: &Agent) -> Uuid {
    let deliver = inboxes::Command::Deliver(Box::new(inboxes::Deliver {
        agent: lead.id,
        content: "help".to_owned(),
        source: inboxes::Source::Slack,
        slack: inboxes::Slack::default(),
        mail: None,
        dedupe: None,
    }));
    let key = EntityKey::of(Kind::Inboxes, &Name::parse("default").unwrap());
    let request = entity::Request::once(Uuid::now_v7());
    match face.service.entities().ask::<Inboxes>(&key, request, deliver).await.unwrap() {
        inboxes::Reply::Delivered { message, .. } => message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_repeat_is_answered_though_the_agent_that_it_names_has_left_since() {
    let (face, lead, worker) = swarm().await;
    let keyed = |mut arguments: Value, key: &str| {
        arguments["idempotency_key"] = json!(key);
        arguments
    };
    let (id, message) = (worker.id, written(&face, &lead).await);
    let sweep =
        json!({ "name": "sweep", "taskTemplate": "sweep up", "intervalMs": 3_600_000, "targetAgentId": id });
    let teach = json!({ "agentId": id, "learning": "pin the compiler", "category": "best-practice" });
    let done = [
        ("create-schedule", sweep, "/schedule/id"),
        ("update-schedule", json!({ "name": "sweep", "targetAgentId": id }), "/schedule/targetAgentId"),
        ("create-epic", json!({ "name": "Launch", "goal": "ship it", "leadAgentId": id }), "/epic/id"),
        ("update-epic", json!({ "name": "Launch", "leadAgentId": id }), "/epic/leadAgentId"),
        ("inject-learning", teach, "/memoryId"),
        ("inbox-delegate", json!({ "inboxMessageId": message, "agentId": id }), "/task/id"),
    ];
    let ask = async || {
        let mut named = Vec::new();
        for (tool, arguments, what) in &done {
            let answer = face.facts(&lead, tool, keyed(arguments.clone(), "first")).await;
            named.push(answer.pointer(what).unwrap_or_else(|| panic!("{tool}: {answer}")).clone());
        }
        named
    };
    let before = ask().await;
    let key = EntityKey::of(Kind::Pool, &Name::parse("default").unwrap());
    let request = entity::Request::once(Uuid::now_v7());
    let leave = pool::Command::Leave { agent: id };
    face.service.entities().ask::<Pool>(&key, request, leave).await.unwrap();
    assert_eq!(before, ask().await);
    // What is asked for the first time is refused, and so is what is another request.
    let another = Uuid::now_v7();
    for (tool, arguments, _) in done {
        let refused = face.call(&lead, tool, keyed(arguments.clone(), "second")).await;
        let told = &refused["structuredContent"];
        assert_eq!(told["code"], "not_found", "{tool}: {refused}");
        assert!(told["message"].as_str().unwrap().contains("there is no agent"), "{tool}: {refused}");
        let others = arguments.to_string().replace(&id.to_string(), &another.to_string());
        let others = keyed(serde_json::from_str(&others).unwrap(), "first");
        let refused = face.call(&lead, tool, others).await;
        assert_eq!(refused["structuredContent"]["code"], "idempotency_key_reused", "{tool}: {refused}");
    }
}

/// An agent that has left means the same to it, also where another one has its name by then.
#[tokio::test]
async fn a_repeat_means_by_a_name_whom_it_has_meant_before() {
    let (face, lead, worker) = swarm().await;
    let keyed = |mut arguments: Value, key: &str| {
        arguments["idempotency_key"] = json!(key);
        arguments
    };
    let sweep = json!({
        "name": "sweep", "taskTemplate": "sweep up", "intervalMs": 3_600_000, "targetAgentId": "Worker",
    });
    let teach = json!({ "agentId": "Worker", "learning": "pin the compiler", "category": "best-practice" });
    let tone = json!({ "scope": "agent", "scopeId": "Worker", "key": "TONE", "value": "short" });
    let done = [
        ("create-schedule", sweep, "/schedule/id"),
        ("create-epic", json!({ "name": "Launch", "goal": "ship it", "leadAgentId": "Worker" }), "/epic/id"),
        ("inject-learning", teach.clone(), "/memoryId"),
        ("set-config", tone, "/config/id"),
        ("send-task", json!({ "task": "fly", "agentId": "Worker" }), "/task/id"),
        ("post-message", json!({ "content": "hello", "mentions": ["Worker"] }), "/posted/id"),
    ];
    let ask = async || {
        let mut named = Vec::new();
        for (tool, arguments, what) in &done {
            let answer = face.facts(&lead, tool, keyed(arguments.clone(), "first")).await;
            named.push(answer.pointer(what).unwrap_or_else(|| panic!("{tool}: {answer}")).clone());
        }
        named
    };
    let before = ask().await;
    let key = EntityKey::of(Kind::Pool, &Name::parse("default").unwrap());
    let request = entity::Request::once(Uuid::now_v7());
    let leave = pool::Command::Leave { agent: worker.id };
    face.service.entities().ask::<Pool>(&key, request, leave).await.unwrap();
    assert_eq!(before, ask().await);
    let refused = face.call(&lead, "inject-learning", keyed(teach.clone(), "second")).await;
    assert_eq!(refused["structuredContent"]["code"], "not_found", "{refused}");
    let other = face.agent("other", Role::Worker);
    face.facts(&other, "join-swarm", json!({ "name": "Worker" })).await;
    assert_eq!(before, ask().await);
    // Another request means who is called so now.
    let taught = face.facts(&lead, "inject-learning", keyed(teach, "third")).await;
    assert!(taught["memoryId"].is_string() && taught["memoryId"] != before[2], "{taught}");
}

#[tokio::test]
async fn a_repeated_call_is_the_same_whomever_its_caller_served_then() {
    let (face, lead, worker) = swarm().await;
    face.facts(&worker, "set_status", json!({ "text": "here" })).await;
    face.define("other", agent::Definition::default()).await;
    face.facts(&lead, "call_agent", json!({ "target_agent": "worker", "context": "go on" })).await;
    face.facts(&worker, "wait_for_trigger", json!({ "type": "agent_trigger" })).await;
    let call = json!({ "target_agent": "other", "context": "sum", "idempotency_key": "once" });
    let first = face.facts(&worker, "call_agent", call.clone()).await;
    assert!(first["call_id"].is_string(), "{first}");
    // With the value it is done with the call that it served.
    face.facts(&worker, "return_value", json!({ "value": "done" })).await;
    let second = face.facts(&worker, "call_agent", call).await;
    assert_eq!(first["call_id"], second["call_id"], "{second}");
}
