//! BullMQ on a Redis of its own: a job is added, worked on and completed. Its driver is a Node.js program, for
//! BullMQ is a library.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use futures::FutureExt;
use serde::Deserialize;
use serde_json::json;
use tokio::process::Command;

use super::{Peer, install};
use crate::harness::contender::{Card, Contender, Durability, Metered, Pace, Plan, Work};
use crate::harness::dialog::Dialog;
use crate::harness::load;
use crate::harness::machine::said;
use crate::harness::process::free_port;
use crate::options::Options;
use crate::probes::sqlite::PAYLOAD;

/// Redis flushes its log before it answers.
pub(crate) const ALWAYS: Peer =
    Peer { name: "BullMQ always", start: |options| start(options, Fsync::Always, ALWAYS.name).boxed() };

/// The same, filled with jobs that are worked on afterwards.
pub(crate) const ALWAYS_FILLED: Peer = Peer {
    name: "BullMQ always, filled",
    start: |options| start(options, Fsync::Always, ALWAYS_FILLED.name).boxed(),
};

/// Redis flushes its log once a second.
pub(crate) const EVERYSEC: Peer = Peer {
    name: "BullMQ everysec",
    start: |options| start(options, Fsync::EverySecond, EVERYSEC.name).boxed(),
};

/// The same, filled with jobs that are worked on afterwards.
pub(crate) const EVERYSEC_FILLED: Peer = Peer {
    name: "BullMQ everysec, filled",
    start: |options| start(options, Fsync::EverySecond, EVERYSEC_FILLED.name).boxed(),
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fsync {
    Always,
    EverySecond,
}

struct BullMq {
    name: &'static str,
    driver: Dialog,
    fsync: Fsync,
    version: String,
    redis_calls: u64,
}

/// What the driver says of a slot.
#[derive(Deserialize)]
struct Answer {
    seconds: f64,
    operations: u64,
    /// None of jobs that were only added at first.
    latencies_us: Vec<u64>,
    redis_calls: u64,
}

async fn start(options: Options, fsync: Fsync, name: &'static str) -> Result<Box<dyn Contender>> {
    let packages = install::node(
        "bullmq",
        &[
            ("package.json", include_str!("bullmq/package.json")),
            ("package-lock.json", include_str!("bullmq/package-lock.json")),
            ("driver.mjs", include_str!("bullmq/driver.mjs")),
        ],
    )
    .await?;
    let redis = install::debian("redis", include_str!("bullmq/debian.txt")).await?;
    let program = redis.join("usr/bin/redis-server");
    let folder = options.folder_for("redis")?;
    let mut command = Command::new("node");
    command.arg(packages.join("driver.mjs")).arg(&program).arg(free_port()?.to_string()).arg(folder);
    command.arg(match fsync {
        Fsync::Always => "always",
        Fsync::EverySecond => "everysec",
    });
    command.arg(PAYLOAD).env("LD_LIBRARY_PATH", libraries(&redis)?);
    let driver = Dialog::start("BullMQ", command).await?;
    let version = format!("BullMQ {} on Redis 7.0.15, Node.js {}", version()?, said("node", &["--version"]));
    Ok(Box::new(BullMq { name, driver, fsync, version, redis_calls: 0 }))
}

/// Debian keeps libraries in a folder that is named after the machine.
fn libraries(root: &std::path::Path) -> Result<PathBuf> {
    Ok(root.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH)))
}

fn version() -> Result<String> {
    let package: serde_json::Value = serde_json::from_str(include_str!("bullmq/package.json"))?;
    Ok(package["dependencies"]["bullmq"].as_str().context("BullMQ is pinned")?.to_owned())
}

#[async_trait]
impl Contender for BullMq {
    /// What it takes is that of the library with Redis, its child.
    fn card(&self) -> Card {
        let durability = match self.fsync {
            Fsync::Always => Durability::PowerCut,
            Fsync::EverySecond => Durability::Lazy,
        };
        Card::peer(
            self.name,
            durability,
            self.version.clone(),
            self.driver.id().map_or(Metered::Myself, Metered::Tree),
        )
    }

    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        let rate = match plan.pace {
            Pace::Closed => None,
            Pace::Open(rate) => Some(rate),
        };
        let filled = [ALWAYS_FILLED.name, EVERYSEC_FILLED.name].contains(&self.name);
        let (in_flight, seconds) = (plan.in_flight, plan.time.as_secs_f64());
        let slot = json!({ "in_flight": in_flight, "seconds": seconds, "rate": rate, "filled": filled });
        let answer: Answer = serde_json::from_str(&self.driver.ask(&slot.to_string()).await?)?;
        self.redis_calls = answer.redis_calls;
        let mut latency = load::histogram();
        for microseconds in &answer.latencies_us {
            latency.saturating_record(microseconds * 1000);
        }
        let elapsed = Duration::from_secs_f64(answer.seconds);
        Ok(Work { operations: answer.operations, elapsed, latency: (!filled).then_some(latency) })
    }

    fn redis_calls(&self) -> Option<u64> {
        Some(self.redis_calls)
    }

    async fn stop(self: Box<Self>) -> Result<()> {
        self.driver.stop().await
    }
}
