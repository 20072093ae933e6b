//! Answers that are longer than the endpoint of an instance passes on.

use bytes::Bytes;
use hyper::body::Frame;
use serde_json::{Value, json};

use super::*;

/// Asked for again it would be as long again.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_too_long_to_pass_on_is_refused_and_not_asked_for_again() {
    let Indoors { face, coordinator: _coordinator, mut bed, url, secret } = Indoors::new().await;
    let body = r#"{"jsonrpc":"2.0","id":"mine","method":"tools/call"}"#;
    let call = reqwest::Client::new().post(url).bearer_auth(secret).body(body).send().await.unwrap();
    face.requests(1).await;
    let reading = tokio::spawn(call.text());
    face.write("data: ").await;
    let into = face.answers.borrow().clone().unwrap();
    let piece = Bytes::from(vec![b'x'; 1024 * 1024]);
    while into.send(Ok(Frame::data(piece.clone()))).await.is_ok() {}
    let text = reading.await.unwrap().unwrap();
    let told: Value = serde_json::from_str(text.trim().strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(
        (&told["id"], &told["error"]["data"]["code"]),
        (&json!("mine"), &json!("too_large")),
        "{told}"
    );
    assert_eq!(face.requests(1).await.len(), 1);
    bed.leave().await.unwrap();
}
