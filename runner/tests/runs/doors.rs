//! What is refused at an instance's endpoint before it takes the runner's memory, and goes no further.

use bytes::Bytes;
use futures::stream::pending;
use reqwest::{Body, RequestBuilder};
use skein_shared::limits;

use super::*;

/// The status and the body of an answer, which does not wait for the end of the request.
async fn answered(request: RequestBuilder) -> (u16, String) {
    let answer = tokio::time::timeout(LIMIT, request.send()).await.expect("it waits for the body").unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_shows_no_right_secret_or_is_too_much_is_refused_at_the_endpoint() {
    let Indoors { face, coordinator: _coordinator, mut bed, url, secret } = Indoors::new().await;
    let lock = url.replace("/mcp", "/locks/acquire");
    let post = |url: &str| reqwest::Client::new().post(url);

    for (url, wanted) in [(&lock, 403), (&url, 401)] {
        let endless = Body::wrap_stream(pending::<Result<Bytes, std::io::Error>>());
        let (status, told) = answered(post(url).bearer_auth("wrong").body(endless)).await;
        assert_eq!(status, wanted, "{told}");
    }
    let zeros = "0,".repeat(300_000);
    for url in [&lock, &url] {
        // It has no end, of which a parser would complain.
        let (status, told) = answered(post(url).bearer_auth(&secret).body(format!("{{\"a\":[{zeros}"))).await;
        assert!(status == 400 && told.contains("200000 values"), "{status} {told}");
    }
    for (shown, wanted) in [("wrong", 403), (secret.as_str(), 400)] {
        let body = format!("{{\"secret\":\"{shown}\",\"a\":[{zeros}0]}}");
        assert_eq!(answered(post(&lock).body(body)).await.0, wanted, "{shown}");
    }
    let (status, told) = answered(post(&lock).body("x".repeat(limits::REQUEST_UNKNOWN + 1))).await;
    assert!(status == 413 && told.contains("Authorization: Bearer"), "{status} {told}");
    assert!(face.seen.borrow().is_empty(), "a coordinator was asked");
    bed.leave().await.unwrap();
}
