//! What an instance has written, as people read it: the last lines, and what comes after them.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use regex::Regex;
use skein_shared::ask::{Lines, LogQuery};
use skein_shared::{Code, Refusal};
use tokio::time::Instant;

use super::Instances;
use super::folders::LOG;

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
            let read = tokio::task::spawn_blocking(move || read(&path, &query, pattern.as_ref())).await;
            let read = read.map_err(io::Error::other).and_then(|read| read);
            let mut part = read.map_err(|error| {
                Refusal::new(Code::Internal, format!("the log of {instance} cannot be read: {error}"))
            })?;
            part.over = over;
            if over || !part.lines.is_empty() || Instant::now() >= end {
                return Ok(part);
            }
            tokio::time::sleep(LOOK.min(end - Instant::now())).await;
        }
    }
}

fn read(path: &Path, query: &LogQuery, pattern: Option<&Regex>) -> io::Result<Lines> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut part =
        Kept { most: query.lines.max(1) as usize, lines: VecDeque::new(), bytes: 0, from_end: true };
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
                Ok(before) => _ = part.take_from(before, 0, pattern)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    file.seek(SeekFrom::Start(start))?;
    let next = part.take_from(file, start, pattern)?;
    Ok(Lines { lines: part.lines.into(), next, over: false })
}

/// Lines up to a bound: the first ones, or the last ones.
struct Kept {
    most: usize,
    lines: VecDeque<String>,
    bytes: usize,
    from_end: bool,
}

impl Kept {
    /// Reads on from a place. Gives the place behind the last whole line that was taken.
    fn take_from(&mut self, file: File, mut place: u64, pattern: Option<&Regex>) -> io::Result<u64> {
        // An agent may write while this is read, and for ever.
        let mut file = BufReader::new(file.take(2 * LOG));
        let mut line = Vec::new();
        while self.from_end || self.has_room() {
            line.clear();
            let mut read = file.by_ref().take(LONGEST).read_until(b'\n', &mut line)? as u64;
            if read == LONGEST && line.last() != Some(&b'\n') {
                read += file.skip_until(b'\n')? as u64;
            } else if line.last() != Some(&b'\n') {
                // It is still being written, unless it is the very last one.
                break;
            }
            place += read;
            self.put(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']), pattern);
        }
        if self.from_end && !line.is_empty() && line.last() != Some(&b'\n') {
            place += line.len() as u64;
            self.put(&String::from_utf8_lossy(&line), pattern);
        }
        Ok(place)
    }

    fn has_room(&self) -> bool {
        self.lines.len() < self.most && self.bytes < MOST
    }

    fn put(&mut self, line: &str, pattern: Option<&Regex>) {
        if pattern.is_some_and(|pattern| !pattern.is_match(line)) {
            return;
        }
        self.bytes += line.len();
        self.lines.push_back(line.to_owned());
        while self.from_end && (self.lines.len() > self.most || self.bytes > MOST) {
            self.bytes -= self.lines.pop_front().map_or(0, |line| line.len());
        }
    }
}
