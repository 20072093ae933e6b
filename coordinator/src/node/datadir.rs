//! The data directory: everything that a node keeps, for one process at a time.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use skein_shared::{Code, Refusal};
use tracing::warn;
use uuid::Uuid;

use crate::auth::key_file;

/// Where the files of a data directory are. Opening nothing, it serves the command line as well.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
}

/// A data directory that this process alone may use, until it is dropped.
#[derive(Debug)]
pub struct DataDir {
    layout: Layout,
    // The kernel frees the lock when the process ends, however it ends.
    _lock: File,
}

#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error(
        "{path} is in use by another skein{holder}; stop that one, or choose another directory with --data"
    )]
    InUse { path: PathBuf, holder: String },
    #[error("{path}: {error}; the data directory must be a directory that this user can write to")]
    Io { path: PathBuf, error: io::Error },
}

impl Layout {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn config(&self) -> PathBuf {
        self.root.join("config.toml")
    }

    pub fn store(&self) -> PathBuf {
        self.root.join("store.db")
    }

    /// Who this node is, to those who share a store with it.
    pub fn identity(&self) -> PathBuf {
        self.root.join("node.id")
    }

    /// Which store in Redis this node belongs to.
    pub fn belonging(&self) -> PathBuf {
        self.root.join("store.id")
    }

    pub fn projection(&self) -> PathBuf {
        self.root.join("projection.db")
    }

    /// What clients of older revisions of MCP said at their start.
    pub fn sessions(&self) -> PathBuf {
        self.root.join("sessions.jsonl")
    }

    pub fn operator_token(&self) -> PathBuf {
        self.root.join("operator.token")
    }

    /// Where the command line finds the node.
    pub fn endpoint(&self) -> PathBuf {
        self.root.join("endpoint.json")
    }

    /// The in-process runner's ledger and work.
    pub fn runner(&self) -> PathBuf {
        self.root.join("runner")
    }

    /// What agents may be lent.
    pub fn credentials(&self) -> PathBuf {
        self.root.join("credentials")
    }

    pub fn agents(&self) -> PathBuf {
        self.root.join("agents")
    }

    fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// Writes a file that only this user can read: whole or not at all, also through a power cut.
    ///
    /// # Errors
    /// When the directory cannot be written to.
    pub fn write_private(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        key_file::replace(path, content)
    }
}

impl DataDir {
    /// Makes the directory if need be and locks it.
    ///
    /// # Errors
    /// When another process has it, or it cannot be written to.
    pub fn open(root: &Path) -> Result<Self, DataDirError> {
        let failed = |error| DataDirError::Io { path: root.to_owned(), error };
        let own = prepare(root).map_err(failed)?;
        let root = root.canonicalize().map_err(failed)?;
        let layout = Layout::new(root);
        let lock = lock(&layout)?;
        if own {
            // It holds keys and tokens: no version control may pick it up.
            std::fs::write(layout.root.join(".gitignore"), "*\n").map_err(failed)?;
        }
        Ok(Self { layout, _lock: lock })
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The node's name for ever. Since the directory is this process' alone, so is the name.
    ///
    /// # Errors
    /// When the directory cannot be written to, or the file holds something else.
    pub fn identity(&self) -> Result<Uuid, DataDirError> {
        let path = self.layout.identity();
        let failed = |error| DataDirError::Io { path: path.clone(), error };
        match std::fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().map_err(|error| {
                failed(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("it holds no id ({error}); remove it"),
                ))
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let id = Uuid::now_v7();
                self.layout.write_private(&path, format!("{id}\n").as_bytes()).map_err(failed)?;
                Ok(id)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// The store in Redis that this node belongs to; none before its first start with one.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn store(&self) -> Result<Option<String>, DataDirError> {
        let path = self.layout.belonging();
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(DataDirError::Io { path, error }),
        }
    }

    /// Notes the store that this node belongs to.
    ///
    /// # Errors
    /// When the directory cannot be written to.
    pub fn belongs_to(&self, store: &str) -> Result<(), DataDirError> {
        if self.store()?.as_deref() == Some(store) {
            return Ok(());
        }
        let path = self.layout.belonging();
        let written = self.layout.write_private(&path, format!("{store}\n").as_bytes());
        written.map_err(|error| DataDirError::Io { path, error })
    }
}

/// Lets pass who may look into a folder, whether there is one or not.
///
/// # Errors
/// `forbidden` for others, to whom what is hidden would look as if it were missing.
pub fn look_into(folder: &Path) -> Result<(), Refusal> {
    // Whatever it is asked for: who may not search it is not told whether that is there.
    match folder.join("config.toml").try_exists() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(denied("look into", folder, &error))
        }
        _ => Ok(()),
    }
}

