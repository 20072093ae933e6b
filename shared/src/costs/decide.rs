//! The rules of costs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use uuid::Uuid;

use super::command::{Command, Reply, Report, Sums, Wanted};
use super::event::Event;
use super::state::{Costs, Sum};
use crate::code::Refusal;
use crate::day::Day;
use crate::entity::{Ctx, Decision};
use crate::wire;

/// Longest name of a session, characters.
const SESSION: usize = 200;

pub(super) fn decide(state: &Costs, command: &Command, ctx: &mut Ctx) -> Result<Decision<Costs>, Refusal> {
    match command {
        Command::Report(report) => note(report, ctx),
        Command::Sum(wanted) => Ok(Decision::reply(state.sum(*wanted))),
        Command::Tick => Ok(Decision::reply(Reply::Done)),
    }
}

fn note(report: &Report, ctx: &mut Ctx) -> Result<Decision<Costs>, Refusal> {
    wire::length("sessionId", &report.session, 1, SESSION)?;
    report.cost.check()?;
    let (id, at) = (ctx.id(), ctx.now);
    let reply = Reply::Reported(wire::shown(report.body(id, at), &["taskId"]));
    Ok(Decision::new(reply, vec![Event::CostReported { id, report: Box::new(report.clone()), at }]))
}

impl Costs {
    fn sum(&self, wanted: Wanted) -> Reply {
        let (mut all, mut days) = (Sum::default(), BTreeMap::<Day, Sum>::new());
        let mut agents = BTreeMap::<Uuid, Sum>::new();
        for (day, agent, sum) in self.wanted(wanted) {
            all.add(sum);
            days.entry(day).or_default().add(sum);
            agents.entry(agent).or_default().add(sum);
        }
        let mut agents: Vec<(Uuid, Sum)> = agents.into_iter().collect();
        agents.sort_by_key(|(agent, sum)| (Reverse(sum.cost_micros), *agent));
        Reply::Sums(Sums { all, days: days.into_iter().collect(), agents })
    }
}
