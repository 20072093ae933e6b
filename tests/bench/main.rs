//! `skein-bench`: measures Skein beside the limits of the machine and beside other products, in one run.
//!
//! A bench is a file in `benches`; what it is measured against is in `probes` and `peers`; how it is measured is
//! in `harness`.

#![allow(clippy::disallowed_methods, reason = "a bench measures the machine's own time")]

mod benches;
mod harness;
mod options;
mod peers;
mod probes;
mod skein;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use harness::machine::Machine;
use harness::report::{Report, Results};
use harness::{chart, compare, table};
use options::Options;
use skein::witness;
use skein_coordinator::runtime;

#[derive(Parser)]
#[command(name = "skein-bench", about = "Measures Skein beside limits and peers.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run benches by name, or all of them.
    Run {
        #[arg(required = true)]
        names: Vec<String>,
        /// Where the results go.
        #[arg(long, default_value = "target/bench/results.json")]
        json: PathBuf,
        /// Folder for the charts.
        #[arg(long, default_value = "target/bench")]
        charts: PathBuf,
        /// Folder for stores; on the disk that is to be measured.
        #[arg(long, default_value = "target/bench/work")]
        work: PathBuf,
        /// Three rounds of one second: a first look.
        #[arg(long)]
        quick: bool,
        /// Leave the other products out.
        #[arg(long)]
        without_peers: bool,
        /// Run this contender alone, for a profile.
        #[arg(long)]
        only: Option<String>,
        /// Keep what `cpu_budget` finds as the new budget.
        #[arg(long)]
        update: bool,
    },
    /// Show what changed between two files of results.
    Compare {
        before: PathBuf,
        #[arg(default_value = "target/bench/results.json")]
        now: PathBuf,
    },
    /// List the benches.
    List,
    /// Works on a store and notes each step, until it is killed.
    #[command(hide = true)]
    Witness(witness::Witnessed),
    /// A server of the bench's own, in a process of its own.
    #[command(hide = true)]
    Serve {
        #[command(subcommand)]
        server: probes::Server,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::List => {
            for bench in benches::ALL {
                println!("{:20} {}", bench.name, bench.about);
            }
            Ok(())
        }
        Command::Compare { before, now } => compare::print(&Results::read(&before)?, &Results::read(&now)?),
        Command::Witness(load) => runtime::start()?.block_on(witness::work(load)),
        // As whoever writes a bare server has it.
        Command::Serve { server } => tokio::runtime::Runtime::new()?.block_on(probes::serve(server)),
        Command::Run { names, json, charts, work, quick, without_peers, only, update } => {
            std::fs::create_dir_all(&work).with_context(|| format!("{} cannot be made", work.display()))?;
            std::fs::create_dir_all(&charts)?;
            let options =
                Options { only, update, ..Options::new(work.canonicalize()?, quick, without_peers) };
            let results = runtime::start()?.block_on(run(&names, &options));
            let _ = std::fs::remove_dir_all(&options.folder);
            let results = results?;
            if let Some(folder) = json.parent() {
                std::fs::create_dir_all(folder)?;
            }
            results.write(&json)?;
            for report in &results.benches {
                chart::draw(report, &charts.join(format!("{}.svg", report.name)))?;
            }
            println!("results: {}, charts: {}", json.display(), charts.display());
            Ok(())
        }
    }
}

async fn run(names: &[String], options: &Options) -> Result<Results> {
    let machine = Machine::look(&options.folder);
    println!("{}", table::machine(&machine));
    let mut reports: Vec<Report> = Vec::new();
    for bench in chosen(names)? {
        eprintln!("{} …", bench.name);
        let mut report =
            (bench.run)(options.clone()).await.with_context(|| format!("{} failed", bench.name))?;
        report.name = bench.name.to_owned();
        report.about = bench.about.to_owned();
        println!("{}", table::report(&report));
        reports.push(report);
    }
    let at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    Ok(Results { at, machine, benches: reports })
}

fn chosen(names: &[String]) -> Result<Vec<&'static benches::Bench>> {
    if names == ["all"] {
        return Ok(benches::ALL.iter().collect());
    }
    let find = |name: &String| match benches::ALL.iter().find(|bench| bench.name == *name) {
        Some(bench) => Ok(bench),
        None => bail!("there is no bench {name}; `skein-bench list` shows those that there are"),
    };
    names.iter().map(find).collect()
}
