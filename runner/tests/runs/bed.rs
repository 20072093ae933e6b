//! A runner with its folders, and what a coordinator says to it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use skein_proto::v1::coordinator_message::Message;
use skein_proto::v1::{Freeze, Start, Stop, Thaw};
use skein_runner::container::tree::{self, Process};
use skein_runner::supervisor::Supervisor;
use skein_runner::{Error, RunnerConfig, Token};
use skein_shared::id::Name;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::coordinator::{Coordinator, LIMIT, TOKEN};

/// Where nobody answers.
pub(crate) const MCP: &str = "http://127.0.0.1:1/mcp";
pub(crate) const ACCESS: &str = "access-token-of-the-instance";

/// A runner with its folders.
pub(crate) struct Bed {
    pub(crate) folder: TempDir,
    pub(crate) shutdown: CancellationToken,
    pub(crate) running: Option<JoinHandle<Result<(), Error>>>,
}

impl Bed {
    /// Makes the folders, and one agent `worker` that runs a shell script.
    pub(crate) fn new(script: &str) -> Self {
        Self::with(script, "")
    }

    /// The same with more settings.
    pub(crate) fn with(script: &str, settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let bed = Self { folder, shutdown: CancellationToken::new(), running: None };
        bed.define("worker", &format!("command = ['sh', '-c', '''{script}''']\ngrace = '2s'\n{settings}\n"));
        bed
    }

    pub(crate) fn define(&self, agent: &str, settings: &str) {
        let folder = self.folder.path().join("agents").join(agent);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("agent.toml"), settings).unwrap();
    }

    pub(crate) fn run(&mut self, coordinator: &Coordinator, token: &'static str) {
        let config = RunnerConfig {
            coordinators: vec![format!("http://{}", coordinator.address)],
            token: Token::new(move || Ok(SecretString::from(token))),
            name: Name::parse("r1").unwrap(),
            group: Name::parse("default").unwrap(),
            slots: 4,
            labels: BTreeMap::new(),
            agents: self.folder.path().join("agents"),
            data: self.data(),
            work: None,
            credentials: self.folder.path().join("credentials"),
            swarms: vec![Name::parse("default").unwrap()],
            launcher: launcher(),
            closed: Vec::new(),
            supervisor: Supervisor::default(),
        };
        self.shutdown = CancellationToken::new();
        self.running = Some(tokio::spawn(skein_runner::run(config, self.shutdown.clone())));
    }

    pub(crate) async fn leave(&mut self) -> Result<(), Error> {
        self.shutdown.cancel();
        tokio::time::timeout(LIMIT, self.running.take().unwrap()).await.unwrap().unwrap()
    }

    /// Runs it as a process of its own, which can be killed.
    pub(crate) fn run_apart(&self, coordinator: &Coordinator) -> Child {
        let token_file = self.token_file();
        fs::write(&token_file, TOKEN).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_skein-runner"));
        command.args(["--name", "r1", "--coordinator", &format!("http://{}", coordinator.address)]);
        command.arg("--token-file").arg(&token_file);
        command.arg("--agents").arg(self.folder.path().join("agents")).arg("--data").arg(self.data());
        command.kill_on_drop(true).spawn().unwrap()
    }

    /// Where a runner that runs apart has its token.
    pub(crate) fn token_file(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// What a run and its hooks have printed.
    pub(crate) fn log(&self, instance: &str) -> String {
        fs::read_to_string(self.data().join(format!("logs/{instance}.log"))).unwrap()
    }

    /// A file in the agent's work folder.
    pub(crate) fn work(&self, file: &str) -> PathBuf {
        self.folder.path().join("data-work/default/worker").join(file)
    }

    /// What the agent wrote into its work folder, once it is whole lines.
    pub(crate) async fn written(&self, file: &str) -> String {
        let path = self.work(file);
        until(|| fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'))).await
    }
}

/// An instance of the test that asks. Processes are looked for by it, and tests run beside one another, also those of
/// other runs on the machine.
pub(crate) fn id(number: u32) -> &'static str {
    let mut hasher = DefaultHasher::new();
    (std::thread::current().name(), std::process::id()).hash(&mut hasher);
    format!("worker-{:04x}{number:04x}", hasher.finish() & 0xffff).leak()
}

pub(crate) fn launcher() -> Vec<OsString> {
    vec![env!("CARGO_BIN_EXE_skein-runner").into(), "exec-agent".into()]
}

/// Looks until there is something: `/proc` and files of other processes announce nothing.
pub(crate) async fn until<T>(look: impl FnMut() -> Option<T>) -> T {
    comes_about(look).await.expect("it never came to be")
}

/// The same, for whoever can say what there is instead.
pub(crate) async fn comes_about<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let looking = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, looking).await.ok()
}

pub(crate) fn token(number: u32) -> String {
    format!("1790000000000-{number:010}")
}

pub(crate) fn start(instance: &str, number: u32) -> Message {
    Message::Start(Start {
        instance: instance.into(),
        swarm: "default".into(),
        agent: "worker".into(),
        token: token(number),
        input: r#"{"prompt":"hello"}"#.into(),
        access_token: ACCESS.into(),
    })
}

pub(crate) fn freeze(instance: &str, number: u32) -> Message {
    Message::Freeze(Freeze { instance: instance.into(), token: token(number) })
}

pub(crate) fn thaw(instance: &str, number: u32) -> Message {
    Message::Thaw(Thaw { instance: instance.into(), token: token(number) })
}

pub(crate) fn stop(instance: &str, number: u32) -> Message {
    let (instance, reason) = (instance.into(), "asked to".into());
    Message::Stop(Stop { instance, token: token(number), reason, grace_ms: 2000 })
}

/// Stopped by a signal, or held by the freezer.
pub(crate) fn stands_still(process: &Process) -> bool {
    let held = || {
        let text = fs::read_to_string(format!("/proc/{}/cgroup", process.pid)).unwrap_or_default();
        let group = text.lines().find_map(|line| line.strip_prefix("0::").map(str::to_owned));
        let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        group.is_some_and(|group| {
            mounts.iter().any(|mount| {
                let events = fs::read_to_string(format!("{mount}{group}/cgroup.events")).unwrap_or_default();
                events.contains("frozen 1")
            })
        })
    };
    process.is_stopped() || held()
}

/// The live processes of an instance.
pub(crate) fn marked(instance: &str) -> Vec<Process> {
    tree::marked(instance).unwrap()
}

/// Whether an instance has processes, and all of them stand still.
pub(crate) fn is_frozen(instance: &str) -> bool {
    let tree = marked(instance);
    !tree.is_empty() && tree.iter().all(stands_still)
}

/// Whether an instance has processes, and none of them stands still.
pub(crate) fn is_running(instance: &str) -> bool {
    let tree = marked(instance);
    !tree.is_empty() && !tree.iter().any(stands_still)
}
