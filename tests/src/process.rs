//! Signals to processes that the tests have started.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use procfs::process::Process;
use rustix::process::{Pid, kill_process, nice};
use tokio::time::Instant;

pub use rustix::process::Signal;

/// How long a process may take to stand still on a busy machine, whose disk some of its threads may wait for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at a process: nothing tells that it stands still.
const LOOK: Duration = Duration::from_millis(1);
/// The place behind all others, as `nice` counts.
const LEAST: i32 = 19;

/// From now on this thread, and those that it starts, compute only while nobody else does.
///
/// # Errors
/// When the system refuses.
pub fn give_way() -> Result<()> {
    nice(LEAST).context("the system lets nobody give way")?;
    Ok(())
}

/// Sends a signal to one process.
///
/// # Errors
/// When there is no such process.
pub fn signal(id: u32, signal: Signal) -> Result<()> {
    let Some(process) = Pid::from_raw(id.cast_signed()) else { bail!("there is no process {id}") };
    kill_process(process, signal).with_context(|| format!("process {id} cannot be sent {signal:?}"))
}

/// Stops a process, and waits until it stands still: its threads may go on for a while after the signal was sent.
///
/// # Errors
/// When there is no such process, or it does not stop.
pub async fn freeze(id: u32) -> Result<()> {
    signal(id, Signal::STOP)?;
    let began = Instant::now();
    while !stands_still(id)? {
        ensure!(began.elapsed() < PATIENCE, "process {id} does not stop");
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Lets a process go on that was frozen.
///
/// # Errors
/// When there is no such process.
pub fn thaw(id: u32) -> Result<()> {
    signal(id, Signal::CONT)
}

/// Whether none of its threads runs: one that waits for the disk stops only when it has its answer. One that has ended
/// since it was listed is not on the next list.
fn stands_still(id: u32) -> Result<bool> {
    let mut threads = Process::new(id.cast_signed())?.tasks()?;
    Ok(threads.all(|thread| thread.and_then(|thread| thread.stat()).is_ok_and(|stat| stat.state == 'T')))
}
