//! What each process of an instance may use, by the kernel's own limits, and the keys of a definition that say so.
//!
//! They hold without a daemon and without control groups, but for each process by itself: an instance has as much
//! memory as its processes have together.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Deserialize;

/// Processes and threads of an instance with a user of its own, without the key `pids`.
const PIDS: u32 = 1024;
/// Fewer leave no room for the program beside the process that starts it.
const LEAST_PIDS: u32 = 8;
/// Open files of a process without the key `open_files`.
const OPEN_FILES: u64 = 65_536;
/// Fewer keep programs from starting.
const LEAST_OPEN_FILES: u64 = 64;
/// With less memory the program that starts the agent would not get that far.
const LEAST_MEMORY: u64 = 64 << 20;
/// The run's log is a file too, and has to be able to grow before it is cut.
const LEAST_FILE: u64 = 32 << 20;

/// The keys as they are written. A container has the first two as well.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Keys {
    memory: Option<String>,
    pids: Option<u32>,
    open_files: Option<u64>,
    file_size: Option<String>,
}

/// The limits of an instance's processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of data that a process may have: what it has allocated and may write to.
    pub memory: Option<u64>,
    /// Processes and threads of the instance's user.
    pub pids: u32,
    pub open_files: u64,
    /// Longest file that it may write, in bytes.
    pub file_size: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: None, pids: PIDS, open_files: OPEN_FILES, file_size: None }
    }
}

impl Keys {
    /// Bytes of memory, if they are given.
    ///
    /// # Errors
    /// A sentence that names the key; so of all of these.
    pub fn memory(&self, least: u64) -> Result<Option<u64>, String> {
        self.memory.as_deref().map(|text| bytes("memory", text, least)).transpose()
    }

    pub fn pids(&self) -> Result<Option<u32>, String> {
        match self.pids {
            Some(pids) if pids < LEAST_PIDS => {
                Err(format!("pids: {pids} is too few; give at least {LEAST_PIDS}"))
            }
            pids => Ok(pids),
        }
    }

    /// The limits of an agent that lives in no container.
    pub fn limits(&self) -> Result<Limits, String> {
        if let Some(files) = self.open_files.filter(|files| *files < LEAST_OPEN_FILES) {
            return Err(format!("open_files: {files} is too few; give at least {LEAST_OPEN_FILES}"));
        }
        Ok(Limits {
            memory: self.memory(LEAST_MEMORY)?,
            pids: self.pids()?.unwrap_or(PIDS),
            open_files: self.open_files.unwrap_or(OPEN_FILES),
            file_size: self
                .file_size
                .as_deref()
                .map(|text| bytes("file_size", text, LEAST_FILE))
                .transpose()?,
        })
    }

    /// A key that means nothing in a container.
    pub fn of_processes(&self) -> Option<&'static str> {
        let given = [("open_files", self.open_files.is_some()), ("file_size", self.file_size.is_some())];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(key, _)| key)
    }
}

impl Limits {
    /// Arguments of `exec-agent` by which a process takes them on. Processes are counted by user, so who shares the
    /// runner's has no limit of them: it would be that of all who share it.
    pub(super) fn arguments(&self, has_user: bool) -> Vec<String> {
        let given = [
            ("--memory", self.memory),
            ("--pids", has_user.then_some(u64::from(self.pids))),
            ("--open-files", Some(self.open_files)),
            ("--file-size", self.file_size),
        ];
        let given = given.into_iter().filter_map(|(name, value)| Some((name, value?)));
        given.flat_map(|(name, value)| [name.to_owned(), value.to_string()]).collect()
    }
}

/// The same as arguments.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    #[arg(long)]
    memory: Option<u64>,
    #[arg(long)]
    pids: Option<u64>,
    #[arg(long)]
    open_files: Option<u64>,
    #[arg(long)]
    file_size: Option<u64>,
}

impl Arguments {
    /// Takes them on for this process and all that it starts. None of them leaves the memory of a crashed one on the
    /// disk: there is what it was lent.
    pub(super) fn apply(&self) -> Result<(), String> {
        let wanted = [
            (Resource::Core, Some(0)),
            (Resource::Data, self.memory),
            (Resource::Nproc, self.pids),
            (Resource::Nofile, self.open_files),
            (Resource::Fsize, self.file_size),
        ];
        for (resource, most) in wanted {
            if let Some(most) = most {
                lower(resource, most)
                    .map_err(|error| format!("the limit {resource:?} cannot be set: {error}"))?;
            }
        }
        Ok(())
    }
}

/// Lets this process have as many files open as it may: a runner has some for each of its instances. Systems give less
/// at first, for programs that take every number up to the limit for an open file; instances have a limit of their own.
///
/// # Errors
/// When the kernel refuses it.
pub fn raise_open_files() -> rustix::io::Result<()> {
    let now = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: now.maximum, ..now })
}

/// Nothing is raised: the runner may have been given less itself.
fn lower(resource: Resource, most: u64) -> rustix::io::Result<()> {
    let now = getrlimit(resource);
    let most = now.maximum.map_or(most, |known| known.min(most));
    let current = now.current.map_or(most, |known| known.min(most));
    setrlimit(resource, Rlimit { current: Some(current), maximum: Some(most) })
}

fn bytes(key: &str, text: &str, least: u64) -> Result<u64, String> {
    let problem = || format!("{key}: `{text}` is no size; write a number and k, m or g, such as \"512m\"");
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return Err(problem()),
    };
    let number: u64 = digits.parse().map_err(|_| problem())?;
    match number.checked_mul(unit) {
        Some(bytes) if bytes < least => {
            Err(format!("{key}: `{text}` is too little; give at least {}m", least >> 20))
        }
        Some(bytes) if i64::try_from(bytes).is_ok() => Ok(bytes),
        _ => Err(problem()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Limits, String> {
        toml::from_str::<Keys>(text).unwrap().limits()
    }

    #[test]
    fn limits_are_read_and_become_arguments() {
        assert_eq!(read("").unwrap(), Limits::default());
        let limits = read("memory = \"1g\"\npids = 64\nopen_files = 256\nfile_size = \"64M\"").unwrap();
        let own =
            ["--memory", "1073741824", "--pids", "64", "--open-files", "256", "--file-size", "67108864"];
        assert_eq!(limits.arguments(true), own);
        assert!(!limits.arguments(false).contains(&"--pids".to_owned()), "others have that user too");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, said) in [
            ("memory = \"lots\"", "memory: `lots` is no size"),
            ("memory = \"99999999999g\"", "no size"),
            ("memory = \"1m\"", "at least 64m"),
            ("file_size = \"1k\"", "file_size: `1k` is too little"),
            ("pids = 1", "at least 8"),
            ("open_files = 3", "at least 64"),
        ] {
            let problem = read(text).unwrap_err();
            assert!(problem.contains(said), "{text}: {problem}");
        }
    }
}
