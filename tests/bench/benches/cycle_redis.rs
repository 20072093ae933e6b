//! B3: a task is created, claimed and completed in Redis, at both of its durabilities.

use anyhow::Result;
use futures::FutureExt;

use super::Bench;
use crate::harness::contender::Contender;
use crate::harness::report::{Goal, Report};
use crate::harness::rounds::{self, Load};
use crate::options::Options;
use crate::peers::{self, bullmq};
use crate::skein::embedded;
use crate::skein::over_redis::{Fsync, OverRedis, Scripts};

pub(super) const BENCH: Bench = Bench {
    name: "cycle_redis",
    about: "create, claim, complete over Redis, beside its own scripts and BullMQ",
    run: |options| run(options).boxed(),
};

const CLIENTS: usize = 32;
/// Of the rate of its own scripts.
const SHARE_OF_SCRIPTS: f64 = 0.80;

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    let always = Class {
        fsync: Fsync::Always,
        label: "skein always",
        without_keys: "skein always, no keys",
        peers: [(bullmq::ALWAYS_FILLED, 1.0), (bullmq::ALWAYS, 2.5)],
    };
    let everysec = Class {
        fsync: Fsync::EverySecond,
        label: "skein everysec",
        without_keys: "skein everysec, no keys",
        peers: [(bullmq::EVERYSEC_FILLED, 1.5), (bullmq::EVERYSEC, 3.5)],
    };
    for class in [always, everysec] {
        at(&options, &mut report, class).await?;
    }
    Ok(report)
}

/// What runs at one durability.
struct Class {
    fsync: Fsync,
    label: &'static str,
    /// No answers are kept for repeats, as the peers keep none.
    without_keys: &'static str,
    /// With the least ratio to each.
    peers: [(peers::Peer, f64); 2],
}

async fn at(options: &Options, report: &mut Report, class: Class) -> Result<()> {
    let Class { fsync, label, without_keys, peers } = class;
    let folder = |name: &str| options.folder_for(&format!("{name} {label}"));
    let mut contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(
            Scripts::open("scripts", &folder("scripts")?, (embedded::cycle, embedded::CYCLE_STEPS), fsync)
                .await?,
        ),
        Box::new(OverRedis::open(label, &folder("kernel")?, embedded::cycle, fsync).await?),
        Box::new(
            OverRedis::open(without_keys, &folder("no keys")?, embedded::cycle_without_keys, fsync).await?,
        ),
    ];
    let beside_peers = peers.each_ref().map(|(peer, bound)| (peer.name, *bound));
    peers::add(&mut contenders, report, options, &peers.map(|(peer, _)| peer)).await?;
    let case = rounds::run(&Load::new("task cycle", CLIENTS), &mut contenders, options).await?;
    for contender in contenders {
        contender.stop().await?;
    }
    let goals = std::iter::once((label, "scripts", SHARE_OF_SCRIPTS))
        .chain(beside_peers.map(|(peer, bound)| (label, peer, bound)))
        .chain(beside_peers.map(|(peer, bound)| (without_keys, peer, bound)));
    for (ours, to, bound) in goals {
        report.goals.push(Goal::at_least(format!("B3 {ours} to {to}"), bound, case.ratio(ours, to)));
    }
    report.cases.push(case);
    Ok(())
}
