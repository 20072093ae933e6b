//! The keys of a coordinator, in their order, and their two forms: the file's and the environment's.

use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};

use super::key::{BYTES, Key};

/// The first seals, all open.
#[derive(Clone, Default)]
pub(super) struct Ring {
    keys: Vec<Key>,
    /// Opens, and is to seal once all coordinators have it.
    next: Option<Key>,
}

#[derive(Serialize, Deserialize)]
struct File {
    /// In base64, the sealing one first.
    aes256gcm: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl Ring {
    pub(super) fn fresh() -> io::Result<Self> {
        Ok(Self { keys: vec![Key::fresh()?], next: None })
    }

    pub(super) fn read(path: &Path, text: &str) -> io::Result<Self> {
        let broken =
            || io::Error::new(io::ErrorKind::InvalidData, format!("{} holds no keys", path.display()));
        let file: File = serde_json::from_str(text).map_err(|_| broken())?;
        let keys: Vec<Key> =
            file.aes256gcm.iter().map(|key| key_of(key)).collect::<Option<_>>().ok_or_else(broken)?;
        let next = file.next.map(|key| key_of(&key).ok_or_else(broken)).transpose()?;
        if keys.is_empty() {
            return Err(broken());
        }
        Ok(Self { keys, next })
    }

    pub(super) fn write(&self) -> io::Result<Vec<u8>> {
        let text = |key: &Key| key.secret().expose_secret().to_owned();
        let file =
            File { aes256gcm: self.keys.iter().map(text).collect(), next: self.next.as_ref().map(text) };
        Ok(serde_json::to_vec_pretty(&file)?)
    }

    /// Keys with commas between them, as a variable has them.
    pub(super) fn given(text: &str) -> io::Result<Self> {
        let keys: Option<Vec<Key>> = text.split(',').map(|key| key_of(key.trim())).collect();
        let keys = keys.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "SECRETS_ENCRYPTION_KEY must be 32 bytes in base64 or hexadecimal digits, several with commas between them; make one with `openssl rand -base64 32`",
            )
        })?;
        Ok(Self { keys, next: None })
    }

    /// These keys, and after them those of `other`.
    pub(super) fn before(mut self, other: Self) -> Self {
        let new = other.keys.into_iter().filter(|key| self.find(key.id()).is_none());
        let new: Vec<Key> = new.collect();
        self.keys.extend(new);
        self.next = self.next.or(other.next);
        self
    }

    pub(super) fn first(&self) -> Option<&Key> {
        self.keys.first()
    }

    pub(super) fn find(&self, id: &str) -> Option<&Key> {
        self.keys.iter().chain(&self.next).find(|key| key.id() == id)
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.keys.iter().map(|key| key.id().to_owned()).collect()
    }

    pub(super) fn next_id(&self) -> Option<String> {
        self.next.as_ref().map(|key| key.id().to_owned())
    }

    pub(super) fn add(&mut self) -> io::Result<String> {
        let key = Key::fresh()?;
        let id = key.id().to_owned();
        self.next = Some(key);
        Ok(id)
    }

    pub(super) fn advance(&mut self) -> Option<String> {
        let key = self.next.take()?;
        let id = key.id().to_owned();
        self.keys.insert(0, key);
        Some(id)
    }

    /// Forgets those of these keys that stand behind the first. Gives the ids of those that are gone.
    pub(super) fn forget(&mut self, ids: &[String]) -> Vec<String> {
        let old = self.keys.split_off(self.keys.len().min(1)).into_iter();
        let (gone, kept): (Vec<Key>, Vec<Key>) = old.partition(|key| ids.iter().any(|id| id == key.id()));
        self.keys.extend(kept);
        gone.iter().map(|key| key.id().to_owned()).collect()
    }
}

/// A key in base64 or in hexadecimal digits.
fn key_of(text: &str) -> Option<Key> {
    let is_hex = text.len() == 2 * BYTES && text.bytes().all(|letter| letter.is_ascii_hexdigit());
    let bytes = if is_hex {
        let pairs = (0..BYTES).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16));
        pairs.collect::<Result<Vec<u8>, _>>().ok()?
    } else {
        STANDARD.decode(text).ok()?
    };
    Some(Key::of(bytes.try_into().ok()?))
}
