//! The engines of this runner as one: an agent with an image lives in a container, any other as processes.

use std::net::IpAddr;
use std::path::Path;

use async_trait::async_trait;

use super::docker::{Container, DockerEngine};
use super::process::ProcessEngine;
use super::{Engine, Exec, Executed, Exit, Failure, Handle, Spec};

/// Each instance's engine is told by its definition, and later by its handle.
pub struct Engines {
    process: ProcessEngine,
    docker: Result<DockerEngine, Failure>,
}

impl Engines {
    pub fn new(process: ProcessEngine, docker: Result<DockerEngine, Failure>) -> Self {
        Self { process, docker }
    }

    /// Whether agents with such a container can run here.
    ///
    /// # Errors
    /// A sentence for whoever wrote the definition.
    pub fn check(&self, container: Option<&Container>) -> Result<(), String> {
        match (container, &self.docker) {
            (Some(_), Err(problem)) => Err(format!(
                "image: this runner cannot run containers: {problem}; start Docker and then the runner again, or give the program to run as `command` without `image`"
            )),
            _ => Ok(()),
        }
    }

    /// Without Docker there is no container; a runner that holds one does not start.
    fn of(&self, in_container: bool) -> &dyn Engine {
        match &self.docker {
            Ok(docker) if in_container => docker,
            _ => &self.process,
        }
    }

    fn all(&self) -> impl Iterator<Item = &dyn Engine> {
        let docker = self.docker.as_ref().ok().map(|docker| docker as &dyn Engine);
        std::iter::once(&self.process as &dyn Engine).chain(docker)
    }
}

#[async_trait]
impl Engine for Engines {
    fn names(&self) -> Vec<&'static str> {
        self.all().flat_map(Engine::names).collect()
    }

    async fn door(&self, container: Option<&Container>) -> Result<IpAddr, Failure> {
        self.check(container).map_err(Failure)?;
        self.of(container.is_some()).door(container).await
    }

    async fn start(&self, spec: &Spec) -> Result<Handle, Failure> {
        self.of(spec.container.is_some()).start(spec).await
    }

    async fn adopt(&self, handle: &Handle, log: &Path) -> bool {
        self.of(handle.container.is_some()).adopt(handle, log).await
    }

    async fn freeze(&self, handle: &Handle) -> Result<(), Failure> {
        self.of(handle.container.is_some()).freeze(handle).await
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
        if let Ok(docker) = &self.docker {
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
