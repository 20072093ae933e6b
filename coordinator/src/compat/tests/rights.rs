//! Who may do what over the routes: each has the rights of the tool that it stands for.

use super::*;

const OTHER: Uuid = Uuid::from_u128(0x33333333_3333_4333_8333_333333333333);

/// A route, what is sent there, and what the other worker, the one whose the task or schedule is, and the lead get.
const TABLE: &[(&str, &str, &str, [u16; 3])] = &[
    ("GET", "/api/tasks/$task", "null", [200, 200, 200]),
    ("POST", "/api/tasks", r#"{"task":"new"}"#, [201, 201, 201]),
    ("POST", "/api/tasks/$task/cancel", "{}", [403, 200, 200]),
    ("POST", "/api/channels", r#"{"name":"new#N"}"#, [201, 201, 201]),
    ("DELETE", "/api/channels/$channel", "null", [403, 403, 200]),
    ("PUT", "/api/schedules/$schedule", r#"{"priority":60}"#, [403, 200, 200]),
    ("POST", "/api/schedules/$schedule/run", "null", [403, 200, 200]),
    ("DELETE", "/api/schedules/$schedule", "null", [403, 200, 200]),
    ("POST", "/api/epics", r#"{"name":"new#N","goal":"g"}"#, [403, 403, 201]),
    ("PUT", "/api/epics/$epic", r#"{"plan":"p"}"#, [403, 403, 200]),
    ("POST", "/api/epics/$epic/tasks", r#"{"taskId":"$task"}"#, [403, 403, 201]),
    ("DELETE", "/api/epics/$epic", "null", [403, 403, 200]),
];

/// The text of a row, with what it names made anew.
async fn filled(bed: &Bed, text: &str, number: usize) -> String {
    let mut text = text.replace("#N", &number.to_string());
    let name = |of: &str| format!("{of}{number}");
    let schedule = json!({ "name": name("s"), "taskTemplate": "x", "intervalMs": 60_000_000 });
    for (named, maker, route, made) in [
        ("$task", WORKER, "/api/tasks", json!({ "task": name("t") })),
        ("$schedule", WORKER, "/api/schedules", schedule),
        ("$channel", LEAD, "/api/channels", json!({ "name": name("c") })),
        ("$epic", LEAD, "/api/epics", json!({ "name": name("e"), "goal": "g" })),
    ] {
        if text.contains(named) {
            let made = bed.is(201, "POST", route, Some(maker), made).await;
            text = text.replace(named, made["id"].as_str().unwrap());
        }
    }
    text
}

#[tokio::test]
async fn who_may_do_what_by_a_route_is_as_by_its_tool() {
    let bed = Bed::swarm().await;
    bed.is(201, "POST", "/api/agents", Some(OTHER), json!({ "name": "other-33333333" })).await;
    let mut number = 0;
    let mut wrong = Vec::new();
    for (method, path, body, wanted) in TABLE {
        let mut found = [0; 3];
        for (caller, found) in [OTHER, WORKER, LEAD].into_iter().zip(&mut found) {
            number += 1;
            let row = filled(&bed, &format!("{path} {body}"), number).await;
            let (path, body) = row.split_once(' ').unwrap();
            let body = serde_json::from_str(body).unwrap();
            *found = bed.ask(method, path, KEY, Some(caller), body).await.0.as_u16();
        }
        if found != *wanted {
            wrong.push(format!("{method} {path}: {found:?}, and ought to be {wanted:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
