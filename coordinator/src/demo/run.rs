//! The demo from its first line to its last.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use skein_shared::Refusal;
use tokio::signal::unix::{SignalKind, signal};

use super::agents::{LEAD, SUMMARISER};
use super::stage::{self, Stage};
use super::watch::{Scene, Screen};
use super::webhook;
use crate::api::client;
use crate::node::datadir::Layout;

/// How often the terminal is brought up to date.
const LOOK: Duration = Duration::from_millis(200);
/// A swarm that has not finished by then never will.
const LONGEST: Duration = Duration::from_secs(600);
const SWARM: &str = "default";

#[derive(Args, Debug)]
pub struct Options {
    /// The git repository that the swarm surveys, or a folder in it.
    #[arg(long, default_value = ".")]
    repo: PathBuf,
    /// Leave everything running at the end.
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("the repository cannot be surveyed: {0}; name one with --repo PATH")]
    Repository(String),
    #[error("git is missing; install it, with `apt-get install git` for example")]
    NoGit,
    #[error("the node failed: {0}")]
    Node(String),
    #[error("the node refused: {0}")]
    Refused(#[from] Refusal),
    #[error("the push could not be delivered: {0}")]
    Push(String),
    #[error("agent {agent} failed: {reason}")]
    Agent { agent: String, reason: String },
    #[error("stopped before the end; nothing of it is left")]
    Stopped,
    #[error("the swarm did not finish within {}", humantime::format_duration(LONGEST))]
    TooLong,
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Runs the swarm, shows its progress on stderr, and gives the report with its path.
///
/// # Errors
/// A sentence that says what failed and what to do.
pub async fn run(options: Options) -> Result<String, DemoError> {
    let repository = stage::repository_of(&options.repo).await?;
    let begins = "setting the stage: a copy of the repository, four agents, one node";
    let _ = writeln!(std::io::stderr(), "{begins}");
    // From here on a signal waits until the stage can be struck.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut stage = Stage::set(&repository).await?;
    let watched = tokio::select! {
        watched = tokio::time::timeout(LONGEST, watch(&mut stage, &repository)) => {
            watched.unwrap_or(Err(DemoError::TooLong))
        }
        _ = interrupt.recv() => Err(DemoError::Stopped),
        _ = terminate.recv() => Err(DemoError::Stopped),
    };
    let report = match watched {
        Ok(report) => report,
        Err(error) => {
            stage.strike().await?;
            return Err(error);
        }
    };
    let path = stage.report();
    std::fs::write(&path, &report)?;
    if options.keep {
        let _ = writeln!(std::io::stderr(), "{}", stage.keep());
    } else {
        stage.clear().await?;
    }
    Ok(format!("{report}\n{}", path.display()))
}

/// Watches until the report is there. Delivers the push once the summariser sleeps and the surveys are done.
async fn watch(stage: &mut Stage, repository: &Path) -> Result<String, DemoError> {
    let mut admin = client::connect(&Layout::new(stage.data())).await?;
    let mut screen = Screen::new();
    let mut pushed = false;
    loop {
        if let Some(words) = stage.ended() {
            return Err(DemoError::Node(words));
        }
        let scene = Scene::read(&mut admin, SWARM).await?;
        screen.show(&scene);
        if let Some((agent, mut reason)) = scene.failed() {
            let words = stage.last_words_of(&agent);
            if !words.is_empty() {
                reason = format!("{reason}; its last words:\n{words}");
            }
            return Err(DemoError::Agent { agent, reason });
        }
        if !pushed && scene.tasks_done() && scene.sleeps(SUMMARISER) {
            push(stage, repository, &mut screen).await?;
            pushed = true;
        }
        if scene.completed(LEAD)
            && let Some(report) = scene.report(SUMMARISER)
        {
            screen.close();
            return Ok(report);
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn push(stage: &Stage, repository: &Path, screen: &mut Screen) -> Result<(), DemoError> {
    let name = repository
        .file_name()
        .map_or_else(|| "repository".to_owned(), |name| name.to_string_lossy().into_owned());
    let branch = stage.branch().await?;
    let (status, answer) =
        webhook::deliver_push(&stage.ingress, &stage.secret, &format!("demo/{name}"), &branch)
            .await
            .map_err(|error| DemoError::Push(error.to_string()))?;
    if !(200..300).contains(&status) {
        return Err(DemoError::Push(format!("the ingress answered {status}: {answer}")));
    }
    let receipt: Value = serde_json::from_str(&answer).unwrap_or(Value::Null);
    screen.say(&format!(
        "push to {branch} delivered to the ingress, receipt {}",
        receipt["receipt"].as_str().unwrap_or("unknown")
    ));
    Ok(())
}
