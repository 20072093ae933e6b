//! One engine of a runner, without the runner.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use skein_runner::container::docker::{DockerEngine, Network};
use skein_runner::container::process::ProcessEngine;
use skein_runner::container::tree::{self, Process};
use skein_runner::container::{Container, Engine, Handle, Limits, Spec, User, cgroup};

use crate::docker::Image;
use crate::process::{Signal, signal};
use crate::up::{Folder, binary};

/// Longest that anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// `/proc` and logs announce nothing, so they are looked at this often.
const LOOK: Duration = Duration::from_millis(5);
const PROGRAMS: [&str; 10] = ["cat", "dd", "env", "head", "id", "ls", "setsid", "sh", "sleep", "yes"];

/// Which engine, and how it freezes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Processes in control groups, where the machine allows them.
    Groups,
    /// Processes that are stopped by signals.
    Signals,
    /// Containers that are frozen by their control groups.
    Docker,
    /// Containers that the daemon pauses.
    Pause,
}

/// An engine with a folder for its instances. What lives in it ends when it is dropped.
pub struct Bed {
    kind: Kind,
    mark: String,
    engine: Arc<dyn Engine>,
    image: Option<Image>,
    folder: Folder,
    /// All that were started.
    handles: Vec<Handle>,
}

impl Bed {
    /// # Errors
    /// When there is no Docker and the engine needs it.
    pub async fn new(kind: Kind) -> Result<Self> {
        let folder = Folder::new()?;
        let mark = format!("bed-{}", uuid::Uuid::new_v4().simple());
        let contained = matches!(kind, Kind::Docker | Kind::Pause);
        let image = if contained { Some(Image::pack("engine", &PROGRAMS, "").await?) } else { None };
        // The containers' user reads the definition there.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open)?;
        Ok(Self { engine: engine(kind, &mark).await?, kind, mark, image, folder, handles: Vec::new() })
    }

    pub fn engine(&self) -> &dyn Engine {
        self.engine.as_ref()
    }

    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// The id of the instance that the test calls so: processes of all tests are found by it.
    pub fn id(&self, name: &str) -> String {
        format!("{name}-{}", self.mark)
    }

    /// The live processes of an instance.
    pub fn tree(&self, name: &str) -> Vec<Process> {
        tree::marked(&self.id(name)).expect("`/proc` can be read")
    }

    /// Whether the engine lists just these.
    pub async fn lists(&self, names: &[&str]) -> bool {
        let mut found = self.engine.list().await;
        found.sort();
        found == names.iter().map(|name| self.id(name)).collect::<Vec<_>>()
    }

    /// What a shell script is started with, and in what; see [`Self::start`].
    pub fn spec(&self, name: &str, script: &str) -> Spec {
        let instance = self.id(name);
        let env = [("PATH", "/usr/bin:/bin"), ("SKEIN_INSTANCE", &instance), ("SKEIN_RUNNER", &self.mark)];
        let container = self.image.as_ref().map(|image| Container {
            image: image.name().to_owned(),
            pull: false,
            memory: 256 << 20,
            nano_cpus: 1_000_000_000,
            pids: 64,
            network: Network::Open,
            egress: Vec::new(),
            user: User { uid: 1000, gid: 1000 },
        });
        Spec {
            instance: instance.clone(),
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            env: env.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            workdir: self.folder.path().to_owned(),
            log: self.log_file(name),
            unbegun: self.unbegun(name),
            user: None,
            closed: Vec::new(),
            open: vec![self.folder.path().to_owned()],
            readable: Vec::new(),
            definition: self.folder.path().to_owned(),
            credentials: None,
            input: None,
            limits: Limits::default(),
            agent_commands: None,
            kept: None,
            joined: None,
            container,
        }
    }

    /// Starts an instance, and waits until its script has said `up`.
    ///
    /// # Errors
    /// When it does not.
    pub async fn start(&mut self, name: &str, script: &str) -> Result<Handle> {
        self.start_as(self.spec(name, script)).await
    }

    /// The same from a whole specification.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_as(&mut self, spec: Spec) -> Result<Handle> {
        self.engine.door(spec.container.as_ref()).await?;
        let mut handle = self.engine.start(&spec).await?;
        if self.kind == Kind::Pause {
            // As on a machine where the runner may not write to the container's group.
            handle.cgroup = None;
            self.restart().await?;
        }
        self.handles.push(handle.clone());
        if self.kind == Kind::Pause {
            for handle in &self.handles {
                self.engine.adopt(handle, &self.log_of(&handle.instance)).await;
            }
        }
        let is_up = || std::fs::read_to_string(&spec.log).is_ok_and(|log| log.contains("up\n"));
        self.until("it is up", is_up).await?;
        Ok(handle)
    }

    /// Another process of the runner takes the place of this one.
    ///
    /// # Errors
    /// When Docker has gone.
    pub async fn restart(&mut self) -> Result<()> {
        self.engine = engine(self.kind, &self.mark).await?;
        Ok(())
    }

    pub fn log_file(&self, name: &str) -> PathBuf {
        self.log_of(&self.id(name))
    }

    /// There as long as an instance has not begun, if somebody has made it.
    pub fn unbegun(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{}.unbegun", self.id(name)))
    }

    fn log_of(&self, instance: &str) -> PathBuf {
        self.folder.path().join(format!("{instance}.log"))
    }

    /// What an instance has printed.
    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.log_file(name)).unwrap_or_default()
    }

    /// Looks until something is so.
    ///
    /// # Errors
    /// When it does not come to be.
    pub async fn until(&self, what: &str, look: impl Fn() -> bool) -> Result<()> {
        let looking = async {
            while !look() {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(LIMIT, looking).await.with_context(|| format!("it never came to be that {what}"))
    }

    /// Expects that nothing is left, and frees what the engine has for all.
    ///
    /// # Errors
    /// When an instance is.
    pub async fn close(self) -> Result<()> {
        let left = self.engine.list().await;
        self.engine.close().await;
        if left.is_empty() { Ok(()) } else { bail!("{left:?} are left") }
    }

    fn processes(&self) -> Vec<Process> {
        let instances = tree::instances(&self.mark).expect("`/proc` can be read");
        let marked = |instance: &String| tree::marked(instance).expect("`/proc` can be read");
        instances.iter().flat_map(marked).collect()
    }
}

async fn engine(kind: Kind, mark: &str) -> Result<Arc<dyn Engine>> {
    let launcher = vec![binary("skein-runner").into(), "exec-agent".into()];
    let process = |groups| Arc::new(ProcessEngine::with_cgroups(mark, launcher.clone(), groups));
    Ok(match kind {
        Kind::Groups => process(cgroup::root(mark)),
        Kind::Signals => process(None),
        Kind::Docker | Kind::Pause => Arc::new(DockerEngine::connect(mark, &launcher).await?),
    })
}

/// Removes what a test that failed has left to the daemon.
const SWEEP: &str = r#"
docker ps --all --quiet --filter "label=skein.runner=$1" | xargs --no-run-if-empty docker rm --force --volumes
docker network ls --quiet --filter "label=skein.runner=$1" | xargs --no-run-if-empty docker network rm
"#;

impl Drop for Bed {
    fn drop(&mut self) {
        for process in self.processes() {
            // It may have ended by itself. A frozen one ends when it is thawed.
            let _ = signal(process.pid, Signal::KILL);
            let _ = signal(process.pid, Signal::CONT);
        }
        if self.image.is_some() {
            // The image is removed after its containers.
            let _ = std::process::Command::new("sh").args(["-c", SWEEP, "sh", &self.mark]).output();
        }
    }
}
