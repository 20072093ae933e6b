//! `bash`: a command, its output up to a bound, and its end in time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{ioctl_fionread, retry_on_intr};
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process_group};
use serde::Deserialize;
use skein_shared::transport::{self, Outcome};

use super::cut::{self, Cut};
use super::drain::Rest;
use super::{OUTPUTS, Ran, Result};

/// How long a command may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(1);
/// How long the end of the output is waited for once all is read that the command has printed: something in the
/// background may hold it open for ever.
const REST: Duration = Duration::from_millis(200);
/// What is kept of the end of the output while it grows, bytes.
const KEPT: usize = 4 * cut::BYTES;
/// Largest file that a command's whole output gets.
const FILE: u64 = 64 * 1024 * 1024;
/// Most such files of one instance; then the oldest go.
const FILES: usize = 8;
const PREFIX: &str = "skein-bash-";

#[derive(Deserialize)]
pub(super) struct Arguments {
    command: String,
    /// In seconds.
    timeout: Option<f64>,
}

/// Runs the command, to its end or to the end of its time.
pub(super) fn run(arguments: Arguments, variables: &BTreeMap<String, String>) -> Result<Ran> {
    let limit = transport::limit(arguments.timeout).map_err(|refusal| refusal.message)?;
    let failed = |error: io::Error| format!("the command could not be started: {error}");
    let (reader, writer) = io::pipe().map_err(failed)?;
    let mut command = Command::new(shell());
    // A command may begin with a dash.
    command.args(["-c", "--"]).arg(&arguments.command).process_group(0).stdin(Stdio::null());
    command.envs(variables);
    command.stdout(writer.try_clone().map_err(failed)?).stderr(writer);
    let child = command.spawn().map_err(failed)?;
    // It holds the writing end too.
    drop(command);
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pipe = reader.try_clone().map_err(failed)?;
    let (output, read) = collect(reader);
    let ended = await_end(child);
    let end = match ended.recv_timeout(limit) {
        Err(RecvTimeoutError::Timeout) => {
            end_group(group, &ended);
            None
        }
        ended => ended.ok().and_then(io::Result::ok),
    };
    // Late output is no failure.
    let goes_on = goes_on(&pipe, &output, &read);
    let output = output.lock().unwrap_or_else(PoisonError::into_inner);
    let timed_out = end.is_none();
    // What is still there when the time is over ends too.
    let rest = (goes_on && !timed_out).then(|| Rest { pipe, file: output.to_go_on() });
    Ok(Ran { outcome: told(&output, end, limit), timed_out, rest })
}

/// Images for small things have no bash.
fn shell() -> &'static str {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join("bash").is_file()) { "bash" } else { "sh" }
}

fn await_end(mut child: Child) -> Receiver<io::Result<ExitStatus>> {
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || ended.send(child.wait()));
    end
}

/// Asks the command and what it has started to end, and kills what is left. What has left the group ends with this
/// process.
fn end_group(group: Option<Pid>, ended: &Receiver<io::Result<ExitStatus>>) {
    let Some(group) = group else { return };
    // It may have ended this moment.
    let _ = kill_process_group(group, Signal::TERM);
    let _ = ended.recv_timeout(GRACE);
    let _ = kill_process_group(group, Signal::KILL);
}

fn told(output: &Output, end: Option<ExitStatus>, limit: Duration) -> Outcome {
    let mut text = output.text();
    let how = match end {
        None => {
            Some(format!("The command was ended after {} seconds: its time was over", limit.as_secs_f64()))
        }
        Some(status) if status.success() => None,
        Some(status) => Some(match (status.code(), status.signal()) {
            (Some(code), _) => format!("The command ended with exit code {code}"),
            (None, Some(signal)) => format!("The command was ended by signal {signal}"),
            (None, None) => "The command ended, and nobody knows how".to_owned(),
        }),
    };
    if let Some(how) = &how {
        text = format!("{text}\n\n{how}");
    }
    Outcome { text, failed: how.is_some(), image: None }
}

/// Gathers what is printed, and tells when nothing more can come.
fn collect(mut reader: PipeReader) -> (Arc<Mutex<Output>>, Receiver<()>) {
    let (over, read) = mpsc::channel();
    let output = Arc::new(Mutex::new(Output::default()));
    let into = Arc::clone(&output);
    std::thread::spawn(move || {
        let mut chunk = vec![0; 64 * 1024];
        while has_more(&reader) {
            // What leaves the pipe is in the output before anybody looks at both.
            let mut output = into.lock().unwrap_or_else(PoisonError::into_inner);
            let Ok(count @ 1..) = reader.read(&mut chunk) else { break };
            output.take_in(&chunk[..count]);
        }
        let _ = over.send(());
    });
    (output, read)
}

/// Waits until something is in the pipe, or nobody holds it open any more.
fn has_more(reader: &PipeReader) -> bool {
    retry_on_intr(|| poll(&mut [PollFd::new(reader, PollFlags::IN)], None)).is_ok()
}

/// Whether something holds the output open of a command that has ended. What that has left in the pipe is taken in by
/// then, however late the thread that reads it comes to its turn.
fn goes_on(pipe: &PipeReader, output: &Mutex<Output>, read: &Receiver<()>) -> bool {
    let output = || output.lock().unwrap_or_else(PoisonError::into_inner);
    let printed = {
        let output = output();
        output.bytes + ioctl_fionread(pipe).unwrap_or_default()
    };
    while read.recv_timeout(REST) == Err(RecvTimeoutError::Timeout) {
        if output().bytes >= printed {
            return true;
        }
    }
    false
}

