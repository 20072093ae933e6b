//! The users and groups that this runner gives to its instances.
//!
//! Whatever runs as an instance's user is ended with it, and finds its files open. So two runners of one machine, a
//! demo beside a node among them, must not give the same users away, and not after the first of them has ended either:
//! its instances may outlive it. Each has a block of its own, written down for the machine until its data folder is
//! gone.

use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use uuid::Uuid;

use super::folders::{Folders, LEDGER};
use crate::container::confine::USERS;
use crate::error::Error;

/// The users of one runner.
const BLOCK: u32 = 65_536;
const BLOCKS: u32 = (USERS.end - USERS.start) / BLOCK;
/// Where the machine's runners write down which of them has which block.
const CLAIMS: &str = "/run/skein-users";

/// The block of the runner with these folders. `known` is a user that it has given away before: it keeps that block if
/// it can. Otherwise its data folder's name says where the search begins, so that two runners seldom meet even when
/// nothing is written down, as after the machine was started anew.
///
/// # Errors
/// When the claims cannot be read or written, or when other runners have every block.
pub fn claim(folders: &Folders, known: Option<u32>) -> Result<Range<u32>, Error> {
    claim_in(Path::new(CLAIMS), folders.data(), known)
}

fn claim_in(claims: &Path, data: &Path, known: Option<u32>) -> Result<Range<u32>, Error> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(claims);
    made.map_err(|error| Error::io("make", claims, error))?;
    let file = claims.join("lock");
    let lock = fs::File::create(&file).map_err(|error| Error::io("make", &file, error))?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|error| Error::io("lock", &file, error.into()))?;
    let first = match known.filter(|user| USERS.contains(user)) {
        Some(user) => (user - USERS.start) / BLOCK,
        None => number_of(data),
    };
    for block in (0..BLOCKS).map(|step| (first + step) % BLOCKS) {
        let claim = claims.join(block.to_string());
        if owner(&claim)?.is_some_and(|owner| owner != data && owner.join(LEDGER).exists()) {
            continue;
        }
        fs::write(&claim, data.as_os_str().as_bytes()).map_err(|error| Error::io("write", &claim, error))?;
        let start = USERS.start + block * BLOCK;
        return Ok(start..start + BLOCK);
    }
    Err(Error::config(format!(
        "the {BLOCKS} blocks of users that runners of this machine can have are taken, as {} shows; remove data folders of runners that are no more",
        claims.display()
    )))
}

fn number_of(data: &Path) -> u32 {
    let hash = Uuid::new_v5(&Uuid::NAMESPACE_OID, data.as_os_str().as_bytes());
    u32::try_from(hash.as_u128() % u128::from(BLOCKS)).unwrap_or_default()
}

/// The data folder of the runner that has a block.
fn owner(claim: &Path) -> Result<Option<PathBuf>, Error> {
    match fs::read(claim) {
        Ok(path) => Ok(Some(PathBuf::from(OsString::from_vec(path)))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", claim, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data folder with a ledger.
    fn data(folder: &Path, name: &str) -> PathBuf {
        let data = folder.join(name);
        fs::create_dir(&data).unwrap();
        fs::write(data.join(LEDGER), "").unwrap();
        data
    }

    #[test]
    fn no_two_runners_of_a_machine_have_a_user_in_common() {
        let folder = tempfile::tempdir().unwrap();
        let claims = folder.path().join("claims");
        let (a, b) = (data(folder.path(), "a"), data(folder.path(), "b"));
        let first = claim_in(&claims, &a, None).unwrap();
        assert_eq!(first.start, USERS.start + number_of(&a) * BLOCK);
        assert_eq!(claim_in(&claims, &a, Some(first.start + 3)).unwrap(), first, "it keeps its own");
        let second = claim_in(&claims, &b, Some(first.start)).unwrap();
        assert!(!first.contains(&second.start) && second.end - second.start == BLOCK, "{first:?} {second:?}");
        assert_eq!(claim_in(&claims, &b, Some(second.end - 1)).unwrap(), second);
        let anew = claim_in(&folder.path().join("after a start"), &b, Some(second.start)).unwrap();
        assert_eq!(anew, second, "and when nothing is written down");
    }

    #[test]
    fn a_block_is_free_once_its_runners_data_folder_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let claims = folder.path().join("claims");
        let (a, b) = (data(folder.path(), "a"), data(folder.path(), "b"));
        let last = Some(USERS.end - 1);
        let first = claim_in(&claims, &a, last).unwrap();
        assert_eq!(first.end, USERS.end);
        assert_eq!(claim_in(&claims, &b, last).unwrap().start, USERS.start, "after the last comes the first");
        fs::remove_dir_all(&a).unwrap();
        let c = data(folder.path(), "c");
        assert_eq!(claim_in(&claims, &c, last).unwrap(), first);
    }

    #[test]
    fn a_machine_full_of_runners_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let claims = folder.path().join("claims");
        let (a, b) = (data(folder.path(), "a"), data(folder.path(), "b"));
        fs::create_dir(&claims).unwrap();
        for block in 0..BLOCKS {
            fs::write(claims.join(block.to_string()), a.as_os_str().as_bytes()).unwrap();
        }
        let said = claim_in(&claims, &b, None).unwrap_err().to_string();
        assert!(said.contains("remove data folders"), "{said}");
    }
}
