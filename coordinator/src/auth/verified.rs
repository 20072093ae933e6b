//! Tokens whose signatures were checked before: a signature costs more than all else that a call reads.
//!
//! What is kept is the token's digest and what it says. Its times are looked at on every use, and the table
//! belongs to one set of keys, so a token ends when it ends and a key that was taken out opens nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ring::digest::{SHA256, digest};

/// Tokens kept: more than a node has agents, for those that come back all at once after a break. A full table is
/// emptied: to check them all anew costs less than to know which are in use.
const KEPT: usize = 16_384;

pub(super) type Digest = [u8; 32];

/// What tokens say, by their digests.
#[derive(Debug)]
pub(super) struct Verified<T> {
    known: Mutex<HashMap<Digest, Arc<T>>>,
}

impl<T> Default for Verified<T> {
    fn default() -> Self {
        Self { known: Mutex::default() }
    }
}

impl<T> Verified<T> {
    /// Gives what the token says, and checks it only if it is new.
    ///
    /// # Errors
    /// As the check says; a token that failed is checked anew at each try.
    pub(super) fn get_or_check<E>(
        &self,
        token: &str,
        check: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let key = key(token);
        if let Some(known) = self.lock().get(&key) {
            return Ok(Arc::clone(known));
        }
        Ok(self.keep(key, check()?))
    }

    /// What the token says, if it was checked before.
    pub(super) fn get(&self, token: &str) -> Option<Arc<T>> {
        self.lock().get(&key(token)).map(Arc::clone)
    }

    pub(super) fn insert(&self, token: &str, checked: T) -> Arc<T> {
        self.keep(key(token), checked)
    }

    fn keep(&self, key: Digest, checked: T) -> Arc<T> {
        let checked = Arc::new(checked);
        let mut known = self.lock();
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(key, Arc::clone(&checked));
        checked
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Digest, Arc<T>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(token: &str) -> Digest {
    let mut key = Digest::default();
    key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_checked_once_and_a_failure_every_time() {
        let verified = Verified::default();
        let told = |token: &str, answer: Result<u32, ()>| verified.get_or_check(token, || answer);
        assert_eq!(told("bad", Err(())), Err(()));
        assert_eq!(told("good", Ok(1)), Ok(Arc::new(1)));
        assert_eq!(told("good", Err(())), Ok(Arc::new(1)));
        assert_eq!(told("bad", Ok(2)), Ok(Arc::new(2)));
    }

    #[test]
    fn the_table_is_bounded() {
        let verified = Verified::default();
        for number in 0..=KEPT {
            verified.get_or_check(&number.to_string(), || Ok::<_, ()>(number)).unwrap();
        }
        assert!(verified.lock().len() <= KEPT);
    }
}
