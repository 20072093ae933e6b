//! Stopping a process tree by signals, for machines without usable control groups.
//!
//! One pass over the process table is not enough: while it is read, a process that was not yet stopped may
//! start another. A stopped process starts none, so passes are repeated until one finds every member stopped.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::tree::{self, Process};
use super::{Failure, Handle};

/// How long a tree may go on growing while it is being stopped or killed.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(2);
/// How often stopping is begun anew.
const TRIES: u32 = 5;

/// Stops every process of the instance.
///
/// # Errors
/// When some still run after five tries of a second each; those already stopped go on then.
pub async fn stop(handle: &Handle) -> Result<(), Failure> {
    for _ in 0..TRIES {
        if until(handle, PATIENCE / TRIES, stop_all).await {
            return Ok(());
        }
        // A process that starts another by vfork(2) stands still in the kernel, and not stopped, until that other has become
        // its program: which it never does if it was stopped before.
        go_on(handle).await;
    }
    Err(Failure(format!("the processes of {} could not all be stopped; it runs on", handle.instance)))
}

/// Lets every process of the instance go on, children before their parents: a parent that waits for a stopped
/// child then finds it running.
pub async fn go_on(handle: &Handle) {
    let members = members(handle).await;
    members.iter().rev().for_each(|process| send(process, Signal::CONT));
}

/// Kills every process of the instance, stopped or not.
///
/// # Errors
/// When some are left after five seconds: the kernel holds them in an uninterruptible wait.
pub async fn kill(handle: &Handle) -> Result<(), Failure> {
    // What starts processes without end would outrun those who only kill: stopped ones start none, and count still
    // against the limit of their user. Those that are not stopped in time are killed all the same.
    until(handle, PATIENCE, stop_all).await;
    // Children before their parents, by which they are known.
    let gone = until(handle, PATIENCE, |members| {
        members.iter().rev().for_each(|process| send(process, Signal::KILL));
        members.is_empty()
    });
    if gone.await {
        return Ok(());
    }
    Err(Failure(format!("processes of {} do not end; look at the machine's disks", handle.instance)))
}

/// Kills the processes that have all these entries in their environment.
pub async fn kill_marked(marks: Vec<String>) {
    for _ in 0..100 {
        let marks = marks.clone();
        let found = tokio::task::spawn_blocking(move || tree::with_entries(&marks)).await.unwrap_or_default();
        if found.is_empty() {
            return;
        }
        found.iter().for_each(|process| send(process, Signal::KILL));
        tokio::time::sleep(LOOK).await;
    }
}

/// True when all were stopped already.
fn stop_all(members: &[Process]) -> bool {
    let running: Vec<&Process> = members.iter().filter(|process| !process.is_stopped()).collect();
    running.iter().for_each(|process| send(process, Signal::STOP));
    running.is_empty()
}

async fn until(handle: &Handle, patience: Duration, step: impl Fn(&[Process]) -> bool) -> bool {
    let work = async {
        loop {
            if step(&members(handle).await) {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(patience, work).await.is_ok()
}

async fn members(handle: &Handle) -> Vec<Process> {
    let handle = handle.clone();
    tokio::task::spawn_blocking(move || tree::members(&handle)).await.unwrap_or_default()
}

/// Sends a signal, unless the process has ended and another has its pid.
fn send(process: &Process, signal: Signal) {
    let same = Process::read(process.pid).is_some_and(|now| now.born == process.born);
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
    if let (true, Some(pid)) = (same, pid) {
        // It may end between the look and the signal; then there is nothing to do.
        let _ = kill_process(pid, signal);
    }
}
