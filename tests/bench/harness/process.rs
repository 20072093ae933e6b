//! Programs that a bench starts and stops.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use skein_tests::process::{Signal, signal};
use tempfile::NamedTempFile;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::contender::Metered;

/// How long a server may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// A program that is killed, with its whole process group, when this is dropped.
pub(crate) struct Server {
    child: Child,
    name: String,
}

impl Server {
    /// Starts a program quietly; what it says goes to a file.
    ///
    /// # Errors
    /// When there is no such program.
    pub(crate) fn start(name: &str, mut command: Command, log: &Path) -> Result<Self> {
        let log = std::fs::File::create(log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("{name} cannot be started"))?;
        Ok(Self { child, name: name.to_owned() })
    }

    /// Starts a program of ours that prints, as its first line, the address on which it listens.
    ///
    /// # Errors
    /// When it ends without a line.
    pub(crate) async fn start_listening(name: &str, mut command: Command) -> Result<(Self, String)> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("{name} cannot be started"))?;
        let output = child.stdout.take().context("its output is piped")?;
        let mut lines = BufReader::new(output).lines();
        let first = tokio::time::timeout(PATIENCE, lines.next_line()).await.context("it says nothing")??;
        let address = first.with_context(|| format!("{name} ended before it listened"))?;
        Ok((Self { child, name: name.to_owned() }, address))
    }

    /// Its processor time and writes, with those of its children.
    pub(crate) fn metered(&self) -> Metered {
        self.id().map_or(Metered::Myself, Metered::Tree)
    }

    pub(crate) fn id(&self) -> Result<u32> {
        self.child.id().with_context(|| format!("{} has ended", self.name))
    }

    /// Waits until something accepts connections on a loopback port.
    ///
    /// # Errors
    /// When the program ends, or does not listen in time.
    pub(crate) async fn listening(&mut self, port: u16) -> Result<()> {
        let listening = async {
            while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                if let Some(status) = self.child.try_wait()? {
                    bail!("{} ended with {status}", self.name);
                }
                tokio::time::sleep(LOOK).await;
            }
            Ok(())
        };
        tokio::time::timeout(PATIENCE, listening).await.context("it does not listen")?
    }

    /// Asks it to end, and waits.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub(crate) async fn stop(mut self) -> Result<()> {
        if let Some(id) = self.child.id() {
            signal(id, Signal::TERM)?;
        }
        if tokio::time::timeout(PATIENCE, self.child.wait()).await.is_err() {
            self.child.kill().await?;
        }
        Ok(())
    }
}

/// A free loopback port. Another program could take it before it is used; none does on a machine of one's own.
///
/// # Errors
/// When there is none.
pub(crate) fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Counts the flushes of a process tree with `strace`.
pub(crate) struct FlushWatch {
    strace: Child,
    summary: NamedTempFile,
}

impl FlushWatch {
    /// `None` where there is no strace.
    ///
    /// # Errors
    /// When it cannot attach.
    pub(crate) async fn start(root: u32) -> Result<Option<Self>> {
        let summary = NamedTempFile::new()?;
        let mut command = Command::new("strace");
        command.args([
            "-f",
            "-qq",
            "-c",
            "-U",
            "name,calls",
            "-e",
            "trace=fsync,fdatasync,msync,sync_file_range",
        ]);
        command.arg("-o").arg(summary.path());
        for id in super::meter::tree(root)? {
            command.arg("-p").arg(id.to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let Ok(strace) = command.spawn() else { return Ok(None) };
        // It says nothing when it has attached; the first operations may go uncounted.
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok(Some(Self { strace, summary }))
    }

    /// # Errors
    /// When strace failed.
    pub(crate) async fn stop(mut self) -> Result<u64> {
        if let Some(id) = self.strace.id() {
            signal(id, Signal::INT)?;
        }
        self.strace.wait().await?;
        Ok(calls(&std::fs::read_to_string(self.summary.path())?))
    }
}

/// The sum of the calls in strace's table.
fn calls(summary: &str) -> u64 {
    let row = |line: &str| {
        let mut fields = line.split_whitespace();
        let name = fields.next()?;
        let count = fields.next()?.parse::<u64>().ok()?;
        (name != "total").then_some(count)
    };
    summary.lines().filter_map(row).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_a_strace_table_is_not_counted_twice() {
        let table = "syscall            calls\n---------------- ---------\nfdatasync              41\nfsync                   2\n---------------- ---------\ntotal                  43\n";
        assert_eq!(calls(table), 43);
        assert_eq!(calls(""), 0);
    }
}
