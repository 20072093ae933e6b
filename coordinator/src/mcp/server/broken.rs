//! Calls of a session whose connection broke. Their client takes the answer's stream up again after the last event that
//! it had; but a call ends with its connection, and rmcp keeps no stream that is over. It gives an empty one in its
//! place, on which the client would wait in vain: so that says here that there is no answer.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use http_body::Frame;
use rmcp::ErrorData;
use rmcp::model::{JsonRpcError, RequestId};

use super::streamed;

/// So many streams of a session are remembered, the last ones.
const REMEMBERED: usize = 32;
/// A longer id is not remembered, bytes: there are many sessions. Clients count, or make up a UUID.
const LONGEST_ID: usize = 128;
/// An event ends with its id and what little comes behind that, bytes.
const TAIL: usize = 96;

/// What is said of a call that has no answer because its connection broke.
pub(super) fn unanswered(tool: Option<&str>) -> ErrorData {
    let what = tool.map_or_else(|| "this request".to_owned(), |tool| format!("`{tool}`"));
    let problem = format!(
        "the connection broke before {what} had answered, or the answer was lost with it; what it does may be done all \
         the same: look before you call it again, or use the same idempotency_key if you gave one"
    );
    ErrorData::internal_error(problem, None)
}

/// A request that a stream answers.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    id: RequestId,
    /// The tool that it calls, if it calls one that there is.
    tool: Option<&'static str>,
}

impl Asked {
    pub(super) fn new(id: RequestId, tool: Option<&'static str>) -> Option<Self> {
        let is_short = match &id {
            RequestId::Number(_) => true,
            RequestId::String(text) => text.len() <= LONGEST_ID,
        };
        is_short.then_some(Self { id, tool })
    }
}

/// The place of an event: which one of which stream it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    index: u64,
    stream: u64,
}

impl Place {
    /// As clients name it. The stream on which a session is told things has no number.
    pub(super) fn parse(id: &str) -> Option<Self> {
        let (index, stream) = id.split_once('/')?;
        Some(Self { index: index.parse().ok()?, stream: stream.parse().ok()? })
    }

    fn of(event: &[u8]) -> Option<Self> {
        let tail = String::from_utf8_lossy(&event[event.len().saturating_sub(TAIL)..]);
        let (_, id) = tail.rsplit_once("\nid: ")?;
        Self::parse(id.lines().next()?)
    }
}

#[derive(Debug)]
struct Stream {
    number: u64,
    asked: Asked,
    /// The last event that was sent.
    sent: u64,
    /// Whether the answer was among those.
    over: bool,
}

/// The last streams of one session.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams(Arc<Mutex<VecDeque<Stream>>>);

impl Streams {
    /// The stream of an answer, each event of which is noted: that of a request, or one that a client takes up again.
    /// What the client lacks is said there if rmcp has nothing of it.
    pub(super) fn follow(&self, asked: Option<Asked>, after: Option<Place>, body: Body) -> Body {
        let after = after.filter(|_| asked.is_none());
        let lacks = after.and_then(|after| self.lacking(after));
        let stream = after.map(|after| after.stream);
        Body::new(Noted { body, streams: self.clone(), begins: asked, stream, lacks })
    }

    /// The request to which a client that had this event last has no answer.
    fn lacking(&self, after: Place) -> Option<Asked> {
        let streams = self.lock();
        let stream = streams.iter().find(|stream| stream.number == after.stream)?;
        // The first event of a stream is empty.
        let has_all = stream.over && after.index > 0 && after.index >= stream.sent;
        (!has_all).then(|| stream.asked.clone())
    }

    /// The numbers begin anew when a session wakes.
    fn begin(&self, place: Place, asked: Asked) {
        let mut streams = self.lock();
        streams.retain(|stream| stream.number != place.stream);
        if streams.len() >= REMEMBERED {
            streams.pop_front();
        }
        streams.push_back(Stream { number: place.stream, asked, sent: place.index, over: false });
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut Stream)) {
        if let Some(stream) = self.lock().iter_mut().find(|stream| stream.number == number) {
            change(stream);
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Stream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The body of an answer, followed event by event.
struct Noted {
    body: Body,
    streams: Streams,
    /// Until its first event says which number it has.
    begins: Option<Asked>,
    stream: Option<u64>,
    /// What its client gets no answer to, unless an event comes.
    lacks: Option<Asked>,
}

impl Noted {
    fn note(&mut self, event: &[u8]) {
        let Some(place) = Place::of(event) else { return };
        self.lacks = None;
        self.stream = Some(place.stream);
        match self.begins.take() {
            Some(asked) => self.streams.begin(place, asked),
            None => self.streams.change(place.stream, |stream| stream.sent = stream.sent.max(place.index)),
        }
    }

    /// An answer's stream ends with the answer; an empty one has none.
    fn last(&mut self) -> Option<Bytes> {
        if let Some(Asked { id, tool }) = self.lacks.take() {
            self.stream = None;
            return Some(streamed::event(&JsonRpcError::new(Some(id), unanswered(tool))));
        }
        if let Some(number) = self.stream.take() {
            self.streams.change(number, |stream| stream.over = true);
        }
        None
    }
}

impl http_body::Body for Noted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() {
            return Poll::Ready(self.last().map(|event| Ok(Frame::data(event))));
        }
        if let Some(event) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            self.note(event);
        }
        Poll::Ready(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_an_event_stands_at_its_end() {
        for (event, place) in [
            ("data: \nid: 0/7\nretry: 3000\n\n", Some((0, 7))),
            ("data: {\"text\":\"\\nid: 9/9\"}\nid: 2/13\n\n", Some((2, 13))),
            ("data: {}\nid: 4\n\n", None),
            (":\n\n", None),
        ] {
            let wanted = place.map(|(index, stream)| Place { index, stream });
            assert_eq!(Place::of(event.as_bytes()), wanted, "{event:?}");
        }
    }

    #[test]
    fn the_last_streams_of_a_session_are_remembered() {
        let streams = Streams::default();
        for stream in 0..=REMEMBERED as u64 {
            let asked = Asked::new(RequestId::Number(7), Some("wait")).unwrap();
            streams.begin(Place { index: 0, stream }, asked);
        }
        assert!(streams.lacking(Place { index: 0, stream: 0 }).is_none());
        assert!(streams.lacking(Place { index: 0, stream: 1 }).is_some());
        assert!(Asked::new(RequestId::String("x".repeat(LONGEST_ID + 1).into()), None).is_none());
    }
}
