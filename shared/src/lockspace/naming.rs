//! Names of locks and holders in a sentence.

use crate::limits;

/// Most bytes that they take: the first key has room, however long it is, and clients take the sentence.
const ROOM: usize = limits::LOCK_KEY + 512;

/// As many as have room, whole, and how many more there are. The detail of the refusal has them all.
pub(super) fn named(all: &[&str], between: &str) -> String {
    let mut bytes = 0;
    let fits = all.iter().take_while(|one| {
        bytes += one.len() + between.len();
        bytes <= ROOM
    });
    let told = &all[..fits.count()];
    match all.len() - told.len() {
        0 => told.join(between),
        more => format!("{}{between}{more} more", told.join(between)),
    }
}
