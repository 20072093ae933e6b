//! `grep`: lines by a pattern.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;
use skein_shared::transport::Outcome;

use super::walk::{self, Glob};
use super::{Result, cut, files};

const USUAL: usize = 100;
/// Most lines around a match.
const CONTEXT: usize = 100;
/// A file whose beginning holds a zero byte is no text.
const BEGIN: usize = 8192;
/// What is searched of a line, bytes.
const LONGEST: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Arguments {
    pattern: String,
    #[serde(default)]
    path: Option<String>,
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    /// The pattern is a text and no regular expression.
    #[serde(default)]
    literal: bool,
    #[serde(default)]
    context: usize,
    limit: Option<usize>,
}

pub(super) fn run(arguments: Arguments) -> Result<Outcome> {
    let shown = arguments.path.unwrap_or_else(|| ".".to_owned());
    let place = files::resolve(&shown);
    let about = fs::metadata(&place).map_err(|error| files::problem("search", &shown, &error))?;
    files::must_end(&about, &shown)?;
    let glob = arguments.glob.as_deref().map(Glob::new).transpose()?;
    let mut search = Search {
        pattern: pattern(&arguments.pattern, arguments.literal, arguments.ignore_case)?,
        context: arguments.context.min(CONTEXT),
        left: arguments.limit.unwrap_or(USUAL).max(1),
        lines: Vec::new(),
        bytes: 0,
        cut_lines: false,
        more: false,
    };
    for (path, name) in texts(&place, about.is_dir()) {
        if glob.as_ref().is_some_and(|glob| !glob.matches(&name)) {
            continue;
        }
        // What cannot be read is left out, as every search does.
        let _ = search.file(&path, &name.display().to_string());
        if search.is_full() {
            break;
        }
    }
    Ok(Outcome::said(search.text(arguments.limit.unwrap_or(USUAL).max(1))))
}

fn pattern(text: &str, literal: bool, ignore_case: bool) -> Result<Regex> {
    let text = if literal { regex::escape(text) } else { text.to_owned() };
    let built = RegexBuilder::new(&text).case_insensitive(ignore_case).size_limit(8 << 20).build();
    built.map_err(|error| {
        format!("the pattern cannot be read: {error}; set literal to search for the text as it stands")
    })
}

/// The files to search, each with its name in the answer.
fn texts(place: &Path, is_folder: bool) -> Box<dyn Iterator<Item = (PathBuf, PathBuf)>> {
    if !is_folder {
        let name = place.file_name().map_or_else(|| place.to_owned(), PathBuf::from);
        return Box::new(std::iter::once((place.to_owned(), name)));
    }
    let root = place.to_owned();
    let files = walk::below(place).filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    Box::new(files.map(move |entry| {
        let name = entry.path().strip_prefix(&root).unwrap_or(entry.path()).to_owned();
        (entry.into_path(), name)
    }))
}

/// Reads a line, of an endless one only the beginning. Says whether there was one.
fn next_line(file: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    if file.by_ref().take(LONGEST).read_until(b'\n', line)? == 0 {
        return Ok(false);
    }
    if line.len() as u64 == LONGEST && line.last() != Some(&b'\n') {
        file.skip_until(b'\n')?;
    }
    Ok(true)
}

struct Search {
    pattern: Regex,
    context: usize,
    /// Matches that may still be shown.
    left: usize,
    lines: Vec<String>,
    bytes: usize,
    cut_lines: bool,
    /// There is at least one match that is not shown.
    more: bool,
}

impl Search {
    /// Nothing that is found from here on would be shown.
    fn is_full(&self) -> bool {
        self.more || self.bytes > cut::BYTES
    }

    fn file(&mut self, path: &Path, name: &str) -> io::Result<()> {
        let mut file = BufReader::with_capacity(BEGIN, File::open(path)?);
        if file.fill_buf()?.contains(&0) {
            return Ok(());
        }
        let (mut line, mut number) = (Vec::new(), 0);
        let mut before: VecDeque<(usize, String)> = VecDeque::new();
        let (mut after, mut last) = (0, 0);
        loop {
            if !next_line(&mut file, &mut line)? || self.is_full() {
                return Ok(());
            }
            number += 1;
            let bare = line.strip_suffix(b"\n").unwrap_or(&line);
            let bare = bare.strip_suffix(b"\r").unwrap_or(bare);
            if self.pattern.is_match(bare) {
                if self.left == 0 {
                    self.more = true;
                    return Ok(());
                }
                self.left -= 1;
                if self.context > 0
                    && last > 0
                    && before.front().map_or(number, |(first, _)| *first) > last + 1
                {
                    self.put("--".to_owned());
                }
                for (number, text) in std::mem::take(&mut before) {
                    self.put(format!("{name}-{number}- {text}"));
                }
                let text = self.shown(bare);
                self.put(format!("{name}:{number}: {text}"));
                (after, last) = (self.context, number);
            } else if after > 0 {
                let text = self.shown(bare);
                self.put(format!("{name}-{number}- {text}"));
                (after, last) = (after - 1, number);
            } else if self.context > 0 {
                let text = self.shown(bare);
                if before.len() == self.context {
                    before.pop_front();
                }
                before.push_back((number, text));
            }
        }
    }

    fn shown(&mut self, line: &[u8]) -> String {
        let (text, cut) = cut::line(&String::from_utf8_lossy(line));
        self.cut_lines |= cut;
        text
    }

    fn put(&mut self, line: String) {
        self.bytes += line.len() + 1;
        self.lines.push(line);
    }

    fn text(self, limit: usize) -> String {
        if self.lines.is_empty() {
            return "No matches found".to_owned();
        }
        let shortened =
            self.more.then(|| format!("only the first {limit} matches are shown; ask for more with limit"));
        let cut = self.cut_lines.then(|| "long lines are cut; `read` shows them whole".to_owned());
        cut::list(&self.lines, shortened, cut.into_iter().collect())
    }
}
