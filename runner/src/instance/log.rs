//! What an instance has written, as people read it: the last lines, and what comes after them.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read as _, Seek, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use regex::Regex;
use skein_shared::ask::{Lines, LogQuery};
use skein_shared::{Code, Refusal};
use tokio::time::Instant;

use super::folders::{LOG, cut_if_long};
use super::{Instances, transcript};
use crate::credentials::Mask;
use crate::harness::Harness;

/// How often a log is looked at for a line that somebody waits for.
const LOOK: Duration = Duration::from_millis(200);
/// Longest answer, bytes.
const MOST: usize = 1024 * 1024;
/// Longest line that is shown, bytes.
const LONGEST: u64 = 16 * 1024;

impl Instances {
    /// A part of an instance's log, also of one that has ended, for as long as its log is kept.
    ///
    /// # Errors
    /// `not_found` when there is no log of it here; `invalid_argument` for a pattern that cannot be read.
    pub async fn log(&self, instance: &str, query: LogQuery) -> Result<Lines, Refusal> {
        let path = self.shared.folders.log(instance);
        // The name comes from outside, and must not lead elsewhere.
        let is_name = !instance.is_empty() && !instance.contains(['/', '\0']) && instance != "..";
        if !is_name || !path.exists() {
            let problem = format!(
                "this runner has no log of {instance}: it never started, or 500 others have run since"
            );
            return Err(Refusal::new(Code::NotFound, problem));
        }
        let pattern = query.grep.as_deref().map(Regex::new).transpose().map_err(|error| {
            Refusal::new(Code::InvalidArgument, format!("grep: the pattern cannot be read: {error}"))
        })?;
        let end = Instant::now() + Duration::from_millis(query.wait_ms);
        loop {
            // Before the look: what it writes last is there once it has ended.
            let over = !self.running().contains_key(instance);
            let (path, pattern, query) = (path.clone(), pattern.clone(), query.clone());
            let lent = self.shared.folders.lent(instance);
            let read = tokio::task::spawn_blocking(move || {
                read(&path, &query, over, Look { pattern: pattern.as_ref(), mask: &Mask::of(&lent) })
            });
            let read = read.await;
            let read = read.map_err(io::Error::other).and_then(|read| read);
            let part = read.map_err(|error| {
                Refusal::new(Code::Internal, format!("the log of {instance} cannot be read: {error}"))
            })?;
            if over || !part.lines.is_empty() || Instant::now() >= end {
                return Ok(part);
            }
            tokio::time::sleep(LOOK.min(end - Instant::now())).await;
        }
    }
}

/// What is looked for, and what is not to be seen.
#[derive(Clone, Copy)]
struct Look<'a> {
    pattern: Option<&'a Regex>,
    mask: &'a Mask,
}

/// Masks what an ended instance has printed of what it was lent, in its place.
pub(super) fn hide(log: &Path, mask: &Mask, harness: Harness) -> io::Result<()> {
    if mask.longest() == 0 || !log.exists() {
        return Ok(());
    }
    // Whatever is left has to be masked.
    let (cut, heard) = (cut_if_long(log, harness), transcript::hide(log, mask));
    let cut = cut.and(heard);
    let before = log.with_extension("log.1");
    let first = match std::fs::read(&before) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        first => first?,
    };
    // As one text: a value may stand across the cut.
    let split = first.len();
    let mut text = first;
    text.extend(std::fs::read(log)?);
    if !mask.hide(&mut text) {
        return cut;
    }
    let rewrite = |path: &Path, part: &[u8]| {
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.write_all(part)
    };
    if split > 0 {
        rewrite(&before, &text[..split])?;
    }
    rewrite(log, &text[split..])?;
    cut
}

