//! Where a path leads, and how a file is written: whole or not at all, and by one at a time.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::Result;

/// How the names of files begin that are not whole yet, beside those whose places they take.
pub(super) const UNFINISHED: &str = ".skein-";

/// A path as the tools take it: from the work folder on, from the root, or from the home folder by `~`.
pub(super) fn resolve(path: &str) -> PathBuf {
    let home = || std::env::var_os("HOME").map(PathBuf::from);
    let from_home = match path {
        "~" => home(),
        _ => path.strip_prefix("~/").and_then(|rest| home().map(|home| home.join(rest))),
    };
    from_home.unwrap_or_else(|| if path.is_empty() { PathBuf::from(".") } else { PathBuf::from(path) })
}

/// A failure on a path as a sentence.
pub(super) fn problem(what: &str, path: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!("{path}: there is no such file or folder; `ls` and `find` show what there is")
        }
        io::ErrorKind::PermissionDenied => {
            format!("{path}: permission denied; your sandbox does not let you {what} it")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("{path}: the disk is full, nothing was changed; delete what you do not need")
        }
        io::ErrorKind::IsADirectory => format!("{path} is a folder; name a file in it"),
        _ => format!("{path}: cannot {what} it: {error}"),
    }
}

/// Refuses what is neither a file nor a folder. Before it is opened: a pipe would wait for whoever writes to it, and a
/// device may have no end.
pub(super) fn must_end(about: &Metadata, shown: &str) -> Result<()> {
    if about.is_file() || about.is_dir() {
        return Ok(());
    }
    Err(format!("{shown} is no file; `bash` reads from pipes and devices"))
}

/// The right to change the files of a folder. It is held by one process at a time, whichever instance it belongs to,
/// and goes with it.
pub(super) struct Turn(File);

/// Waits for the turn to change this file, which may not be there yet.
pub(super) fn turn(path: &Path) -> io::Result<Turn> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = File::open(folder)?;
    flock(&folder, FlockOperation::LockExclusive)?;
    Ok(Turn(folder))
}

impl Turn {
    /// Puts a file with this content in the place of another, which keeps its mode. Whoever reads meanwhile gets the
    /// one or the other.
    pub(super) fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let path = real(path);
        if fs::metadata(&path).is_ok_and(|before| !before.is_file()) {
            return File::options().write(true).open(&path)?.write_all(content);
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut fresh = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)?;
        fresh.write_all(content)?;
        self.put(fresh.path(), &path)?;
        // It has another name by now.
        let _ = fresh.into_temp_path().keep();
        Ok(())
    }

    /// Puts a finished file in the place of another one in its folder, which keeps its mode.
    pub(super) fn put(&self, fresh: &Path, path: &Path) -> io::Result<()> {
        let _ = &self.0;
        let mode = match fs::metadata(path) {
            Ok(before) => {
                // What may not be written may not be replaced either.
                File::options().write(true).open(path)?;
                before.permissions()
            }
            Err(_) => usual(),
        };
        fs::set_permissions(fresh, mode)?;
        fs::rename(fresh, path)
    }
}

/// Where a path leads in the end: a link stays, and what it leads to is replaced.
pub(super) fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// The mode of a new file under this process's mask.
fn usual() -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    fs::Permissions::from_mode(0o666 & !mask.bits())
}

/// Makes the folders above a file.
pub(super) fn make_parents(path: &Path, shown: &str) -> Result<()> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    fs::create_dir_all(folder).map_err(|error| problem("make the folders above", shown, &error))
}
