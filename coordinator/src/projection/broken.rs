//! What can go wrong while the read side is written, and how it is said.

use crate::store::StoreError;
use crate::store::sqlite::connection::{is_damage, sentence};

/// Why a step did not succeed. Every one of them is answered by building anew.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the read side's file: {}", said(.0))]
    Sqlite(#[from] rusqlite::Error),
    #[error("a reader has found the read side's file damaged; the store is not concerned")]
    Damaged,
    #[error("the process is shutting down")]
    Closed,
}

/// What went wrong with the file, and what to do about it. Where it is damaged that is nothing: no backup has it, and
/// the store all that it had.
pub(super) fn said(error: &rusqlite::Error) -> String {
    if !is_damage(error) {
        return sentence(error);
    }
    format!("the file is damaged ({error}) and is made anew from the store, which is not concerned")
}
