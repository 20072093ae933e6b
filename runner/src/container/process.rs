//! The engine of plain processes: no image, no daemon, on every Linux machine.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::future::ready;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::exec::{self, Scope};
use super::tree::{self, Process};
use super::{Container, Engine, Exec, Executed, Exit, Failure, Handle, Spec, User, cgroup, confine, freeze};

/// How often an adopted process is looked for.
const OUTLIVE_LOOK: Duration = Duration::from_millis(100);

/// What is known of an instance that was started or taken over.
#[derive(Clone)]
struct Known {
    ending: watch::Receiver<Option<Exit>>,
    /// It stands still, or is to, or ends: nothing more may begin in it.
    closed: Arc<AtomicBool>,
}

/// Processes, each instance in a control group of its own where the machine allows it.
pub struct ProcessEngine {
    runner: String,
    launcher: Vec<OsString>,
    cgroups: Option<PathBuf>,
    /// Whether the kernel has it. It stands beside an instance's user too.
    landlock: bool,
    known: Arc<Mutex<HashMap<String, Known>>>,
}

impl ProcessEngine {
    /// `runner` marks the processes: no other runner of the machine may have the same mark. `launcher` is the
    /// program, with its arguments, that runs [`crate::exec_agent`].
    pub fn new(runner: &str, launcher: Vec<OsString>) -> Self {
        Self::with_cgroups(runner, launcher, cgroup::root(runner))
    }

    /// For a machine whose control groups are known; `None` freezes by signals.
    pub fn with_cgroups(runner: &str, launcher: Vec<OsString>, cgroups: Option<PathBuf>) -> Self {
        let landlock = confine::has_landlock();
        Self { runner: runner.to_owned(), launcher, cgroups, landlock, known: Arc::default() }
    }

    /// The launcher, up to where the program's arguments follow.
    fn launch(&self, spec: &Spec, group: Option<&Path>) -> Result<Command, Failure> {
        let (program, arguments) =
            self.launcher.split_first().ok_or_else(|| Failure("the runner has no launcher".into()))?;
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(&spec.env).current_dir("/");
        if let Some(group) = group {
            command.arg("--cgroup").arg(group);
        }
        if let Some(user) = spec.user {
            command.arg("--uid").arg(user.uid.to_string()).arg("--gid").arg(user.gid.to_string());
        }
        if self.landlock {
            command.arg("--landlock");
            for (option, paths) in
                [("--close", &spec.closed), ("--open", &spec.open), ("--read", &spec.readable)]
            {
                paths.iter().for_each(|path| _ = command.arg(option).arg(path));
            }
        }
        command.args(spec.limits.arguments(spec.user.is_some()));
        command.arg("--workdir").arg(&spec.workdir);
        Ok(command)
    }

    fn command(&self, spec: &Spec, group: Option<&Path>, log: File) -> Result<Command, Failure> {
        let errors =
            log.try_clone().map_err(|error| Failure(format!("the log cannot be shared: {error}")))?;
        let mut command = self.launch(spec, group)?;
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        command.arg("--unbegun").arg(&spec.unbegun);
        command.arg("--").args(&spec.command);
        Ok(command)
    }

    fn group(&self, instance: &str) -> Option<PathBuf> {
        self.cgroups.as_ref().map(|root| root.join(instance))
    }

    /// The groups in which those of the instances are, also of those that began while the runner had another name.
    fn roots(&self) -> Vec<PathBuf> {
        self.cgroups.iter().flat_map(|root| cgroup::roots(root, &self.runner)).collect()
    }

    /// By its first process: the pid, and when that was born.
    async fn handle(&self, instance: &str, (pid, born): (u32, u64), user: Option<User>) -> Handle {
        let made = self.roots().into_iter().map(|root| root.join(instance)).find(|group| group.exists());
        let cgroup = made.or_else(|| self.group(instance));
        Handle {
            instance: instance.to_owned(),
            runner: self.runner.clone(),
            pid,
            born,
            boot: seen(|| ready(tree::boot())).await.to_owned(),
            cgroup,
            user,
            container: None,
        }
    }

    /// Collects the child when it ends; an adopted process is watched by its descriptor.
    fn watch(&self, handle: &Handle, child: Option<Child>) {
        let (ended, ending) = watch::channel(None);
        self.known().insert(handle.instance.clone(), Known { ending, closed: Arc::default() });
        let handle = handle.clone();
        tokio::spawn(async move {
            let exit = match child {
                Some(child) => collect(child).await,
                None => outlive(&handle).await,
            };
            ended.send_replace(Some(exit));
        });
    }

