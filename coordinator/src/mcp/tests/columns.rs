//! Lists as tables, in part, and page by page.

use std::collections::BTreeSet;

use super::*;
use crate::mcp::catalogue::Toolset;

/// Those that ask Slack, where no workspace is connected.
const OUTSIDE: [&str; 2] = ["slack-read", "slack-list-channels"];

fn tokens(value: &Value) -> usize {
    tiktoken_rs::o200k_base_singleton().encode_ordinary(&value.to_string()).len()
}

/// The rows of a list in either form, without what is not there.
fn rows(list: &Value) -> Vec<Value> {
    let mut rows: Vec<Value> = match list {
        Value::Array(rows) => rows.clone(),
        table => {
            let cols: Vec<String> = serde_json::from_value(table["cols"].clone()).unwrap();
            let rows = table["rows"].as_array().unwrap().iter();
            rows.map(|row| cols.iter().cloned().zip(row.as_array().unwrap().iter().cloned()).collect())
                .collect()
        }
    };
    for row in rows.iter_mut().filter_map(Value::as_object_mut) {
        row.retain(|_, value| !value.is_null());
    }
    rows
}

/// A swarm that has fifty tasks in an epic, as many agents send them.
async fn with_tasks() -> (Face, Agent, Agent, Value) {
    let (face, lead, worker) = swarm().await;
    let epic = face.facts(&lead, "create-epic", json!({ "name": "Release", "goal": "Ship it" })).await;
    let epic = epic["epic"]["id"].clone();
    for number in 0..50 {
        let mut task = json!({
            "task": format!("Check chapter {number} of the guide for dead links and mend them"),
            "priority": 40 + number % 7, "tags": ["docs", format!("part-{}", number % 5)], "taskType": "chore",
            "epicId": epic, "allowDuplicate": true,
        });
        if number % 10 == 0 {
            task["agentId"] = json!(worker.id);
        }
        face.facts(&lead, "send-task", task).await;
    }
    (face, lead, worker, epic)
}

#[tokio::test]
async fn columns_cost_a_model_less_and_wanted_columns_less_still() {
    let (face, lead, ..) = with_tasks().await;
    let list = async |how: Value| {
        let mut arguments = json!({ "limit": 50 });
        arguments.as_object_mut().unwrap().extend(how.as_object().unwrap().clone());
        face.facts(&lead, "get-tasks", arguments).await["tasks"].take()
    };
    let usual = list(json!({})).await;
    let columns = list(json!({ "format": "columns" })).await;
    let few = list(json!({ "format": "columns", "fields": ["id", "status", "priority", "task"] })).await;
    assert_eq!((rows(&usual).len(), rows(&columns)), (50, rows(&usual)));
    let (usual, columns, few) = (tokens(&usual), tokens(&columns), tokens(&few));
    println!("50 tasks: {usual} tokens as objects, {columns} as columns, {few} as four columns");
    assert!(columns * 100 <= usual * 85, "{columns} of {usual} tokens");
    assert!(few * 100 <= usual * 55, "{few} of {usual} tokens");
}

