//! Lines of the log on their way to stderr. A node writes one for each call of a tool, and a system call for each of
//! them costs more than to format it: a thread of their own writes what has gathered.

use std::io::{self, BufWriter, Write};
use std::time::Duration;

use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

/// The pause between two writings. What is logged in it a node that is killed has not written.
const PAUSE: Duration = Duration::from_millis(5);
/// What is written at once, bytes.
const GATHERED: usize = 64 * 1024;
/// Lines that wait. Whoever has one more waits until there is room.
const WAITING: usize = 8192;

/// Where lines are put, and the guard that has the last of them written when it is dropped.
pub(super) fn to_stderr() -> (NonBlocking, WorkerGuard) {
    written_to(io::stderr())
}

fn written_to(writer: impl Write + Send + 'static) -> (NonBlocking, WorkerGuard) {
    let lines = Lines(BufWriter::with_capacity(GATHERED, writer));
    NonBlockingBuilder::default().lossy(false).buffered_lines_limit(WAITING).thread_name("log").finish(lines)
}

struct Lines<W: Write>(BufWriter<W>);

impl<W: Write> Write for Lines<W> {
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A disk: what stands on it, and the writings after which it is full for so many of them.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<Written>>);

    #[derive(Default)]
    struct Written {
        text: Vec<u8>,
        writings: usize,
        fails: std::ops::Range<usize>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut written = self.0.lock().unwrap();
            written.writings += 1;
            if written.fails.contains(&written.writings) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            written.text.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn log(disk: &Disk, lines: usize) -> Vec<String> {
        let (mut writer, guard) = written_to(disk.clone());
        for number in 0..lines {
            writer.write_all(format!("line {number}\n").as_bytes()).unwrap();
        }
        drop(guard);
        let text = String::from_utf8(disk.0.lock().unwrap().text.clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    fn lines(numbers: std::ops::Range<usize>) -> Vec<String> {
        numbers.map(|number| format!("line {number}")).collect()
    }

    #[test]
    fn all_lines_are_written_in_their_order_and_many_at_once() {
        let disk = Disk::default();
        assert_eq!(log(&disk, 20_000), lines(0..20_000));
        let writings = disk.0.lock().unwrap().writings;
        assert!(writings < 2000, "{writings} writings");
    }

    #[test]
    fn a_disk_that_is_full_for_a_while_holds_nobody_up() {
        let disk = Disk::default();
        disk.0.lock().unwrap().fails = 1..3;
        let written = log(&disk, 20_000);
        assert!(written.ends_with(&lines(19_000..20_000)), "{:?}", written.last());
        disk.0.lock().unwrap().fails = 0..usize::MAX;
        let before = written.len();
        assert_eq!(log(&disk, 100).len(), before, "nothing can be written any more, and nobody waits for it");
    }
}
