//! Programs in containers, each the first process of its own. They find the network and the temporary folders of the
//! machine where they are, so a test does with them what it does with processes.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result};
use procfs::ProcError;
use procfs::process::Process;
use testcontainers::core::Mount;
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, GenericImage, ImageExt};

use crate::docker::{Image, docker};

/// Becomes the program, with what that complains of at the end of a file.
const BECOME: &str = r#"log=$1; shift; exec "$@" >/dev/null 2>>"$log""#;
/// How often to ask the daemon for what it does not tell.
const LOOK: Duration = Duration::from_millis(20);

/// Removed when it is dropped.
pub struct Contained {
    container: ContainerAsync<GenericImage>,
    id: u32,
}

impl Contained {
    /// Starts a command in its folder as the user of the test.
    ///
    /// # Errors
    /// When the daemon refuses.
    pub async fn start(image: &Image, command: &Command, log: &Path) -> Result<Self> {
        let text = |text: &OsStr| text.to_str().map(str::to_owned).context("a command that is no text");
        let mut line = vec!["-c".to_owned(), BECOME.to_owned(), "sh".to_owned(), text(log.as_os_str())?];
        line.push(text(command.get_program())?);
        for argument in command.get_args() {
            line.push(text(argument)?);
        }
        let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let mut asked = GenericImage::new(image.name(), "latest")
            .with_entrypoint("sh")
            .with_cmd(line)
            .with_network("host")
            .with_user(format!("{user}:{group}"));
        if let Some(folder) = command.get_current_dir() {
            asked = asked.with_working_dir(text(folder.as_os_str())?);
        }
        for folder in [std::env::temp_dir().as_path(), Path::new("/dev/shm")] {
            let folder = text(folder.as_os_str())?;
            asked = asked.with_mount(Mount::bind_mount(folder.clone(), folder));
        }
        for (name, value) in command.get_envs() {
            asked = asked.with_env_var(text(name)?, text(value.unwrap_or_default())?);
        }
        let container = asked.start().await.context("a container does not start")?;
        let id = docker(&["inspect", "--format", "{{.State.Pid}}", container.id()]).await?.parse()?;
        Ok(Self { container, id })
    }

    /// The process, as the machine counts it.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// When the daemon does not say how.
    pub async fn wait(&self) -> Result<ExitStatus> {
        while self.container.is_running().await? {
            tokio::time::sleep(LOOK).await;
        }
        let code = self.container.exit_code().await?.context("a container ended without a code")?;
        Ok(ExitStatus::from_raw(i32::try_from(code)? << 8))
    }

    /// Whether it has ended.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn has_ended(&self) -> Result<bool> {
        match Process::new(self.id.cast_signed()).and_then(|process| process.stat()) {
            Ok(stat) => Ok(stat.state == 'Z'),
            Err(ProcError::NotFound(_)) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}