/// What somebody asks for of a log to which nobody writes any more if it is `over`.
fn read(path: &Path, query: &LogQuery, over: bool, look: Look<'_>) -> io::Result<Lines> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut part = Kept {
        most: query.lines.max(1) as usize,
        lines: VecDeque::new(),
        bytes: 0,
        from_end: true,
        is_whole: over,
        begun: Vec::new(),
    };
    let mut start = 0;
    match query.after {
        // One that is shorter now was cut meanwhile.
        Some(after) if after <= length => {
            part.from_end = false;
            start = after;
        }
        Some(_) => part.from_end = false,
        None => {
            let before: PathBuf = path.with_extension("log.1");
            match File::open(before) {
                Ok(before) => _ = part.take_from(before, 0, look)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    file.seek(SeekFrom::Start(start))?;
    let next = part.take_from(file, start, look)?;
    part.end(look);
    Ok(Lines { lines: part.lines.into(), next, over })
}

/// Lines up to a bound: the first ones, or the last ones.
struct Kept {
    most: usize,
    lines: VecDeque<String>,
    bytes: usize,
    from_end: bool,
    /// Nobody writes to it any more: a last line without an end is one.
    is_whole: bool,
    /// The beginning of a line that goes on in the next file.
    begun: Vec<u8>,
}

impl Kept {
    /// Reads on from a place. Gives the place behind the last whole line that was taken.
    fn take_from(&mut self, file: File, mut place: u64, look: Look<'_>) -> io::Result<u64> {
        // An agent may write while this is read, and for ever.
        let mut file = BufReader::new(file.take(2 * LOG));
        // A value that begins in what is shown has to be there to its end.
        let longest = LONGEST + look.mask.longest() as u64;
        while self.from_end || self.has_room() {
            let mut line = std::mem::take(&mut self.begun);
            let mut read = file.by_ref().take(longest).read_until(b'\n', &mut line)? as u64;
            if read == longest && line.last() != Some(&b'\n') {
                read += file.skip_until(b'\n')? as u64;
            } else if line.last() != Some(&b'\n') {
                // It is still being written, or goes on in the next file, unless it is the very last one.
                if self.from_end || (self.is_whole && file.get_ref().limit() > 0) {
                    place += read;
                    self.begun = line;
                }
                break;
            }
            place += read;
            self.put(line, look);
        }
        Ok(place)
    }

    /// There is no file behind the last.
    fn end(&mut self, look: Look<'_>) {
        let begun = std::mem::take(&mut self.begun);
        if !begun.is_empty() {
            self.put(begun, look);
        }
    }

    fn has_room(&self) -> bool {
        self.lines.len() < self.most && self.bytes < MOST
    }

    fn put(&mut self, mut line: Vec<u8>, look: Look<'_>) {
        look.mask.hide_in_part(&mut line);
        line.truncate(usize::try_from(LONGEST).unwrap_or(usize::MAX));
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches(['\n', '\r']);
        if look.pattern.is_some_and(|pattern| !pattern.is_match(line)) {
            return;
        }
        self.bytes += line.len();
        self.lines.push_back(line.to_owned());
        while self.from_end && (self.lines.len() > self.most || self.bytes > MOST) {
            self.bytes -= self.lines.pop_front().map_or(0, |line| line.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(log: &Path, mask: &Mask, lines: u32) -> Vec<String> {
        let query = LogQuery { lines, ..LogQuery::default() };
        read(log, &query, false, Look { pattern: None, mask }).unwrap().lines
    }

    #[test]
    fn whoever_follows_a_log_sees_a_last_line_without_an_end_once_nobody_writes_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let (log, mask) = (folder.path().join("a.log"), Mask::default());
        std::fs::write(&log, "one\nlast words").unwrap();
        let follow = |after, over| {
            let query = LogQuery { lines: 10, after: Some(after), ..LogQuery::default() };
            let Lines { lines, next, .. } =
                read(&log, &query, over, Look { pattern: None, mask: &mask }).unwrap();
            (lines, next)
        };
        assert_eq!(follow(0, false), (vec!["one".to_owned()], 4));
        assert_eq!(follow(4, false), (vec![], 4), "it may go on");
        assert_eq!(follow(4, true), (vec!["last words".to_owned()], 14));
        assert_eq!(follow(14, true), (vec![], 14));
    }

    #[test]
    fn a_value_that_stands_across_the_cut_of_a_log_or_of_a_line_is_masked() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("a.log");
        let mask = Mask::new(["s3cret-of-the-geese".to_owned()]);
        std::fs::write(log.with_extension("log.1"), "one\nit is s3cret-of").unwrap();
        std::fs::write(&log, "-the-geese.\ntwo\nunfinished s3cret-of-t").unwrap();
        let seen = ["one", "it is *******************.", "two", "unfinished ***********"];
        assert_eq!(lines(&log, &mask, 10), seen);
        hide(&log, &mask, Harness::Command).unwrap();
        let none = Mask::default();
        assert_eq!(lines(&log, &none, 10)[..3], seen[..3]);
        assert_eq!(std::fs::read_to_string(log.with_extension("log.1")).unwrap(), "one\nit is *********");

        std::fs::remove_file(log.with_extension("log.1")).unwrap();
        let long = LONGEST as usize - 5;
        std::fs::write(&log, format!("{}s3cret-of-the-geese\nafter\n", "x".repeat(long))).unwrap();
        let shown = lines(&log, &mask, 2);
        assert_eq!(
            (shown[0].len(), &shown[0][long..], shown[1].as_str()),
            (LONGEST as usize, "*****", "after")
        );
    }
}
