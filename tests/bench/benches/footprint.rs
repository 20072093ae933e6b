//! B19: how large the program is, how fast it starts, and how much memory it takes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::FutureExt;
use tokio::process::Command;

use super::Bench;
use crate::harness::process::{Server, free_port};
use crate::harness::report::{Figure, Goal, Report};
use crate::harness::stats::Interval;
use crate::options::Options;
use crate::skein::fill::Contents;
use crate::skein::node::{self, Node};
use crate::skein::place::Place;

pub(super) const BENCH: Bench = Bench {
    name: "footprint",
    about: "size, start and memory of the node, beside a bare HTTP server",
    run: |options| run(options).boxed(),
};

/// Starts of each program.
const STARTS: u32 = 10;
/// How long a node rests before its memory is read.
const REST: Duration = Duration::from_secs(5);

/// What was measured of one program.
#[derive(Default)]
struct Starts {
    milliseconds: Vec<f64>,
    resident: Vec<f64>,
}

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    let size = std::fs::metadata(node::binary()?)?.len() as f64 / 1e6;
    let (mut skein, mut bare) = (Starts::default(), Starts::default());
    for _ in 0..STARTS {
        bare.bare().await?;
        skein.empty(&options).await?;
    }
    let full = full(&options).await?;
    let figures = [
        ("size of the program", "MB", Some(Interval::exactly(size))),
        ("ready after the start", "ms", Interval::of(&skein.milliseconds)),
        ("ready after the start, bare server", "ms", Interval::of(&bare.milliseconds)),
        ("resident when empty", "MiB", Interval::of(&skein.resident)),
        ("resident when empty, bare server", "MiB", Interval::of(&bare.resident)),
        ("resident with 1,000 agents and 100,000 tasks", "MiB", Some(Interval::exactly(full))),
    ];
    for (name, unit, value) in figures {
        let value = value.context("at least one start")?;
        report.figures.push(Figure { name: name.to_owned(), unit: unit.to_owned(), value });
    }
    report.goals = vec![
        Goal::at_most("B19 size, MB", 40.0, Some(Interval::exactly(size))),
        Goal::at_most("B19 ready, ms", 200.0, Interval::of(&skein.milliseconds)),
        Goal::at_most("B19 resident when empty, MiB", 40.0, Interval::of(&skein.resident)),
        Goal::at_most(
            "B19 resident with 1,000 agents and 100,000 tasks, MiB",
            150.0,
            Some(Interval::exactly(full)),
        ),
    ];
    Ok(report)
}

impl Starts {
    /// A node over a new directory, as at its first start.
    async fn empty(&mut self, options: &Options) -> Result<()> {
        let node = Node::start(&options.folder_for("empty")?.join("data"))?;
        self.milliseconds.push(node.ready().await?);
        self.resident.push(node.memory()?.resident);
        node.kill().await
    }

    async fn bare(&mut self) -> Result<()> {
        let address = format!("127.0.0.1:{}", free_port()?);
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "bare-health", "--listen", &address]);
        let started = Instant::now();
        let log = tempfile::NamedTempFile::new()?;
        let server = Server::start("the bare server", command, log.path())?;
        self.milliseconds.push(node::ready(&address, started).await?);
        self.resident.push(node::memory(server.id()?)?.resident);
        server.stop().await
    }
}

/// Resident memory of a node with a thousand agents and a hundred thousand tasks, once its lists are built.
async fn full(options: &Options) -> Result<f64> {
    let place =
        Place::new(options, "full", Contents { members: 1000, pending: 100_000, leases: 1000 }).await?;
    let (node, _) = place.first_claim().await?;
    let memory = place.rested(&node, REST).await?;
    node.kill().await?;
    Ok(memory.resident)
}