/// Each tool that has a list, with arguments that change nothing.
async fn asked(face: &Face, lead: &Agent, worker: &Agent, epic: &Value) -> Vec<(&'static str, Value)> {
    let tasks = face.facts(lead, "get-tasks", json!({ "limit": 1 })).await;
    let task = tasks["tasks"][0]["id"].clone();
    let texts = json!({ "claudeMd": "# Worker", "setupScript": "true", "role": "builder" });
    face.facts(worker, "update-profile", texts).await;
    face.facts(lead, "post-message", json!({ "content": "Begin.", "mentions": [worker.id] })).await;
    let learning =
        json!({ "agentId": worker.id, "learning": "Look for links first", "category": "best-practice" });
    face.facts(lead, "inject-learning", learning).await;
    for schedule in [
        json!({ "name": "nightly", "taskTemplate": "Sweep", "cronExpression": "0 3 * * *" }),
        json!({ "name": "often", "taskTemplate": "Look", "intervalMs": 60_000, "tags": ["quick"] }),
    ] {
        face.facts(lead, "create-schedule", schedule).await;
    }
    let service = json!({ "script": "serve.sh", "cwd": "/srv", "env": { "PORT": "1" }, "metadata": { "label": "web" } });
    face.facts(worker, "register-service", service).await;
    for (key, secret) in [("MODEL", false), ("TOKEN", true)] {
        let setting = json!({ "scope": "global", "key": key, "value": "x", "isSecret": secret });
        face.facts(lead, "set-config", setting).await;
    }
    face.facts(worker, "set_status", json!({ "text": "here" })).await;
    face.facts(worker, "ask_human", json!({ "question": "Which links?", "choices": ["all", "none"] })).await;
    let call = json!({ "target_agent": "worker", "context": "report" });
    let call = face.facts(lead, "call_agent", call).await["call_id"].clone();
    vec![
        ("get-tasks", json!({})),
        ("get-swarm", json!({ "full": true })),
        ("get-task-details", json!({ "taskId": task })),
        ("read-messages", json!({ "markAsRead": false })),
        ("list-channels", json!({})),
        ("list-epics", json!({})),
        ("get-epic-details", json!({ "epicId": epic })),
        ("memory-search", json!({ "query": "links" })),
        ("context-history", json!({ "agentId": worker.id })),
        ("list-schedules", json!({})),
        ("list-services", json!({})),
        ("get-config", json!({})),
        ("list-config", json!({})),
        ("list_questions", json!({})),
        ("wait_for_calls", json!({ "call_ids": [call], "timeout_s": 0 })),
        ("tools_find", json!({ "query": "task" })),
        ("wait", json!({ "cursor": "0", "for": ["tasks"] })),
    ]
}

#[tokio::test]
async fn every_list_says_the_same_in_either_form() {
    let (face, lead, worker, epic) = with_tasks().await;
    let asked = asked(&face, &lead, &worker, &epic).await;
    let declared = catalogue().unwrap();
    let lists: BTreeSet<_> =
        declared.tools().filter(|tool| tool.list.is_some()).map(|tool| tool.name).collect();
    let known: BTreeSet<_> = asked.iter().map(|(tool, _)| *tool).chain(OUTSIDE).collect();
    assert_eq!(lists, known);
    for (tool, arguments) in asked {
        let who = if tool == "read-messages" { &worker } else { &lead };
        let list = declared.get(tool).unwrap().list.unwrap();
        let is_own = declared.get(tool).unwrap().toolset == Toolset::Skein;
        let with = |how: Value| {
            let mut arguments = arguments.clone();
            arguments.as_object_mut().unwrap().extend(how.as_object().unwrap().clone());
            arguments
        };
        let usual = face.facts(who, tool, arguments.clone()).await;
        let objects = face.facts(who, tool, with(json!({ "format": "rows" }))).await;
        let table = face.facts(who, tool, with(json!({ "format": "columns" }))).await;
        let by_default = if is_own { &table } else { &objects };
        assert_eq!(usual[list.name], by_default[list.name], "{tool}");
        assert!(is_own || usual.get("cursor").is_none(), "{tool} has more than Agent Swarm's");
        let wanted = rows(&objects[list.name]);
        assert!(
            !wanted.is_empty() && objects[list.name].is_array() && table[list.name].is_object(),
            "{tool}"
        );
        assert_eq!(rows(&table[list.name]), wanted, "{tool}");
        let fields = wanted.iter().filter_map(Value::as_object).flat_map(|row| row.keys());
        for field in fields {
            assert!(list.fields.contains(&field.as_str()), "{tool} has {field}, which is not declared");
        }
        // Beside the list nothing differs.
        let beside = |answer: &Value| {
            let fields = answer.as_object().unwrap().iter();
            let fields = fields.filter(|(field, _)| *field != list.name && *field != "cursor");
            fields.map(|(field, value)| (field.clone(), value.clone())).collect::<Value>()
        };
        assert_eq!(beside(&table), beside(&usual), "{tool}");
    }
}

