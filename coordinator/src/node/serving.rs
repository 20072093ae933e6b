//! Serves HTTP on a listener. Strangers may connect to it, so what they can take is bounded before anybody knows who
//! they are: how many connections there are, how long the head of a request may be, and by `patience` how long it may
//! take. How long a body may take is bounded for those who are known too, by `arrival`.
//!
//! A node that starts answers whoever looks after it, and drops all others: they go on to another node then, as from an
//! address where nobody listens, while an answer, whatever it said, would be taken for the one to what they asked.

use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::serve::Listener;
use http::{Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::patience::{Course, Patient, Turn};
use super::{arrival, health, keepalive};

/// Most of a request's head, bytes. The connection of one that does not end keeps so much.
const HEAD: u32 = 64 * 1024;
/// Most of what its peer may have sent of bodies that nobody reads yet, bytes, over HTTP/2, where a connection has room
/// for it. Of HTTP/1 it keeps no more than of a head.
const UNREAD: u32 = HEAD;
/// How often it is said that there is no room.
const SAY: Duration = Duration::from_secs(60);

/// What the requests of a listener meet. Cheap to clone.
#[derive(Clone)]
pub(super) struct Face {
    name: &'static str,
    /// What is answered as long as there is no router.
    lobby: Router,
    router: Arc<OnceLock<Router>>,
    answers: health::Answers,
}

/// Nobody takes this request, so its connection ends without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the node is starting and takes no requests yet")]
struct Closed;

impl Face {
    pub(super) fn new(name: &'static str, router: Router) -> Self {
        let face = Self::starting(name, Router::new());
        face.opens(router);
        face
    }

    /// One that answers what `lobby` knows and nothing else, until it opens.
    pub(super) fn starting(name: &'static str, lobby: Router) -> Self {
        let lobby = lobby.with_state(());
        Self { name, lobby, router: Arc::default(), answers: health::Answers::of(name) }
    }

    /// From now on it answers everything. It opens once.
    pub(super) fn opens(&self, router: Router) {
        // Makes its handlers routes once, and not for each request.
        let _ = self.router.set(router.with_state(()));
    }

    async fn answer(self, request: Request<Incoming>, turn: Turn) -> Result<Response<Answer>, Closed> {
        // Whoever has hung up by now, as on a node that stood still, may have asked another one. The connection finds
        // that out before it comes back to this, and drops it.
        tokio::task::yield_now().await;
        let router = self.router.get().cloned();
        let response = match router {
            Some(router) => arrival::answer(router, request).await,
            None => {
                let response = arrival::answer(self.lobby, request).await;
                if response.status() == StatusCode::NOT_FOUND {
                    return Err(Closed);
                }
                response
            }
        };
        self.answers.count(response.status());
        Ok(response.map(|body| Answer { body, _turn: turn }))
    }
}

/// Serves so many connections at a time until `stop`, and then finishes what is in flight. Those beyond wait until
/// another one ends.
///
/// # Errors
/// Never while the node lives.
pub(super) async fn serve(
    mut listener: TcpListener,
    face: Face,
    most: usize,
    stop: CancellationToken,
) -> io::Result<()> {
    let (room, connections) = (Arc::new(Semaphore::new(most)), TaskTracker::new());
    let mut said: Option<Instant> = None;
    while let Some(taken) = stop.run_until_cancelled(next(&mut listener, &room)).await {
        let (stream, place) = taken?;
        if room.available_permits() == 0 && said.is_none_or(|said| said.elapsed() > SAY) {
            warn!(listener = face.name, most, "there is no room for another connection until one ends");
            said = Some(Instant::now());
        }
        // Answers are small and complete: waiting to fill a packet would only delay them.
        let _ = stream.set_nodelay(true);
        keepalive::watch(&stream);
        let attended = attend(stream, face.clone(), stop.clone());
        connections.spawn(async move {
            attended.await;
            drop(place);
        });
    }
    // Whoever comes now is to hear at once that nobody listens.
    drop(listener);
    connections.close();
    connections.wait().await;
    Ok(())
}

/// The next connection, once there is room for it.
async fn next(
    listener: &mut TcpListener,
    room: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(room).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = Listener::accept(listener).await;
    Ok((stream, place))
}

/// Serves a connection to its end.
async fn attend<S>(stream: S, face: Face, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let course = Course::new();
    let begun = course.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (face, turn) = (face.clone(), begun.begin(request.version()));
        face.answer(request, turn)
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().max_buf_size(HEAD as usize);
    let mut http2 = builder.http2();
    http2.max_header_list_size(HEAD);
    http2.initial_stream_window_size(UNREAD).initial_connection_window_size(UNREAD);
    let stream = TokioIo::new(Patient::new(stream, course.clone()));
    let mut connection = pin!(builder.serve_connection(stream, service));
    // How it ends is its peer's affair.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stop.cancelled() => {}
    }
    course.stop();
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// The body of an answer, whose request is served until it has ended.
struct Answer {
    body: Body,
    _turn: Turn,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
