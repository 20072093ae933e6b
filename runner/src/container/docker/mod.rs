//! The engine of containers, by the Docker daemon of this machine.
//!
//! - `settings` are the keys of a definition, `create` what a container is made of;
//! - `network` and `image` are what has to be there first;
//! - `freezer` freezes past the daemon where it can, `guard` keeps both of one mind;
//! - `watch` and `log` follow a container to its end;
//! - `program` is what `exec` runs in it.

mod create;
mod exec;
mod freezer;
mod guard;
mod image;
mod log;
mod network;
mod program;
mod settings;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::HashMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bollard::Docker;
use bollard::errors::Error;
use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, ContainerSummary, ContainerSummaryStateEnum,
};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, KillContainerOptionsBuilder, ListContainersOptionsBuilder,
    RemoveContainerOptionsBuilder,
};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex as Turn, watch as channel};
use tokio::task::{JoinHandle, JoinSet};

pub use create::{AGENT_COMMANDS, CREDENTIALS, HOME, INPUT, STATIC, WRITABLE};
pub use freezer::freeze_alone;
pub use log::COPIED;
use log::Copied;
use program::Program;
pub use settings::{Container, Keys, Network};

use super::tree::{self, Process};
use super::{Engine, Exec, Executed, Exit, Failure, Handle, Spec, User, begins};

/// How long the daemon may take to answer at the start.
const REACH: Duration = Duration::from_secs(10);
/// How long it may take where the runner can go on without its answer, and has to.
const SOON: Duration = Duration::from_secs(2);
/// How long it may take to pass a request to end on, after which the instance is killed, to list what there is, and to
/// remove the networks.
const ASK: Duration = Duration::from_secs(5);
/// How long the daemon may take to tell of the end of a container that was killed.
const END: Duration = Duration::from_secs(10);
/// How long the last lines of a container that has ended may take.
const LAST_LINES: Duration = Duration::from_secs(2);
/// Between looks at a container that somebody else is removing, and how many there are.
const REMOVAL: Duration = Duration::from_millis(100);
const REMOVALS: usize = 100;

/// Containers, each closed to the others, that this runner knows by a label.
pub struct DockerEngine {
    docker: Docker,
    runner: String,
    program: Program,
    instances: Arc<Instances>,
    /// Told of the end of it for each instance whose container is being made: the daemon goes on with that when nobody
    /// waits for it any more.
    making: Mutex<HashMap<String, channel::Receiver<()>>>,
    /// Held by whoever makes a network.
    networks: Turn<()>,
    guard: JoinHandle<()>,
}

/// Which container an instance lives in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Id {
    pub id: String,
    /// Where in the instance's log its output begins, in bytes. Hooks have printed what stands before it.
    pub log: u64,
}

type Instances = Mutex<HashMap<String, Arc<Instance>>>;

/// A container that is followed.
struct Instance {
    container: String,
    handle: Handle,
    /// Whether it is to stand still. Held while that is changed, so that the guard does not undo it.
    frozen: Turn<bool>,
    ending: channel::Receiver<Option<Exit>>,
    /// True once all that it printed is in its log.
    logged: channel::Receiver<bool>,
    /// What keeps the two going. It ends with this.
    _following: JoinSet<()>,
}

impl DockerEngine {
    /// Connects to the daemon of `DOCKER_HOST`, or of the usual socket. `runner` marks the containers: no other
    /// runner of the daemon may have the same mark. `launcher` begins with the runner's own program.
    ///
    /// # Errors
    /// When there is no daemon, or this user may not use it.
    pub async fn connect(runner: &str, launcher: &[OsString]) -> Result<Self, Failure> {
        let reached = async { Docker::connect_with_defaults()?.negotiate_version().await };
        let reached = tokio::time::timeout(REACH, reached).await.unwrap_or(Err(Error::RequestTimeoutError));
        let docker = reached.map_err(|error| failed("reach the Docker daemon", &error))?;
        Ok(Self::over(docker, runner, launcher))
    }

