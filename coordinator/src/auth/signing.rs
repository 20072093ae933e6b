//! `keys.json`: the keys that sign tokens, in the data directory with the mode 0600.
//!
//! The first signs; all of them verify, so a token holds until its end when another key has taken the first place.
//! `next` verifies already and does not sign yet: nodes that share a store get to know it before the first of them
//! signs with it.

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::signature::Ed25519KeyPair;
use serde::{Deserialize, Serialize};

use super::key_file;

const FILE: &str = "keys.json";
/// Keys that a file may hold: each token is looked for among them.
const MOST: usize = 8;

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct KeyFile {
    /// PKCS#8 documents in base64, the signing key first.
    ed25519: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl KeyFile {
    pub(super) fn path(dir: &Path) -> PathBuf {
        dir.join(FILE)
    }

    /// Reads the keys of a folder, and makes them if there are none.
    pub(super) fn read_or_create(dir: &Path) -> io::Result<Self> {
        let path = Self::path(dir);
        let text = key_file::load_or_create(&path, || {
            let keys = Self { ed25519: vec![STANDARD.encode(generate()?)], next: None };
            Ok(serde_json::to_vec_pretty(&keys)?)
        })?;
        Self::parse(&path, &text)
    }

    pub(super) fn read(dir: &Path) -> io::Result<Self> {
        let path = Self::path(dir);
        Self::parse(&path, &key_file::read(&path)?)
    }

    /// Takes over the keys of another folder, unless there are some already.
    pub(super) fn adopt(dir: &Path, from: &Path) -> io::Result<()> {
        let check = |source: &Path, text: &str| Self::parse(source, text).map(|_| ());
        key_file::adopt(&Self::path(dir), &Self::path(from), check)
    }

    fn parse(path: &Path, text: &str) -> io::Result<Self> {
        let keys: Self = serde_json::from_str(text).map_err(|_| broken(path))?;
        let known = keys.documents().map_err(|_| broken(path))?;
        if keys.ed25519.is_empty() || known.len() > MOST {
            return Err(broken(path));
        }
        Ok(keys)
    }

    /// The keys, that which signs first.
    pub(super) fn documents(&self) -> io::Result<Vec<Vec<u8>>> {
        let unusable = || io::Error::new(io::ErrorKind::InvalidData, "a signing key cannot be used");
        let all = self.ed25519.iter().chain(&self.next);
        all.map(|key| {
            let document = STANDARD.decode(key).map_err(|_| unusable())?;
            Ed25519KeyPair::from_pkcs8(&document).map_err(|_| unusable())?;
            Ok(document)
        })
        .collect()
    }

    /// Makes the key that signs next, unless there is one.
    pub(super) fn prepare(&mut self) -> io::Result<()> {
        if self.next.is_none() {
            if self.ed25519.len() + 1 >= MOST {
                let problem = format!("there are {MOST} keys already; take the old ones out with --retire");
                return Err(io::Error::other(problem));
            }
            self.next = Some(STANDARD.encode(generate()?));
        }
        Ok(())
    }

    /// Lets the next key sign. If none was prepared, makes it where the keys are nobody else's.
    pub(super) fn rotate(&mut self, are_shared: bool) -> io::Result<()> {
        if are_shared && self.next.is_none() {
            return Err(io::Error::other(
                "several coordinators share these keys, and the others would refuse what a key signs that they do not know; \
                 make it with --prepare, and copy keys.json to all of them first",
            ));
        }
        self.prepare()?;
        self.ed25519.splice(0..0, self.next.take());
        Ok(())
    }

    /// Takes the keys out that sign no more, and with them all tokens that they signed.
    pub(super) fn retire(&mut self) {
        self.ed25519.truncate(1);
    }

    /// Writes the file anew, whole or not at all.
    pub(super) fn replace(&self, dir: &Path) -> io::Result<()> {
        key_file::replace(&Self::path(dir), &serde_json::to_vec_pretty(self)?)
    }
}

fn broken(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{} holds no keys", path.display()))
}

fn generate() -> io::Result<Vec<u8>> {
    let document = Ed25519KeyPair::generate_pkcs8(&ring::rand::SystemRandom::new())
        .map_err(|_| io::Error::other("the system gave no randomness for a signing key"))?;
    Ok(document.as_ref().to_vec())
}

/// A key that lives as long as the process.
pub(super) fn ephemeral() -> io::Result<Vec<Vec<u8>>> {
    Ok(vec![generate()?])
}
