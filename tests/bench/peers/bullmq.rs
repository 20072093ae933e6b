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
    Peer { name: "BullMQ always", start: |options| start(options, Fsync::Always).boxed() };

/// Redis flushes its log once a second.
pub(crate) const EVERYSEC: Peer =
    Peer { name: "BullMQ everysec", start: |options| start(options, Fsync::EverySecond).boxed() };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fsync {
    Always,
    EverySecond,
}

struct BullMq {
    driver: Dialog,
    fsync: Fsync,
    version: String,
    redis_calls: u64,
}

/// What the driver says of a slot.
#[derive(Deserialize)]
struct Answer {
    seconds: f64,
    latencies_us: Vec<u64>,
    redis_calls: u64,
}

async fn start(options: Options, fsync: Fsync) -> Result<Box<dyn Contender>> {
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
    Ok(Box::new(BullMq { driver, fsync, version, redis_calls: 0 }))
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
        let (peer, durability) = match self.fsync {
            Fsync::Always => (ALWAYS, Durability::PowerCut),
            Fsync::EverySecond => (EVERYSEC, Durability::Lazy),
        };
        Card::peer(
            peer.name,
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
        let slot = json!({ "in_flight": plan.in_flight, "seconds": plan.time.as_secs_f64(), "rate": rate });
        let answer: Answer = serde_json::from_str(&self.driver.ask(&slot.to_string()).await?)?;
        self.redis_calls = answer.redis_calls;
        let mut latency = load::histogram();
        for microseconds in &answer.latencies_us {
            latency.saturating_record(microseconds * 1000);
        }
        let elapsed = Duration::from_secs_f64(answer.seconds);
        Ok(Work { operations: latency.len(), elapsed, latency: Some(latency) })
    }

    fn redis_calls(&self) -> Option<u64> {
        Some(self.redis_calls)
    }

    async fn stop(self: Box<Self>) -> Result<()> {
        self.driver.stop().await
    }
}
