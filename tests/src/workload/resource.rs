//! What locks guard: it remembers the highest token of each key and refuses lower ones.

use std::collections::BTreeMap;

use skein_shared::fence::Token;

use crate::history::locks::Write;

#[derive(Default)]
pub(super) struct Resource {
    highest: BTreeMap<String, Token>,
    log: Vec<Write>,
}

impl Resource {
    /// Says whether the write was taken.
    pub(super) fn write(&mut self, write: Write) -> bool {
        let highest = self.highest.entry(write.key.clone()).or_insert(write.token);
        if write.token < *highest {
            return false;
        }
        *highest = write.token;
        self.log.push(write);
        true
    }

    pub(super) fn log(&self) -> &[Write] {
        &self.log
    }
}
