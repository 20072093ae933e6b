//! The work folder of an agent in a container, where its project has a folder for all of its agents: that of its
//! definition, with the other one in it (spec: Action Llama 2.3).
//!
//! Nothing can be mounted into a read-only folder that has no place for it, and that of the definition is not the
//! runner's to write into. So a folder is put together before each start: with the definition's files and links, and
//! with an empty folder for each of its folders, over which that is mounted. No link is followed on this machine: it
//! leads inside the container to where it says.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, DirEntry, File, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use super::Shared;
use super::ledger::Row;
use crate::container::{Failure, Joined, Spec, docker};
use crate::definition::{self, Definition, SHARED};

/// Where the agent is told that the folder is.
pub(super) const VARIABLE: &str = "SKEIN_SHARED";

/// Gives the container of an instance such a folder, if its project has one for all agents.
///
/// # Errors
/// When the folder cannot be put together, or what all agents share is none.
pub(super) fn give(
    shared: &Shared,
    row: &Row,
    definition: &Definition,
    spec: &mut Spec,
) -> Result<(), Failure> {
    if definition.container.is_none() {
        return Ok(());
    }
    let Some(project) = definition::shared_folder(&definition.folder).map_err(Failure)? else {
        return Ok(());
    };
    let folder = shared.folders.open_joined(&row.instance).map_err(|error| Failure(error.to_string()))?;
    let joined = put_together(&spec.definition, &project, folder).map_err(|error| {
        let (own, others) = (spec.definition.display(), project.display());
        Failure(format!("its work folder cannot be put together of {own} and {others}: {error}"))
    })?;
    spec.joined = Some(joined);
    spec.env.insert(VARIABLE.to_owned(), format!("{}/{SHARED}", docker::STATIC));
    Ok(())
}

/// Makes `folder` anew. What is neither a file, a folder nor a link is left out.
fn put_together(definition: &Path, shared: &Path, folder: PathBuf) -> io::Result<Joined> {
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => make(&folder)?,
    }
    let mut mounts = BTreeMap::new();
    for entry in fs::read_dir(definition)? {
        let entry = entry?;
        let (path, place) = (entry.path(), folder.join(entry.file_name()));
        let Some(about) = look(&entry)? else { continue };
        if about.is_symlink() {
            symlink(fs::read_link(&path)?, &place)?;
        } else if about.is_dir() {
            make(&place)?;
            mounts.insert(entry.file_name().into_string().map_err(unnamed)?, path);
        } else if about.is_file() {
            copy(&path, &place)?;
        }
    }
    make(&folder.join(SHARED))?;
    mounts.insert(SHARED.to_owned(), shared.to_owned());
    Ok(Joined { folder, mounts })
}

/// None if it is gone: an editor's own files come and go.
fn look(entry: &DirEntry) -> io::Result<Option<Metadata>> {
    match entry.metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        about => about.map(Some),
    }
}

/// Whoever may read the one may read the other. What was a file when it was looked at may be a link by now, which would
/// lead to any file of this machine, or a pipe, which would be waited for: those are left out.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = match open(from, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::LOOP) => return Ok(()),
        opened => File::from(opened?),
    };
    let about = file.metadata()?;
    if !about.is_file() {
        return Ok(());
    }
    let mut copied = File::create_new(to)?;
    io::copy(&mut file, &mut copied)?;
    let made = copied.metadata()?;
    if (made.uid(), made.gid()) != (about.uid(), about.gid()) && rustix::process::geteuid().is_root() {
        fchown(&copied, Some(about.uid()), Some(about.gid()))?;
    }
    copied.set_permissions(Permissions::from_mode(about.mode() & 0o777))
}

/// The container's user, who is none of this machine, has to get into it.
fn make(folder: &Path) -> io::Result<()> {
    fs::create_dir(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(0o755))
}

fn unnamed(name: OsString) -> io::Error {
    let problem = format!("the folder {name:?} has a name that is no text; give it another");
    io::Error::new(ErrorKind::InvalidInput, problem)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn a_work_folder_has_the_files_of_its_definition_and_leads_nowhere_on_this_machine() {
        let root = tempfile::tempdir().unwrap();
        let (dev, shared) = (root.path().join("agents/dev"), root.path().join("shared"));
        for folder in [&dev.join("lib/deep"), &shared] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(dev.join("SKILL.md"), "Work.").unwrap();
        fs::write(dev.join("tool.sh"), "true").unwrap();
        fs::set_permissions(dev.join("tool.sh"), Permissions::from_mode(0o755)).unwrap();
        fs::write(root.path().join("secret"), "no agent's").unwrap();
        for (target, link) in [("../../secret", "secret"), ("/etc", "etc"), ("nowhere", "broken")] {
            symlink(target, dev.join(link)).unwrap();
        }

        let folder = root.path().join("joined");
        // Of an earlier process of the run something may be left there.
        fs::create_dir_all(folder.join("old")).unwrap();
        let joined = put_together(&dev, &shared, folder.clone()).unwrap();
        let mounts = [("lib".to_owned(), dev.join("lib")), (SHARED.to_owned(), shared.clone())];
        assert_eq!(joined, Joined { folder: folder.clone(), mounts: mounts.into() });
        assert_eq!(fs::read_to_string(folder.join("SKILL.md")).unwrap(), "Work.");
        let mode = |file: &str| fs::metadata(folder.join(file)).unwrap().mode() & 0o777;
        assert_eq!((mode("tool.sh"), mode(""), mode(SHARED)), (0o755, 0o755, 0o755));
        for (target, link) in [("../../secret", "secret"), ("/etc", "etc"), ("nowhere", "broken")] {
            assert_eq!(fs::read_link(folder.join(link)).unwrap(), Path::new(target), "a link stays one");
        }
        let found = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut found: Vec<_> = found.collect();
        found.sort();
        assert_eq!(found, ["SKILL.md", "broken", "etc", "lib", "secret", "shared", "tool.sh"]);
        assert_eq!(fs::read_dir(folder.join("lib")).unwrap().count(), 0, "it is mounted, not copied");
    }

    /// As when somebody puts it in the place of a file that was just looked at.
    #[test]
    fn what_is_no_file_any_more_is_not_copied() {
        let root = tempfile::tempdir().unwrap();
        let (secret, link, pipe) = (root.path().join("secret"), root.path().join("a"), root.path().join("b"));
        fs::write(&secret, "no agent's").unwrap();
        symlink(&secret, &link).unwrap();
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        for from in [&link, &pipe, &root.path().join("gone")] {
            let to = root.path().join("copied");
            copy(from, &to).unwrap();
            assert!(!to.exists(), "{from:?} was copied");
        }
    }
}
