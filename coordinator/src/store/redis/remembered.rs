//! What an owner remembers of its store outside of it: which one it is, and how far it had come. So a store that lost
//! what it had acknowledged is noticed, whoever lost it and however.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tracing::warn;

use crate::store::StoreError;

/// A file beside the owner's others.
#[derive(Clone, Debug)]
pub struct Remembered {
    file: PathBuf,
    known: Option<Known>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    /// The store's id, which it got when it was empty.
    store: String,
    /// The last position whose commit was acknowledged to this owner.
    position: u64,
}

impl Remembered {
    /// Reads the file; one that is missing remembers nothing.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(file: PathBuf) -> io::Result<Self> {
        let known = match std::fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).ok(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Self { file, known })
    }

    /// Forgets the store that was worked with before, for one that is taken on purpose.
    pub fn anew(file: PathBuf) -> Self {
        Self { file, known: None }
    }

    /// Looks whether this is the store that was worked with before. Nothing was written into it yet.
    ///
    /// # Errors
    /// When it is another one, or lost everything.
    pub(super) fn recognize(&self, store: Option<&str>) -> Result<(), StoreError> {
        match &self.known {
            Some(known) if store != Some(known.store.as_str()) => Err(StoreError(format!(
                "this Redis {} the store that this data folder has worked with: restore its data, or name the right \
                 Redis; to begin anew with what it has and accept the loss, remove {}",
                if store.is_some() { "holds another store than" } else { "has lost" },
                self.file.display()
            ))),
            _ => Ok(()),
        }
    }

    /// How many commits are missing of those that were acknowledged, if some are.
    pub(super) fn missing(&self, position: u64) -> Option<u64> {
        let known = self.known.as_ref()?.position;
        known.checked_sub(position).filter(|missing| *missing > 0)
    }
}

/// Keeps the file up to date.
pub(super) struct Diary(Option<Mutex<Remembered>>);

impl Diary {
    pub(super) fn new(remembered: Option<Remembered>) -> Self {
        Self(remembered.map(Mutex::new))
    }

    /// Writes down what is known now. A file that cannot be written costs the next start a warning, not this one its work.
    pub(super) async fn note(&self, store: &str, position: u64) {
        let Some(remembered) = &self.0 else { return };
        let mut remembered = remembered.lock().await;
        let known = Known { store: store.to_owned(), position };
        if remembered.known.as_ref() == Some(&known) {
            return;
        }
        let draft = remembered.file.with_extension("draft");
        let text = serde_json::to_vec(&known).unwrap_or_default();
        let written = async {
            tokio::fs::write(&draft, text).await?;
            tokio::fs::rename(&draft, &remembered.file).await
        };
        match written.await {
            Ok(()) => remembered.known = Some(known),
            Err(error) => {
                warn!(file = %remembered.file.display(), %error, "how far the store had come was not noted")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_store_is_known_again_and_what_it_lost_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("redis.json");
        let fresh = Remembered::read(file.clone()).unwrap();
        fresh.recognize(Some("a")).unwrap();
        assert_eq!(fresh.missing(0), None);
        Diary::new(Some(fresh)).note("a", 7).await;
        let known = Remembered::read(file.clone()).unwrap();
        known.recognize(Some("a")).unwrap();
        assert_eq!((known.missing(9), known.missing(7), known.missing(4)), (None, None, Some(3)));
        let lost = known.recognize(None).unwrap_err().to_string();
        assert!(lost.contains("has lost the store") && lost.contains("redis.json"), "{lost}");
        let other = known.recognize(Some("b")).unwrap_err().to_string();
        assert!(other.contains("holds another store"), "{other}");
        Remembered::anew(file).recognize(Some("b")).unwrap();
    }
}