    fn over(docker: Docker, runner: &str, launcher: &[OsString]) -> Self {
        let instances: Arc<Instances> = Arc::default();
        let guard = tokio::spawn(guard::keep(docker.clone(), Arc::clone(&instances)));
        let program = Program::new(launcher);
        let (making, networks) = (Mutex::default(), Turn::default());
        Self { docker, runner: runner.to_owned(), program, instances, making, networks, guard }
    }

    /// Makes and starts the container, whose output begins there in its log. It exists from the first of the two steps
    /// on.
    async fn create(
        &self,
        spec: &Spec,
        container: &Container,
        path: &str,
        log: u64,
    ) -> Result<String, Failure> {
        let network = network::name(&self.runner, container.network);
        let body = create::body(&self.runner, &self.program, network, spec, container, path, log);
        let name = create::name(&self.runner, &spec.instance);
        let id = self.make(&spec.instance, &name, body).await?;
        let unbegun = spec.unbegun.clone();
        let written = tokio::task::spawn_blocking(move || begins(&unbegun)).await;
        let problem = match written.unwrap_or_else(|lost| Err(lost.to_string())) {
            Ok(()) => match self.docker.start_container(&id, None).await {
                Ok(()) => return Ok(id),
                Err(error) => failed("start the container", &error),
            },
            Err(problem) => Failure(problem),
        };
        // What failed to start is not left behind.
        self.remove(&id).await?;
        Err(problem)
    }

    /// Makes the container, to the end also when this is dropped.
    async fn make(&self, instance: &str, name: &str, body: ContainerCreateBody) -> Result<String, Failure> {
        let (making, made) = channel::channel(());
        lock(&self.making).insert(instance.to_owned(), made);
        let options = CreateContainerOptionsBuilder::new().name(name).build();
        let docker = self.docker.clone();
        let request = tokio::spawn(async move {
            let made = docker.create_container(Some(options), body).await;
            drop(making);
            made
        });
        let made =
            request.await.map_err(|lost| Failure(format!("the container could not be made: {lost}")))?;
        lock(&self.making).remove(instance);
        made.map(|made| made.id).map_err(|error| failed("make the container", &error))
    }

    /// Returns once no container of the instance is being made any more.
    async fn made(&self, instance: &str) {
        let making = lock(&self.making).get(instance).cloned();
        if let Some(mut making) = making {
            // Nothing is ever sent: it ends.
            let _ = making.changed().await;
            // Not before: whoever waited may have gone, and another one comes.
            lock(&self.making).remove(instance);
        }
    }

    async fn handle(&self, instance: &str, container: Id) -> Result<Handle, Failure> {
        let found = self.docker.inspect_container(&container.id, None).await;
        let found = found.map_err(|error| failed("look at the container", &error))?;
        // None if it has ended already.
        let pid = pid(&found).unwrap_or_default();
        let unseen = |error| Failure(format!("the processes of {instance} could not be looked at: {error}"));
        Ok(Handle {
            instance: instance.to_owned(),
            runner: self.runner.clone(),
            pid,
            born: Process::read(pid).map_err(unseen)?.map_or(0, |process| process.born),
            boot: tree::boot().map_err(unseen)?.to_owned(),
            cgroup: freezer::find(pid, &container.id),
            user: None,
            container: Some(container),
        })
    }

    /// Follows a container to its end, with its output.
    fn follow(&self, handle: &Handle, container: &Id, log: &Path, copied: Copied, frozen: bool) {
        let (ended, ending) = channel::channel(None);
        let (all, logged) = channel::channel(false);
        let (docker, id) = (self.docker.clone(), container.id.clone());
        let mut following = JoinSet::new();
        following.spawn(async move { _ = ended.send_replace(Some(watch::ending(&docker, &id).await)) });
        let copying =
            log::copy(self.docker.clone(), container.clone(), log.to_owned(), copied, ending.clone());
        following.spawn(async move {
            copying.await;
            all.send_replace(true);
        });
        let (container, frozen) = (container.id.clone(), Turn::new(frozen));
        let instance =
            Instance { container, handle: handle.clone(), frozen, ending, logged, _following: following };
        lock(&self.instances).insert(handle.instance.clone(), Arc::new(instance));
    }

