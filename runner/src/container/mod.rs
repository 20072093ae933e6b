//! What an instance lives in. A new engine is a new file or folder here that keeps [`Engine`]'s promises, and a line in
//! `engines`.

pub mod cgroup;
pub mod confine;
pub mod docker;
pub mod engines;
mod exec;
pub mod freeze;
mod init;
pub mod limits;
pub mod mark;
pub mod process;
pub mod shim;
pub mod tree;

use std::collections::BTreeMap;
use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use confine::{Isolation, isolation};
pub use docker::Container;
pub use limits::Limits;

/// Starts, freezes, thaws and ends instances.
///
/// Every promise is about *all* processes of the instance, however they were started and whatever group or
/// session they moved to.
#[async_trait]
pub trait Engine: Send + Sync {
    /// The names under which the runner announces it, such as `process`.
    fn names(&self) -> Vec<&'static str>;

    /// Whether anything can be said of instances in containers, or of the others.
    ///
    /// # Errors
    /// While what such instances live in is not there: nothing may be concluded from that, nor asked of any of them, but
    /// that it stands still.
    fn reaches(&self, _in_container: bool) -> Result<(), Failure> {
        Ok(())
    }

    /// The address of this machine at which an instance's endpoint has to listen so that the instance reaches it.
    async fn door(&self, container: Option<&Container>) -> Result<IpAddr, Failure>;

    /// Starts an instance. Nothing of it is left behind when this fails.
    async fn start(&self, spec: &Spec) -> Result<Handle, Failure>;

    /// The first process of an instance that an earlier runner process has started, and of which that could not write
    /// down any more how it is found again. None if there is none, or nobody can say which it is.
    ///
    /// # Errors
    /// When it is not known now whether there is one: nothing may be concluded from that.
    async fn find(&self, instance: &str, user: Option<User>) -> Result<Option<Handle>, Failure>;

    /// Takes over an instance that an earlier runner process started, with its log. False when it is gone.
    async fn adopt(&self, handle: &Handle, log: &Path) -> bool;

    /// Returns once no process of the instance runs any more.
    async fn freeze(&self, handle: &Handle) -> Result<(), Failure>;

    async fn thaw(&self, handle: &Handle) -> Result<(), Failure>;

    /// Asks the instance to end. It need not follow.
    async fn ask(&self, handle: &Handle) -> Result<(), Failure>;

    /// Ends every process of the instance, frozen or not, and frees what the engine kept for it.
    async fn kill(&self, handle: &Handle) -> Result<(), Failure>;

    /// Runs the runner's own program inside a running instance, beside its first process: with its user, its
    /// environment and its work folder, and kept from the same things. It ends with the instance at the latest.
    ///
    /// Whatever it has started and left behind stays in the instance when it ends with status 0. When it ends
    /// otherwise, when its time is over, or when nobody waits for it any more, all of that is killed.
    async fn exec(&self, handle: &Handle, exec: &Exec) -> Result<Executed, Failure>;

    /// Returns when the instance's first process has ended. May be dropped and called again.
    async fn wait(&self, handle: &Handle) -> Exit;

    /// The instance is over and its exit was taken: the engine may forget both.
    fn let_go(&self, handle: &Handle);

    /// The ids of this runner's instances that have a process, those of its earlier lives too.
    async fn list(&self) -> Vec<String>;

    /// Ends every process of an instance of which only the id is known: its start was cut short.
    async fn sweep(&self, instance: &str) -> Result<(), Failure>;

    /// The runner leaves, and has ended its instances: what the engine made for all of them goes too.
    async fn close(&self);
}

/// Takes the file away that says that an instance has not begun. Without it nobody would know that it may have, and it
/// might be begun twice.
fn begins(unbegun: &Path) -> Result<(), String> {
    let removed = match std::fs::remove_file(unbegun) {
        // It has begun with an earlier process.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        // Gone also if the machine goes down in this moment.
        removed => removed.and_then(|()| File::open(unbegun.parent().unwrap_or(unbegun))?.sync_all()),
    };
    removed
        .map_err(|error| format!("that it begins could not be written down: {}: {error}", unbegun.display()))
}

