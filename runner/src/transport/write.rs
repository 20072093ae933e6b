//! `write`: a whole file.

use std::fs;
use std::os::unix::fs::FileTypeExt;

use serde::Deserialize;
use skein_shared::transport::Outcome;

use super::{Result, files};

#[derive(Deserialize)]
pub(super) struct Arguments {
    path: String,
    content: String,
}

pub(super) fn run(arguments: Arguments) -> Result<Outcome> {
    let Arguments { path: shown, content } = arguments;
    let path = files::resolve(&shown);
    files::make_parents(&path, &shown)?;
    let failed = |error: std::io::Error| files::problem("write", &shown, &error);
    if path.is_dir() {
        return Err(format!("{shown} is a folder; name a file in it"));
    }
    // It would be waited for whoever reads from it, and whoever else writes in this folder would wait too.
    if fs::metadata(&path).is_ok_and(|about| about.file_type().is_fifo()) {
        return Err(format!("{shown} is a pipe; `bash` writes to one"));
    }
    let turn = files::turn(&path).map_err(failed)?;
    turn.replace(&path, content.as_bytes()).map_err(failed)?;
    Ok(Outcome::said(format!("Wrote {} bytes to {shown}", content.len())))
}
