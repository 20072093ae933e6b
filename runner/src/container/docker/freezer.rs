//! Freezing a container by its control group, past the daemon: in a fraction of the time.
//!
//! The group is found from the first process. It is taken only if its path names the container, so that nothing else
//! is ever frozen, and only if this process may write to it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::container::{Failure, Handle, cgroup};

/// The container's group; `None` where only the daemon can freeze it.
pub(super) fn find(pid: u32, container: &str) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let group = group(&groups, &mounts, container)?;
    fs::OpenOptions::new().write(true).open(switch(&group)).ok().map(|_| group)
}

/// A machine that has both versions has the freezer in the first.
fn group(groups: &str, mounts: &str, container: &str) -> Option<PathBuf> {
    let place = |controller: &str, mount: &str| {
        let mut lines = groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        let (_, path) = lines.find(|(names, _)| names.split(',').any(|name| name == controller))?;
        path.contains(container).then(|| Path::new(mount).join(path.trim_start_matches('/')))
    };
    let first = mounts.lines().find_map(|line| mounted(line, "cgroup ", "freezer"));
    let second = mounts.lines().find_map(|line| mounted(line, "cgroup2 ", ""));
    match (first, second) {
        (Some(mount), _) => place("freezer", mount),
        (None, Some(mount)) => place("", mount),
        (None, None) => None,
    }
}

/// Where a line of proc_pid_mountinfo(5) mounts a file system of a kind with an option.
fn mounted<'a>(line: &'a str, kind: &str, option: &str) -> Option<&'a str> {
    let (fields, rest) = line.split_once(" - ")?;
    let options = rest.strip_prefix(kind)?.rsplit(' ').next()?;
    let has = option.is_empty() || options.split(',').any(|found| found == option);
    has.then(|| fields.split(' ').nth(4)).flatten()
}

fn is_first(group: &Path) -> bool {
    group.join("freezer.state").exists()
}

fn switch(group: &Path) -> PathBuf {
    group.join(if is_first(group) { "freezer.state" } else { "cgroup.freeze" })
}

/// Whether the group is told to stand still, or does.
pub(super) fn is_frozen(group: &Path) -> bool {
    let state = fs::read_to_string(switch(group)).unwrap_or_default();
    matches!(state.trim(), "1" | "FROZEN" | "FREEZING")
}

/// Freezes a container of which the daemon is not there, where the runner can do that alone.
///
/// # Errors
/// When it cannot, or the kernel does not do it.
pub async fn freeze_alone(handle: &Handle) -> Result<(), Failure> {
    let name = &handle.instance;
    let Some(group) = &handle.cgroup else { return Err(Failure(format!("only Docker can freeze {name}"))) };
    let done = set_frozen(group, true).await;
    done.map_err(|error| Failure(format!("the control group of {name}: {error}")))
}

/// Freezes the group or lets it go on, and waits until the kernel says that it is so. A group that cannot be frozen
/// goes on.
pub(super) async fn set_frozen(group: &Path, frozen: bool) -> io::Result<()> {
    if !is_first(group) {
        return cgroup::set_frozen(group, frozen).await;
    }
    let done = set_first(group, frozen).await;
    if done.is_err() && frozen {
        fs::write(switch(group), "THAWED")?;
    }
    done
}

async fn set_first(group: &Path, frozen: bool) -> io::Result<()> {
    let (file, state) = (group.join("freezer.state"), if frozen { "FROZEN" } else { "THAWED" });
    cgroup::until(state, || {
        // Written again at each look: a process that was made meanwhile is frozen with the others only then.
        fs::write(&file, state)?;
        Ok(fs::read_to_string(&file)?.trim() == state)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = "30 29 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        36 30 0:32 / /sys/fs/cgroup/freezer rw shared:9 - cgroup cgroup rw,freezer\n\
        40 30 0:36 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const SECOND: &str = "30 29 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_group_is_found_in_either_version() {
        let found = group("6:freezer:/docker/abc\n1:cpu:/docker/abc\n0::/docker/abc\n", BOTH, "abc");
        assert_eq!(found.unwrap(), Path::new("/sys/fs/cgroup/freezer/docker/abc"));
        let found = group("0::/system.slice/docker-abc.scope\n", SECOND, "abc");
        assert_eq!(found.unwrap(), Path::new("/sys/fs/cgroup/system.slice/docker-abc.scope"));
    }

    #[test]
    fn a_group_of_something_else_is_left_alone() {
        assert_eq!(group("6:freezer:/\n0::/docker/abc\n", BOTH, "abc"), None, "the pid is another's here");
        assert_eq!(group("0::/../other\n", SECOND, "abc"), None);
        assert_eq!(group("0::/docker/abc\n", "", "abc"), None);
    }
}
