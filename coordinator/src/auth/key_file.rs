//! Files with keys: made once, for this user alone, and never half written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use uuid::Uuid;

/// Reads a file, and makes it at the first start. Of two starts at once one wins, and both have its keys.
///
/// # Errors
/// When it cannot be read or written, or can be read by others.
pub(crate) fn load_or_create(path: &Path, make: impl FnOnce() -> io::Result<Vec<u8>>) -> io::Result<String> {
    match read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            put(path, &make()?)?;
            read(path)
        }
        found => found,
    }
}

/// Reads a file that nobody else can.
///
/// # Errors
/// When it cannot be read, or can be read by others.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} can be read by others; set its mode to 0600", path.display()),
        ));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Takes a file over from `source` unless there is one already. It is checked before, for what is there is kept for
/// good. A folder may have none to give.
///
/// # Errors
/// When it cannot be read or written, or does not pass the check, or its folder is not there.
pub(crate) fn adopt(
    path: &Path,
    source: &Path,
    check: impl FnOnce(&Path, &str) -> io::Result<()>,
) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    let text = match fs::read_to_string(source) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && folder(source).is_dir() => return Ok(()),
        Err(error) => return Err(unread(source, &error)),
        Ok(text) => text,
    };
    check(source, &text)?;
    put(path, text.as_bytes())
}

/// Writes the file anew: whole or not at all, also through a power cut.
///
/// # Errors
/// When the folder cannot be written to.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = folder(path);
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(folder)?.sync_all()
}

/// Writes beside the target and links it in, so that one that is there stays.
fn put(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = folder(path);
    fs::create_dir_all(folder)?;
    let draft = path.with_extension(Uuid::now_v7().to_string());
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(content)?;
    file.sync_all()?;
    let linked = fs::hard_link(&draft, path);
    fs::remove_file(&draft)?;
    match linked {
        Ok(()) => File::open(folder)?.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn unread(source: &Path, error: &io::Error) -> io::Error {
    let (path, user) = (source.display(), rustix::process::geteuid().as_raw());
    let problem = format!(
        "{path}: {error}; name the folder of this node that `skein cluster init` made, and let the user {user}, as whom \
         this node runs, read what is in it"
    );
    io::Error::new(error.kind(), problem)
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