/// What a command has printed: the end of it, and all of it in a file once that is more than is shown.
#[derive(Default)]
pub(super) struct Output {
    end: Vec<u8>,
    lines: usize,
    bytes: u64,
    file: Option<(PathBuf, File)>,
}

impl Output {
    pub(super) fn take_in(&mut self, part: &[u8]) {
        self.lines += part.iter().filter(|&&byte| byte == b'\n').count();
        self.end.extend_from_slice(part);
        let before = self.bytes;
        self.bytes += part.len() as u64;
        if self.is_long() && self.file.is_none() && before <= KEPT as u64 {
            // Nothing was dropped yet, so all of it goes into the file.
            self.file = keep(&self.end);
        } else if let Some((_, file)) = &mut self.file
            && self.bytes <= longest_file()
        {
            // A full disk costs the rest of the file, and the end is shown all the same.
            let _ = file.write_all(part);
        }
        if self.end.len() > 2 * KEPT {
            let surplus = self.end.len() - KEPT;
            self.end.drain(..surplus);
        }
    }

    /// The file, if there is one, and how many bytes it may still get.
    fn to_go_on(&self) -> Option<(File, u64)> {
        let (_, file) = self.file.as_ref()?;
        Some((file.try_clone().ok()?, longest_file().saturating_sub(self.bytes)))
    }

    fn is_long(&self) -> bool {
        self.lines > cut::LINES || self.bytes > cut::BYTES as u64
    }

    pub(super) fn text(&self) -> String {
        if self.bytes == 0 {
            return "(no output)".to_owned();
        }
        let text = String::from_utf8_lossy(&self.end);
        let shown = cut::tail(&text);
        let dropped = self.bytes > self.end.len() as u64;
        let Some(cut) = shown.cut.or(dropped.then_some(Cut::Bytes)) else {
            return text.trim_end_matches('\n').to_owned();
        };
        let total = self.lines + usize::from(!text.ends_with('\n'));
        let bound = if cut == Cut::Bytes { ", 50 KB at most" } else { "" };
        let first = total.saturating_sub(shown.lines) + 1;
        let mut notes = vec![format!("Lines {first}-{total} of {total} are shown{bound}")];
        match &self.file {
            Some((path, _)) if self.bytes > longest_file() => {
                notes.push(format!("The first {} MB are in {}", longest_file() >> 20, path.display()));
            }
            Some((path, _)) => notes.push(format!("The full output is in {}", path.display())),
            None => notes.push("The full output could not be kept".to_owned()),
        }
        cut::with_notes(shown.text.trim_end_matches('\n'), &notes)
    }
}

/// Largest file of an output here. A longer one than the run may write would end whoever writes it.
fn longest_file() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(FILE).min(FILE)
}

/// Removes the oldest outputs, so that one more may come.
fn make_room(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let outputs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    let mut outputs: Vec<_> =
        outputs.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    outputs.sort();
    let surplus = (outputs.len() + 1).saturating_sub(FILES);
    for (_, oldest) in outputs.into_iter().take(surplus) {
        // Another tool may have been quicker.
        let _ = std::fs::remove_file(oldest);
    }
}

/// A file that stays, with this in it.
fn keep(begin: &[u8]) -> Option<(PathBuf, File)> {
    let folder = std::env::var_os(OUTPUTS).map_or_else(std::env::temp_dir, PathBuf::from);
    make_room(&folder);
    let fresh = tempfile::Builder::new().prefix(PREFIX).suffix(".log").tempfile_in(folder).ok()?;
    let (mut file, path) = fresh.keep().ok()?;
    file.write_all(begin).ok()?;
    Some((path, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_has_printed_is_waited_for_however_late_it_is_read() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let pipe = reader.try_clone().unwrap();
        writer.write_all(b"hello").unwrap();
        let (over, read) = mpsc::channel();
        let output = Mutex::new(Output::default());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // As a reader that comes to no turn.
                std::thread::park_timeout(REST * 3);
                let mut chunk = [0; 5];
                let mut output = output.lock().unwrap();
                reader.read_exact(&mut chunk).unwrap();
                output.take_in(&chunk);
            });
            assert!(goes_on(&pipe, &output, &read), "something holds it open still");
            assert_eq!(output.lock().unwrap().text(), "hello");
        });
        drop((writer, over));
        assert!(!goes_on(&pipe, &output, &read), "nothing more can come");
    }

    #[test]
    fn the_oldest_outputs_make_room_for_a_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let now = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(86_400);
        for (number, age) in (0..12_u64).zip((0..12_u64).rev()) {
            let file = File::create(folder.path().join(format!("{PREFIX}{number}.log"))).unwrap();
            file.set_modified(now - Duration::from_secs(age)).unwrap();
        }
        std::fs::write(folder.path().join("notes"), "").unwrap();
        make_room(folder.path());
        let left = |name: &str| folder.path().join(name).exists();
        assert_eq!(
            (0..12).filter(|number| left(&format!("{PREFIX}{number}.log"))).collect::<Vec<_>>(),
            [5, 6, 7, 8, 9, 10, 11]
        );
        assert!(left("notes"));
    }
}
