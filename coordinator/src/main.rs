//! `skein`: coordinator, ingress and runner in one program, and the command line that administers them.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use skein_coordinator::cli::{Cli, CliError};
use skein_coordinator::mcp::server::{QUIET, SILENT};
use skein_coordinator::runtime;
use skein_runner::raise_open_files;
use skein_runner::telemetry::{self, Telemetry};
use tikv_jemallocator::Jemalloc;

/// In the place of malloc, for the libraries in C as well: what one thread has made another one frees, which the
/// system's does slowly.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    #[cfg(feature = "mutations")]
    if let Ok(names) = std::env::var("SKEIN_MUTATIONS") {
        skein_shared::mutation::turn_on(&names).expect("SKEIN_MUTATIONS names mutations");
    }
    let cli = match Cli::parse().inside() {
        Ok(code) => return code,
        Err(cli) => *cli,
    };
    match start(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let known = error.downcast_ref::<CliError>();
            if known.is_some_and(CliError::is_unread) {
                return ExitCode::SUCCESS;
            }
            // Where nobody can be told, the exit code says it: `eprintln!` would end with another one.
            let _ = writeln!(std::io::stderr(), "skein: {error:#}");
            ExitCode::from(known.map_or(1, CliError::exit))
        }
    }
}

fn start(cli: Cli) -> anyhow::Result<()> {
    let quiet = if cli.serves() { QUIET } else { SILENT };
    let filter = telemetry::filter(&format!("info,{quiet}"));
    // Each connection is one.
    if cli.serves()
        && let Err(error) = raise_open_files()
    {
        let told = "skein: it may not have more files open than it was given at first";
        let _ = writeln!(std::io::stderr(), "{told}: {error}");
    }
    let runtime = runtime::start().context("no runtime could be started")?;
    runtime.block_on(async {
        let _telemetry = Telemetry::start("skein", filter)?;
        Ok(cli.run().await?)
    })
}
