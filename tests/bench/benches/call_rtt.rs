//! B8: a durable call from one agent to another and back, in process and over MCP.

use anyhow::Result;
use futures::FutureExt;

use super::Bench;
use crate::harness::contender::Contender;
use crate::harness::report::{Case, Goal, Report};
use crate::harness::rounds::{self, Load};
use crate::harness::stats::Interval;
use crate::options::Options;
use crate::peers::{self, restate};
use crate::skein::calls::{InProcess, OverHttp};
use crate::skein::server::Node;

pub(super) const BENCH: Bench = Bench {
    name: "call_rtt",
    about: "an agent calls another and has its result, power-cut safe, in process and in four calls over MCP",
    run: |options| run(options).boxed(),
};

const IN_FLIGHT: [usize; 3] = [1, 32, 256];

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    let node = Node::start(&options.folder_for("skein-http")?).await?;
    let sides: [(&str, f64, Box<dyn Contender>); 2] = [
        ("in process", 4.0, Box::new(InProcess::open(&options.folder_for("skein")?)?)),
        ("over HTTP", 2.0, Box::new(OverHttp::new(&node))),
    ];
    for (side, bound, skein) in sides {
        let mut contenders = vec![skein];
        peers::add(&mut contenders, &mut report, &options, &[restate::RESTATE]).await?;
        for in_flight in IN_FLIGHT {
            let mut load = Load::new("call and result", in_flight).with_latencies();
            load.name = format!("{side}, {in_flight} in flight");
            report.cases.push(rounds::run(&load, &mut contenders, &options).await?);
        }
        for contender in contenders {
            contender.stop().await?;
        }
        let of_side = &report.cases[report.cases.len() - IN_FLIGHT.len()..];
        let goals = [
            Goal::at_least(
                format!("B8 rate to Restate {side}, 32 in flight"),
                bound,
                of_side[1].ratio("skein", "Restate"),
            ),
            Goal::at_most(format!("B8 median to Restate's {side}, one at a time"), 0.5, medians(&of_side[0])),
        ];
        report.goals.extend(goals);
    }
    Ok(report)
}

/// The ratio of the medians at half of each one's ceiling.
fn medians(case: &Case) -> Option<Interval> {
    let median = |label| Some(case.row(label)?.latency?.p50);
    Some(Interval::exactly(median("skein")? / median("Restate")?))
}
