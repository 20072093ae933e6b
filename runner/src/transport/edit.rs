//! `edit`: exact replacements in one file, all of them or none.

use std::fs;
use std::time::Duration;

use serde::Deserialize;
use similar::TextDiff;
use skein_shared::transport::Outcome;

use super::{Result, cut, files};

/// Largest file that is edited, bytes.
const LARGEST: u64 = 32 * 1024 * 1024;
/// A diff of texts that differ a lot gets coarser instead of taking longer.
const DIFF: Duration = Duration::from_secs(2);
const BOM: char = '\u{feff}';

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Arguments {
    path: String,
    #[serde(default)]
    edits: Vec<Edit>,
    /// One edit as older clients send it.
    old_text: Option<String>,
    new_text: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Edit {
    pub(super) old_text: String,
    pub(super) new_text: String,
}

pub(super) fn run(arguments: Arguments) -> Result<Outcome> {
    let Arguments { path: shown, mut edits, old_text, new_text } = arguments;
    match (old_text, new_text) {
        (Some(old_text), Some(new_text)) => edits.push(Edit { old_text, new_text }),
        (None, None) => {}
        _ => return Err("give both oldText and newText, or only edits".to_owned()),
    }
    let path = files::resolve(&shown);
    let failed = |error: std::io::Error| files::problem("edit", &shown, &error);
    let about = fs::metadata(&path).map_err(failed)?;
    if !about.is_file() {
        return Err(format!("{shown} is no file; name a file"));
    }
    if about.len() > LARGEST {
        return Err(format!("{shown} has {} bytes, too many to edit; use bash", about.len()));
    }
    // What is read has to be what is replaced.
    let turn = files::turn(&path).map_err(failed)?;
    let before = String::from_utf8(fs::read(&path).map_err(failed)?)
        .map_err(|_| format!("{shown} is not UTF-8 text; use bash to change it"))?;
    let after = apply(&before, &edits).map_err(|problem| format!("{shown}: {problem}"))?;
    turn.replace(&path, after.as_bytes()).map_err(failed)?;
    let count = if edits.len() == 1 { "1 place".to_owned() } else { format!("{} places", edits.len()) };
    Ok(Outcome::said(format!("Changed {count} in {shown}.\n\n{}", diff(&shown, &before, &after))))
}

fn diff(path: &str, before: &str, after: &str) -> String {
    let diff = TextDiff::configure().timeout(DIFF).diff_lines(before, after);
    let text = diff.unified_diff().context_radius(3).header(path, path).to_string();
    let shown = cut::head(&text);
    let notes: Vec<String> =
        shown.cut.map(|_| "The rest of the diff is left out".to_owned()).into_iter().collect();
    cut::with_notes(shown.text.trim_end_matches('\n'), &notes)
}

/// The text with all edits made, each matched against the text as it was. Line ends count as one another's equals, and
/// what is put in gets those of the file.
pub(super) fn apply(text: &str, edits: &[Edit]) -> Result<String> {
    if edits.is_empty() {
        return Err("there is nothing to do: give edits".to_owned());
    }
    let (bom, body) = match text.strip_prefix(BOM) {
        Some(body) => (&text[..BOM.len_utf8()], body),
        None => ("", text),
    };
    let plain = Plain::of(body);
    let mut places = Vec::with_capacity(edits.len());
    for (number, edit) in edits.iter().enumerate() {
        let found =
            plain.find(&edit.old_text).map_err(|problem| format!("edit {}: {problem}", number + 1))?;
        places.push((found, number));
    }
    places.sort_by_key(|(place, _)| place.start);
    for pair in places.windows(2) {
        let [(one, first), (other, second)] = pair else { continue };
        if one.end > other.start {
            return Err(format!(
                "edits {} and {} overlap; make them one, or let them be of different lines",
                first + 1,
                second + 1
            ));
        }
    }
    let (mut made, mut done) = (String::from(bom), 0);
    for (place, number) in places {
        made.push_str(&body[done..plain.original(place.start)]);
        made.push_str(&plain.with_line_ends(&edits[number].new_text));
        done = plain.original(place.end);
    }
    made.push_str(&body[done..]);
    if made == text {
        return Err("the edits change nothing; the new text is the old one".to_owned());
    }
    Ok(made)
}

/// A text with `\n` as its only line end, and the way back.
struct Plain {
    text: String,
    /// Where, in `text`, a line end follows that had a `\r` before it.
    returns: Vec<usize>,
    crlf: bool,
}

impl Plain {
    fn of(body: &str) -> Self {
        let (mut text, mut returns) = (String::with_capacity(body.len()), Vec::new());
        for line in body.split_inclusive('\n') {
            match line.strip_suffix("\r\n") {
                Some(line) => {
                    text.push_str(line);
                    returns.push(text.len());
                    text.push('\n');
                }
                None => text.push_str(line),
            }
        }
        let ends = text.bytes().filter(|&byte| byte == b'\n').count();
        let crlf = returns.len() * 2 > ends;
        Self { text, returns, crlf }
    }

    /// The one place of a text.
    fn find(&self, wanted: &str) -> Result<std::ops::Range<usize>> {
        let wanted = wanted.replace("\r\n", "\n");
        if wanted.is_empty() {
            return Err("oldText is empty; give the text that is to be replaced".to_owned());
        }
        let mut places = self.text.match_indices(&wanted);
        let Some((start, _)) = places.next() else {
            return Err("oldText was not found; it has to be as in the file, with all spaces and line ends"
                .to_owned());
        };
        match places.count() {
            0 => Ok(start..start + wanted.len()),
            more => Err(format!(
                "oldText is there {} times; give more of what is around the one you mean",
                more + 1
            )),
        }
    }

    /// Where a place of the plain text lies in the original.
    fn original(&self, place: usize) -> usize {
        place + self.returns.partition_point(|&at| at < place)
    }

    fn with_line_ends(&self, text: &str) -> String {
        let plain = text.replace("\r\n", "\n");
        if self.crlf { plain.replace('\n', "\r\n") } else { plain }
    }
}
