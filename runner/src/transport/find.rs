//! `find`: files and folders by a glob.

use std::fs;

use serde::Deserialize;
use skein_shared::transport::Outcome;

use super::walk::{self, Glob};
use super::{Result, cut, files};

const USUAL: usize = 1000;

#[derive(Deserialize)]
pub(super) struct Arguments {
    pattern: String,
    #[serde(default)]
    path: Option<String>,
    limit: Option<usize>,
}

pub(super) fn run(arguments: Arguments) -> Result<Outcome> {
    let shown = arguments.path.unwrap_or_else(|| ".".to_owned());
    let (folder, glob) = (files::resolve(&shown), Glob::new(&arguments.pattern)?);
    let about = fs::metadata(&folder).map_err(|error| files::problem("search", &shown, &error))?;
    if !about.is_dir() {
        return Err(format!("{shown} is not a folder; name the folder to search"));
    }
    let limit = arguments.limit.unwrap_or(USUAL).max(1);
    let found = walk::below(&folder).filter_map(|entry| {
        let path = entry.path().strip_prefix(&folder).ok().filter(|path| glob.matches(path))?;
        let slash = if entry.file_type().is_some_and(|kind| kind.is_dir()) { "/" } else { "" };
        Some(format!("{}{slash}", path.display()))
    });
    // One more tells that there are more.
    let mut found: Vec<String> = found.take(limit.saturating_add(1)).collect();
    if found.is_empty() {
        return Ok(Outcome::said("No files found that match the pattern"));
    }
    let more = found.len() > limit;
    found.truncate(limit);
    let shortened =
        more.then(|| format!("only the first {limit} are shown; ask for more with limit, or narrow it down"));
    Ok(Outcome::said(cut::list(&found, shortened, Vec::new())))
}
