//! The keys or the arguments of a script, one behind the other in one piece of memory: a commit has hundreds.

use std::fmt::Display;
use std::io::Write;

use serde::Serialize;

use crate::store::CommitError;

#[derive(Default)]
pub(super) struct Arguments {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Arguments {
    /// Room for so many bytes, so that they are not moved again and again while they come to be more.
    pub(super) fn with_room(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ends: Vec::new() }
    }

    pub(super) fn text(&mut self, text: &str) {
        self.texts(&[text]);
    }

    /// Several texts as one argument.
    pub(super) fn texts(&mut self, parts: &[&str]) {
        parts.iter().for_each(|part| self.part(part));
        self.end();
    }

    /// What it looks like as text.
    pub(super) fn shown(&mut self, value: impl Display) {
        // Memory takes everything.
        let _ = write!(self.bytes, "{value}");
        self.end();
    }

    /// A value as JSON, behind a prefix.
    ///
    /// # Errors
    /// When it cannot be written so.
    pub(super) fn json(&mut self, prefix: &str, value: &impl Serialize) -> Result<(), CommitError> {
        self.bytes.extend_from_slice(prefix.as_bytes());
        serde_json::to_writer(&mut self.bytes, value)
            .map_err(|error| CommitError::Failed(format!("not writable as JSON: {error}")))?;
        self.end();
        Ok(())
    }

    /// A part of an argument that is written in many; [`Arguments::end`] ends it.
    pub(super) fn part(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// A part of an argument: a text as JSON.
    pub(super) fn quoted(&mut self, text: &str) {
        // Memory takes everything, and every text has a form.
        let _ = serde_json::to_writer(&mut self.bytes, text);
    }

    /// How many bytes there are in all.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| &self.bytes[begin..*end])
    }

    pub(super) fn end(&mut self) {
        self.ends.push(self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_out_as_they_went_in() {
        let mut arguments = Arguments::default();
        arguments.text("");
        arguments.texts(&["b:", "text"]);
        arguments.shown(17);
        arguments.json("3 ", &["a"]).unwrap();
        arguments.part("x");
        arguments.quoted("\n");
        arguments.end();
        let all: Vec<&[u8]> = arguments.iter().collect();
        assert_eq!(all, [&b""[..], b"b:text", b"17", b"3 [\"a\"]", b"x\"\\n\""]);
        assert_eq!(arguments.bytes(), 20);
    }
}