    fn known(&self, handle: &Handle) -> Option<Arc<Instance>> {
        lock(&self.instances).get(&handle.instance).cloned()
    }

    async fn set_frozen(&self, handle: &Handle, frozen: bool) -> Result<(), Failure> {
        let instance =
            self.known(handle).ok_or_else(|| Failure(format!("{} is not followed", handle.instance)))?;
        let mut wanted = instance.frozen.lock().await;
        let done = set_frozen(&self.docker, &instance, frozen).await;
        // Nothing runs of one that has ended, whatever is wanted of it.
        if done.is_err() && !watch::has_ended(&self.docker, &instance.container).await {
            return done;
        }
        *wanted = frozen;
        Ok(())
    }

    /// Kills every process of a container and takes its exit and its last lines before it is removed.
    async fn end(&self, container: &str, handle: &Handle) -> Result<(), Failure> {
        // Past the daemon, which may not answer, and before a thaw: nothing of it runs on.
        kill_first(handle);
        let instance = self.known(handle).filter(|instance| instance.container == container);
        // Held to the end, so that the guard leaves it alone.
        let mut wanted = match &instance {
            Some(instance) => Some(instance.frozen.lock().await),
            None => None,
        };
        wanted.iter_mut().for_each(|wanted| **wanted = false);
        if let Some(group) = handle.cgroup.as_deref().filter(|group| freezer::is_frozen(group))
            && let Err(error) = freezer::set_frozen(group, false).await
        {
            tracing::warn!(instance = handle.instance, %error, "not thawed to end");
        }
        let signal = KillContainerOptionsBuilder::new().signal("KILL").build();
        // It has ended already, or is gone; if the daemon is, the removal says so.
        let _ = self.docker.kill_container(container, Some(signal)).await;
        if let Some(instance) = &instance {
            let (mut ending, mut logged) = (instance.ending.clone(), instance.logged.clone());
            // Late is no failure: the removal is forced.
            let _ = tokio::time::timeout(END, ending.wait_for(Option::is_some)).await;
            let _ = tokio::time::timeout(LAST_LINES, logged.wait_for(|logged| *logged)).await;
        }
        self.remove(container).await
    }

    /// Removes a container with its volumes, and returns when it is gone.
    async fn remove(&self, container: &str) -> Result<(), Failure> {
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        for _ in 0..REMOVALS {
            match self.docker.remove_container(container, Some(options.clone())).await {
                Ok(()) => return Ok(()),
                Err(error) if is_missing(&error) => return Ok(()),
                // Somebody else is at it.
                Err(Error::DockerResponseServerError { status_code: 409, .. }) => {
                    tokio::time::sleep(REMOVAL).await
                }
                Err(error) => return Err(failed("remove the container", &error)),
            }
        }
        Err(Failure(format!("the container {container} is not removed; run `docker rm --force {container}`")))
    }

    /// This runner's containers, ended ones and those of its earlier names too; those of one instance if one is given.
    async fn containers(&self, instance: Option<&str>) -> Result<Vec<ContainerSummary>, Failure> {
        let mut labels = vec![create::RUNNER.to_owned()];
        labels.extend(instance.map(|instance| format!("{}={instance}", create::INSTANCE)));
        let filters = HashMap::from([("label".to_owned(), labels)]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let found = self.docker.list_containers(Some(options)).await;
        let mut found = found.map_err(|error| failed("list the containers", &error))?;
        found.retain(|one| create::is_of(&self.runner, one.labels.as_ref()));
        Ok(found)
    }
}

impl Drop for DockerEngine {
    fn drop(&mut self) {
        self.guard.abort();
    }
}

#[async_trait]
impl Engine for DockerEngine {
    fn names(&self) -> Vec<&'static str> {
        vec!["docker"]
    }