#[tokio::test]
async fn an_unknown_field_is_answered_with_those_there_are() {
    let (face, lead, _) = swarm().await;
    let wrong = json!({ "fields": ["id", "colour"] });
    let inner = json!({ "name": "get-tasks", "arguments": wrong });
    for (tool, arguments) in [("get-tasks", wrong), ("tools_read", inner.clone()), ("tools_call", inner)] {
        let answer = face.call(&lead, tool, arguments).await;
        let facts = &answer["structuredContent"];
        assert_eq!(
            (&answer["isError"], &facts["code"]),
            (&json!(true), &json!("invalid_argument")),
            "{answer}"
        );
        assert_eq!(facts["problems"][0]["path"], "/fields/1");
        let told = facts["message"].as_str().unwrap();
        for field in ["agentId", "lastUpdatedAt", "progress"] {
            assert!(told.contains(field), "{told}");
        }
        assert_eq!(facts["schema"]["properties"]["fields"]["items"]["enum"][0], "id");
        let text = answer["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("-32602") && text.contains(&facts["schema"].to_string()), "{text}");
    }
}

/// Whatever is wrong with the arguments of a tool of Skein's own, and whoever finds it out.
#[tokio::test]
async fn every_error_about_arguments_has_the_schema_of_the_tool_that_they_were_for() {
    let (face, lead, _) = swarm().await;
    let key = json!({ "task": "x", "idempotency_key": 7 });
    for (tool, arguments, of) in [
        ("wait", json!({ "cursor": "soon" }), "wait"),
        ("wait", json!({ "colour": "red" }), "wait"),
        ("tools_find", json!({ "area": "skein", "cursor": "soon" }), "tools_find"),
        ("tools_find", json!({ "fields": [] }), "tools_find"),
        ("tools_call", json!({ "arguments": {} }), "tools_call"),
        ("tools_call", json!({ "name": "tools_read" }), "tools_call"),
        ("tools_call", json!({ "name": "wait", "arguments": { "cursor": "soon" } }), "wait"),
        ("tools_call", json!({ "name": "send-task", "arguments": key.clone() }), "send-task"),
        ("send-task", key, "send-task"),
        ("get-tasks", json!({ "limit": 5.5 }), "get-tasks"),
        ("get-tasks", json!({ "limit": 5.0, "format": "table" }), "get-tasks"),
        ("acquire_lock", json!({}), "acquire_lock"),
    ] {
        let answer = face.call(&lead, tool, arguments.clone()).await;
        let facts = &answer["structuredContent"];
        assert_eq!(
            (&answer["isError"], &facts["code"]),
            (&json!(true), &json!("invalid_argument")),
            "{answer}"
        );
        let schema = Value::Object(catalogue().unwrap().get(of).unwrap().input());
        assert_eq!(facts["schema"], schema, "{tool} {arguments}");
        assert!(answer["content"][0]["text"].as_str().unwrap().contains(&schema.to_string()), "{answer}");
    }
}

/// As clients send it that have one kind of number alone, where the schema says that 5.0 is a whole one.
#[tokio::test]
async fn a_whole_number_may_be_written_with_a_point() {
    let (face, lead, ..) = with_tasks().await;
    let five = json!({ "limit": 5.0 });
    let within = json!({ "name": "get-tasks", "arguments": five });
    for (tool, arguments) in [("get-tasks", five), ("tools_read", within)] {
        let listed = face.facts(&lead, tool, arguments).await;
        assert_eq!(rows(&listed["tasks"]).len(), 5, "{tool}: {listed}");
    }
    for fraction in [5.5, 0.0, -5.0, 1e30] {
        let refused = face.call(&lead, "get-tasks", json!({ "limit": fraction })).await;
        assert_eq!(refused["structuredContent"]["code"], "invalid_argument", "{fraction}: {refused}");
    }
    let declared = catalogue().unwrap();
    for (tool, sent, read) in [
        ("create-schedule", json!({ "intervalMs": 6e4 }), json!({ "intervalMs": 60_000 })),
        ("create-schedule", json!({ "intervalMs": 1e30 }), json!({ "intervalMs": 1e30 })),
        ("exit_run", json!({ "status": -0.0 }), json!({ "status": 0 })),
        // Its seconds may be a fraction, and what somebody keeps with a service is nobody else's to change.
        ("acquire_lock", json!({ "ttl_seconds": 5.0 }), json!({ "ttl_seconds": 5.0 })),
        ("register-service", json!({ "metadata": { "load": 5.0 } }), json!({ "metadata": { "load": 5.0 } })),
    ] {
        let mut taken = sent.clone();
        declared.write_whole(tool, &mut taken);
        assert_eq!(taken, read, "{tool} {sent}");
    }
}

/// All of a list, a page at a time.
async fn paged(
    face: &Face,
    who: &Agent,
    tool: &str,
    list: &str,
    mut arguments: Value,
) -> (usize, Vec<Value>) {
    arguments["cursor"] = json!("");
    let (mut pages, mut all) = (0, Vec::new());
    loop {
        let page = face.facts(who, tool, arguments.clone()).await;
        let shown = rows(&page[list]);
        assert!(shown.len() <= arguments["limit"].as_u64().unwrap() as usize, "{tool}: {page}");
        all.extend(shown);
        pages += 1;
        match page.get("cursor") {
            Some(cursor) => arguments["cursor"] = cursor.clone(),
            None => return (pages, all),
        }
        assert!(pages < 100, "{tool} has no end");
    }
}

#[tokio::test]
async fn pages_have_every_row_once_and_in_order() {
    let (face, lead, worker, epic) = with_tasks().await;
    for number in 0..9 {
        let agent = face.agent(&format!("helper-{number}"), Role::Worker);
        face.facts(&agent, "join-swarm", json!({ "name": format!("Helper {number}") })).await;
        let name = format!("Epic {number}");
        face.facts(&lead, "create-epic", json!({ "name": name, "goal": "Done" })).await;
        let asked = face.facts(&agent, "ask_human", json!({ "question": format!("Why {number}?") })).await;
        let answer = json!({ "question_id": asked["question_id"], "answer": "So" });
        if number % 2 == 0 {
            face.facts(&lead, "answer_question", answer).await;
        }
    }
    for (tool, list, arguments, limit, whole) in [
        ("get-tasks", "tasks", json!({}), 7, 100),
        ("get-tasks", "tasks", json!({ "format": "columns", "tags": ["part-1"] }), 3, 100),
        ("get-tasks", "tasks", json!({ "readyOnly": true, "fields": ["id"] }), 11, 100),
        ("get-tasks", "tasks", json!({ "unassigned": true }), 9, 100),
        ("list-epics", "epics", json!({ "fields": ["id", "name"] }), 4, 100),
        (
            "get-epic-details",
            "tasks",
            json!({ "epicId": epic, "allowDuplicate": true, "format": "columns" }),
            13,
            1000,
        ),
        ("get-swarm", "agents", json!({ "full": true }), 3, 1000),
        ("get-swarm", "agents", json!({ "format": "columns" }), 4, 1000),
        ("list_questions", "questions", json!({}), 3, 100),
        ("list_questions", "questions", json!({ "answered": true, "fields": ["question"] }), 2, 100),
        ("tools_find", "tools", json!({ "area": "skein", "detail": "name" }), 2, 25),
        ("tools_find", "tools", json!({ "query": "task", "format": "rows" }), 5, 25),
    ] {
        let limited = |limit: usize| {
            let mut arguments = arguments.clone();
            arguments["limit"] = json!(limit);
            arguments
        };
        let mut whole = rows(&face.facts(&worker, tool, limited(whole)).await[list]);
        let (pages, all) = paged(&face, &worker, tool, list, limited(limit)).await;
        if tool == "tools_find" {
            whole.truncate(all.len());
        }
        assert_eq!(all[..whole.len()], whole, "{tool} {arguments}");
        assert_eq!(pages, all.len().div_ceil(limit), "{tool} {arguments}");
        assert!(pages > 1 && (tool == "tools_find" || all.len() == whole.len()), "{tool}: {pages} pages");
    }
    for cursor in ["soon", "[1]", "{}", "[1,2,3,4]"] {
        for tool in ["get-tasks", "list_questions"] {
            let refused = face.call(&lead, tool, json!({ "cursor": cursor })).await;
            assert_eq!(refused["structuredContent"]["code"], "invalid_argument", "{refused}");
        }
    }
    let plain = face.facts(&lead, "get-tasks", json!({ "limit": 3 })).await;
    assert!(plain.get("cursor").is_none() && plain["tasks"].is_array(), "as Agent Swarm has it");
}

/// Its pages have their own length, and each goes on behind the last name.
#[tokio::test]
async fn the_list_of_schedules_goes_on_behind_the_first_thousand() {
    use skein_shared::schedules::Create;

    let (face, lead, _) = swarm().await;
    let who = crate::auth::Principal::named("lead", Role::Lead);
    for number in 0..1001 {
        let create = Create { interval_ms: Some(60_000), ..Create::new(format!("s{number:04}"), "sweep") };
        face.service.create_schedule(&who, Uuid::now_v7(), create).await.unwrap();
    }
    let page = async |cursor: &Value| {
        let wanted = json!({ "cursor": cursor, "fields": ["name"] });
        face.facts(&lead, "list-schedules", wanted).await
    };
    let first = page(&json!("")).await;
    assert_eq!((&first["count"], &first["schedules"][999]), (&json!(1000), &json!({ "name": "s0999" })));
    let second = page(&first["cursor"]).await;
    assert_eq!(second["schedules"], json!([{ "name": "s1000" }]));
    assert!(second.get("cursor").is_none(), "{second}");
    let plain = face.facts(&lead, "list-schedules", json!({})).await;
    assert!(
        plain.get("cursor").is_none() && plain["message"].as_str().unwrap().contains("1 more"),
        "{plain}"
    );
}

/// Tasks that come and go between two pages move no other into a page twice or out of all of them.
#[tokio::test]
async fn what_happens_between_two_pages_loses_no_row() {
    let (face, lead, ..) = with_tasks().await;
    let ask = |cursor: &Value| json!({ "limit": 20, "fields": ["id"], "cursor": cursor });
    let before = face.facts(&lead, "get-tasks", json!({ "limit": 100 })).await;
    let before: Vec<Value> = rows(&before["tasks"]).iter().map(|task| task["id"].clone()).collect();
    let mut page = face.facts(&lead, "get-tasks", ask(&json!(""))).await;
    let mut seen: Vec<Value> = rows(&page["tasks"]).iter().map(|task| task["id"].clone()).collect();
    face.facts(&lead, "send-task", json!({ "task": "A late and urgent one", "priority": 100 })).await;
    let last = before.last().unwrap();
    face.facts(&lead, "cancel-task", json!({ "taskId": before[0] })).await;
    while let Some(cursor) = page.get("cursor").cloned() {
        page = face.facts(&lead, "get-tasks", ask(&cursor)).await;
        seen.extend(rows(&page["tasks"]).iter().map(|task| task["id"].clone()));
    }
    assert_eq!((seen.len(), seen.last()), (before.len(), Some(last)));
    assert_eq!(seen, before);
}

#[tokio::test]
async fn a_wait_gives_as_many_changes_as_are_wanted_and_goes_on_behind_them() {
    let (face, lead, ..) = with_tasks().await;
    let (mut cursor, mut seen) = (json!("0"), Vec::new());
    while seen.len() < 50 {
        let wait = json!({ "for": ["tasks"], "cursor": cursor, "limit": 8, "fields": ["event", "id"], "timeout_s": 0 });
        let answer = face.facts(&lead, "wait", wait).await;
        assert_eq!(answer["timed_out"], false, "after {} changes", seen.len());
        assert_eq!(answer["changed"]["cols"], json!(["event", "id"]));
        let changed = rows(&answer["changed"]);
        assert!((1..=8).contains(&changed.len()), "{answer}");
        seen.extend(changed.into_iter().filter(|change| change["event"] == "created"));
        cursor = answer["cursor"].clone();
    }
    let distinct: BTreeSet<String> = seen.iter().map(|change| change["id"].to_string()).collect();
    assert_eq!((seen.len(), distinct.len()), (50, 50));
}

#[tokio::test]
async fn what_is_called_by_name_takes_format_and_fields() {
    let (face, lead, ..) = with_tasks().await;
    let how = json!({ "format": "columns", "fields": ["id", "priority"], "limit": 2 });
    let direct = face.facts(&lead, "get-tasks", how.clone()).await;
    for finder in ["tools_read", "tools_call"] {
        let by_name = face.facts(&lead, finder, json!({ "name": "get-tasks", "arguments": how })).await;
        assert_eq!(by_name, direct);
    }
    assert_eq!(direct["tasks"]["cols"], json!(["id", "priority"]));
}
