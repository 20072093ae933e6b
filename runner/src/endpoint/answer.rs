//! The events of a streamed answer (`text/event-stream`), told apart so that progress can be left out while
//! the instance is frozen, and so that a broken stream can be told from a complete one.

use bytes::{Bytes, BytesMut};
use serde_json::Value;
use skein_shared::limits;

/// Longest event that is passed on.
const EVENT: usize = limits::ANSWER;

/// An event has become longer than any may be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Cuts a stream of bytes into events.
#[derive(Default)]
pub(super) struct Events {
    rest: BytesMut,
    /// Where the line begins that is not whole yet, and up to where it was looked at: an event may be long, and comes
    /// in many pieces.
    line: usize,
    seen: usize,
}

/// What an event is to the client that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A comment or a progress notification: nothing is lost without it.
    Idle,
    /// The result or error of a request.
    Answer,
    /// Anything else.
    Message,
}

impl Events {
    /// Takes bytes as they arrive and returns the events that are complete, each with its blank line.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Bytes>, TooLong> {
        self.rest.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(end) = self.end_of_event() {
            events.push(self.cut(end));
        }
        if self.rest.len() > EVENT { Err(TooLong) } else { Ok(events) }
    }

    fn cut(&mut self, end: usize) -> Bytes {
        (self.line, self.seen) = (0, 0);
        self.rest.split_to(end).freeze()
    }

    /// Where the first event ends: after an empty line, whatever its line ends are.
    fn end_of_event(&mut self) -> Option<usize> {
        while let Some(length) = self.rest[self.seen..].iter().position(|&byte| byte == b'\n') {
            let end = self.seen + length;
            let is_empty = self.rest[self.line..end].iter().all(|&byte| byte == b'\r');
            (self.line, self.seen) = (end + 1, end + 1);
            if is_empty {
                return Some(end + 1);
            }
        }
        self.seen = self.rest.len();
        None
    }
}

pub(super) fn meaning(event: &[u8]) -> Meaning {
    let text = String::from_utf8_lossy(event);
    let data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data:")).collect();
    if data.is_empty() || data.iter().all(|line| line.trim().is_empty()) {
        return Meaning::Idle;
    }
    match serde_json::from_str::<Value>(&data.join("\n")) {
        Ok(message) if is_answer(&message) => Meaning::Answer,
        Ok(message) if message["method"] == "notifications/progress" => Meaning::Idle,
        _ => Meaning::Message,
    }
}

fn is_answer(message: &Value) -> bool {
    message.get("id").is_some() && (message.get("result").is_some() || message.get("error").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_cut_at_blank_lines_however_they_arrive() {
        let mut events = Events::default();
        assert!(events.push(b"data: {\"id\":1,").unwrap().is_empty());
        let found = events.push(b"\"result\":{}}\r\n\r\n: still here\n\nda").unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(meaning(&found[0]), Meaning::Answer);
        assert_eq!(meaning(&found[1]), Meaning::Idle);
        assert_eq!(events.push(b"ta: 1\n\n").unwrap().len(), 1);
        let whole = b"event: message\r\ndata: 1\r\n\r\n: x\n\n";
        let pieces: Vec<Bytes> = whole.iter().flat_map(|&byte| events.push(&[byte]).unwrap()).collect();
        assert_eq!(pieces, events.push(whole).unwrap(), "byte by byte or at once");
        assert_eq!(pieces.len(), 2);
    }

    #[test]
    fn progress_may_be_left_out_and_other_messages_may_not() {
        assert_eq!(meaning(b"data: {\"method\":\"notifications/progress\"}\n\n"), Meaning::Idle);
        assert_eq!(meaning(b"data: {\"method\":\"notifications/message\"}\n\n"), Meaning::Message);
        assert_eq!(meaning(b"id: 7\ndata:\n\n"), Meaning::Idle);
    }
}
