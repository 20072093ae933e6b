//! How agents are kept from the runner's data and from each other.
//!
//! As root, each instance gets a numeric user of its own, and file modes keep it from what is others'. Where the kernel
//! has Landlock it closes folders to the instance's processes besides, whatever the modes of the files in them are: a
//! person opens them by a `chmod`, or an agent does. Without users, Landlock is all there is; then the kernel keeps the
//! processes from signalling others by it too.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, Scope,
    path_beneath_rules,
};

/// Users and groups given to instances, by all runners of a machine together. The range lies above those that
/// distributions and systemd hand out.
pub const USERS: std::ops::Range<u32> = 1_900_000_000..1_967_108_864;
/// What programs write to that is no file of anybody's.
const HARMLESS: [&str; 9] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/shm",
];
/// Devices have owners and modes, which the system sets: a user of its own opens what all users may, a graphics card
/// for one.
const DEVICES: [&str; 1] = ["/dev"];
/// This program, as which a process goes on inside an instance.
const OWN: &str = "/proc/self/exe";
/// The newest Landlock rules that are asked for; older kernels apply what they know.
const NEWEST: ABI = ABI::V6;

/// What stands between an agent and the runner's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// A user of its own for each instance, and Landlock rules beside it where the kernel has them.
    Users,
    /// Landlock rules alone.
    Landlock,
    /// Nothing.
    None,
}

impl Isolation {
    /// As a label of the runner, for agents that ask for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Users => "users",
            Self::Landlock => "landlock",
            Self::None => "none",
        }
    }

    /// A sentence for the person who starts the runner.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Users if has_landlock() => {
                "Each instance runs as a user of its own, with limits of its own, and Landlock lets it write into its own folders alone."
            }
            Self::Users => {
                "Each instance runs as a user of its own, with limits of its own. This kernel has no Landlock: what others leave open to every user, an instance may read and write."
            }
            Self::Landlock => {
                "Landlock keeps instances from the data folder and from each other's files, and lets them write into their own folders alone. What else this user may read they can read; how many processes they start is not limited, since they share this user. Landlock does not close sockets: what listens on one that this user may open, such as its systemd or Docker, does for them what they may not."
            }
            Self::None => {
                "Agents run as this user and can read its files, the data folder among them: this kernel has no Landlock, and the runner is not root. Run agents that you trust, or start the runner as root."
            }
        }
    }
}

/// What this process can do on this machine.
pub fn isolation() -> Isolation {
    if rustix::process::geteuid().is_root() && users_are_mapped() {
        return Isolation::Users;
    }
    if has_landlock() { Isolation::Landlock } else { Isolation::None }
}

/// Whether the kernel has Landlock and it is switched on.
pub fn has_landlock() -> bool {
    let first = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .and_then(Ruleset::create);
    first.is_ok()
}

/// Inside a user namespace the range may not exist.
fn users_are_mapped() -> bool {
    let Ok(map) = fs::read_to_string("/proc/self/uid_map") else { return false };
    map.lines().any(|line| {
        let numbers: Vec<u64> = line.split_ascii_whitespace().filter_map(|text| text.parse().ok()).collect();
        matches!(numbers[..], [inside, _, length]
            if inside <= u64::from(USERS.start) && inside + length >= u64::from(USERS.end))
    })
}

/// Keeps this process and all that it starts from writing anywhere but into the folders in `open` and to devices, and
/// from reading those in `closed`, except for what of them is in `open` or `readable`. It needs rights to look into the
/// folders on the way to the closed ones, so whoever becomes another user does that later.
///
/// With `own_user` the process is about to have a user to itself. Who may signal it, and which devices it may open, is
/// then up to the rights of users. Landlock would also keep a tool from ending what another tool of its instance has
/// started, since each is restricted by itself.
///
/// Landlock knows only what is allowed, so what may be read is everything but the closed folders and the folders on the
/// way to them, which cannot be listed. An open folder with a closed one in it is open in the same way: the process
/// cannot put new files directly into a parent of a closed folder.
///
/// # Errors
/// A sentence, when the kernel refuses.
pub fn restrict(
    closed: &[PathBuf],
    open: &[PathBuf],
    readable: &[PathBuf],
    own_user: bool,
) -> Result<(), String> {
    let found = |paths: &[PathBuf]| -> Vec<PathBuf> {
        paths.iter().filter_map(|path| path.canonicalize().ok()).collect()
    };
    let closed = found(closed);
    let open = found(open).into_iter().flat_map(|path| around(path, &closed));
    let readable = readable.iter().map(PathBuf::as_path).chain([Path::new(OWN)]);
    let devices = if own_user { DEVICES.as_slice() } else { HARMLESS.as_slice() };
    let (everything, reading) = (AccessFs::from_all(NEWEST), AccessFs::from_read(NEWEST));
    let apply = || {
        let ruleset = Ruleset::default().handle_access(everything)?;
        let ruleset = if own_user { ruleset } else { ruleset.scope(Scope::Signal)? };
        ruleset
            .create()?
            .add_rules(path_beneath_rules(allowed(Path::new("/"), &closed), reading))?
            .add_rules(path_beneath_rules(readable, reading))?
            .add_rules(path_beneath_rules(open, everything))?
            .add_rules(path_beneath_rules(devices, everything))?
            .restrict_self()
    };
    apply().map(|_| ()).map_err(|error| format!("Landlock could not be applied: {error}"))
}

/// A folder, or what is in it if a closed one is too.
fn around(folder: PathBuf, closed: &[PathBuf]) -> BTreeSet<PathBuf> {
    if closed.iter().any(|shut| shut.starts_with(&folder)) {
        return allowed(&folder, closed);
    }
    BTreeSet::from([folder])
}

/// The largest folders and files under `folder` that hold no closed folder. Links are left out: a rule holds for what a
/// link leads to, and that may be closed. What is not closed is allowed by its own path.
fn allowed(folder: &Path, closed: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let Ok(entries) = fs::read_dir(folder) else { return found };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink())) {
        let path = entry.path();
        if !closed.contains(&path) {
            found.extend(around(path, closed));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn everything_is_allowed_but_the_closed_folder_and_the_ways_to_it() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for folder in ["a/data/work", "a/other", "b"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        symlink(root.join("a/data"), root.join("a/current")).unwrap();
        symlink(root.join("a/data/work"), root.join("work")).unwrap();
        let found = allowed(&root, &[root.join("a/data")]);
        assert_eq!(found, BTreeSet::from([root.join("a/other"), root.join("b")]));
    }
}