/// What is said to somebody who may not do something with a folder of the data directory.
pub fn denied(deed: &str, folder: &Path, error: &io::Error) -> Refusal {
    let problem = format!(
        "this user may not {deed} {} ({error}); run as the user who started the node, or name another data directory with \
         --data or SKEIN_DATA",
        folder.display()
    );
    Refusal::new(Code::Forbidden, problem)
}

/// Makes the directory, or looks at the one that is there. Says whether this start is the first in a directory
/// of our own.
fn prepare(root: &Path) -> io::Result<bool> {
    if !root.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        return Ok(true);
    }
    let own = is_prepared(root)?;
    let mode = std::fs::metadata(root)?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(own);
    }
    // A directory with other things in it is somebody's own; its mode is theirs to choose.
    if !own || std::fs::set_permissions(root, Permissions::from_mode(0o700)).is_err() {
        warn!(path = %root.display(), mode = format!("{:o}", mode & 0o777), "others can look into the data directory; run chmod 700 on it");
    }
    Ok(own)
}

/// What people and the command line put there before the first start: a store that is brought back, say.
const PREPARED: [&str; 6] = ["config.toml", "agents", "credentials", "keys.json", "secrets.json", "store.db"];

/// Whether there is nothing in it but that.
fn is_prepared(root: &Path) -> io::Result<bool> {
    for entry in std::fs::read_dir(root)? {
        let name = entry?.file_name();
        if !PREPARED.iter().any(|prepared| name == *prepared) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn lock(layout: &Layout) -> Result<File, DataDirError> {
    let path = layout.lock();
    let failed = |error| DataDirError::Io { path: path.clone(), error };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    if !fs4::fs_std::FileExt::try_lock_exclusive(&file).map_err(failed)? {
        let mut holder = String::new();
        let _ = file.read_to_string(&mut holder);
        let holder = match holder.trim().parse::<u32>() {
            Ok(process) => format!(" (process {process})"),
            Err(_) => String::new(),
        };
        return Err(DataDirError::InUse { path: layout.root.clone(), holder });
    }
    file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
    writeln!(file, "{}", std::process::id()).map_err(failed)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_private_and_kept_out_of_version_control() {
        let parent = tempfile::tempdir().unwrap();
        let data = DataDir::open(&parent.path().join("deep/data")).unwrap();
        let root = data.layout().root();
        assert_eq!(std::fs::metadata(root).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(std::fs::read_to_string(root.join(".gitignore")).unwrap(), "*\n");
        let token = data.layout().operator_token();
        data.layout().write_private(&token, b"secret").unwrap();
        assert_eq!(std::fs::metadata(token).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn one_that_was_prepared_for_the_first_start_is_made_private() {
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().join("data");
        std::fs::create_dir_all(root.join("agents/worker")).unwrap();
        std::fs::write(root.join("config.toml"), "").unwrap();
        std::fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
        let _data = DataDir::open(&root).unwrap();
        assert_eq!(std::fs::metadata(&root).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(root.join(".gitignore").exists());
    }

    #[test]
    fn a_second_process_is_told_who_has_it() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let first = DataDir::open(&path).unwrap();
        let refusal = DataDir::open(&path).unwrap_err().to_string();
        assert!(refusal.contains(&format!("process {}", std::process::id())), "{refusal}");
        assert!(refusal.contains("--data"), "{refusal}");
        drop(first);
        DataDir::open(&path).unwrap();
    }

    #[test]
    fn a_node_keeps_its_name() {
        let parent = tempfile::tempdir().unwrap();
        let data = DataDir::open(&parent.path().join("data")).unwrap();
        let name = data.identity().unwrap();
        assert_eq!(data.identity().unwrap(), name);
        std::fs::write(data.layout().identity(), "scribble").unwrap();
        assert!(data.identity().unwrap_err().to_string().contains("remove it"));
    }

    #[test]
    fn other_peoples_directories_are_left_as_they_are() {
        let parent = tempfile::tempdir().unwrap();
        std::fs::write(parent.path().join("theirs"), "").unwrap();
        let data = DataDir::open(parent.path()).unwrap();
        assert!(!data.layout().root().join(".gitignore").exists());
    }
}
