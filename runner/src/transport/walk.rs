//! Going through a folder in the order of names, without what ignore files name and without a repository's own data.

use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use ignore::{DirEntry, WalkBuilder};

use super::Result;

/// Everything below a folder. What cannot be read is left out.
pub(super) fn below(folder: &Path) -> impl Iterator<Item = DirEntry> + use<> {
    let mut walk = WalkBuilder::new(folder);
    walk.hidden(false)
        .require_git(false)
        .parents(false)
        .sort_by_file_name(std::ffi::OsStr::cmp)
        .filter_entry(|entry| entry.file_name() != ".git");
    for file in above(folder) {
        // One that cannot be read rules nothing out.
        let _ = walk.add_ignore(file);
    }
    walk.build().flatten().filter(|entry| entry.depth() > 0)
}

/// The ignore files of the folders above, as far up as the work folder: what lies above that is not the agent's, and
/// the runner itself keeps work folders out of the repositories around them.
fn above(folder: &Path) -> Vec<PathBuf> {
    let (Ok(work), Ok(folder)) = (std::env::current_dir(), folder.canonicalize()) else { return Vec::new() };
    let above = folder.ancestors().skip(1).take_while(|folder| folder.starts_with(&work));
    above.map(|folder| folder.join(".gitignore")).filter(|file| file.is_file()).collect()
}

/// A glob: one without a slash is about the name, another about the path from the folder on.
pub(super) struct Glob {
    matcher: GlobMatcher,
    of_names: bool,
}

impl Glob {
    pub(super) fn new(pattern: &str) -> Result<Self> {
        let of_names = !pattern.contains('/');
        let pattern = pattern.trim_start_matches("./").trim_start_matches('/');
        let glob = GlobBuilder::new(pattern).literal_separator(true).build();
        let glob = glob.map_err(|error| {
            format!("the glob cannot be read: {error}; write one such as *.rs or src/**/*.ts")
        })?;
        Ok(Self { matcher: glob.compile_matcher(), of_names })
    }

    /// `path` is relative to the folder that is searched.
    pub(super) fn matches(&self, path: &Path) -> bool {
        match path.file_name() {
            Some(name) if self.of_names => self.matcher.is_match(name),
            _ => self.matcher.is_match(path),
        }
    }
}
