//! What keeps the swarms' secrets: it seals them before they are sent to an entity, and opens them for those who may
//! read them. Nothing below it ever has one in plain text.
//!
//! The keys lie in the data folder, in a file that the node makes at its first start and all coordinators of a cluster
//! share, or come from the environment. `key` seals and opens, `ring` holds the keys, here is where they come from.

mod key;
mod ring;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use secrecy::{ExposeSecret, SecretString};
use skein_shared::settings::Sealed;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use crate::auth::key_file;
use key::Key;
use ring::Ring;

/// The file with the keys, in the data folder and in the folder of a node's certificate.
pub const FILE: &str = "secrets.json";

/// Seals and opens. Cheap to clone.
#[derive(Clone)]
pub struct Vault {
    inner: Arc<Inner>,
}

struct Inner {
    /// None for keys that live as long as the process.
    file: Option<PathBuf>,
    /// Keys from the environment, which go before those of the file.
    given: Ring,
    known: Mutex<Known>,
}

struct Known {
    ring: Arc<Ring>,
    /// What the file was like when it was read.
    stamp: Option<Stamp>,
}

/// A file that was replaced has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    changed: Option<SystemTime>,
}

/// Shows which keys there are and never a key.
impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault").field("file", &self.inner.file).finish_non_exhaustive()
    }
}

impl Vault {
    /// Reads the keys of a data folder, and makes them at the first start; none are made when the environment gives
    /// some.
    ///
    /// # Errors
    /// When the file cannot be read or written, can be read by others, or a key is none.
    pub fn open(folder: &Path, given: Option<&SecretString>) -> io::Result<Self> {
        let path = folder.join(FILE);
        let given = given.map(|keys| Ring::given(keys.expose_secret())).transpose()?.unwrap_or_default();
        if given.first().is_none() {
            key_file::load_or_create(&path, || Ring::fresh()?.write())?;
        }
        let vault = Self::with(Some(path), given);
        vault.ring()?;
        Ok(vault)
    }

    /// Takes over the keys that came with a node's certificate, unless the data folder has some already.
    ///
    /// # Errors
    /// When they cannot be read or written.
    pub fn adopt(folder: &Path, from: &Path) -> io::Result<()> {
        let check = |source: &Path, text: &str| Ring::read(source, text).map(|_| ());
        key_file::adopt(&folder.join(FILE), &from.join(FILE), check)
    }

    /// No keys: it refuses to seal, and opens nothing.
    pub fn without_keys() -> Self {
        Self::with(None, Ring::default())
    }