    async fn door(&self, container: Option<&Container>) -> Result<IpAddr, Failure> {
        let network = container.map_or(Network::Open, |container| container.network);
        let _turn = self.networks.lock().await;
        network::ensure(&self.docker, &self.runner, network).await.map(IpAddr::V4)
    }

    async fn start(&self, spec: &Spec) -> Result<Handle, Failure> {
        let container = spec.container.as_ref().ok_or_else(|| Failure("no image was given".into()))?;
        readable(&spec.definition)?;
        let path = image::ensure(&self.docker, container).await?;
        let log = log::length(&spec.log)?;
        let id = self.create(spec, container, &path, log).await?;
        let container = Id { id: id.clone(), log };
        let handle = self.handle(&spec.instance, container.clone()).await;
        match handle.and_then(|handle| Ok((handle, Copied::open(&spec.log, &container)?))) {
            Ok((handle, copied)) => {
                self.follow(&handle, &container, &spec.log, copied, false);
                Ok(handle)
            }
            Err(problem) => {
                self.remove(&id).await?;
                Err(problem)
            }
        }
    }

    /// One that was made and did not begin is none.
    async fn find(&self, instance: &str, _: Option<User>) -> Result<Option<Handle>, Failure> {
        let mut found = self.containers(Some(instance)).await?.into_iter();
        let begun = found.find(|one| one.state != Some(ContainerSummaryStateEnum::CREATED));
        let Some(id) = begun.and_then(create::id) else { return Ok(None) };
        self.handle(instance, id).await.map(Some)
    }

    async fn adopt(&self, handle: &Handle, path: &Path) -> bool {
        let Some(container) = &handle.container else { return false };
        // One that has ended is taken over too: its exit and its output are there.
        let looked = watch::is_paused(&self.docker, &container.id, handle.cgroup.is_some()).await;
        let Some(paused) = looked else { return false };
        let Ok(copied) = Copied::open(path, container) else { return false };
        let frozen = paused || handle.cgroup.as_deref().is_some_and(freezer::is_frozen);
        self.follow(handle, container, path, copied, frozen);
        true
    }

    async fn freeze(&self, handle: &Handle) -> Result<(), Failure> {
        self.set_frozen(handle, true).await
    }

    async fn thaw(&self, handle: &Handle) -> Result<(), Failure> {
        self.set_frozen(handle, false).await
    }

    async fn ask(&self, handle: &Handle) -> Result<(), Failure> {
        let Some(container) = &handle.container else { return Ok(()) };
        let signal = KillContainerOptionsBuilder::new().signal("TERM").build();
        // Whoever has it end counts its grace from here.
        let asked = tokio::time::timeout(ASK, self.docker.kill_container(&container.id, Some(signal)));
        match asked.await.unwrap_or(Err(Error::RequestTimeoutError)) {
            Ok(()) => Ok(()),
            // It is gone, or has ended.
            Err(Error::DockerResponseServerError { status_code: 404 | 409, .. }) => Ok(()),
            Err(error) => Err(failed("ask the container to end", &error)),
        }
    }

    async fn kill(&self, handle: &Handle) -> Result<(), Failure> {
        let Some(container) = &handle.container else { return Ok(()) };
        self.end(&container.id, handle).await
    }

    async fn exec(&self, handle: &Handle, exec: &Exec) -> Result<Executed, Failure> {
        let container =
            handle.container.as_ref().ok_or_else(|| Failure("it lives in no container".into()))?;
        let inside = exec::Inside {
            docker: self.docker.clone(),
            container: container.id.clone(),
            handle: handle.clone(),
        };
        inside.run(&self.program, exec).await
    }

    async fn wait(&self, handle: &Handle) -> Exit {
        let Some(instance) = self.known(handle) else { return Exit::default() };
        let mut ending = instance.ending.clone();
        let exit = ending.wait_for(Option::is_some).await;
        exit.ok().and_then(|exit| *exit).unwrap_or_default()
    }

