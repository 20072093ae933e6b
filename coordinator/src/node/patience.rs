//! How long a connection may be quiet. Whoever is at its other end may be a stranger, who would otherwise keep it, and
//! what it takes, for as long as they like: with the beginning of a request whose end never comes, or with nothing.
//!
//! The server has a limit of its own, which does not tell a head that does not end from a connection that is kept for
//! the next request, and counts neither before the first byte nor for HTTP/2. So it is the connection that counts here.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Version;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// From the first byte of a request's head to its last; for the first request of a connection, from the beginning of
/// that. Whoever asks for nothing would otherwise keep the place of somebody who does.
pub(super) const HEAD: Duration = Duration::from_secs(10);
/// Between requests. Most clients give up what they do not use after 90 seconds at the latest,
/// and so send no request into a connection that is being closed.
pub(super) const IDLE: Duration = Duration::from_secs(120);
/// For a head, or a word of farewell, of a node that stops.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// How a connection stands. Its requests have a part in it, and may be served by tasks of their own.
#[derive(Clone)]
pub(super) struct Course(Arc<Mutex<State>>);

struct State {
    /// Requests whose answers have not ended.
    requests: usize,
    /// HTTP/2: what comes between requests need not be the beginning of one, and its heads lie in frames.
    multiplexed: bool,
    stopping: bool,
    /// There was a request.
    asked: bool,
    /// A part of a head has come.
    begun: bool,
    /// When the last thing happened from which time counts.
    since: Instant,
}

impl Course {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            requests: 0,
            multiplexed: false,
            stopping: false,
            asked: false,
            begun: false,
            since: Instant::now(),
        })))
    }

    /// A request has come.
    pub(super) fn begin(&self, version: Version) -> Turn {
        let mut state = self.state();
        state.requests += 1;
        (state.asked, state.begun) = (true, false);
        state.multiplexed |= version == Version::HTTP_2;
        Turn(self.clone())
    }

    /// No more requests are wanted: what is not being served has little time left.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.stopping = true;
        state.since = Instant::now();
    }

    fn heard(&self) {
        let mut state = self.state();
        if state.requests == 0 && !state.multiplexed && state.asked && !state.begun {
            state.begun = true;
            state.since = Instant::now();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn patience(&self) -> Duration {
        match self {
            Self { stopping: true, .. } => GRACE,
            Self { asked: true, begun: false, .. } => IDLE,
            _ => HEAD,
        }
    }
}

/// A request that is being served, until its answer has ended.
pub(super) struct Turn(Course);

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.requests -= 1;
        state.begun = false;
        state.since = Instant::now();
    }
}

/// A connection that cannot be read any more once it has been quiet for too long. A server reads whenever it waits.
pub(super) struct Patient<S> {
    stream: S,
    course: Course,
    /// Its peer takes nothing just now, and what is left of an answer waits for that.
    stuck: bool,
    alarm: Pin<Box<Sleep>>,
}

impl<S> Patient<S> {
    pub(super) fn new(stream: S, course: Course) -> Self {
        let alarm = Box::pin(sleep_until(Instant::now() + HEAD));
        Self { stream, course, stuck: false, alarm }
    }

    /// Whether its time is over. If not, it is looked at again when that may be so.
    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        loop {
            let (busy, end) = {
                let state = self.course.state();
                let busy = self.stuck || state.requests > 0;
                // Nobody tells when a task of HTTP/2 has ended an answer.
                let from = if busy { Instant::now() } else { state.since };
                (busy, from + state.patience())
            };
            // To move an alarm costs more than to look once too often, so it is only ever brought forward.
            if end < self.alarm.deadline() {
                self.alarm.as_mut().reset(end);
            }
            if self.alarm.as_mut().poll(context).is_pending() {
                return false;
            }
            if !busy && end <= Instant::now() {
                return true;
            }
            self.alarm.as_mut().reset(end);
        }
    }

    fn written<T>(&mut self, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if self.stuck && outcome.is_ready() {
            self.course.state().since = Instant::now();
        }
        self.stuck = outcome.is_pending();
        outcome
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(context, buffer);
        if outcome.is_pending() && self.is_over(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if buffer.filled().len() > before {
            self.course.heard();
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
