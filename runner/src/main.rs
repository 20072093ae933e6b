//! The binary `skein-runner`.

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use skein_runner::supervisor::Supervisor;
use skein_runner::telemetry::{self, Telemetry};
use skein_runner::{Args, Error, ExecAgent, RunnerConfig, exec_agent, raise_open_files, transport};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// What a shell adds to the number of the signal that has ended a program.
const BY_SIGNAL: i32 = 128;

/// Runs the agents of a folder for a Skein cluster.
#[derive(Parser)]
#[command(name = "skein-runner", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    inner: Option<Inner>,
    #[command(flatten)]
    args: Option<Args>,
}

#[derive(Subcommand)]
enum Inner {
    /// Becomes an agent's process: the runner calls itself with this.
    #[command(name = "exec-agent", hide = true)]
    ExecAgent(Box<ExecAgent>),
    /// Runs a tool inside an instance: the runner calls itself with this.
    #[command(name = "transport", hide = true)]
    Transport,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.inner {
        Some(Inner::ExecAgent(agent)) => return exec_agent(&agent),
        Some(Inner::Transport) => return transport::serve(),
        None => {}
    }
    let Some(args) = cli.args else {
        let missing = "skein-runner: no coordinator given; pass --coordinator URL, or see --help";
        let _ = writeln!(std::io::stderr(), "{missing}");
        return ExitCode::from(2);
    };
    if let Err(error) = raise_open_files() {
        let told = "skein-runner: it may not have more files open than it was given at first";
        let _ = writeln!(std::io::stderr(), "{told}: {error}");
    }
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let known = error.downcast_ref::<Error>();
            // It names its cause itself.
            let told = known.map_or_else(|| format!("{error:#}"), ToString::to_string);
            // Where nobody can be told, the exit code says it: `eprintln!` would end with another one.
            let _ = writeln!(std::io::stderr(), "skein-runner: {told}");
            ExitCode::from(known.map_or(1, |error| error.code().exit()))
        }
    }
}

#[tokio::main]
async fn serve(args: Args) -> anyhow::Result<()> {
    let _telemetry = Telemetry::start("skein-runner", telemetry::filter("info"))?;
    let config = RunnerConfig::from_args(args)?;
    let shutdown = CancellationToken::new();
    tokio::spawn(follow_signals(
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
        shutdown.clone(),
        config.supervisor.clone(),
    ));
    skein_runner::run(config, shutdown).await?;
    Ok(())
}

/// The first has the agents end in their time. Whoever sends another does not want to wait for that: what still runs
/// then is left as after a crash, and the next start takes it over.
async fn follow_signals(
    mut terminate: Signal,
    mut interrupt: Signal,
    shutdown: CancellationToken,
    supervisor: Supervisor,
) {
    let mut come = async || {
        tokio::select! {
            _ = terminate.recv() => SignalKind::terminate(),
            _ = interrupt.recv() => SignalKind::interrupt(),
        }
    };
    come().await;
    tracing::info!(
        "asked to end: it waits for its agents to end; asked again, it leaves them to its next start"
    );
    supervisor.is_stopping();
    shutdown.cancel();
    let again = come().await;
    // The log has no time left to be written.
    let last = "skein-runner: asked again: the agents that still run are left to the next start";
    let _ = writeln!(std::io::stderr(), "{last}");
    std::process::exit(BY_SIGNAL + again.as_raw_value());
}
