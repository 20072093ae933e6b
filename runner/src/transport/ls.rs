//! `ls`: what a folder holds.

use std::fs;

use serde::Deserialize;
use skein_shared::transport::Outcome;

use super::{Result, cut, files};

const USUAL: usize = 500;

#[derive(Deserialize)]
pub(super) struct Arguments {
    #[serde(default)]
    path: Option<String>,
    limit: Option<usize>,
}

pub(super) fn run(arguments: Arguments) -> Result<Outcome> {
    let shown = arguments.path.unwrap_or_else(|| ".".to_owned());
    let path = files::resolve(&shown);
    let failed = |error: std::io::Error| files::problem("list", &shown, &error);
    if !fs::metadata(&path).map_err(failed)?.is_dir() {
        return Err(format!("{shown} is not a folder; `read` shows a file"));
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(&path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // A link to a folder is as good as one.
        let is_folder = fs::metadata(entry.path()).is_ok_and(|about| about.is_dir());
        names.push(if is_folder { format!("{name}/") } else { name });
    }
    if names.is_empty() {
        return Ok(Outcome::said("(empty folder)"));
    }
    names.sort_by_key(|name| (name.to_lowercase(), name.clone()));
    let (all, limit) = (names.len(), arguments.limit.unwrap_or(USUAL).max(1));
    names.truncate(limit);
    let shortened =
        (all > limit).then(|| format!("{limit} of {all} entries are shown; ask for more with limit"));
    Ok(Outcome::said(cut::list(&names, shortened, Vec::new())))
}
