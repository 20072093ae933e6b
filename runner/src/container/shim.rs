//! The last steps before a process is an agent.
//!
//! They have to happen in the new process, after it was forked and before the agent's program runs: join the
//! control group (so that no descendant is ever outside), begin a session, close folders, take on limits, drop to
//! the instance's user. Code between `fork` and `exec` in a program with threads would need `unsafe`; instead the
//! runner starts itself with the subcommand `exec-agent`, which does them in a process without threads and
//! then becomes the agent under the same pid, or stays above it as its [`init`].

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use rustix::fs::Mode;

use super::{begins, cgroup, confine, init, limits};

/// Exit status of a start that failed before the agent's program ran; env(1) has the same.
pub const FAILED: u8 = 125;

/// Arguments of the hidden subcommand `exec-agent`.
#[derive(Clone, Debug, clap::Args)]
pub struct ExecAgent {
    /// The control group to join.
    #[arg(long)]
    cgroup: Option<PathBuf>,
    #[arg(long, requires = "gid")]
    uid: Option<u32>,
    #[arg(long, requires = "uid")]
    gid: Option<u32>,
    /// Only folders of --open may be written to, and those of --close not even be read, by Landlock.
    #[arg(long)]
    landlock: bool,
    #[arg(long)]
    close: Vec<PathBuf>,
    #[arg(long)]
    open: Vec<PathBuf>,
    /// What of the closed folders may be read all the same.
    #[arg(long)]
    read: Vec<PathBuf>,
    #[command(flatten)]
    limits: limits::Arguments,
    /// Taken away before the program begins: whoever finds it knows that it has not.
    #[arg(long)]
    unbegun: Option<PathBuf>,
    #[arg(long)]
    workdir: PathBuf,
    /// Becomes this very program again, with the arguments that follow.
    #[arg(long)]
    own: bool,
    /// The agent's program and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Turns this process into an agent, or into its [`init`], which returns how the agent ended. Otherwise it returns only
/// when that failed, after it has said why on stderr, which is the instance's log.
pub fn exec_agent(agent: &ExecAgent) -> ExitCode {
    match prepare(agent).and_then(|()| become_agent(agent)) {
        Ok(ended) => ended,
        Err(problem) => {
            // A log on a full disk takes no more, and then the status says it.
            let _ = writeln!(io::stderr(), "skein: the agent was not started: {problem}");
            ExitCode::from(FAILED)
        }
    }
}

fn prepare(agent: &ExecAgent) -> Result<(), String> {
    if let Some(group) = &agent.cgroup {
        let shown = group.display();
        cgroup::join(group).map_err(|error| format!("cannot join the control group {shown}: {error}"))?;
    }
    // Fails only for the leader of a group, which then is on its own already.
    let _ = rustix::process::setsid();
    // Instances of one agent share files by their group, and nobody else reads them.
    rustix::process::umask(Mode::RWXO);
    // No program makes it another user than it is given here: one with the set-user-id bit could have been put there by
    // an instance of another agent.
    rustix::thread::set_no_new_privs(true)
        .map_err(|error| format!("cannot keep the agent from gaining privileges: {error}"))?;
    if let Some(file) = &agent.unbegun {
        begins(file)?;
    }
    if agent.landlock {
        // Still as the runner's user, which may look everywhere; the agent's may not, and the rules hold for it all the
        // same.
        confine::restrict(&agent.close, &agent.open, &agent.read, agent.uid.is_some())?;
    }
    agent.limits.apply()
}

fn become_agent(agent: &ExecAgent) -> Result<ExitCode, String> {
    // The instance's user need not reach the folder of this program, so it is run by its descriptor.
    let own = agent.own.then(|| File::open("/proc/self/exe")).transpose();
    let own = own.map_err(|error| format!("this program cannot be opened: {error}"))?;
    let by_descriptor = own.as_ref().map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()));
    let (program, arguments) = match (&by_descriptor, agent.command.split_first()) {
        (Some(program), _) => (program, agent.command.as_slice()),
        (None, Some((program, arguments))) => (program, arguments),
        (None, None) => return Err("no program was given".to_owned()),
    };
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&agent.workdir);
    if let (Some(uid), Some(gid)) = (agent.uid, agent.gid) {
        command.uid(uid).gid(gid);
    }
    // What is started beside an agent, of this program, ends before what it leaves.
    let is_known = agent.cgroup.is_some() || agent.uid.is_some() || agent.own;
    let ran = if is_known { Err(command.exec()) } else { init::run(&mut command) };
    ran.map_err(|error| {
        let place = agent.workdir.display();
        format!("cannot run `{program}` in {place}: {error}; check that it exists and that the agent's user may run it")
    })
}