    /// A key that lives as long as the process, for tests.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn ephemeral() -> io::Result<Self> {
        Ok(Self::with(None, Ring::fresh()?))
    }

    fn with(file: Option<PathBuf>, given: Ring) -> Self {
        let known = Known { ring: Arc::new(given.clone()), stamp: None };
        Self { inner: Arc::new(Inner { file, given, known: Mutex::new(known) }) }
    }

    /// Seals a text for the place that `bound` names: it opens nowhere else. The same request seals the same text to
    /// the same bytes, so that its repeat is one.
    ///
    /// # Errors
    /// `wrong_state` when there is no key.
    pub fn seal(&self, request: Uuid, bound: &[u8], text: &str) -> Result<Sealed, Refusal> {
        let ring = self.ring().map_err(|error| unusable(&error))?;
        let Some(key) = ring.first() else {
            let sentence =
                "this coordinator has no key for secrets; set it without isSecret, or ask the operator";
            return Err(Refusal::new(Code::WrongState, sentence));
        };
        key.seal(request, bound, text)
    }

    /// Gives a sealed text back, for the place that it was sealed for.
    ///
    /// # Errors
    /// A sentence that says what to do when the key is not here, or the text is not what was sealed for this place.
    pub fn unseal(&self, bound: &[u8], sealed: &Sealed) -> Result<SecretString, String> {
        let ring = self.ring().map_err(|error| unusable(&error).message)?;
        let key = ring.find(&sealed.key).ok_or_else(|| {
            format!(
                "it was sealed with the key {}, which this coordinator does not have; put that key back, or set the value anew",
                sealed.key
            )
        })?;
        key.open(bound, &sealed.text).map_err(|()| {
            format!(
                "the key {} does not open it, so it was changed or belongs elsewhere; set the value anew",
                sealed.key
            )
        })
    }

    /// The ids of the keys, the sealing one first, and that of the next if one waits.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn keys(&self) -> Result<(Vec<String>, Option<String>), Refusal> {
        let ring = self.ring().map_err(|error| unusable(&error))?;
        Ok((ring.ids(), ring.next_id()))
    }

    /// Adds a key to the file that opens from now on, and seals once [`Self::advance`] is called. Gives its id.
    ///
    /// # Errors
    /// `wrong_state` when one waits already.
    pub fn add(&self) -> Result<String, Refusal> {
        self.change(|ring| {
            if let Some(next) = ring.next_id() {
                let sentence =
                    format!("the key {next} is there already and waits for `skein secrets rotate`");
                return Err(Refusal::new(Code::WrongState, sentence));
            }
            ring.add().map_err(|error| unusable(&error))
        })
    }

    /// Lets the key that waits seal from now on.
    ///
    /// # Errors
    /// `wrong_state` when none waits.
    pub fn advance(&self) -> Result<String, Refusal> {
        self.change(|ring| {
            ring.advance().ok_or_else(|| {
                Refusal::new(Code::WrongState, "no new key waits; add one with `skein secrets add`")
            })
        })
    }

    /// Whether the keys come from the environment, where alone they can be changed.
    pub fn is_given(&self) -> bool {
        self.inner.given.first().is_some()
    }

    /// Forgets the old ones of the keys that somebody has looked at, in the order of [`Self::keys`]; a key that came
    /// since then stays, whoever seals with it. Gives the ids of those that are gone.
    ///
    /// # Errors
    /// `wrong_state` when another key seals by now, and what the first of them sealed since then was not looked at;
    /// when the file cannot be written.
    pub fn forget_old(&self, looked_at: &[String]) -> Result<Vec<String>, Refusal> {
        self.change(|ring| {
            if ring.first().map(Key::id) != looked_at.first().map(String::as_str) {
                let sentence =
                    "the keys changed meanwhile, so none was dropped; call `skein secrets drop` again";
                return Err(Refusal::new(Code::WrongState, sentence));
            }
            Ok(ring.forget(looked_at))
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Ring) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let Some(path) = self.inner.file.as_ref().filter(|_| !self.is_given()) else {
            return Err(Refusal::new(
                Code::WrongState,
                "the keys come from SECRETS_ENCRYPTION_KEY; change them there, the new one first, and start the coordinators again",
            ));
        };
        let mut known = self.inner.known.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = || {
            let mut ring = Ring::read(path, &key_file::read(path)?)?;
            let given = change(&mut ring);
            if given.is_ok() {
                key_file::replace(path, &ring.write()?)?;
                *known = Known { ring: Arc::new(ring), stamp: stamp(path) };
            }
            Ok(given)
        };
        changed().map_err(|error: io::Error| unusable(&error))?
    }

    /// The keys as they are now: a file that was replaced is read anew, so that a key reaches coordinators that run.
    fn ring(&self) -> io::Result<Arc<Ring>> {
        let Some(path) = &self.inner.file else { return Ok(Arc::new(self.inner.given.clone())) };
        let mut known = self.inner.known.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamp(path);
        if now.is_some() && now != known.stamp {
            let ring = Ring::read(path, &key_file::read(path)?)?;
            *known = Known { ring: Arc::new(self.inner.given.clone().before(ring)), stamp: now };
        }
        Ok(Arc::clone(&known.ring))
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::metadata(path).ok()?;
    Some(Stamp { inode: file.ino(), changed: file.modified().ok() })
}

fn unusable(error: &io::Error) -> Refusal {
    Refusal::new(Code::Unavailable, format!("the keys of the secrets cannot be used: {error}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const BOUND: &[u8] = b"default/global/TOKEN";

    fn text(opened: Result<SecretString, String>) -> Result<String, String> {
        opened.map(|text| text.expose_secret().to_owned())
    }

    #[test]
    fn a_secret_opens_where_it_was_sealed_and_nowhere_else() {
        let (vault, other) = (Vault::ephemeral().unwrap(), Vault::ephemeral().unwrap());
        let sealed = vault.seal(Uuid::from_u128(1), BOUND, "hush-hush").unwrap();
        assert!(!sealed.text.contains("hush"));
        assert_eq!(text(vault.unseal(BOUND, &sealed)).as_deref(), Ok("hush-hush"));
        assert!(
            text(vault.unseal(b"default/global/OTHER", &sealed)).unwrap_err().contains("belongs elsewhere")
        );
        let unknown = text(other.unseal(BOUND, &sealed)).unwrap_err();
        assert!(unknown.contains(&sealed.key) && unknown.contains("put that key back"), "{unknown}");
        for bent in ["", "é", &sealed.text[4..], &sealed.text.replacen(&sealed.text[..1], "_", 1)] {
            let bent = Sealed { text: bent.to_owned(), ..sealed.clone() };
            assert!(vault.unseal(BOUND, &bent).is_err(), "{bent:?}");
        }
        assert!(!format!("{vault:?}").contains("hush"));
        let none = Vault::without_keys();
        assert_eq!(none.seal(Uuid::nil(), BOUND, "x").unwrap_err().code, Code::WrongState);
        assert!(none.unseal(BOUND, &sealed).is_err());
    }

    #[test]
    fn a_repeat_seals_to_the_same_and_nothing_else_does() {
        let vault = Vault::ephemeral().unwrap();
        let seal = |request: u128, bound: &[u8], text: &str| {
            vault.seal(Uuid::from_u128(request), bound, text).unwrap().text
        };
        let first = seal(1, BOUND, "x");
        assert_eq!(seal(1, BOUND, "x"), first);
        for other in [seal(2, BOUND, "x"), seal(1, b"elsewhere", "x"), seal(1, BOUND, "y")] {
            // The nonce comes first.
            assert_ne!(other[..16], first[..16]);
        }
    }

    #[test]
    fn keys_are_made_once_and_kept_private() {
        let folder = tempfile::tempdir().unwrap();
        let sealed = Vault::open(folder.path(), None).unwrap().seal(Uuid::nil(), BOUND, "x").unwrap();
        assert_eq!(
            text(Vault::open(folder.path(), None).unwrap().unseal(BOUND, &sealed)).as_deref(),
            Ok("x")
        );
        let path = folder.path().join(FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);

        let second = tempfile::tempdir().unwrap();
        Vault::adopt(second.path(), folder.path()).unwrap();
        assert!(Vault::open(second.path(), None).unwrap().unseal(BOUND, &sealed).is_ok());

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(Vault::open(folder.path(), None).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        for broken in ["", "{}", "{\"aes256gcm\": []}", "{\"aes256gcm\": [\"c2hvcnQ=\"]}"] {
            std::fs::write(&path, broken).unwrap();
            assert_eq!(Vault::open(folder.path(), None).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn a_new_key_opens_before_it_seals_and_reaches_those_who_run() {
        let (folder, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let here = Vault::open(folder.path(), None).unwrap();
        Vault::adopt(second.path(), folder.path()).unwrap();
        let there = Vault::open(second.path(), None).unwrap();
        let copy = || {
            let text = std::fs::read(folder.path().join(FILE)).unwrap();
            key_file::replace(&second.path().join(FILE), &text).unwrap();
        };
        let old = here.seal(Uuid::nil(), BOUND, "old").unwrap();
        let added = here.add().unwrap();
        assert_eq!(here.add().unwrap_err().code, Code::WrongState);
        assert_eq!(here.seal(Uuid::nil(), BOUND, "old").unwrap(), old, "it seals too early");
        copy();
        assert_eq!(here.advance().unwrap(), added);
        assert_eq!(here.advance().unwrap_err().code, Code::WrongState);
        let new = here.seal(Uuid::nil(), BOUND, "new").unwrap();
        assert_eq!(new.key, added);
        assert_eq!(text(there.unseal(BOUND, &new)).as_deref(), Ok("new"));
        assert_eq!(text(here.unseal(BOUND, &old)).as_deref(), Ok("old"));
        copy();
        assert_eq!(there.seal(Uuid::nil(), BOUND, "new").unwrap(), new);
        assert_eq!(here.forget_old(&here.keys().unwrap().0).unwrap(), std::slice::from_ref(&old.key));
        assert!(here.unseal(BOUND, &old).is_err() && here.unseal(BOUND, &new).is_ok());
        assert_eq!(Vault::open(folder.path(), None).unwrap().keys().unwrap(), (vec![added], None));
    }

    /// As where somebody rotates while somebody else drops.
    #[test]
    fn no_key_is_dropped_that_was_not_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let vault = Vault::open(folder.path(), None).unwrap();
        let rotate = || {
            vault.add().unwrap();
            vault.advance().unwrap();
            vault.keys().unwrap().0
        };
        let looked_at = rotate();
        let sealed = vault.seal(Uuid::nil(), BOUND, "x").unwrap();
        let now = rotate();
        assert_eq!(vault.forget_old(&looked_at).unwrap_err().code, Code::WrongState);
        assert_eq!(vault.keys().unwrap().0, now, "none is gone");

        // Whoever has another file than before may find keys in it that nobody has counted.
        let [first, second, third] = &now[..] else { panic!("three keys: {now:?}") };
        let gone = vault.forget_old(&[first.clone(), third.clone()]).unwrap();
        assert_eq!(gone, std::slice::from_ref(third));
        assert_eq!(vault.keys().unwrap().0, [first.clone(), second.clone()]);
        assert_eq!(text(vault.unseal(BOUND, &sealed)).as_deref(), Ok("x"));
    }

    #[test]
    fn the_environments_keys_go_first_and_the_files_still_open() {
        let folder = tempfile::tempdir().unwrap();
        let before = Vault::open(folder.path(), None).unwrap().seal(Uuid::nil(), BOUND, "before").unwrap();
        let given = |text: &str| Vault::open(folder.path(), Some(&SecretString::from(text)));
        let hex = "0a".repeat(32);
        let base64 = "CgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgo=";
        let vault = given(&hex).unwrap();
        let sealed = vault.seal(Uuid::nil(), BOUND, "x").unwrap();
        assert!(vault.unseal(BOUND, &before).is_ok() && vault.is_given());
        assert_eq!(vault.keys().unwrap().0, [sealed.key.clone(), before.key.clone()]);
        assert!(given(base64).unwrap().unseal(BOUND, &sealed).is_ok(), "the same key in base64");
        let two = given(&format!("{}, {hex}", "0b".repeat(32))).unwrap();
        assert_ne!(two.seal(Uuid::nil(), BOUND, "x").unwrap().key, sealed.key);
        assert!(two.unseal(BOUND, &sealed).is_ok());
        assert!(two.add().unwrap_err().message.contains("SECRETS_ENCRYPTION_KEY"));
        for bad in ["hush", &hex[2..], &format!("{hex},")] {
            let refused = given(bad).unwrap_err();
            assert!(!refused.to_string().contains(bad), "{refused}");
        }
        let empty = tempfile::tempdir().unwrap();
        Vault::open(empty.path(), Some(&SecretString::from(hex.as_str()))).unwrap();
        assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0, "a key that nobody needs was made");
    }
}
