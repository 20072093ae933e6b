//! Whether an answer reached its client. What it carries is given back if the connection ends before the answer was
//! written, or if the client of a session says that it gave the call up.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};
use rmcp::model::RequestId;

use crate::service::unread::Delivery;

/// The body of an answer, which is read when all of it was taken.
pub(super) struct Followed {
    body: Body,
    delivery: Delivery,
    /// A session can be told that the answer came too late, and remembers it itself.
    session: bool,
    whole: bool,
}

impl Followed {
    pub(super) fn alone(body: Body, delivery: Delivery) -> Body {
        Body::new(Self { body, delivery, session: false, whole: false })
    }

    pub(super) fn in_session(body: Body, delivery: Delivery) -> Body {
        Body::new(Self { body, delivery, session: true, whole: false })
    }

    fn is_whole(&mut self) {
        self.whole = true;
        if !self.session {
            self.delivery.read();
        }
    }
}

impl http_body::Body for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        // After the last piece of a body whose end is known nobody asks for another.
        if frame.is_none() || self.body.is_end_stream() {
            self.is_whole();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        if !self.whole {
            self.delivery.lost();
        }
    }
}

/// The last answer of a session that carried something: its client may still say that it has given the call up.
#[derive(Clone, Default)]
pub(super) struct Answered(Arc<Mutex<Last>>);

#[derive(Default)]
struct Last(Option<(RequestId, Delivery)>);

impl Answered {
    /// Whoever gets another answer has read the one before it.
    pub(super) fn keep(&self, call: RequestId, delivery: Delivery) {
        if delivery.carries_something() {
            drop(self.last().replace(call, delivery));
        }
    }

    /// Its client takes no answer to this call any more.
    pub(super) fn cancelled(&self, call: &RequestId) {
        let mut last = self.last();
        if let Some((answered, delivery)) = &last.0
            && answered == call
        {
            delivery.lost();
            last.0 = None;
        }
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Last {
    fn replace(&mut self, call: RequestId, delivery: Delivery) -> Self {
        Self(self.0.replace((call, delivery)))
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        if let Some((_, delivery)) = &self.0 {
            delivery.read();
        }
    }
}
