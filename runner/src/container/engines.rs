//! The engines of this runner as one: an agent with an image lives in a container, any other as processes.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;

use super::docker::{self, Container, DockerEngine};
use super::process::ProcessEngine;
use super::{Engine, Exec, Executed, Exit, Failure, Handle, Spec, User};

/// The first pause between looks for a Docker daemon that was not there at the start, and the longest: each is twice as
/// long as the one before.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Each instance's engine is told by its definition, and later by its handle.
pub struct Engines {
    process: ProcessEngine,
    docker: OnceLock<DockerEngine>,
    /// Why it was not there at the start, if it was not.
    missing: Option<Failure>,
}

impl Engines {
    pub fn new(process: ProcessEngine, docker: Result<DockerEngine, Failure>) -> Self {
        match docker {
            Ok(docker) => Self { process, docker: docker.into(), missing: None },
            Err(problem) => Self { process, docker: OnceLock::new(), missing: Some(problem) },
        }
    }

    /// Whether agents with such a container can run here.
    ///
    /// # Errors
    /// A sentence for whoever wrote the definition.
    pub fn check(&self, container: Option<&Container>) -> Result<(), String> {
        match (container, self.docker.get(), &self.missing) {
            (Some(_), None, Some(problem)) => Err(format!(
                "image: this runner cannot run containers: {problem}; it looks for Docker again until that is there, so start it, or give the program to run as `command` without `image`"
            )),
            _ => Ok(()),
        }
    }

    /// Returns when there is a Docker daemon after all: it may have been started after the runner. A machine that never
    /// has one is asked for little, and told nothing of it. The runner has the instances that are `known`.
    pub async fn find_docker(&self, mark: &str, launcher: &[OsString], known: impl Fn(&str) -> bool) {
        let mut pause = PAUSE;
        let docker = loop {
            tokio::time::sleep(pause).await;
            match DockerEngine::connect(mark, launcher).await {
                Ok(docker) => break docker,
                Err(_) => pause = (pause * 2).min(LONGEST),
            }
        };
        self.has_come(docker, known).await;
        tracing::info!("Docker is there: agents with an image can run here from now on");
    }

    /// Takes the daemon in, and ends what it has that is no instance of the runner's: none was started since the runner
    /// was, so that it was left by a start that was cut short.
    pub(super) async fn has_come(&self, docker: DockerEngine, known: impl Fn(&str) -> bool) {
        let mut left = docker.list().await;
        left.retain(|one| !known(one));
        for stray in left {
            tracing::warn!(instance = stray, "ending a container that was left while Docker was not there");
            if let Err(problem) = docker.sweep(&stray).await {
                tracing::error!(instance = stray, %problem, "a container that was left was not ended");
            }
        }
        self.docker.get_or_init(|| docker);
    }

    /// Without Docker nothing is asked of a container, but that it stands still: what the runner holds in one waits, by
    /// [`Engine::reaches`].
    fn of(&self, in_container: bool) -> &dyn Engine {
        match self.docker.get() {
            Some(docker) if in_container => docker,
            _ => &self.process,
        }
    }

    fn all(&self) -> impl Iterator<Item = &dyn Engine> {
        let docker = self.docker.get().map(|docker| docker as &dyn Engine);
        std::iter::once(&self.process as &dyn Engine).chain(docker)
    }
}

#[async_trait]
impl Engine for Engines {
    fn names(&self) -> Vec<&'static str> {
        self.all().flat_map(Engine::names).collect()
    }

    fn reaches(&self, in_container: bool) -> Result<(), Failure> {
        match (&self.missing, self.docker.get()) {
            (Some(problem), None) if in_container => Err(problem.clone()),
            _ => Ok(()),
        }
    }

    async fn door(&self, container: Option<&Container>) -> Result<IpAddr, Failure> {
        self.check(container).map_err(Failure)?;
        self.of(container.is_some()).door(container).await
    }

    async fn start(&self, spec: &Spec) -> Result<Handle, Failure> {
        self.of(spec.container.is_some()).start(spec).await
    }

    async fn find(&self, instance: &str, user: Option<User>) -> Result<Option<Handle>, Failure> {
        // Containers first: their processes carry the marks that the other engine looks for, and would be taken for
        // plain ones where the daemon does not say whether there is a container.
        if let Some(docker) = self.docker.get()
            && let Some(found) = docker.find(instance, user).await?
        {
            return Ok(Some(found));
        }
        self.process.find(instance, user).await
    }

    async fn adopt(&self, handle: &Handle, log: &Path) -> bool {
        self.of(handle.container.is_some()).adopt(handle, log).await
    }

    async fn freeze(&self, handle: &Handle) -> Result<(), Failure> {
        match self.reaches(handle.container.is_some()) {
            Ok(()) => self.of(handle.container.is_some()).freeze(handle).await,
            Err(_) => docker::freeze_alone(handle).await,
        }
    }

    async fn thaw(&self, handle: &Handle) -> Result<(), Failure> {
        self.of(handle.container.is_some()).thaw(handle).await
    }

    async fn ask(&self, handle: &Handle) -> Result<(), Failure> {
        self.of(handle.container.is_some()).ask(handle).await
    }

    async fn kill(&self, handle: &Handle) -> Result<(), Failure> {
        self.of(handle.container.is_some()).kill(handle).await
    }

    async fn exec(&self, handle: &Handle, exec: &Exec) -> Result<Executed, Failure> {
        self.of(handle.container.is_some()).exec(handle, exec).await
    }

    async fn wait(&self, handle: &Handle) -> Exit {
        self.of(handle.container.is_some()).wait(handle).await
    }

    fn let_go(&self, handle: &Handle) {
        self.of(handle.container.is_some()).let_go(handle);
    }

    async fn list(&self) -> Vec<String> {
        let mut found = Vec::new();
        for engine in self.all() {
            found.extend(engine.list().await);
        }
        found.sort();
        found.dedup();
        found
    }

    async fn sweep(&self, instance: &str) -> Result<(), Failure> {
        // Containers first: their processes carry the marks that the other engine looks for.
        if let Some(docker) = self.docker.get() {
            docker.sweep(instance).await?;
        }
        self.process.sweep(instance).await
    }

    async fn close(&self) {
        for engine in self.all() {
            engine.close().await;
        }
    }
}