    fn let_go(&self, handle: &Handle) {
        lock(&self.instances).remove(&handle.instance);
    }

    async fn list(&self) -> Vec<String> {
        let late = |_| Err(Failure(format!("it has not answered in {ASK:?}")));
        let listed = tokio::time::timeout(ASK, self.containers(None)).await.unwrap_or_else(late);
        let found = listed.unwrap_or_else(|problem| {
            tracing::error!(%problem, "the Docker daemon does not say which containers there are");
            Vec::new()
        });
        let mut instances: Vec<String> = found.iter().filter_map(create::instance).collect();
        instances.dedup();
        instances
    }

    async fn sweep(&self, instance: &str) -> Result<(), Failure> {
        self.made(instance).await;
        for id in self.containers(Some(instance)).await?.into_iter().filter_map(|one| one.id) {
            match self.handle(instance, Id { id: id.clone(), log: 0 }).await {
                Ok(handle) => self.end(&id, &handle).await?,
                // It may be gone by now.
                Err(_) => self.remove(&id).await?,
            }
        }
        Ok(())
    }

    async fn close(&self) {
        network::remove_all(&self.docker, &self.runner).await;
    }
}

/// By the control group where it is reached. The daemon then knows nothing of it, so whatever is asked of the daemon
/// has to be asked of a container that runs.
async fn set_frozen(docker: &Docker, instance: &Instance, frozen: bool) -> Result<(), Failure> {
    let name = &instance.handle.instance;
    if let Some(group) = &instance.handle.cgroup {
        let done = freezer::set_frozen(group, frozen).await;
        return done.map_err(|error| Failure(format!("the control group of {name}: {error}")));
    }
    let (container, already) = (&instance.container, if frozen { "already paused" } else { "not paused" });
    let done = if frozen {
        docker.pause_container(container).await
    } else {
        docker.unpause_container(container).await
    };
    match done {
        Err(Error::DockerResponseServerError { message, .. }) if message.contains(already) => Ok(()),
        Err(error) => {
            Err(failed(if frozen { "pause the container" } else { "unpause the container" }, &error))
        }
        Ok(()) => Ok(()),
    }
}

/// The definition's files are mounted as they are, and the container's user is no user of this machine.
fn readable(definition: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::PermissionsExt;
    let problem = |error| Failure(format!("cannot look at {}: {error}", definition.display()));
    let about = std::fs::metadata(definition).map_err(problem)?;
    if about.permissions().mode() & 0o005 == 0o005 {
        return Ok(());
    }
    let shown = definition.display();
    Err(Failure(format!(
        "the agent's container mounts {shown}, which its user cannot read; run `chmod -R o+rX {shown}`"
    )))
}

/// All others end with it. Its control group, which names the container, has said that the pid is its own: a daemon of
/// another machine counts processes otherwise. Where it cannot be done, the daemon does it a moment later.
fn kill_first(handle: &Handle) {
    let now = Process::read(handle.pid).ok().flatten().filter(|_| handle.cgroup.is_some());
    let same =
        now.is_some_and(|now| now.born == handle.born) && tree::boot().is_ok_and(|boot| handle.boot == boot);
    let pid = i32::try_from(handle.pid).ok().and_then(Pid::from_raw);
    if let (true, Some(pid)) = (same, pid) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn pid(found: &ContainerInspectResponse) -> Option<u32> {
    found.state.as_ref()?.pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0)
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 404, .. })
}

/// The daemon's own words, or what to do when it says none.
fn failed(action: &str, error: &Error) -> Failure {
    match error {
        Error::DockerResponseServerError { message, .. } => {
            Failure(format!("Docker could not {action}: {message}"))
        }
        other => Failure(format!(
            "cannot {action}: {other}; check that the Docker daemon runs here and that the runner's user may open its socket (DOCKER_HOST names another)"
        )),
    }
}

fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
