//! What an instance's program printed, read again for what it says of the run.
//!
//! A client names its conversation once, in its first line perhaps, and says step by step what that costs. So what a
//! log has said is kept beside it before it is emptied, and reading goes on from there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

use serde::{Deserialize, Serialize};

use crate::credentials::Mask;
use crate::harness::{Harness, Said};

/// Longest line that is looked at, bytes; no client says anything of a run in a longer one.
const LINE: u64 = 4 * 1024 * 1024;
/// How much of a log is looked at before it is emptied, bytes. No client prints more between two looks, and what prints
/// without end must not outrun whoever reads it.
const MOST: u64 = 64 * 1024 * 1024;

/// Nobody reads a log while one is emptied.
static LOGS: RwLock<()> = RwLock::new(());

/// Held by whoever empties a log.
pub(super) fn alone() -> RwLockWriteGuard<'static, ()> {
    LOGS.write().unwrap_or_else(PoisonError::into_inner)
}

/// All that a log has ever said.
pub(super) fn read(harness: Harness, log: &Path) -> io::Result<Said> {
    let _whole = LOGS.read().unwrap_or_else(PoisonError::into_inner);
    let mut heard = Heard::of(harness, log)?;
    match File::open(log) {
        Ok(file) => heard.go_on(&file, u64::MAX)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(heard.into_said())
}

/// Masks what is kept of a log's words.
pub(super) fn hide(log: &Path, mask: &Mask) -> io::Result<()> {
    let _alone = alone();
    let Some(Heard { harness, said, begun, place }) = Heard::kept(log)? else { return Ok(()) };
    let said = said.in_words(|words| mask.hidden(words));
    Heard { harness, said, begun: mask.hidden(&begun), place }.keep(log)
}

/// Removes what is kept of a log's words.
pub(super) fn forget(log: &Path) {
    // As a rule there is none.
    let _ = fs::remove_file(beside(log));
}

/// What a log has said, up to a place in it.
#[derive(Serialize, Deserialize)]
pub(super) struct Heard {
    /// Whose words they are.
    harness: Harness,
    said: Said,
    /// The line that goes on behind that place.
    begun: String,
    /// The place, in bytes. A log that ends before it was emptied since.
    place: u64,
}

impl Heard {
    /// Reads a log that is about to be emptied; none if it says nothing of its run. What this has read is kept at once,
    /// for the runner may end before the log is empty.
    pub(super) fn before_it_is_emptied(
        harness: Harness,
        log: &Path,
        file: &File,
    ) -> io::Result<Option<Self>> {
        if !harness.is_client() {
            return Ok(None);
        }
        let mut heard = Self::of(harness, log)?;
        heard.go_on(file, MOST)?;
        // A disk that is full has room for it once the log is empty.
        let _ = heard.keep(log);
        Ok(Some(heard))
    }

    /// Goes on with what came since, up to `most` bytes.
    pub(super) fn go_on(&mut self, mut file: &File, most: u64) -> io::Result<()> {
        let length = file.metadata()?.len();
        if length < self.place {
            self.place = 0;
        }
        file.seek(SeekFrom::Start(self.place))?;
        self.take(BufReader::new(file.take(most)))?;
        if self.place < length {
            // What is left out comes between this line and the rest of it.
            self.begun.clear();
        }
        Ok(())
    }

    /// Keeps it for the log, which is empty now.
    pub(super) fn now_it_is_empty(mut self, log: &Path) -> io::Result<()> {
        self.place = 0;
        self.keep(log)
    }

    /// What is kept of a log, or else the part that was cut off it.
    fn of(harness: Harness, log: &Path) -> io::Result<Self> {
        if let Some(heard) = Self::kept(log)?.filter(|heard| heard.harness == harness) {
            return Ok(heard);
        }
        let mut heard = Self { harness, said: Said::default(), begun: String::new(), place: 0 };
        match File::open(log.with_extension("log.1")) {
            Ok(part) => heard.take(BufReader::new(part))?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        heard.place = 0;
        Ok(heard)
    }

    fn kept(log: &Path) -> io::Result<Option<Self>> {
        let text = match fs::read(beside(log)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let heard = serde_json::from_slice(&text);
        let unread = |error: &serde_json::Error| {
            tracing::error!(log = %log.display(), %error, "what a log has said before it was cut cannot be read");
        };
        Ok(heard.inspect_err(unread).ok())
    }

    /// As a whole or not at all.
    fn keep(&self, log: &Path) -> io::Result<()> {
        let new = log.with_extension("said.new");
        let text = serde_json::to_vec(self)?;
        let open = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new);
        let written =
            open.and_then(|mut file| file.write_all(&text)).and_then(|()| fs::rename(&new, beside(log)));
        if written.is_err() {
            // A part of it is of no use.
            let _ = fs::remove_file(&new);
        }
        written
    }

    /// Takes note of every line that has an end. One that is too long comes in pieces, which are no JSON.
    fn take(&mut self, mut log: impl BufRead) -> io::Result<()> {
        let mut line = std::mem::take(&mut self.begun).into_bytes();
        loop {
            let room = LINE.saturating_sub(line.len() as u64);
            self.place += log.by_ref().take(room).read_until(b'\n', &mut line)? as u64;
            if line.last() != Some(&b'\n') && (line.len() as u64) < LINE {
                break;
            }
            self.note(&line);
            line.clear();
        }
        self.begun = String::from_utf8_lossy(&line).into_owned();
        Ok(())
    }

    /// What is left behind the last line is one too.
    fn into_said(mut self) -> Said {
        let begun = std::mem::take(&mut self.begun);
        self.note(begun.as_bytes());
        self.said
    }

    fn note(&mut self, line: &[u8]) {
        self.harness.note(String::from_utf8_lossy(line).trim_end(), &mut self.said);
    }
}

fn beside(log: &Path) -> PathBuf {
    log.with_extension("said")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skein_shared::agent::Usage;

    use super::*;
    use crate::container::Exit;
    use crate::instance::folders::{LOG, cut_if_long};

    const EXITED: Exit = Exit { code: Some(0), signal: None, out_of_memory: false };

    /// A log that has nothing in it yet.
    struct Log {
        _folder: tempfile::TempDir,
        path: PathBuf,
    }

    impl Log {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.log");
            let log = Self { _folder: folder, path };
            log.print("");
            log
        }

        fn print(&self, text: &str) {
            let open = OpenOptions::new().create(true).append(true).open(&self.path);
            open.unwrap().write_all(text.as_bytes()).unwrap();
        }

        /// Prints so much that what came before is cut off.
        fn print_much(&self) {
            let line = format!("{}\n", "goose ".repeat(10_000));
            (0..=LOG / line.len() as u64).for_each(|_| self.print(&line));
        }

        fn cut(&self, harness: Harness) {
            assert!(fs::metadata(&self.path).unwrap().len() > LOG);
            cut_if_long(&self.path, harness).unwrap();
            assert_eq!(fs::metadata(&self.path).unwrap().len(), 0);
        }

        fn read(&self, harness: Harness) -> Said {
            read(harness, &self.path).unwrap()
        }

        /// The steps that OpenCode has taken, and their cost.
        fn steps(&self) -> (u64, Option<u64>) {
            let Usage { turns, cost_micros, .. } =
                self.read(Harness::Opencode).ending(EXITED).usage.unwrap_or_default();
            (turns, cost_micros)
        }
    }

    /// One of OpenCode, with its end of the line.
    fn step() -> String {
        let part = json!({"reason": "stop", "cost": 0.0001, "tokens": {"input": 1, "output": 1}});
        format!("{}\n", json!({"type": "step_finish", "sessionID": "ses_1", "part": part}))
    }

    #[test]
    fn every_step_counts_however_often_a_log_is_cut() {
        let log = Log::new();
        for count in 1..=3 {
            log.print(&step());
            log.print_much();
            log.cut(Harness::Opencode);
            assert_eq!(log.steps(), (count, Some(count * 100)));
        }
        log.print(&step());
        assert_eq!(log.steps(), (4, Some(400)), "what came since counts too");
        assert_eq!(log.read(Harness::Codex).ending(EXITED).usage, None, "another client has said nothing");
    }

    #[test]
    fn a_conversation_and_a_last_word_are_known_when_their_lines_have_gone() {
        let log = Log::new();
        log.print("{\"type\":\"thread.started\",\"thread_id\":\"t-1\"}\n");
        log.print("{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":7,\"output_tokens\":3}}\n");
        for _ in 0..2 {
            log.print_much();
            log.cut(Harness::Codex);
        }
        let said = log.read(Harness::Codex);
        assert_eq!(said.session.as_deref(), Some("t-1"));
        let ending = said.ending(Exit::default());
        assert_eq!((ending.exit, ending.usage.unwrap().input_tokens), (EXITED, 7));
    }

    #[test]
    fn a_line_across_a_cut_counts_once_and_a_last_one_without_an_end_too() {
        let (log, step) = (Log::new(), step());
        let (first, rest) = step.split_at(30);
        log.print_much();
        log.print(first);
        log.cut(Harness::Opencode);
        assert_eq!(log.steps(), (0, None));
        log.print(rest);
        log.print(step.trim_end());
        assert_eq!(log.steps(), (2, Some(200)));
    }

    #[test]
    fn what_a_runner_has_read_when_it_ends_in_the_midst_of_a_cut_counts_once() {
        let log = Log::new();
        log.print(&step());
        log.print_much();
        let begin = || {
            let file = OpenOptions::new().read(true).write(true).open(&log.path).unwrap();
            Heard::before_it_is_emptied(Harness::Opencode, &log.path, &file).unwrap().unwrap();
            file
        };
        begin();
        log.print(&step());
        assert_eq!(log.steps(), (2, Some(200)), "it was not emptied");
        begin().set_len(0).unwrap();
        assert_eq!(log.steps(), (2, Some(200)), "it was emptied, and nobody has written that down");
        log.print(&step());
        assert_eq!(log.steps(), (3, Some(300)));
    }

    #[test]
    fn the_part_that_was_cut_off_counts_where_nothing_was_kept() {
        let log = Log::new();
        fs::write(log.path.with_extension("log.1"), step()).unwrap();
        log.print(&step());
        assert_eq!(log.steps(), (2, Some(200)));
        fs::write(beside(&log.path), "no JSON").unwrap();
        assert_eq!(log.steps(), (2, Some(200)));
    }

    #[test]
    fn what_is_kept_of_a_log_shows_nothing_that_is_masked() {
        let log = Log::new();
        let failed = json!({"type": "turn.failed", "error": {"message": "no key s3cret-of-the-geese"}});
        log.print(&format!("{failed}\n"));
        log.print_much();
        log.print("again s3cret-of-the");
        log.cut(Harness::Codex);
        hide(&log.path, &Mask::new(["s3cret-of-the-geese".to_owned()])).unwrap();
        let kept = fs::read_to_string(beside(&log.path)).unwrap();
        assert!(kept.contains("no key") && kept.contains("again") && !kept.contains("s3cret"), "{kept}");
        assert_eq!(log.read(Harness::Codex).ending(EXITED).reason, "no key *******************");
    }
}
