//! Stopping a process tree by signals, for machines without usable control groups.
//!
//! One pass over the process table is not enough: while it is read, a process that was not yet stopped may
//! start another. A stopped process starts none, so passes are repeated until one finds every member stopped.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
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
    let mut problem = None;
    for _ in 0..TRIES {
        match until(handle, PATIENCE / TRIES, stop_all).await {
            Ok(true) => return Ok(()),
            Ok(false) => problem = None,
            Err(error) => problem = Some(error),
        }
        // A process that starts another by vfork(2) stands still in the kernel, and not stopped, until that other has
        // become its program: which it never does if it was stopped before.
        go_on(handle).await?;
    }
    match problem {
        Some(error) => Err(unseen(handle, &error)),
        None => {
            Err(Failure(format!("the processes of {} could not all be stopped; it runs on", handle.instance)))
        }
    }
}

/// Lets every process of the instance go on, children before their parents: a parent that waits for a stopped
/// child then finds it running.
///
/// # Errors
/// When they cannot be looked at.
pub async fn go_on(handle: &Handle) -> Result<(), Failure> {
    let told = until(handle, PATIENCE, |members| send_all(members.iter().rev(), Signal::CONT).map(|()| true));
    told.await.map(drop).map_err(|error| unseen(handle, &error))
}

/// Kills every process of the instance, stopped or not.
///
/// # Errors
/// When some are left after five seconds: the kernel holds them in an uninterruptible wait.
pub async fn kill(handle: &Handle) -> Result<(), Failure> {
    // What starts processes without end would outrun those who only kill: stopped ones start none, and count still
    // against the limit of their user. Those that are not stopped in time are killed all the same.
    let _ = until(handle, PATIENCE, stop_all).await;
    // Children before their parents, by which they are known.
    let gone = until(handle, PATIENCE, |members| {
        send_all(members.iter().rev(), Signal::KILL)?;
        Ok(members.is_empty())
    });
    match gone.await {
        Ok(true) => Ok(()),
        Ok(false) => {
            Err(Failure(format!("processes of {} do not end; look at the machine's disks", handle.instance)))
        }
        Err(error) => Err(unseen(handle, &error)),
    }
}

/// Kills the processes that have all these entries in their environment, with what descends from them.
///
/// # Errors
/// When they cannot be looked at, or some are left.
pub async fn kill_marked(marks: Vec<String>) -> io::Result<()> {
    let gone = look_until(
        PATIENCE,
        move || tree::with_entries(&marks),
        |found| {
            send_all(found.iter().rev(), Signal::KILL)?;
            Ok(found.is_empty())
        },
    );
    match gone.await {
        Ok(true) => Ok(()),
        Ok(false) => {
            Err(io::Error::new(io::ErrorKind::TimedOut, "processes do not end; look at the machine's disks"))
        }
        Err(error) => Err(error),
    }
}

/// True when all were stopped already.
fn stop_all(members: &[Process]) -> io::Result<bool> {
    let running = || members.iter().filter(|process| !process.is_stopped());
    send_all(running(), Signal::STOP)?;
    Ok(running().next().is_none())
}

/// Repeats a step with the processes of the instance until it is done. False when its time is over.
async fn until(
    handle: &Handle,
    patience: Duration,
    step: impl Fn(&[Process]) -> io::Result<bool>,
) -> io::Result<bool> {
    let handle = handle.clone();
    look_until(patience, move || tree::members(&handle), step).await
}

/// The same with whatever is looked for. A look that fails is taken again, and is an error when it was the last.
async fn look_until(
    patience: Duration,
    look: impl Fn() -> io::Result<Vec<Process>> + Clone + Send + 'static,
    step: impl Fn(&[Process]) -> io::Result<bool>,
) -> io::Result<bool> {
    let mut problem = None;
    let work = async {
        loop {
            let found = tokio::task::spawn_blocking(look.clone()).await.map_err(io::Error::other);
            match found.flatten().and_then(|found| step(&found)) {
                Ok(true) => return,
                Ok(false) => problem = None,
                Err(error) => problem = Some(error),
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let done = tokio::time::timeout(patience, work).await.is_ok();
    match problem {
        Some(error) if !done => Err(error),
        _ => Ok(done),
    }
}

/// To each of them, also when one of them cannot be looked at.
fn send_all<'a>(processes: impl Iterator<Item = &'a Process>, signal: Signal) -> io::Result<()> {
    processes.map(|process| send(process, signal)).fold(Ok(()), Result::and)
}

/// Sends a signal, unless the process has ended and another has its pid.
fn send(process: &Process, signal: Signal) -> io::Result<()> {
    let same = Process::read(process.pid)?.is_some_and(|now| now.born == process.born);
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
    let (true, Some(pid)) = (same, pid) else { return Ok(()) };
    match kill_process(pid, signal) {
        // It has ended between the look and the signal.
        Err(Errno::SRCH) => Ok(()),
        sent => sent.map_err(|error| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("process {} cannot be signalled: {error}", process.pid))
        }),
    }
}

fn unseen(handle: &Handle, error: &io::Error) -> Failure {
    Failure(format!("the processes of {} could not be looked at: {error}", handle.instance))
}
