//! What clients of the older revisions said at their start, by session.
//!
//! A session falls asleep after an idle while, and agents may think longer than that: what is kept here wakes
//! it up. It is also written to a file, so that clients go on over a restart; many of them do not begin anew
//! by themselves when they are told that their session is unknown. A session carries no rights (each request
//! brings its own token), so the worst that a lost line costs is a new `initialize`: it is not flushed.
//!
//! It belongs to the agent that began it, also while it sleeps. One that another release has written down belongs to
//! nobody until somebody wakes it.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use skein_shared::id::Name;
use tracing::warn;
use uuid::Uuid;

use crate::auth::Principal;

/// Sessions remembered. What is kept of one is some hundred bytes.
const KEPT: usize = 20_000;

/// The sessions of this node.
#[derive(Debug)]
pub struct Sessions {
    inner: Mutex<Inner>,
}

/// Whose a session is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub swarm: Name,
    pub agent: Uuid,
}

impl Owner {
    pub fn of(who: &Principal) -> Self {
        Self { swarm: who.swarm.clone(), agent: who.agent }
    }

    /// Whether a caller is one that the session is for. `proven` is whether a token of its own says which agent it is:
    /// with the shared key anybody is any agent of its swarm.
    pub fn admits(&self, who: &Principal, proven: bool) -> bool {
        self.swarm == who.swarm && (self.agent == who.agent || !proven)
    }
}

#[derive(Clone, Debug)]
struct Known {
    state: Value,
    owner: Option<Owner>,
}

#[derive(Debug, Default)]
struct Inner {
    states: HashMap<String, Known>,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<Owner>,
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
        self.lock().states.get(id).map(|known| known.state.clone())
    }

    /// Whether it is kept here.
    pub fn knows(&self, id: &str) -> bool {
        self.lock().states.contains_key(id)
    }

    /// Whose a session is, if that is known.
    pub fn owner(&self, id: &str) -> Option<Owner> {
        self.lock().states.get(id)?.owner.clone()
    }

    pub fn store(&self, id: &str, state: Value) {
        let mut inner = self.lock();
        let owner = inner.states.get(id).and_then(|known| known.owner.clone());
        inner.keep(id, Known { state, owner });
        inner.note_kept(id);
    }

    /// Gives a session that is kept here and is nobody's to somebody.
    pub fn give(&self, id: &str, owner: Owner) {
        let mut inner = self.lock();
        let Some(known) = inner.states.get_mut(id).filter(|known| known.owner.is_none()) else { return };
        known.owner = Some(owner);
        inner.note_kept(id);
    }

    pub fn delete(&self, id: &str) {
        let mut inner = self.lock();
        if inner.states.remove(id).is_some() {
            inner.note(&Line { id: id.to_owned(), state: None, owner: None });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn keep(&mut self, id: &str, known: Known) {
        if self.states.insert(id.to_owned(), known).is_none() {
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
                Ok(Line { id, state: Some(state), owner }) => self.keep(&id, Known { state, owner }),
                Ok(Line { id, state: None, .. }) => {
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
        for line in self.order.iter().filter_map(|id| self.line(id)) {
            serde_json::to_writer(&mut text, &line)?;
            text.push(b'\n');
        }
        let mut file = options.open(&draft)?;
        file.write_all(&text)?;
        std::fs::rename(&draft, path)?;
        self.journal = Some(Journal { path: path.to_owned(), file, lines: self.order.len() });
        Ok(())
    }

    /// The line of a session that is kept.
    fn line(&self, id: &str) -> Option<Line> {
        let Known { state, owner } = self.states.get(id)?.clone();
        Some(Line { id: id.to_owned(), state: Some(state), owner })
    }

    /// Only what is kept is noted: the file may be written anew of that.
    fn note_kept(&mut self, id: &str) {
        if let Some(line) = self.line(id) {
            self.note(&line);
        }
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

    fn owner(agent: u128) -> Owner {
        Owner { swarm: Name::parse("default").unwrap(), agent: Uuid::from_u128(agent) }
    }

    #[test]
    fn a_session_is_whose_it_was_over_a_restart_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.jsonl");
        std::fs::write(&path, b"{\"id\":\"before\",\"state\":{\"client\":0}}\n").unwrap();
        let sessions = Sessions::kept_in(&path);
        sessions.store("a", json!({ "client": 1 }));
        sessions.give("a", owner(1));
        sessions.give("a", owner(2));
        sessions.give("unknown", owner(1));
        let all = |sessions: &Sessions| ["a", "before", "unknown"].map(|id| sessions.owner(id));
        assert_eq!(all(&sessions), [Some(owner(1)), None, None]);
        // What its client says of itself once more makes it nobody else's.
        sessions.store("a", json!({ "client": 2 }));
        sessions.give("before", owner(3));
        drop(sessions);
        let sessions = Sessions::kept_in(&path);
        assert_eq!(all(&sessions), [Some(owner(1)), Some(owner(3)), None]);
        assert_eq!(sessions.load("a"), Some(json!({ "client": 2 })));
        assert!(!sessions.knows("unknown"));
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
