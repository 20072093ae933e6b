//! What clients of the older revisions said at their start, by session.
//!
//! A session falls asleep after five idle minutes, and agents think longer than that: what is kept here wakes
//! it up. It is also written to a file, so that clients go on over a restart; many of them do not begin anew
//! by themselves when they are told that their session is unknown. A session carries no rights (each request
//! brings its own token), so the worst that a lost line costs is a new `initialize`: it is not flushed.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tracing::warn;

/// Sessions remembered. What is kept of one is some hundred bytes.
const KEPT: usize = 20_000;

/// The sessions of this node.
#[derive(Debug)]
pub struct Sessions {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    states: HashMap<String, Value>,
    /// Oldest first, among them some that were deleted.
    order: VecDeque<String>,
    journal: Option<Journal>,
}

#[derive(Debug)]
struct Journal {
    path: PathBuf,
    file: File,
    lines: usize,
}

/// One line of the file: a session as it began, or without a state, its end.
#[derive(Serialize, Deserialize)]
struct Line {
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<Value>,
}

impl Sessions {
    /// Sessions that end with the process.
    pub fn fleeting() -> Self {
        Self { inner: Mutex::default() }
    }

    /// Sessions that are kept in a file. One that cannot be read or written costs only the memory of them.
    pub fn kept_in(path: &Path) -> Self {
        let mut inner = Inner::default();
        let read = inner.read(path).and_then(|()| inner.rewrite(path));
        if let Err(error) = read {
            warn!(path = %path.display(), %error, "sessions of MCP clients are not kept over a restart");
        }
        Self { inner: Mutex::new(inner) }
    }

    pub fn load(&self, id: &str) -> Option<Value> {
        self.lock().states.get(id).cloned()
    }

    pub fn store(&self, id: &str, state: Value) {
        let mut inner = self.lock();
        inner.keep(id, state.clone());
        // When it is known: the file may be written anew of what is.
        inner.note(&Line { id: id.to_owned(), state: Some(state) });
    }

    pub fn delete(&self, id: &str) {
        let mut inner = self.lock();
        if inner.states.remove(id).is_some() {
            inner.note(&Line { id: id.to_owned(), state: None });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn keep(&mut self, id: &str, state: Value) {
        if self.states.insert(id.to_owned(), state).is_none() {
            self.order.push_back(id.to_owned());
        }
        while self.states.len() > KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.states.remove(&oldest);
        }
        if self.order.len() > 2 * KEPT {
            self.order.retain(|id| self.states.contains_key(id));
        }
    }

    /// A line that a crash cut off is skipped.
    fn read(&mut self, path: &Path) -> io::Result<()> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for line in BufReader::new(file).split(b'\n') {
            match serde_json::from_slice(&line?) {
                Ok(Line { id, state: Some(state) }) => self.keep(&id, state),
                Ok(Line { id, state: None }) => {
                    self.states.remove(&id);
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Writes down what is known now, in place of all that the file has gathered.
    fn rewrite(&mut self, path: &Path) -> io::Result<()> {
        self.journal = None;
        self.order.retain(|id| self.states.contains_key(id));
        let draft = path.with_extension("new");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut text = Vec::new();
        for id in &self.order {
            let line = Line { id: id.clone(), state: self.states.get(id).cloned() };
            serde_json::to_writer(&mut text, &line)?;
            text.push(b'\n');
        }
        let mut file = options.open(&draft)?;
        file.write_all(&text)?;
        std::fs::rename(&draft, path)?;
        self.journal = Some(Journal { path: path.to_owned(), file, lines: self.order.len() });
        Ok(())
    }

    fn note(&mut self, line: &Line) {
        let Some(journal) = &mut self.journal else { return };
        journal.lines += 1;
        let path = journal.path.clone();
        let written = serde_json::to_vec(line).map_err(io::Error::from).and_then(|mut text| {
            text.push(b'\n');
            journal.file.write_all(&text)
        });
        let full = journal.lines > 2 * KEPT;
        let outcome = written.and_then(|()| if full { self.rewrite(&path) } else { Ok(()) });
        if let Err(error) = outcome {
            warn!(path = %path.display(), %error, "a session of an MCP client is not kept over a restart");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    #[test]
    fn sessions_outlive_the_process_and_a_torn_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.jsonl");
        let sessions = Sessions::kept_in(&path);
        sessions.store("a", json!({ "client": 1 }));
        sessions.store("b", json!({ "client": 2 }));
        sessions.delete("a");
        drop(sessions);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"id\":\"c\",\"sta").unwrap();

        let sessions = Sessions::kept_in(&path);
        assert_eq!(sessions.load("a"), None);
        assert_eq!(sessions.load("b"), Some(json!({ "client": 2 })));
        sessions.store("d", json!({}));
        drop(sessions);
        assert_eq!(Sessions::kept_in(&path).load("d"), Some(json!({})));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let sessions = Sessions::fleeting();
        for number in 0..=KEPT {
            sessions.store(&number.to_string(), json!(number));
        }
        assert_eq!(sessions.load("0"), None);
        assert!(sessions.load("1").is_some());
    }

    #[test]
    fn sessions_that_have_ended_take_nobodys_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.jsonl");
        let sessions = Sessions::kept_in(&path);
        sessions.store("first", json!(1));
        // The file is written anew on the way, and the ids are.
        for number in 0..=2 * KEPT {
            sessions.store(&number.to_string(), json!(number));
            if number % 1000 == 7 {
                continue;
            }
            sessions.delete(&number.to_string());
        }
        let living = ["first", "7", "1007", "39007"];
        assert!(living.iter().all(|id| sessions.load(id).is_some()));
        assert!(sessions.lock().order.len() <= 2 * KEPT);
        drop(sessions);
        let sessions = Sessions::kept_in(&path);
        assert!(living.iter().all(|id| sessions.load(id).is_some()));
    }

    /// The one of which the line is the last before the file is written anew is in it.
    #[test]
    fn a_session_is_kept_though_the_file_is_written_anew_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.jsonl");
        let sessions = Sessions::kept_in(&path);
        for number in 0..KEPT {
            sessions.store(&number.to_string(), json!(number));
            sessions.delete(&number.to_string());
        }
        sessions.store("last", json!(1));
        drop(sessions);
        assert!(Sessions::kept_in(&path).load("last").is_some());
    }
}
