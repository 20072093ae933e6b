//! What is known of a session from one event to the next: a small file, for each event is a process of its own.
//!
//! Several of them may run at a time, so whoever has it open has it locked. What in it is none of its lines is as if it
//! were not there, and where there can be no such file each event is the first.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::guard::WINDOW;

/// Longest file that is read, bytes: all that is ever written is shorter.
const LONGEST: u64 = 4096;

/// Times are in milliseconds since 1970; 0 for never.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Since when the session is known.
    pub(crate) begun: u64,
    /// When the swarm was asked last.
    pub(crate) asked: u64,
    /// When it was asked last and gave no answer.
    pub(crate) unheard: u64,
    /// The mark of the reason for which a prompt was held up: whoever sends the prompt once more knows it.
    pub(crate) told: u64,
    /// The marks of the last calls that were made, the oldest first.
    pub(crate) calls: Vec<u64>,
}

impl State {
    pub(crate) fn parse(text: &str) -> Self {
        let mut state = Self::default();
        let marks = |text: &str| -> Vec<u64> {
            text.split(' ').filter_map(|word| u64::from_str_radix(word, 16).ok()).collect()
        };
        for (name, value) in text.lines().filter_map(|line| line.split_once(' ')) {
            match name {
                "begun" => state.begun = value.parse().unwrap_or_default(),
                "asked" => state.asked = value.parse().unwrap_or_default(),
                "unheard" => state.unheard = value.parse().unwrap_or_default(),
                "told" => state.told = marks(value).first().copied().unwrap_or_default(),
                "calls" => state.calls = marks(value),
                _ => {}
            }
        }
        state.forget();
        state
    }

    pub(crate) fn render(&self) -> String {
        let Self { begun, asked, unheard, told, calls } = self;
        let calls: Vec<String> = calls.iter().map(|call| format!("{call:x}")).collect();
        let calls = calls.join(" ");
        format!("begun {begun}\nasked {asked}\nunheard {unheard}\ntold {told:x}\ncalls {calls}\n")
    }

    pub(crate) fn made(&mut self, call: u64) {
        self.calls.push(call);
        self.forget();
    }

    fn forget(&mut self) {
        let old = self.calls.len().saturating_sub(WINDOW);
        self.calls.drain(..old);
    }
}

/// The file of an agent of a session; the session itself is the agent without a name. Nobody who does not know the
/// session can tell the file's name, and so nobody was there first.
pub(crate) fn file(folder: &Path, session: &str, agent: &str) -> PathBuf {
    folder.join(format!("skein-hook-{:016x}", mark(&[session, agent])))
}

/// Reads what is known, has it changed, and writes it down.
pub(crate) fn change<T>(file: &Path, change: impl FnOnce(&mut State) -> T) -> T {
    let Ok((mut file, mut state)) = open(file) else { return change(&mut State::default()) };
    let given = change(&mut state);
    // What is cut off here counts for nothing the next time.
    let _ = write(&mut file, &state);
    given
}

fn open(file: &Path) -> io::Result<(File, State)> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(file)?;
    file.lock()?;
    let mut text = Vec::new();
    (&file).take(LONGEST).read_to_end(&mut text)?;
    Ok((file, State::parse(&String::from_utf8_lossy(&text))))
}

fn write(file: &mut File, state: &State) -> io::Result<()> {
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(state.render().as_bytes())
}

/// A number for texts, by which they are known again (FNV-1a, 64 bits).
pub(crate) fn mark(texts: &[&str]) -> u64 {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |mark, byte| (mark ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_read_again_and_no_more_than_the_window() {
        let mut state = State { begun: 7, asked: 8, unheard: 9, told: u64::MAX, calls: Vec::new() };
        for call in 0..40 {
            state.made(call);
        }
        assert_eq!(state.calls.len(), WINDOW);
        assert!(u64::try_from(state.render().len()).is_ok_and(|length| length < LONGEST));
        assert_eq!(State::parse(&state.render()), state);
        let garbled = State::parse("begun x\nasked 8\ncalls zz 1f \n\u{0}\nmore");
        assert_eq!(garbled, State { asked: 8, calls: vec![0x1f], ..State::default() });
    }

    #[test]
    fn two_processes_and_garbage_leave_a_file_that_is_read() {
        let session = format!("two-{}", std::process::id());
        let file = file(&std::env::temp_dir(), &session, "");
        std::fs::write(&file, [0xff; 9000]).unwrap();
        std::thread::scope(|scope| {
            for call in [1, 2] {
                let file = &file;
                scope.spawn(move || (0..10).for_each(|_| change(file, |state| state.made(call))));
            }
        });
        let calls = change(&file, |state| state.calls.clone());
        std::fs::remove_file(&file).unwrap();
        assert_eq!(calls.iter().filter(|call| **call == 1).count(), 10, "{calls:?}");
        assert_eq!(calls.len(), 20, "one was lost: {calls:?}");
    }

    #[test]
    fn without_a_file_each_event_is_the_first() {
        let nowhere = Path::new("/nonexistent/skein-hook");
        change(nowhere, |state| state.made(1));
        assert_eq!(change(nowhere, |state| state.clone()), State::default());
    }
}
