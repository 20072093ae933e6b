//! How long the body of a request may take to arrive. Who sends it may be known and have every right, and would keep a
//! connection, and what has come so far, for as long as they like: with a byte now and then, or with none.
//!
//! What counts is how long the node waits for its sender, not what a handler does between two pieces. What goes out has
//! no limit, and handlers that want a body sooner have one of their own.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::response::{IntoResponse, Response};
use axum::{BoxError, Json, Router};
use http::{HeaderValue, Request, StatusCode, header};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use serde_json::json;
use skein_shared::Code;
use tokio::time::{Instant, Sleep, sleep_until};

use super::leftovers;

/// From one piece of a body to the next.
pub(super) const PIECE: Duration = Duration::from_secs(30);
/// For all that is waited for in one body: the largest then comes over a line of half a megabit.
pub(super) const WHOLE: Duration = Duration::from_secs(300);

/// What the router answers a request whose body arrives in time.
pub(super) async fn answer(router: Router, request: Request<Incoming>) -> Response {
    if request.body().is_end_stream() {
        return leftovers::answer(router, request.map(Body::new)).await;
    }
    let late = Arc::new(AtomicBool::new(false));
    let arriving = |body| Body::new(Arriving::new(body, Arc::clone(&late)));
    let response = leftovers::answer(router, request.map(arriving)).await;
    // A handler knows only that the body broke off.
    if late.load(Ordering::Relaxed) { too_late() } else { response }
}

fn too_late() -> Response {
    let problem = format!(
        "the body of this request took too long: no more of it came for {} seconds, or it was waited for longer than \
         {} in all; send it again, and faster",
        PIECE.as_secs(),
        WHOLE.as_secs()
    );
    let told = Json(json!({ "code": Code::WaitTimeout, "message": problem }));
    let mut response = (StatusCode::REQUEST_TIMEOUT, told).into_response();
    // What may still come of the body belongs to no request.
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A body that breaks off when it is waited for too long.
struct Arriving {
    body: Incoming,
    /// What is left of the time for all of it.
    left: Duration,
    /// When it began to be waited for its next piece.
    since: Option<Instant>,
    alarm: Option<Pin<Box<Sleep>>>,
    late: Arc<AtomicBool>,
}

impl Arriving {
    fn new(body: Incoming, late: Arc<AtomicBool>) -> Self {
        Self { body, left: WHOLE, since: None, alarm: None, late }
    }

    /// Whether its time is over. If not, it is looked at again when that is so.
    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        let end = since + PIECE.min(self.left);
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(end)));
        if alarm.deadline() != end {
            alarm.as_mut().reset(end);
        }
        alarm.as_mut().poll(context).is_ready()
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            if let Some(since) = self.since.take() {
                self.left = self.left.saturating_sub(since.elapsed());
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        if !self.is_late(context) {
            return Poll::Pending;
        }
        self.late.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
