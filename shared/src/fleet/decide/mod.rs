//! Answers commands. Whatever changes, the bids that now fit are granted in the same decision.

mod bids;
mod draft;
mod runners;

use draft::Draft;

use super::command::{BidView, Command, Overview, Reply, RunnerView};
use super::state::Fleet;
use crate::code::Refusal;
use crate::entity::{Ctx, Decision};
use crate::time::Timestamp;

pub(super) fn decide(fleet: &Fleet, command: &Command, ctx: &mut Ctx) -> Result<Decision<Fleet>, Refusal> {
    let mut draft = Draft::new(fleet, ctx);
    let reply = match command {
        Command::Register(registration) => draft.register(registration)?,
        Command::Attach { runner, held } => draft.attach(runner, held)?,
        Command::Leave { runner } => draft.leave(runner)?,
        Command::Bid { bid, swarm, agent, instance, class, scale, needs, affinity, prefers } => {
            draft.place(super::Bid {
                id: *bid,
                swarm: swarm.clone(),
                agent: agent.clone(),
                instance: instance.clone(),
                class: *class,
                scale: *scale,
                needs: needs.clone(),
                affinity: affinity.clone(),
                prefers: prefers.clone(),
                at: draft.now(),
            })
        }
        Command::Withdraw { bid, instance } => draft.withdraw(*bid, instance),
        Command::SlotFreed { instance, held } => draft.slot_freed(instance, *held),
        Command::Scale { swarm, scale } => draft.scale(swarm, *scale),
        Command::Drain { runner } => draft.drain(runner)?,
        Command::Knows { runner, identity } => {
            draft.known(runner)?;
            draft.must_be_the_same(runner, identity)?;
            return Ok(Decision::reply(Reply::Done));
        }
        Command::IsOffered { swarm, agent } => {
            let offered = fleet.runners.values().any(|runner| runner.offers(swarm.as_ref(), agent));
            return Ok(Decision::reply(Reply::Offered(offered)));
        }
        Command::Offers { runner, agent } => {
            let offered = draft.known(runner)?.offers(agent.swarm.as_ref(), &agent.agent);
            return Ok(Decision::reply(Reply::Offered(offered)));
        }
        Command::Tick => draft.tick(),
        Command::List => return Ok(Decision::reply(Reply::Overview(Box::new(overview(fleet, draft.now()))))),
    };
    draft.grant();
    Ok(draft.done(reply))
}

fn overview(fleet: &Fleet, now: Timestamp) -> Overview {
    let runner = |runner: &super::Runner| RunnerView {
        runner: runner.clone(),
        busy: fleet.busy(&runner.name),
        alive_until: fleet.alive_until.get(&runner.name).copied().unwrap_or_default(),
    };
    let bids = fleet.ordered_bids(now).into_iter();
    Overview {
        runners: fleet.runners.values().map(runner).collect(),
        places: fleet.places.values().cloned().collect(),
        scales: fleet.scales.clone(),
        bids: bids.map(|(rank, bid)| BidView { bid: bid.clone(), rank }).collect(),
    }
}
