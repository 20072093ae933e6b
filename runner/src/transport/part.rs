//! Parts of files of any kind, on their way out of an instance and into it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use skein_shared::transport::{GetPart, Outcome, PART, Part, PutPart, Then};

use super::{Result, files};

/// No transfer takes so long.
const LEFT_OVER: Duration = Duration::from_secs(86_400);

/// A [`Part`] as JSON.
pub(super) fn get(wanted: GetPart) -> Result<Outcome> {
    let GetPart { path: shown, from } = wanted;
    let (path, failed) = (files::resolve(&shown), |error| files::problem("read", &shown, &error));
    // Before it is opened: a pipe would wait for whoever writes to it.
    if !fs::metadata(&path).map_err(failed)?.is_file() {
        return Err(format!("{shown} is no file; name one, `ls` lists what there is"));
    }
    let mut file = File::open(&path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    file.seek(SeekFrom::Start(from)).map_err(failed)?;
    let mut data = Vec::new();
    file.take(PART as u64).read_to_end(&mut data).map_err(failed)?;
    let version = format!("{}-{}.{}", about.ino(), about.mtime(), about.mtime_nsec());
    let part = Part { size: about.len(), version, data: BASE64_STANDARD.encode(&data) };
    Ok(Outcome::said(serde_json::to_string(&part).map_err(|error| error.to_string())?))
}

/// The file has its name once it is whole.
pub(super) fn put(given: PutPart) -> Result<Outcome> {
    let PutPart { path: shown, transfer, from, data, then } = given;
    let path = files::real(&files::resolve(&shown));
    let failed = |error| files::problem("write", &shown, &error);
    let part = path.with_file_name(format!("{}{transfer}", files::UNFINISHED));
    if then == Then::Drop {
        // It may not have begun.
        let _ = fs::remove_file(&part);
        return Ok(Outcome::said("dropped"));
    }
    match fs::metadata(&path) {
        Ok(about) if about.is_dir() => {
            return Err(format!("{shown} is a folder; name a file in it, or end it with a slash"));
        }
        Ok(about) if !about.is_file() => return Err(format!("{shown} is no file; give another path")),
        // What may not be written is not carried here first.
        Ok(_) => drop(File::options().write(true).open(&path).map_err(failed)?),
        Err(_) => {}
    }
    let data = BASE64_STANDARD.decode(data).map_err(|error| format!("data is no base64: {error}"))?;
    if from == 0 {
        files::make_parents(&path, &shown)?;
        sweep(&part);
    }
    // A part that comes twice is written twice to one place.
    let mut way = File::options();
    let file = way.write(true).create(from == 0).truncate(from == 0).mode(0o600).open(&part);
    let file = match file {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(format!("the transfer to {shown} has ended; look at the file, and fetch it again"));
        }
        file => file.map_err(failed)?,
    };
    file.write_all_at(&data, from).map_err(failed)?;
    if then == Then::Keep {
        files::turn(&path).and_then(|turn| turn.put(&part, &path)).map_err(failed)?;
    }
    Ok(Outcome::said(format!("Wrote {} bytes to {shown}", data.len())))
}

/// Removes what is left beside it of transfers that nobody could end.
fn sweep(part: &Path) {
    let Some(folder) = part.parent().and_then(|folder| fs::read_dir(folder).ok()) else { return };
    let is_unfinished = |name: OsString| name.as_encoded_bytes().starts_with(files::UNFINISHED.as_bytes());
    for file in folder.flatten().filter(|file| is_unfinished(file.file_name())) {
        let age = file.metadata().and_then(|about| about.modified()).ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age > LEFT_OVER) {
            let _ = fs::remove_file(file.path());
        }
    }
}
