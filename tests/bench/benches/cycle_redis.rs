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

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    let always = [(bullmq::ALWAYS_FILLED, 1.0), (bullmq::ALWAYS, 2.5)];
    let everysec = [(bullmq::EVERYSEC_FILLED, 1.5), (bullmq::EVERYSEC, 3.5)];
    at(&options, &mut report, Fsync::Always, "skein always", always).await?;
    at(&options, &mut report, Fsync::EverySecond, "skein everysec", everysec).await?;
    Ok(report)
}

async fn at(
    options: &Options,
    report: &mut Report,
    fsync: Fsync,
    label: &'static str,
    peers: [(peers::Peer, f64); 2],
) -> Result<()> {
    let folder = |name: &str| options.folder_for(&format!("{name} {label}"));
    let mut contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(
            Scripts::open("scripts", &folder("scripts")?, (embedded::cycle, embedded::CYCLE_STEPS), fsync)
                .await?,
        ),
        Box::new(OverRedis::open(label, &folder("kernel")?, embedded::cycle, fsync).await?),
    ];
    let goals: Vec<_> = peers.iter().map(|(peer, bound)| (peer.name, *bound)).collect();
    peers::add(&mut contenders, report, options, &peers.map(|(peer, _)| peer)).await?;
    let case = rounds::run(&Load::new("task cycle", CLIENTS), &mut contenders, options).await?;
    for contender in contenders {
        contender.stop().await?;
    }
    for (to, bound) in [("scripts", 0.80)].into_iter().chain(goals) {
        report.goals.push(Goal::at_least(format!("B3 {label} to {to}"), bound, case.ratio(label, to)));
    }
    report.cases.push(case);
    Ok(())
}
