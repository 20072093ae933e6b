//! `read`: a part of a text, or an image.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read as _};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use skein_shared::transport::{Image, Outcome};

use super::cut::{self, Cut};
use super::{Result, files};

/// Largest image that is shown, bytes.
const IMAGE: u64 = 4 * 1024 * 1024;

#[derive(Deserialize)]
pub(super) struct Arguments {
    path: String,
    /// The first line, from 1.
    offset: Option<usize>,
    /// How many lines.
    limit: Option<usize>,
}

pub(super) fn run(arguments: Arguments) -> Result<Outcome> {
    let path = &arguments.path;
    let failed = |error: std::io::Error| files::problem("read", path, &error);
    let place = files::resolve(path);
    let about = fs::metadata(&place).map_err(failed)?;
    if about.is_dir() {
        return Err(format!("{path} is a folder; `ls` lists what is in it"));
    }
    files::must_end(&about, path)?;
    let file = File::open(place).map_err(failed)?;
    let mut file = BufReader::new(file);
    if let Some(kind) = image(file.fill_buf().map_err(failed)?) {
        return show(path, kind, about.len(), file);
    }
    let (first, wanted) = (arguments.offset.unwrap_or(1).max(1), arguments.limit.unwrap_or(usize::MAX));
    let lines = Lines::read(file, first, wanted).map_err(failed)?;
    if first > lines.total.max(1) {
        return Err(format!("offset {first} is past the end of {path}, which has {} lines", lines.total));
    }
    Ok(Outcome::said(lines.text(path, first, wanted)))
}

/// The kind of an image by how it begins: names lie.
fn image(begin: &[u8]) -> Option<&'static str> {
    match begin {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

fn show(path: &str, kind: &str, bytes: u64, file: impl std::io::Read) -> Result<Outcome> {
    let mut data = Vec::new();
    file.take(IMAGE + 1).read_to_end(&mut data).map_err(|error| files::problem("read", path, &error))?;
    if data.len() as u64 > IMAGE {
        return Err(format!(
            "{path} is an image of {bytes} bytes, and at most {IMAGE} are shown; make it smaller first"
        ));
    }
    let image = Image { mime_type: kind.to_owned(), data: BASE64_STANDARD.encode(&data) };
    Ok(Outcome { text: format!("The image {path} ({kind})"), image: Some(image), ..Outcome::default() })
}

/// Some lines of a file. No more of it is in memory than is shown.
#[derive(Default)]
struct Lines {
    /// From the first line that was asked for.
    kept: String,
    /// Of all the lines that were asked for, not only those kept.
    asked: usize,
    total: usize,
    /// Whether the file's last line has an end.
    ended: bool,
}

impl Lines {
    fn read(mut file: impl BufRead, first: usize, wanted: usize) -> std::io::Result<Self> {
        let mut lines = Self { ended: true, ..Self::default() };
        let mut kept = Vec::new();
        loop {
            let buffer = file.fill_buf()?;
            if buffer.is_empty() {
                break;
            }
            if lines.ended {
                lines.total += 1;
            }
            let is_asked = lines.total >= first && lines.total - first < wanted;
            if is_asked && lines.ended {
                lines.asked += 1;
            }
            let end = buffer.iter().position(|&byte| byte == b'\n');
            let part = &buffer[..end.map_or(buffer.len(), |end| end + 1)];
            // One byte more than is shown tells that something is missing.
            if is_asked && kept.len() <= cut::BYTES {
                kept.extend_from_slice(part);
            }
            lines.ended = end.is_some();
            let length = part.len();
            file.consume(length);
        }
        lines.kept = String::from_utf8_lossy(&kept).into_owned();
        Ok(lines)
    }

    fn text(&self, path: &str, first: usize, wanted: usize) -> String {
        let shown = cut::head(&self.kept);
        if shown.lines == 0 && shown.cut.is_some() {
            return format!(
                "[Line {first} is longer than 50 KB. Read it in parts with bash: sed -n '{first}p' {path} | head -c {}]",
                cut::BYTES
            );
        }
        let last = first + shown.lines - usize::from(shown.lines > 0);
        let next = last + 1;
        let all = self.total;
        let note = match shown.cut {
            // The file goes on, and what was asked for is there.
            None if self.asked == wanted && all > last => {
                format!("{} more lines in the file. Go on with offset={next}", all - last)
            }
            None => return shown.text.to_owned(),
            Some(Cut::Lines) => format!("Lines {first}-{last} of {all} are shown. Go on with offset={next}"),
            Some(Cut::Bytes) => {
                format!("Lines {first}-{last} of {all} are shown, 50 KB at most. Go on with offset={next}")
            }
        };
        cut::with_notes(shown.text.trim_end_matches('\n'), &[note])
    }
}