    /// Lets nothing more begin in an instance, or lets it again.
    fn close_to_others(&self, handle: &Handle, closed: bool) {
        if let Some(known) = self.known().get(&handle.instance) {
            known.closed.store(closed, Ordering::SeqCst);
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Engine for ProcessEngine {
    fn names(&self) -> Vec<&'static str> {
        vec!["process"]
    }

    async fn door(&self, _: Option<&Container>) -> Result<IpAddr, Failure> {
        Ok(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    async fn start(&self, spec: &Spec) -> Result<Handle, Failure> {
        find_program(spec)?;
        let log = open_log(&spec.log)?;
        let group = self.group(&spec.instance);
        let mut command = self.command(spec, group.as_deref(), log)?;
        if let Some(group) = &group {
            let problem =
                |error| Failure(format!("cannot make the control group {}: {error}", group.display()));
            cgroup::make(group).map_err(problem)?;
        }
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                if let Some(group) = &group {
                    // Nothing is in it: the failure is the spawn's.
                    let _ = std::fs::remove_dir(group);
                }
                return Err(Failure(format!("the process could not be started: {error}")));
            }
        };
        let pid = child.id().unwrap_or_default();
        // The child is ours and not yet collected, so the pid cannot be another's.
        let born = seen(|| ready(Process::read(pid))).await.map_or(0, |process| process.born);
        let handle = self.handle(&spec.instance, (pid, born), spec.user).await;
        self.watch(&handle, Some(child));
        Ok(handle)
    }

    /// The shim makes the first process the leader of a session, and the others of the instance are younger.
    async fn find(&self, instance: &str, user: Option<User>) -> Result<Option<Handle>, Failure> {
        let marks = tree::marks(&self.runner, instance);
        let marked = all_seen(move || tree::with_entries(&marks)).await;
        let first = marked.into_iter().find(|process| process.session == process.pid);
        let Some(first) = first else { return Ok(None) };
        Ok(Some(self.handle(instance, (first.pid, first.born), user).await))
    }

    async fn adopt(&self, handle: &Handle, _: &Path) -> bool {
        if !seen(|| ready(is_there(handle))).await {
            return false;
        }
        self.watch(handle, None);
        true
    }

    async fn freeze(&self, handle: &Handle) -> Result<(), Failure> {
        self.close_to_others(handle, true);
        let frozen = match &handle.cgroup {
            Some(group) => {
                cgroup::set_frozen(group, true).await.map_err(|error| group_failed(handle, &error))
            }
            None => freeze::stop(handle).await,
        };
        if frozen.is_err() {
            self.close_to_others(handle, false);
        }
        frozen
    }

    async fn thaw(&self, handle: &Handle) -> Result<(), Failure> {
        self.close_to_others(handle, false);
        match &handle.cgroup {
            Some(group) => {
                cgroup::set_frozen(group, false).await.map_err(|error| group_failed(handle, &error))
            }
            None => freeze::go_on(handle).await,
        }
    }

    async fn ask(&self, handle: &Handle) -> Result<(), Failure> {
        // The number may be another's by now.
        let known = is_there(handle)
            .map_err(|error| Failure(format!("{} could not be looked at: {error}", handle.instance)))?;
        let pid = i32::try_from(handle.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid.filter(|_| known) else { return Ok(()) };
        // The shim makes the first process the leader of a group; until it has, there is only that process.
        if kill_process_group(pid, Signal::TERM).is_err() {
            // It has ended already.
            let _ = kill_process(pid, Signal::TERM);
        }
        Ok(())
    }

    async fn kill(&self, handle: &Handle) -> Result<(), Failure> {
        self.close_to_others(handle, true);
        match &handle.cgroup {
            Some(group) => cgroup::kill(group).await.map_err(|error| group_failed(handle, &error)),
            None => freeze::kill(handle).await,
        }
    }

    async fn exec(&self, handle: &Handle, exec: &Exec) -> Result<Executed, Failure> {
        let gone = || Failure(format!("{} has ended", handle.instance));
        let closed =
            self.known().get(&handle.instance).map(|known| Arc::clone(&known.closed)).ok_or_else(gone)?;
        let scope = Scope::new(handle).map_err(|error| group_failed(handle, &error))?;
        let mut spec = exec.spec.clone();
        spec.env.insert(Scope::MARK.to_owned(), scope.id().to_owned());
        let mut command = self.launch(&spec, scope.group())?;
        command.arg("--own").arg("--").args(&exec.arguments);
        exec::run(command, exec, scope, &closed).await
    }

    async fn wait(&self, handle: &Handle) -> Exit {
        let known = self.known().get(&handle.instance).cloned();
        let Some(mut known) = known else { return Exit::default() };
        let exit = known.ending.wait_for(Option::is_some).await;
        exit.ok().and_then(|exit| *exit).unwrap_or_default()
    }

    fn let_go(&self, handle: &Handle) {
        self.known().remove(&handle.instance);
    }

    async fn list(&self) -> Vec<String> {
        let of = self.runner.clone();
        let mut found = all_seen(move || tree::instances(&of)).await;
        for entries in self.roots().into_iter().filter_map(|root| std::fs::read_dir(root).ok()) {
            let folders = entries.flatten().filter(|entry| entry.path().is_dir());
            found.extend(folders.map(|entry| entry.file_name().to_string_lossy().into_owned()));
        }
        found.into_iter().collect()
    }

    async fn sweep(&self, instance: &str) -> Result<(), Failure> {
        freeze::kill_marked(tree::marks(&self.runner, instance))
            .await
            .map_err(|error| Failure(format!("what is left of {instance}: {error}")))?;
        for root in self.roots() {
            cgroup::kill(&root.join(instance))
                .await
                .map_err(|error| Failure(format!("the control group of {instance}: {error}")))?;
        }
        Ok(())
    }

    async fn close(&self) {
        for root in self.roots() {
            // It stays as long as an instance lives in it.
            let _ = std::fs::remove_dir(root);
        }
    }
}

fn group_failed(handle: &Handle, error: &io::Error) -> Failure {
    Failure(format!("the control group of {}: {error}", handle.instance))
}

/// A missing program is worth a better answer than an exit status.
fn find_program(spec: &Spec) -> Result<(), Failure> {
    if !spec.workdir.is_dir() {
        let place = spec.workdir.display();
        return Err(Failure(format!("the work folder {place} does not exist; make it, or change `workdir`")));
    }
    let program = spec.command.first().map(String::as_str).unwrap_or_default();
    let found = if program.contains('/') {
        spec.workdir.join(program).is_file()
    } else {
        let path = spec.env.get("PATH").map(String::as_str).unwrap_or_default();
        path.split(':').any(|folder| Path::new(folder).join(program).is_file())
    };
    if found {
        return Ok(());
    }
    Err(Failure(format!(
        "the program `{program}` was not found on this runner; install it, or change `command`"
    )))
}

/// Appends, so that the log can be cut while the agent writes.
fn open_log(path: &Path) -> Result<File, Failure> {
    let open = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    open.map_err(|error| Failure(format!("cannot open the log {}: {error}", path.display())))
}

async fn collect(mut child: Child) -> Exit {
    match child.wait().await {
        Ok(status) => Exit { code: status.code(), signal: status.signal(), ..Exit::default() },
        Err(_) => Exit::default(),
    }
}

/// Waits for the end of a process that is no child of this one. The kernel tells nobody but the parent, so it
/// is looked for; that costs one small read a look, and only for instances that outlived a runner.
async fn outlive(handle: &Handle) -> Exit {
    while seen(|| ready(is_there(handle))).await {
        tokio::time::sleep(OUTLIVE_LOOK).await;
    }
    Exit::default()
}

/// Whether the instance's first process has not ended.
fn is_there(handle: &Handle) -> io::Result<bool> {
    let found = Process::read(handle.pid)?.is_some_and(|now| now.born == handle.born && !now.is_over());
    Ok(found && handle.boot == tree::boot()?)
}

/// Looks at all processes, on a thread that may block.
async fn all_seen<T: Send + 'static>(look: impl Fn() -> io::Result<T> + Clone + Send + 'static) -> T {
    seen(|| spawn_blocking(look.clone()).map(|looked| looked.map_err(io::Error::other).flatten())).await
}

/// A look that fails says nothing, so it is taken again.
async fn seen<T, L>(look: impl Fn() -> L) -> T
where
    L: Future<Output = io::Result<T>>,
{
    loop {
        match look().await {
            Ok(found) => return found,
            Err(error) => tracing::error!(%error, "the processes could not be looked at; tried again"),
        }
        tokio::time::sleep(OUTLIVE_LOOK).await;
    }
}
