//! Reads on what a command that has ended left in the background, and what prints still: at a pipe that nobody reads it
//! would be killed by its next line. That is done by one more process of this program beside it, for the tool's own has
//! to end with its answer.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, PipeReader, Read as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

/// The variable by which this program is told to read on, and how many bytes of it to keep.
const KEEP: &str = "SKEIN_DRAIN";

/// What is printed still.
pub(super) struct Rest {
    pub pipe: PipeReader,
    /// The file of the whole output, and how many bytes it may still get.
    pub file: Option<(File, u64)>,
}

impl Rest {
    /// Has it read to its end.
    ///
    /// # Errors
    /// When no process can be started for that.
    pub(super) fn hand_over(self) -> io::Result<Child> {
        let (keep, output) = match self.file {
            Some((file, left)) => (left, Stdio::from(file)),
            None => (0, Stdio::null()),
        };
        // As this process was started: in a container that is by a loader, which then is the program.
        let line = std::fs::read("/proc/self/cmdline")?;
        let arguments = line.strip_suffix(b"\0").unwrap_or(&line).split(|&byte| byte == 0).skip(1);
        let mut command = Command::new("/proc/self/exe");
        command.args(arguments.map(OsStr::from_bytes)).env(KEEP, keep.to_string());
        // A signal for the tool's group is not for this.
        command.process_group(0).stdin(self.pipe).stdout(output).stderr(Stdio::null());
        command.spawn()
    }
}

/// Whether this process was started to read on, and how much of it to keep.
pub(super) fn is_asked_to_keep() -> Option<u64> {
    std::env::var(KEEP).ok()?.parse().ok()
}

/// Reads standard input to its end, and writes the beginning to standard output.
pub(super) fn serve(keep: u64) -> ExitCode {
    let mut input = io::stdin().lock();
    // A full disk costs the rest of the file.
    let _ = io::copy(&mut input.by_ref().take(keep), &mut io::stdout().lock());
    match io::copy(&mut input, &mut io::sink()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
