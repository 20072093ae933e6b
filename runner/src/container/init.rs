//! The first process of an instance that has neither a control group nor a user of its own.
//!
//! Such an instance is what descends from its first process. A daemon begins a session of its own, lets its parent end
//! and may write its title over its environment: whoever adopted it then would be all that is known of it. So the shim
//! does not become the agent but stays, adopts what loses its parent (`PR_SET_CHILD_SUBREAPER`, see prctl(2)), ends
//! what is left when the agent has ended, and ends as the agent did.

use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, set_child_subreaper, wait,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::low_level::emulate_default_handler;

use super::tree;

/// What the agent's group is sent is the agent's to answer.
const FOR_THE_AGENT: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// Runs the agent as a child and returns with how it ended; a signal that ended it ends this process as well.
///
/// # Errors
/// When the agent does not start.
pub(super) fn run(command: &mut Command) -> std::io::Result<ExitCode> {
    set_child_subreaper(Some(getpid()))?;
    for signal in FOR_THE_AGENT {
        // A handler, for what is ignored here would be ignored by the agent too.
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let agent = command.spawn()?;
    let agent = Pid::from_raw(agent.id().cast_signed());
    let status = loop {
        match next() {
            Some((ended, status)) if Some(ended) == agent => break Some(status),
            Some(_) => {}
            None => break None,
        }
    };
    end_the_rest();
    Ok(status.map_or(ExitCode::FAILURE, end_like))
}

/// The next child that has ended, adopted ones too. `None` if there is none left.
fn next() -> Option<(Pid, WaitStatus)> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(ended) => return ended,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Whoever loses its parent by this is adopted, and ended in its turn. What cannot be looked at is left to the runner.
fn end_the_rest() {
    let own = getpid().as_raw_nonzero().get().cast_unsigned();
    while let Ok(processes) = tree::all() {
        let children = processes.iter().filter(|process| process.parent == own);
        for child in children.filter_map(|process| Pid::from_raw(process.pid.cast_signed())) {
            // It may have ended by itself.
            let _ = kill_process(child, Signal::KILL);
        }
        if next().is_none() {
            return;
        }
    }
}

fn end_like(status: WaitStatus) -> ExitCode {
    if let Some(signal) = status.terminating_signal() {
        let _ = emulate_default_handler(signal);
    }
    let code = status.exit_status().and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}
