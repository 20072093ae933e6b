//! What a client still sends when its answer is known, as with a refusal that needs no body.
//!
//! The connection of a request that was not read to its end is closed behind the answer. A client that asks again on
//! it, as those do that fetch a token when they are told to, would find it gone. So what is left of a request is read
//! before it is answered, if that is little and comes soon; otherwise the answer says that the connection ends with it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderValue, header};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tower::Service;

/// As much is read for nothing, and for so long.
const MOST: usize = 64 * 1024;
const PATIENCE: Duration = Duration::from_secs(1);

/// What the router answers, once what is left of the request is read. Not a layer of the router, which would be boxed
/// around each route and cloned with it for each request.
pub(super) async fn answer(mut router: Router, request: Request) -> Response {
    if request.body().is_end_stream() {
        let Ok(response) = router.call(request).await;
        return response;
    }
    // Whoever asks before it sends has sent nothing yet.
    let asks = request.headers().contains_key(header::EXPECT);
    let left = Left::default();
    let lent = |body| Body::new(Lent { body, left: Arc::clone(&left) });
    let Ok(mut response) = router.call(request.map(lent)).await;
    let rest = left.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(rest) = rest
        && (asks || !ends_soon(rest).await)
    {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn ends_soon(mut body: Body) -> bool {
    let reading = async {
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            read += frame.data_ref().map_or(0, Bytes::len);
            if read > MOST {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap_or(false)
}

/// A body that was given up before its end.
type Left = Arc<Mutex<Option<Body>>>;

/// A body that comes back when its reader wants no more of it.
struct Lent {
    body: Body,
    left: Left,
}

impl HttpBody for Lent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let body = std::mem::take(&mut self.body);
        if !body.is_end_stream() {
            *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::ServiceExt;
    use axum::routing::post;
    use http::StatusCode;
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    async fn connected() -> BufReader<TcpStream> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let refuses = || async { (StatusCode::UNAUTHORIZED, "who?") };
        let echoes = |body: Bytes| async { body };
        let router = Router::new().route("/refuses", post(refuses)).route("/echoes", post(echoes));
        let answers = tower::service_fn(move |request| {
            let router = router.clone();
            async move { Ok::<_, Infallible>(answer(router, request).await) }
        });
        tokio::spawn(async move { axum::serve(listener, answers.into_make_service()).await });
        BufReader::new(TcpStream::connect(address).await.unwrap())
    }

    fn head(path: &str, length: usize, more: &str) -> String {
        format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n{more}\r\n")
    }

    /// The status line, whether the connection goes on, and the body.
    async fn answered(connection: &mut BufReader<TcpStream>) -> (String, bool, String) {
        let (mut status, mut length, mut goes_on) = (String::new(), 0, true);
        connection.read_line(&mut status).await.unwrap();
        loop {
            let mut line = String::new();
            connection.read_line(&mut line).await.unwrap();
            match line.trim().split_once(": ") {
                Some(("content-length", said)) => length = said.parse().unwrap(),
                Some(("connection", said)) => goes_on = said != "close",
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        connection.read_exact(&mut body).await.unwrap();
        (status.trim().to_owned(), goes_on, String::from_utf8(body).unwrap())
    }

    #[tokio::test]
    async fn a_refusal_leaves_the_connection_to_the_next_request() {
        let mut connection = connected().await;
        connection.write_all(head("/refuses", 5, "").as_bytes()).await.unwrap();
        // Long enough for an answer that waits for nothing.
        tokio::time::sleep(Duration::from_millis(50)).await;
        connection.write_all(b"hello").await.unwrap();
        let (status, goes_on, body) = answered(&mut connection).await;
        assert!(status.contains("401") && goes_on && body == "who?", "{status} {goes_on} {body}");
        connection.write_all(format!("{}again", head("/echoes", 5, "")).as_bytes()).await.unwrap();
        let (status, _, body) = answered(&mut connection).await;
        assert!(status.contains("200") && body == "again", "{status} {body}");
    }

    #[tokio::test]
    async fn an_answer_to_what_is_long_or_does_not_come_says_that_it_is_the_last() {
        for (length, more, sent) in
            [(10 * MOST, "", 2 * MOST), (5, "expect: 100-continue\r\n", 0), (5, "", 2)]
        {
            let mut connection = connected().await;
            connection.write_all(head("/refuses", length, more).as_bytes()).await.unwrap();
            connection.write_all(&vec![b'x'; sent]).await.unwrap();
            let (status, goes_on, _) = answered(&mut connection).await;
            assert!(status.contains("401") && !goes_on, "{length} {more}: {status}");
        }
    }
}
