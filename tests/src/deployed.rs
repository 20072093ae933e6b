//! What lies below `deploy/`, and other files of the repository that tests read.

use std::path::{Path, PathBuf};

/// The repository.
///
/// # Panics
/// When the tests do not stand in it.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests stand in the workspace").to_owned()
}

/// A file by its path from the root on.
///
/// # Panics
/// When it cannot be read.
pub fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The texts of the files with this ending below a folder, with their paths from the root on; without an ending, of
/// all.
///
/// # Panics
/// When one cannot be read.
pub fn texts(folder: &str, ending: &str) -> Vec<(String, String)> {
    let (base, mut found) = (root(), Vec::new());
    let mut folders = vec![base.join(folder)];
    while let Some(folder) = folders.pop() {
        // Who has tried the compose file has secrets here, which only their readers can open.
        if folder.ends_with("compose/secrets") {
            continue;
        }
        for entry in folder.read_dir().unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap_or_else(|error| panic!("{}: {error}", folder.display())).path();
            let name = path.strip_prefix(&base).unwrap_or(&path).to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(ending) {
                let content = text(&name);
                found.push((name, content));
            }
        }
    }
    found
}
