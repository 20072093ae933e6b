//! A start that its runner cannot be sent, since it has no such agent: the run ends, for nothing behind the start would
//! reach the runner otherwise, and its slot would be taken for as long.

use skein_shared::agent::{self, Agent, Report};
use skein_shared::entity::RunnerCommand;
use skein_shared::fleet::{self, Fleet, Offer};
use skein_shared::id::{EntityKey, InstanceId};
use skein_shared::{Code, Refusal};
use tracing::warn;

use super::lane::World;
use super::lanes::Fate;
use crate::entity::{Entities, Request};
use crate::store::OutboxEntry;

/// Tells the agent that the start has failed, as its runner would have. When the fleet says that the runner does have
/// the agent, a stream of it has yet to hear so, and the start is tried again.
pub(super) async fn told(world: &World, runner: &str, entry: &OutboxEntry, command: &RunnerCommand) -> Fate {
    let RunnerCommand::Start { instance, agent, swarm, token, .. } = command else {
        return world.later(entry);
    };
    if is_offered(&world.entities, &entry.source, runner).await != Ok(false) {
        return world.later(entry);
    }
    let reason = format!(
        "the runner {runner} has no agent `{agent}` in the swarm `{swarm}` any more; define it there again, or run it anew"
    );
    warn!(runner, instance, reason, "a start was not sent");
    let report = agent::Command::Report {
        instance: InstanceId(instance.clone()),
        token: *token,
        runner: runner.to_owned(),
        what: Report::StartFailed { reason, usage: None },
    };
    let outcome = world.entities.ask::<Agent>(&entry.source, Request::read(), report).await;
    world.fate(entry, outcome.map(|_| ()))
}

/// Whether a runner has an agent, by what it has told the fleet. The fleet hears of a definition before any stream, and
/// no stream hears of one that the fleet has not.
async fn is_offered(entities: &Entities, agent: &EntityKey, runner: &str) -> Result<bool, Refusal> {
    let EntityKey { swarm, name: Some(name), .. } = agent else { return Ok(false) };
    let overview = entities.ask::<Agent>(agent, Request::read(), agent::Command::List).await?;
    let agent::Reply::Overview(overview) = overview else { return Ok(false) };
    // Nobody has it any more.
    let Some(group) = overview.group else { return Ok(false) };
    let asked = fleet::Command::Offers { runner: runner.to_owned(), agent: Offer::new(swarm, name) };
    match entities.ask::<Fleet>(&EntityKey::fleet(&group), Request::read(), asked).await {
        Ok(reply) => Ok(reply == fleet::Reply::Offered(true)),
        Err(refusal) if refusal.code == Code::NotFound => Ok(false),
        Err(refusal) => Err(refusal),
    }
}
