//! Messages: each sender's in their order, none lost, none doubled, none invented; and each read once.

use std::collections::{BTreeMap, BTreeSet};

use super::{Operation, Outcome};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Texts are unique.
    Post { channel: String, text: String },
    /// Reads what is unread, and marks it as read.
    Read { channel: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Posted,
    /// The texts, oldest first.
    Messages(Vec<String>),
}

pub type History = [Operation<Call, Answer>];

/// Compares what was told with the channels as they are in the end, oldest message first.
pub fn check(history: &History, channels: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut broken = kept(history, channels);
    broken.extend(in_order(history, channels));
    broken.extend(read_once(history, channels));
    broken
}

/// Who posted a message, and when, as far as it may have come about.
fn posts(history: &History) -> BTreeMap<&str, (&str, &Operation<Call, Answer>)> {
    let post = |operation: &'_ Operation<Call, Answer>| operation.may_have_happened();
    let mut posts = BTreeMap::new();
    for operation in history.iter().filter(|operation| post(operation)) {
        if let Call::Post { channel, text } = &operation.call {
            posts.insert(text.as_str(), (channel.as_str(), operation));
        }
    }
    posts
}

fn kept(history: &History, channels: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let posts = posts(history);
    let mut broken = Vec::new();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (channel, texts) in channels {
        for text in texts {
            if posts.get(text.as_str()).is_none_or(|(posted, _)| posted != channel) {
                broken.push(format!("invented: nobody posted `{text}` in {channel}"));
            }
            if !seen.insert(text) {
                broken.push(format!("doubled: `{text}` is there more than once"));
            }
        }
    }
    for (text, (channel, operation)) in posts {
        if operation.answer().is_some() && !seen.contains(text) {
            broken.push(format!("lost: `{text}` was acknowledged in {channel}, and is not there"));
        }
    }
    broken
}

/// What one sender posts after it was told of another comes after that.
fn in_order(history: &History, channels: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let posts = posts(history);
    let mut broken = Vec::new();
    let read = history.iter().filter_map(|operation| match operation.answer() {
        Some(Answer::Messages(texts)) => Some(texts),
        _ => None,
    });
    for texts in channels.values().chain(read) {
        let mut last: BTreeMap<usize, (&str, &Operation<Call, Answer>)> = BTreeMap::new();
        for text in texts {
            let Some((_, operation)) = posts.get(text.as_str()) else { continue };
            if let Some((before, earlier)) = last.insert(operation.client, (text, operation))
                && operation.returned < earlier.invoked
            {
                broken.push(format!("order: `{before}` stands before `{text}`, which was posted before it"));
            }
        }
    }
    broken
}

/// A reader gets a message once. If all its reads were answered, the last after everything, it got all.
fn read_once(history: &History, channels: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut readers: BTreeMap<(usize, &str), Vec<&Operation<Call, Answer>>> = BTreeMap::new();
    for operation in history {
        if let Call::Read { channel } = &operation.call {
            readers.entry((operation.client, channel)).or_default().push(operation);
        }
    }
    let posted = history.iter().filter(|operation| matches!(operation.call, Call::Post { .. }));
    let last_post = posted.map(|operation| operation.invoked).max().unwrap_or_default();
    let mut broken = Vec::new();
    for ((reader, channel), reads) in readers {
        let mut got: BTreeSet<&str> = BTreeSet::new();
        for read in &reads {
            let Some(Answer::Messages(texts)) = read.answer() else { continue };
            let again = texts.iter().filter(|text| !got.insert(text));
            broken.extend(again.map(|text| format!("doubled: client {reader} read `{text}` twice")));
        }
        let complete = reads.iter().all(|read| read.outcome != Outcome::Unknown)
            && reads.iter().any(|read| read.answer().is_some() && read.invoked > last_post);
        let missing = channels.get(channel).into_iter().flatten().filter(|text| !got.contains(text.as_str()));
        if complete {
            broken.extend(missing.map(|text| format!("lost: client {reader} never read `{text}`")));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{breaks, fail, ok, unknown};
    use super::*;

    type Told = Operation<Call, Answer>;

    fn call(text: &str) -> Call {
        Call::Post { channel: "c".to_owned(), text: text.to_owned() }
    }

    fn post(client: usize, from: u64, text: &str) -> Told {
        ok(client, call(text), from, from + 5, Answer::Posted)
    }

    fn read(from: u64, texts: &[&str]) -> Told {
        let texts = texts.iter().map(|&text| text.to_owned()).collect();
        ok(9, Call::Read { channel: "c".to_owned() }, from, from + 5, Answer::Messages(texts))
    }

    fn judge(history: &[Told], texts: &[&str]) -> Vec<String> {
        let texts = texts.iter().map(|&text| text.to_owned()).collect();
        check(history, &BTreeMap::from([("c".to_owned(), texts)]))
    }

    #[test]
    fn a_good_history_passes() {
        let history = [
            post(1, 0, "a1"),
            post(2, 2, "b1"),
            unknown(1, call("a2"), 10),
            unknown(1, call("a3"), 11),
            fail(2, call("b2"), 12, 15),
            read(20, &["b1", "a1"]),
            read(40, &["a3"]),
        ];
        // What is unknown may come at any time, or never.
        assert_eq!(judge(&history, &["b1", "a1", "a3"]), [""; 0]);
    }

    #[test]
    fn what_was_acknowledged_is_there_once() {
        breaks(&judge(&[post(1, 0, "a")], &[]), "lost");
        breaks(&judge(&[post(1, 0, "a")], &["a", "a"]), "doubled");
        breaks(&judge(&[post(1, 0, "a")], &["a", "x"]), "invented");
        breaks(&judge(&[fail(1, call("a"), 0, 5)], &["a"]), "invented");
    }

    #[test]
    fn each_senders_messages_keep_their_order() {
        let history = [post(1, 0, "a1"), post(2, 0, "b1"), post(1, 10, "a2")];
        assert_eq!(judge(&history, &["a1", "a2", "b1"]), [""; 0]);
        breaks(&judge(&history, &["a2", "b1", "a1"]), "order");
        let told: Vec<Told> = history.into_iter().chain([read(30, &["a2", "a1", "b1"])]).collect();
        breaks(&judge(&told, &["a1", "b1", "a2"]), "order");
    }

    #[test]
    fn a_message_is_read_once() {
        breaks(&judge(&[post(1, 0, "a"), read(10, &["a"]), read(20, &["a"])], &["a"]), "doubled");
        breaks(&judge(&[post(1, 0, "a"), read(10, &[])], &["a"]), "lost");
        // Not if an answer was lost with it.
        let silent = unknown(9, Call::Read { channel: "c".to_owned() }, 8);
        assert_eq!(judge(&[post(1, 0, "a"), silent, read(10, &[])], &["a"]), [""; 0]);
    }
}
