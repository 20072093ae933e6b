//! Going through a folder in the order of names, without what ignore files name and without a repository's own data.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use ignore::{DirEntry, WalkBuilder};

use super::Result;

/// Everything below a folder. What cannot be read is left out.
pub(super) fn below(folder: &Path) -> impl Iterator<Item = DirEntry> + use<> {
    let walk = WalkBuilder::new(folder)
        .hidden(false)
        .require_git(false)
        .sort_by_file_name(std::ffi::OsStr::cmp)
        .filter_entry(|entry| entry.file_name() != ".git")
        .build();
    walk.flatten().filter(|entry| entry.depth() > 0)
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
