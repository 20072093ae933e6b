//! Lines of the log on their way to stderr. A node writes one for each call of a tool, and a system call for each of them
//! would cost a tenth of the call: a thread of their own writes what has gathered.

use std::io::{self, BufWriter, Stderr, Write};
use std::time::Duration;

use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

/// A line waits this long for others at most, while there are many: it is what a node that is killed may not have written.
const PAUSE: Duration = Duration::from_millis(5);
/// What is written at once, bytes.
const GATHERED: usize = 64 * 1024;
/// Lines that wait. Whoever writes more has to wait until they are written: none is dropped.
const WAITING: usize = 8192;

/// Where lines are put, and the guard that has the last of them written when it is dropped.
pub(super) fn to_stderr() -> (NonBlocking, WorkerGuard) {
    let lines = Lines(BufWriter::with_capacity(GATHERED, io::stderr()));
    NonBlockingBuilder::default().lossy(false).buffered_lines_limit(WAITING).thread_name("log").finish(lines)
}

struct Lines(BufWriter<Stderr>);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write(line)
    }

    /// Called when no line is left. The next ones gather while this sleeps.
    #[expect(clippy::disallowed_methods, reason = "a thread of its own, on which no task runs")]
    fn flush(&mut self) -> io::Result<()> {
        if !self.0.buffer().is_empty() {
            // What cannot be written is lost when there is no more room for it: nobody could be told.
            let _ = self.0.flush();
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}
