//! What goes with answers that reach nobody: who asks again has it.

use axum::response::Response;

use crate::store::memory::{Fault, Gate};

use super::sessions::open;
use super::waits::calling;
use super::*;

const WAIT: &str = "wait_for_trigger";

fn filter() -> Value {
    json!({ "type": "agent_trigger", "source_agent": "lead", "timeout": "1m" })
}

/// A call that waits for its trigger, as a client of either revision makes it.
async fn waiting(face: &Face, worker: &Agent, session: Option<&str>) -> Response {
    let answer = face.router.clone().oneshot(calling(worker, session, WAIT, filter())).await.unwrap();
    face.until_awaited(|topics| topics > 0).await;
    answer
}

async fn trigger(face: &Face, lead: &Agent) {
    face.facts(lead, "call_agent", json!({ "target_agent": "worker", "context": "the geese" })).await;
}

async fn text(answer: Response) -> String {
    String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// What the worker gets by asking again, as soon as it is there.
async fn asked_again(face: &Face, worker: &Agent) -> Value {
    let again = face.facts(worker, WAIT, filter());
    tokio::time::timeout(Duration::from_secs(60), again).await.expect("the event is lost")
}

fn is_told(answer: &Value) -> bool {
    answer["payload"]["context"] == "the geese" && answer["redelivered"] == false
}

/// Until the wait's outcome was taken for an answer.
async fn taken(face: &Face, worker: &Agent) {
    let key = face.access.identify(&worker.token).await.unwrap().own_agent();
    loop {
        let list = agent::Command::List;
        let overview = face.service.entities().ask::<agent::Agent>(&key, entity::Request::read(), list).await;
        let Ok(agent::Reply::Overview(overview)) = overview else { panic!("no overview: {overview:?}") };
        if overview.waits.iter().any(|wait| wait.delivered) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn an_event_that_comes_as_its_client_goes_is_given_to_who_asks_again() {
    let (face, lead, worker) = swarm().await;
    let session = open(&face.router, &worker).await;
    for session in [None, Some(session.as_str())] {
        let answer = waiting(&face, &worker, session).await;
        // Its body is taken up to the event, and no further.
        let mut body = answer.into_body();
        trigger(&face, &lead).await;
        let last = loop {
            let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
            if data.windows(9).any(|piece| piece == b"the geese") {
                break data;
            }
        };
        assert!(last.starts_with(b"data: "));
        drop(body);
        assert!(is_told(&asked_again(&face, &worker).await), "{session:?}");
        face.facts(&worker, "return_value", json!({ "value": "done" })).await;
    }
}

#[tokio::test]
async fn a_question_that_is_under_way_as_its_client_goes_loses_no_event() {
    let (face, lead, worker) = swarm().await;
    for _ in 0..20 {
        let answer = waiting(&face, &worker, None).await;
        let mut body = answer.into_body();
        trigger(&face, &lead).await;
        // The call goes on for some steps, each of which may be the one that takes the event, and is given up.
        for _ in 0..3 {
            let _ = futures::poll!(Box::pin(body.frame()));
            tokio::task::yield_now().await;
        }
        drop(body);
        assert!(is_told(&asked_again(&face, &worker).await));
        face.facts(&worker, "return_value", json!({ "value": "done" })).await;
    }
}

#[tokio::test]
async fn an_answer_that_was_read_is_not_given_again() {
    let (face, lead, worker) = swarm().await;
    let session = open(&face.router, &worker).await;
    for session in [None, Some(session.as_str())] {
        let answer = waiting(&face, &worker, session).await;
        trigger(&face, &lead).await;
        assert!(text(answer).await.contains("the geese"));
        let next = json!({ "type": "agent_trigger", "timeout": "30ms" });
        let next = face.call(&worker, WAIT, next).await;
        assert_eq!(next["structuredContent"]["code"], "wait_timeout", "{next}");
    }
}

#[tokio::test]
async fn a_session_that_cancels_a_call_which_was_answered_has_the_event_by_asking_again() {
    let (face, lead, worker) = swarm().await;
    let session = open(&face.router, &worker).await;
    let answer = waiting(&face, &worker, Some(&session)).await;
    trigger(&face, &lead).await;
    assert!(text(answer).await.contains("the geese"));
    let cancel = async |call: u32| {
        let params = json!({ "requestId": call, "reason": "it took too long" });
        let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
        let cancel = calling(&worker, Some(&session), "", json!({})).map(|_| Body::from(cancel.to_string()));
        assert_eq!(face.raw(cancel).await.0, StatusCode::ACCEPTED);
    };
    cancel(8).await;
    taken(&face, &worker).await;
    cancel(7).await;
    assert!(is_told(&asked_again(&face, &worker).await));
}

/// A worker with a task that it works on, and what is said to it about that.
async fn steered(face: &Face, lead: &Agent, worker: &Agent) {
    let task = json!({ "task": "count the geese", "agentId": worker.id });
    let task = face.facts(lead, "send-task", task).await["task"]["id"].clone();
    face.facts(worker, "poll-task", json!({})).await;
    face.facts(lead, "task_steer", json!({ "task_id": task, "message": "twice, please" })).await;
}

/// What the worker is told with the answers to its next calls, up to the first that has something.
async fn next_words(face: &Face, worker: &Agent) -> Value {
    let asked = async {
        loop {
            let answer = face.facts(worker, "get-swarm", json!({})).await;
            if let Some(words) = answer.get("steering") {
                return words.clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asked).await.expect("what was said is lost")
}

#[tokio::test]
async fn what_is_said_with_an_answer_that_reaches_nobody_is_said_with_the_next() {
    let (face, lead, worker) = swarm().await;
    steered(&face, &lead, &worker).await;
    for _ in 0..3 {
        let answer =
            face.router.clone().oneshot(calling(&worker, None, "get-swarm", json!({}))).await.unwrap();
        drop(answer);
    }
    assert_eq!(next_words(&face, &worker).await[0]["content"], "twice, please");
    let quiet = face.facts(&worker, "get-swarm", json!({})).await;
    assert!(quiet.get("steering").is_none(), "it was said twice: {quiet}");
}

/// Its pool may be on its way from a node that has died.
#[tokio::test]
async fn no_answer_waits_long_for_what_may_go_with_it() {
    let (face, lead, worker) = swarm().await;
    steered(&face, &lead, &worker).await;
    let gate = Gate::default();
    face.faults.push(Fault::Slow(gate.clone()));
    let answer = face.facts(&worker, "get-swarm", json!({}));
    let answer = tokio::time::timeout(Duration::from_secs(60), answer).await.expect("the answer is held up");
    assert!(answer.get("steering").is_none(), "{answer}");
    gate.open();
    assert_eq!(next_words(&face, &worker).await[0]["content"], "twice, please");
}

/// Whether it was taken is not known then, and the same question is asked again.
#[tokio::test]
async fn what_was_taken_with_an_unknown_outcome_is_said_with_the_next_answer() {
    let (face, lead, worker) = swarm().await;
    steered(&face, &lead, &worker).await;
    face.faults.push(Fault::AnswerLost);
    assert_eq!(next_words(&face, &worker).await[0]["content"], "twice, please");
}