/// What to start.
#[derive(Clone, Debug)]
pub struct Spec {
    pub instance: String,
    pub command: Vec<String>,
    /// The whole environment: nothing of the runner's own is passed on.
    pub env: BTreeMap<String, String>,
    pub workdir: PathBuf,
    /// Takes what the instance writes to standard output and error.
    pub log: PathBuf,
    /// A file that is taken away right before the command begins, if it is there: as long as it is, nothing has begun.
    pub unbegun: PathBuf,
    pub user: Option<User>,
    /// Folders that it may not look into.
    pub closed: Vec<PathBuf>,
    /// Its own folders, inside closed ones too. Where the kernel has Landlock, it writes nowhere else.
    pub open: Vec<PathBuf>,
    /// What is inside closed folders and may be read all the same.
    pub readable: Vec<PathBuf>,
    /// The folder of the agent's definition.
    pub definition: PathBuf,
    /// The credentials that it is lent, readable by it alone. A container finds them at `/credentials`.
    pub credentials: Option<PathBuf>,
    /// A file with what it was given to do, readable by it alone. A container finds it at `/app/input.json`.
    pub input: Option<PathBuf>,
    /// What each of its processes may use, outside of containers, which have limits of their own.
    pub limits: Limits,
    /// The folder of the commands that shell scripts call. A container has it at `/app/bin`, at the end of its `PATH`.
    pub agent_commands: Option<PathBuf>,
    /// Where a container's writable folders lie when they are to outlive it. Without one they are memory, and go with
    /// it.
    pub kept: Option<Kept>,
    /// What a container has in place of the folder of the definition, if that is not all.
    pub joined: Option<Joined>,
    /// The container that it wants; the folders above are then none of its own.
    pub container: Option<Container>,
}

/// A folder that is put together of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Of this machine, with an empty folder for each that is mounted over it.
    pub folder: PathBuf,
    /// These, by their names in it.
    pub mounts: BTreeMap<String, PathBuf>,
}

/// Folders of this machine for what an instance in a container writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub tmp: PathBuf,
    pub home: PathBuf,
}

/// What to run inside an instance: the runner's own program, for no other is there whatever the instance is made of.
#[derive(Clone, Debug)]
pub struct Exec {
    /// What the instance was started with; of this the command is not used.
    pub spec: Spec,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// What it reads from its standard input.
    pub input: Vec<u8>,
    /// How long it may run.
    pub limit: Duration,
    /// Bytes that are kept of its standard output. What comes after them is read and dropped.
    pub most: usize,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    pub exit: Exit,
    /// What it wrote to standard output.
    pub output: Vec<u8>,
    /// The first few kilobytes that it wrote to standard error.
    pub errors: String,
    /// Its time was over, and it was killed.
    pub timed_out: bool,
    /// Why something of it may run on until its instance ends, if what was to be killed could not be.
    pub left: Option<String>,
}

/// The numeric user that an instance has for itself, and the group of all instances of its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

/// Enough to find a running instance again after a crash of the runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handle {
    pub instance: String,
    /// The mark of its runner. Another runner of the machine may have an instance of the same name.
    #[serde(default)]
    pub runner: String,
    pub pid: u32,
    /// When the process started, in clock ticks since the machine's boot: a pid alone may be another's by now.
    pub born: u64,
    /// The machine's boot, for the same reason.
    pub boot: String,
    pub cgroup: Option<PathBuf>,
    pub user: Option<User>,
    /// Its container, if it lives in one.
    #[serde(default)]
    pub container: Option<docker::Id>,
}

/// How an instance ended. Nothing is known of a process that was adopted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// The kernel killed it, for it needed more memory than it may have.
    #[serde(default)]
    pub out_of_memory: bool,
}

/// An engine could not do what it was asked; the sentence says what to mend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);
