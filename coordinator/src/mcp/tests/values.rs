//! What calls give back, of any length.

use skein_shared::blobs;

use super::*;

/// A call that the worker, whom nobody runs, has taken. Gives its id.
async fn taken(face: &Face, lead: &Agent, worker: &Agent) -> Value {
    face.facts(worker, "set_status", json!({ "text": "here" })).await;
    let call = json!({ "target_agent": "worker", "context": "report" });
    let call = face.facts(lead, "call_agent", call).await["call_id"].clone();
    face.facts(worker, "wait_for_trigger", json!({ "type": "agent_trigger" })).await;
    call
}

async fn pair(bounds: Bounds) -> (Face, Agent, Agent) {
    let face = Face::bounded(Config::default(), bounds);
    let (lead, worker) = (face.agent("lead", Role::Lead), face.agent("worker", Role::Worker));
    (face, lead, worker)
}

/// Looks until the long values of calls take so many bytes.
async fn until_room(face: &Face, wanted: u64) {
    let key = EntityKey::of(Kind::Blobs, &Name::parse("default").unwrap());
    let mut seen = None;
    for _ in 0..1000 {
        // One that has room for nothing more says how much is taken.
        let command =
            blobs::Command::Reserve { blob: Uuid::now_v7(), bytes: 1, bounds: Bounds { each: 1, all: 0 } };
        let request = entity::Request::read();
        let asked = face.service.entities().ask::<blobs::Blobs>(&key, request, command).await;
        seen = Some(asked.unwrap_err().message);
        if seen.as_ref().is_some_and(|told| told.contains(&format!("take {wanted} of 0 bytes"))) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{seen:?}");
}

/// Of letters of one to four bytes, so that no border of chunks lies between two of them everywhere.
fn report(bytes: usize) -> String {
    let mut text = "aé€😀\n".repeat(bytes / 11 + 1);
    text.truncate((0..=bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap());
    text
}

#[tokio::test]
async fn a_long_value_is_shown_by_its_beginning_and_read_in_parts() {
    let (face, lead, worker) = pair(Bounds { each: limits::RESULT as u64, all: limits::SWARM_BLOBS }).await;
    let call = taken(&face, &lead, &worker).await;
    let value = report(6 * 1024 * 1024);
    face.facts(&worker, "return_value", json!({ "value": value })).await;

    let checked = face.call(&lead, "check_call", json!({ "call_id": call })).await;
    let facts = &checked["structuredContent"];
    assert_eq!((&facts["status"], &facts["value_bytes"]), (&json!("completed"), &json!(value.len())));
    let preview = facts["return_value"].as_str().unwrap();
    assert!(value.starts_with(preview) && preview.len() > 1000 && preview.len() <= limits::PREVIEW);
    assert!(checked.to_string().len() < 8 * 1024, "an answer stays small");
    let waited = face.facts(&lead, "wait_for_calls", json!({ "call_ids": [call] })).await;
    assert_eq!(waited["calls"][0]["value_id"], facts["value_id"]);

    let (mut read, mut cursor) = (String::new(), None);
    loop {
        let mut ask = json!({ "call_id": call, "limit": 262_144 });
        if let Some(cursor) = cursor {
            ask["cursor"] = cursor;
        }
        let part = face.facts(&lead, "read_call_value", ask).await;
        read.push_str(part["text"].as_str().unwrap());
        match part.get("cursor") {
            Some(next) => cursor = Some(next.clone()),
            None => break,
        }
    }
    assert!(read == value, "{} of {} bytes", read.len(), value.len());

    let border = limits::CHUNK - 5;
    let range = json!({ "call_id": call, "cursor": border.to_string(), "limit": 16 });
    let part = face.facts(&lead, "read_call_value", range).await;
    let begin = (border..).find(|at| value.is_char_boundary(*at)).unwrap();
    let text = part["text"].as_str().unwrap();
    assert!(value[begin..].starts_with(text) && text.len() >= 10, "{text:?}");
    for (bad, code) in [
        (json!({ "call_id": call, "cursor": "99999999" }), "invalid_argument"),
        (json!({ "call_id": call, "cursor": "soon" }), "invalid_argument"),
        (json!({ "call_id": Uuid::nil() }), "not_found"),
    ] {
        let refused = face.call(&lead, "read_call_value", bad).await;
        assert_eq!(refused["structuredContent"]["code"], code, "{refused}");
    }
    let foreign = face.call(&worker, "read_call_value", json!({ "call_id": call })).await;
    assert_eq!(foreign["structuredContent"]["code"], "not_found", "{foreign}");
}

#[tokio::test]
async fn a_short_value_is_read_by_the_same_tool_and_an_open_call_has_none() {
    let (face, lead, worker) = pair(Bounds { each: limits::RESULT as u64, all: 0 }).await;
    let call = taken(&face, &lead, &worker).await;
    let open = face.call(&lead, "read_call_value", json!({ "call_id": call })).await;
    assert_eq!(open["structuredContent"]["code"], "wrong_state", "{open}");
    // As long as a document may be: it takes no room that is counted.
    let value = "v".repeat(limits::TEXT);
    face.facts(&worker, "return_value", json!({ "value": value })).await;
    let checked = face.facts(&lead, "check_call", json!({ "call_id": call })).await;
    assert!(checked["return_value"] == value && checked.get("value_id").is_none());
    let end = json!({ "call_id": call, "cursor": (limits::TEXT - 2).to_string() });
    let part = face.facts(&lead, "read_call_value", end).await;
    assert_eq!((&part["text"], part.get("cursor")), (&json!("vv"), None));
}

#[tokio::test]
async fn what_has_no_room_is_refused_and_the_room_comes_back() {
    let each = limits::TEXT as u64 + 1000;
    let (face, lead, worker) = pair(Bounds { each, all: each + 10 }).await;
    let give = |bytes: usize| json!({ "value": "v".repeat(bytes) });
    let long = limits::TEXT + 1;
    let refused = face.call(&worker, "return_value", give(limits::TEXT + 1001)).await;
    assert_eq!(refused["structuredContent"]["code"], "too_large", "{refused}");
    assert!(refused["content"][0]["text"].as_str().unwrap().contains("file"), "{refused}");

    // Nobody called, so nobody gets it, and it takes no room for long.
    for _ in 0..3 {
        face.facts(&worker, "return_value", give(long)).await;
        until_room(&face, 0).await;
    }
    let call = taken(&face, &lead, &worker).await;
    face.facts(&worker, "return_value", give(long)).await;
    until_room(&face, long as u64).await;
    let refused = face.call(&worker, "return_value", give(long)).await;
    assert_eq!(refused["structuredContent"]["code"], "no_capacity", "{refused}");
    let kept = face.facts(&lead, "check_call", json!({ "call_id": call })).await;
    assert_eq!(kept["value_bytes"], long);
}
