//! How much is read, and for whom.

use axum::body::Bytes;
use futures::stream::pending;
use skein_shared::limits;

use super::*;

/// So many values that no parser may have them.
fn zeros() -> String {
    "0,".repeat(300_000)
}

impl Bed {
    /// Sends a text as it is, with a token in the header or without one.
    async fn post_text(&self, path: &str, token: Option<&str>, text: String) -> (u16, String) {
        let mut request = Request::post(path);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let (status, answer) = self.send(request.body(Body::from(text)).unwrap()).await;
        (status, answer["error"].as_str().unwrap_or_default().to_owned())
    }
}

#[tokio::test]
async fn a_wrong_token_in_the_header_is_refused_before_anything_of_the_body_is_read() {
    let bed = Bed::new();
    for wrong in ["nonsense".to_owned(), bed.token("r", Role::Runner, None)] {
        let body = Body::from_stream(pending::<Result<Bytes, std::io::Error>>());
        let request = Request::post("/locks/acquire").header("authorization", format!("Bearer {wrong}"));
        let answer = bed.send(request.body(body).unwrap());
        let answer = tokio::time::timeout(Duration::from_secs(60), answer).await;
        let (status, answer) = answer.expect("it waits for a body that never comes");
        assert!(status == 403 && answer["error"].is_string(), "{status} {answer}");
    }
}

#[tokio::test]
async fn values_are_counted_before_a_parser_has_them() {
    let bed = Bed::new();
    bed.define("worker").await;
    let (worker, operator) = (bed.worker("worker"), bed.token("operator", Role::Operator, None));
    for (path, token) in [("/signals/return", &worker), ("/control/pause", &operator)] {
        // It has no end, of which a parser would complain.
        let (status, told) =
            bed.post_text(path, Some(token.as_str()), format!("{{\"value\":[{}", zeros())).await;
        assert!(status == 400 && told.contains("200000 values"), "{path}: {status} {told}");
    }
    for (secret, wanted, say) in [(worker.as_str(), 400, "200000 values"), ("nonsense", 403, "")] {
        let text = format!("{{\"value\":[{}0],\"secret\":\"{secret}\"}}", zeros());
        let (status, told) = bed.post_text("/signals/return", None, text).await;
        assert!(status == wanted && told.contains(say), "{status} {told}");
    }
}

#[tokio::test]
async fn what_shows_its_token_in_the_body_is_short() {
    let bed = Bed::new();
    let (_, token) = bed.run("worker").await;
    let long = json!({ "secret": token, "value": "x".repeat(limits::REQUEST_UNKNOWN) });
    let (status, told) = bed.post_text("/signals/return", None, long.to_string()).await;
    assert!(status == 413 && told.contains("Authorization: Bearer"), "{status} {told}");
    assert_eq!(bed.post("/signals/return", &token, long).await, (200, json!({ "ok": true })));
}
