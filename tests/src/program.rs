//! A program that a test has started: a process of this machine, or one in a container that shares the machine's
//! network and its folders for what is temporary.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::process::{Child, Command};

#[cfg(feature = "image-tests")]
use crate::contained::Contained;
use crate::docker::Image;
use crate::process::{self, Signal};

/// Where programs are started: on this machine, or each in a container of an image that has them.
#[derive(Clone, Default)]
pub struct Ground(Option<Arc<Image>>);

impl Ground {
    /// Containers of an image.
    #[cfg(feature = "image-tests")]
    pub fn of(image: Image) -> Self {
        Self(Some(Arc::new(image)))
    }

    /// Starts a program in the folder of its command, with what it complains of at the end of a file.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start(&self, command: Command, log: &Path) -> Result<Program> {
        match &self.0 {
            None => spawn(command, log).map(Program::Process),
            #[cfg(feature = "image-tests")]
            Some(image) => {
                let contained = Contained::start(image, command.as_std(), log).await?;
                Ok(Program::Contained(Box::new(contained)))
            }
            #[cfg(not(feature = "image-tests"))]
            Some(_) => anyhow::bail!("this was built without containers"),
        }
    }
}

fn spawn(mut command: Command, log: &Path) -> Result<Child> {
    let log = std::fs::File::options().create(true).append(true).open(log)?;
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
    let name = command.as_std().get_program().to_owned();
    command.spawn().with_context(|| format!("{} does not start", name.display()))
}

/// It is killed when dropped.
pub enum Program {
    Process(Child),
    #[cfg(feature = "image-tests")]
    Contained(Box<Contained>),
}

impl Program {
    /// The process on this machine, while nobody has found it ended.
    pub fn id(&self) -> Option<u32> {
        match self {
            Self::Process(child) => child.id(),
            #[cfg(feature = "image-tests")]
            Self::Contained(contained) => Some(contained.id()),
        }
    }

    /// Ends it as a crash does.
    ///
    /// # Errors
    /// When the system refuses.
    pub async fn kill(&mut self) -> Result<()> {
        if let Some(id) = self.id()
            && !self.has_ended()?
        {
            process::signal(id, Signal::KILL)?;
        }
        self.wait().await?;
        Ok(())
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// When nobody says how.
    pub async fn wait(&mut self) -> Result<ExitStatus> {
        match self {
            Self::Process(child) => Ok(child.wait().await?),
            #[cfg(feature = "image-tests")]
            Self::Contained(contained) => contained.wait().await,
        }
    }

    /// Whether it has ended, by itself or by a signal.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn has_ended(&mut self) -> Result<bool> {
        match self {
            Self::Process(child) => Ok(child.try_wait()?.is_some()),
            #[cfg(feature = "image-tests")]
            Self::Contained(contained) => contained.has_ended(),
        }
    }
}
