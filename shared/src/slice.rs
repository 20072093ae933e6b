//! How much of what is due one decision does, so that what it writes can be committed. The rest stays due, and the next
//! tick goes on with it.

use crate::limits;

/// What one decision takes on, bytes of texts that it writes. Several copies of them have to fit: an event, a document
/// and an effect may each have one.
const BYTES: usize = limits::DECISION / 4;
/// What is written of a thing beside its texts, bytes.
const BESIDE: usize = 4096;

/// The part of what is due that has been taken so far.
#[derive(Default)]
pub(crate) struct Slice {
    taken: usize,
}

impl Slice {
    /// Whether there is room for one more thing, whose texts come to so many bytes. One that is larger than a slice
    /// goes by itself.
    pub(crate) fn takes(&mut self, texts: usize) -> bool {
        let taken = self.taken + BESIDE + texts;
        if self.taken > 0 && taken > BYTES {
            return false;
        }
        self.taken = taken;
        true
    }
}
