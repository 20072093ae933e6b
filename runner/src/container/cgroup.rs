//! Control groups of version 2: one for each instance, below one for the runner.
//!
//! A group freezes and ends all its processes in one step, and no process leaves it by its own doing. No
//! controller is needed, so it works wherever the runner may make groups: as root, or in a unit that systemd
//! delegates to it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::mark;

/// Longest wait for a group to report that it is frozen or empty.
const SETTLE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(1);
/// Looks that are taken before any pause, some two milliseconds of them: a small group freezes within microseconds, and
/// a pause is longer than it says.
const SOON: usize = 200;
/// Takes in the process whose id is written to it.
const PROCESSES: &str = "cgroup.procs";
/// Before the runner's mark in the name of its group.
const RUNNER: &str = "skein-";

/// The runner's own group, in which those of its instances are made; `None` where that is not possible.
pub fn root(runner: &str) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find_map(mount_point)?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let name = format!("{RUNNER}{runner}");
    let root = mount.join(own.trim_start_matches('/')).join(&name);
    let root = if own.contains("..") { mount.join(name) } else { root };
    let made = make(&root).is_ok();
    (made && works(&root)).then_some(root)
}

/// The runner's own group, and behind it those that it made while it had another name.
pub fn roots(root: &Path, runner: &str) -> Vec<PathBuf> {
    let beside = root.parent().and_then(|parent| fs::read_dir(parent).ok());
    let beside = beside.into_iter().flatten().flatten().map(|entry| entry.path());
    let earlier = beside.filter(|path| path != root && is_root(path, runner));
    std::iter::once(root.to_owned()).chain(earlier).collect()
}

fn is_root(group: &Path, runner: &str) -> bool {
    let mark = group.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_prefix(RUNNER));
    mark.is_some_and(|mark| mark::is_same(mark, runner)) && group.is_dir()
}

/// The fifth field of a line of proc_pid_mountinfo(5), if it is a cgroup2 mount.
fn mount_point(line: &str) -> Option<PathBuf> {
    let (fields, kind) = line.split_once(" - ")?;
    if !kind.starts_with("cgroup2 ") {
        return None;
    }
    fields.split(' ').nth(4).map(PathBuf::from)
}

/// Tries it out: the right to make a group is not yet the right to move a process into it.
fn works(root: &Path) -> bool {
    let probe = root.join("probe");
    if make(&probe).is_err() {
        return false;
    }
    let joined = Command::new("/bin/sh")
        .args(["-c", "echo 0 > \"$0\""])
        .arg(probe.join(PROCESSES))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let usable = joined.is_ok_and(|status| status.success())
        && probe.join("cgroup.freeze").exists()
        && probe.join("cgroup.kill").exists();
    // What is left of it is empty, and made again by the next start.
    let _ = fs::remove_dir(&probe);
    usable
}

/// Makes a group; one that exists is as good.
pub fn make(group: &Path) -> io::Result<()> {
    match fs::create_dir(group) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Moves the calling process into the group.
pub fn join(group: &Path) -> io::Result<()> {
    fs::write(group.join(PROCESSES), "0")
}

/// Freezes the group or lets it go on, and waits until the kernel says that it is so. One that does not freeze in time,
/// since a process of it waits for the disk, goes on: later it would stand still unasked.
pub async fn set_frozen(group: &Path, frozen: bool) -> io::Result<()> {
    let switch = group.join("cgroup.freeze");
    fs::write(&switch, if frozen { "1" } else { "0" })?;
    let done = settled(group, if frozen { "frozen 1" } else { "frozen 0" }).await;
    if frozen && done.is_err() {
        fs::write(&switch, "0")?;
    }
    done
}

/// Ends every process of the group and of those below it, and removes them.
pub async fn kill(group: &Path) -> io::Result<()> {
    if !group.exists() {
        return Ok(());
    }
    fs::write(group.join("cgroup.kill"), "1")?;
    settled(group, "populated 0").await?;
    prune(group);
    fs::remove_dir(group)
}

/// Removes the groups below this one in which nothing lives any more.
pub fn prune(group: &Path) {
    let Ok(entries) = fs::read_dir(group) else { return };
    for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
        prune(&entry.path());
        // One that is in use stays.
        let _ = fs::remove_dir(entry.path());
    }
}

async fn settled(group: &Path, line: &str) -> io::Result<()> {
    let events = group.join("cgroup.events");
    until(line, || Ok(fs::read_to_string(&events)?.lines().any(|found| found == line))).await
}

/// Waits until the kernel says that a group is as it was told to be.
///
/// # Errors
/// When it cannot be asked, or does not say so in time.
pub(super) async fn until(state: &str, mut is_so: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let settle = async {
        let mut looks = 0;
        while !is_so()? {
            looks += 1;
            if looks < SOON { tokio::task::yield_now().await } else { tokio::time::sleep(LOOK).await }
        }
        Ok(())
    };
    let late =
        || io::Error::new(io::ErrorKind::TimedOut, format!("the control group did not become `{state}`"));
    tokio::time::timeout(SETTLE, settle).await.map_err(|_| late())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_group_that_does_not_freeze_in_time_goes_on() {
        let group = tempfile::tempdir().unwrap();
        fs::write(group.path().join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        let late = set_frozen(group.path(), true).await.unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        assert_eq!(fs::read_to_string(group.path().join("cgroup.freeze")).unwrap(), "0");
    }
}
