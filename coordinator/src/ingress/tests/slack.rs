//! What Slack sends by request, and what it gets for that.

use url::form_urlencoded::Serializer;

use super::*;

const TIME: &str = "1790000000";
const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

/// A request that Slack has signed.
fn signed(kind: &str, body: &str) -> Request<Body> {
    Request::post("/webhooks/slack")
        .header("content-type", kind)
        .header("x-slack-request-timestamp", TIME)
        .header("x-slack-signature", format!("v0={}", digest("hush", &format!("v0:{TIME}:{body}"))))
        .body(Body::from(body.to_owned()))
        .unwrap()
}

fn gate(ledger: &Arc<Ledger>) -> Gate {
    let sources = [source("slack", Provider::Slack, Some("hush"))];
    Gate::new(&sources, &config::Limits::default(), Arc::clone(ledger) as Arc<dyn Intake>)
}

/// What is written down of a body that Slack has signed and nobody can read.
async fn kept(kind: &str, body: &str) -> String {
    let ledger = Arc::new(Ledger::default());
    let (status, answer) = send(&router(gate(&ledger)), signed(kind, body)).await;
    assert_eq!(status, 400, "{answer}");
    let rejected = ledger.rejected.lock().unwrap();
    let [rejected] = rejected.as_slice() else { panic!("{body} was not kept") };
    rejected.body.clone()
}

#[tokio::test]
async fn slacks_old_token_is_kept_nowhere_not_even_of_what_cannot_be_read() {
    for (kind, body, whole) in [
        (JSON, r#"{"token":"xyzzy","team_id":"T1"}"#, r#"{"token":"","team_id":"T1"}"#),
        (JSON, r#"{"token" : "xy\"zzy","cut": "#, r#"{"token":"","cut": "#),
        (JSON, r#"{"cut":1,"token":"xyzzy"#, r#"{"cut":1,"token":"""#),
        (
            JSON,
            r#"{"type":7,"of":"token","event":{"token":"xyzzy"}}"#,
            r#"{"type":7,"of":"token","event":{"token":""}}"#,
        ),
        (FORM, "token=xyzzy&text=a+b", "text=a+b"),
        (FORM, "payload=%7B%22token%22%3A%22xyzzy%22%7D", "payload=%7B%22token%22%3A%22%22%7D"),
        ("text/plain", "team_id=T1&token=xyzzy", "team_id=T1"),
        ("text/plain", "neither one nor the other", "neither one nor the other"),
    ] {
        assert_eq!(kept(kind, body).await, whole, "{kind} {body}");
    }
}

/// Slack shows people the answer to a command, and takes that to a form for orders to the form.
#[tokio::test]
async fn who_may_not_speak_is_shown_nothing_of_ours() {
    let workspace = json!({ "swarm": "build", "bot_token": "xoxb", "allowed_users": ["U1"] });
    let settings = config::Slack { workspace: vec![serde_json::from_value(workspace).unwrap()] };
    let ledger = Arc::new(Ledger::default());
    let door = router(gate(&ledger).hearing(Workspaces::new(&settings).unwrap()));
    let form = json!({"type": "view_submission", "trigger_id": "t", "user": {"id": "U2"}}).to_string();
    let form = Serializer::new(String::new()).append_pair("payload", &form).finish();
    for body in ["command=%2Fdeploy&user_id=U2&trigger_id=c", form.as_str()] {
        let response = door.clone().oneshot(signed(FORM, body)).await.unwrap();
        assert_eq!(response.status(), 200);
        let shown = response.into_body().collect().await.unwrap().to_bytes();
        assert!(shown.is_empty(), "{body}: {shown:?}");
    }
    assert!(ledger.seen.lock().unwrap().is_empty());
}
