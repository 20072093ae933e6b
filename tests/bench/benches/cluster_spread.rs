//! What a cluster costs and buys on one machine: 64 swarms at one coordinator, and at three on the same processors.

use anyhow::Result;
use futures::FutureExt;

use super::Bench;
use crate::harness::contender::Contender;
use crate::harness::report::{Figure, Goal, Report};
use crate::harness::rounds::{self, Load};
use crate::harness::stats::Interval;
use crate::options::Options;
use crate::skein::coordinators::Coordinators;

pub(super) const BENCH: Bench = Bench {
    name: "cluster_spread",
    about: "create, claim, complete over MCP in 64 swarms, at three coordinators beside one",
    run: |options| run(options).boxed(),
};

const SWARMS: usize = 64;
const ONE: &str = "one coordinator";
const THREE: &str = "three coordinators";
/// The busiest of three even ones has chance's share more than the others.
const EVEN: f64 = 1.35;

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    let mut one = Coordinators::start(ONE, 1).await?;
    let mut three = Coordinators::start(THREE, 3).await?;
    let contenders: Vec<&mut (dyn Contender + 'static)> = vec![&mut one, &mut three];
    let load = Load::new("task cycle over MCP", SWARMS);
    report.cases.push(rounds::run_each(&load, contenders, &options).await?);
    let case = &report.cases[0];
    report.goals.push(Goal::at_least(
        "rate of three to one on the same processors",
        0.75,
        case.ratio(THREE, ONE),
    ));
    let busiest = three.busiest()?;
    report.figures.push(Figure::new("busiest node of three to an even share", "x", busiest));
    report.goals.push(Goal::at_most("busiest node to an even share", EVEN, Some(Interval::exactly(busiest))));
    Ok(report)
}
