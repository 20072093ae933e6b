//! Answers commands. Each file holds the rules of one subject.

mod calls;
mod define;
mod draft;
mod letters;
mod queue;
mod reports;
mod reruns;
mod runs;
mod spill;
mod standing;
mod tick;
mod waits;

use draft::Draft;
use waits::Manner;

use super::command::{Command, Overview, Reply};
use super::state::Agent;
use super::waits::Party;
use crate::code::Refusal;
use crate::entity::{Ctx, Decision};

pub(super) fn decide(agent: &Agent, command: &Command, ctx: &mut Ctx) -> Result<Decision<Agent>, Refusal> {
    let mut draft = Draft::new(agent, ctx);
    let reply = route(&mut draft, command)?;
    Ok(draft.done(reply))
}

fn route(draft: &mut Draft<'_>, command: &Command) -> Result<Reply, Refusal> {
    match command {
        Command::Define { definition, group } => draft.define(definition, group),
        Command::Undefine => Ok(draft.undefine()),
        Command::SetEnabled { enabled } => draft.set_enabled(*enabled),
        Command::SetPaused { paused } => draft.set_paused(*paused),
        Command::SetSwarmPaused { paused, word } => Ok(draft.set_swarm_paused(*paused, *word)),
        Command::SetScale { scale } => draft.set_scale(*scale),
        Command::Attach { instance, agent_id } => Ok(draft.attach(instance, *agent_id)),
        Command::Enqueue { class, source, receipt, input } => draft.enqueue(*class, source, *receipt, input),
        Command::Replay { letter } => draft.replay(letter),
        Command::RequestRerun { instance } => draft.request_rerun(instance),
        Command::Call { call, caller, context, noted } => draft.take_call(*call, caller, context, *noted),
        Command::CheckCall { call, instance } => draft.check_call(*call, instance),
        Command::CancelCall { call, instance } => draft.cancel_call(*call, instance),
        Command::CallerEnded { instance, cancel } => Ok(draft.caller_ended(instance, *cancel)),
        Command::NoteCallee { instance, target } => Ok(draft.note_callee(instance, target)),
        Command::NoteRefusedCall { call, instance, target, reason } => {
            draft.note_refused_call(*call, instance, target, reason)
        }
        Command::SetStatus { instance, text } => draft.set_status(instance, text),
        Command::ReturnValue { instance, value } => draft.return_value(instance, value),
        Command::BeginWait { instance, wait, filter, timeout_ms, broadcast, look_back, asked } => draft
            .begin_wait(
                instance,
                *wait,
                filter,
                *timeout_ms,
                Manner { broadcast: *broadcast, look_back: *look_back },
                *asked,
            ),
        Command::LookedBack { wait, found } => Ok(draft.looked_back(*wait, found.as_ref())),
        Command::CheckWait { instance, wait, asked } => draft.check_wait(instance, *wait, *asked),
        Command::AnswerLost { instance, asked, event } => {
            Ok(draft.answer_lost(instance, *asked, event.as_ref()))
        }
        Command::Trigger { wait, receipt, payload } => Ok(draft.trigger(*wait, *receipt, payload)),
        Command::WaitRegistered { wait } => Ok(draft.acknowledge(*wait, Party::Triggers)),
        Command::LocksExtended { wait } => Ok(draft.acknowledge(*wait, Party::Locks)),
        Command::LeasesExtended { wait } => Ok(draft.acknowledge(*wait, Party::Leases)),
        Command::Granted { bid, runner } => Ok(draft.granted(*bid, runner)),
        Command::GrantLost { bid, reason } => Ok(draft.grant_lost(*bid, reason)),
        Command::Report { instance, token, runner, what } => draft.report(instance, *token, runner, what),
        Command::RunnerLost { runner, instances } => Ok(draft.runner_lost(runner, instances)),
        Command::RunnerHolds { runner, held } => Ok(draft.runner_holds(runner, held)),
        Command::Kill { instance, reason } => draft.kill(instance, reason),
        Command::Complete { instance } => draft.complete(instance),
        Command::Finish { instance, code } => draft.finish(instance, *code),
        Command::Inspect { instance } => {
            let shown = draft.agent.at_work(draft.instance(instance)?);
            Ok(Reply::Instance(Box::new(shown)))
        }
        Command::List => Ok(Reply::Overview(Box::new(overview(&draft.agent)))),
        Command::Tick => Ok(draft.tick()),
    }
}

fn overview(agent: &Agent) -> Overview {
    let mut queue: Vec<_> = agent.queue.values().cloned().collect();
    queue.sort_by_key(|item| item.number);
    Overview {
        definition: agent.defined.as_ref().map(|defined| defined.definition.clone()),
        group: agent.defined.as_ref().map(|defined| defined.group.clone()),
        instances: agent.instances.values().cloned().collect(),
        queue,
        waits: agent.waits.values().cloned().collect(),
        standing: agent.standing.clone(),
        enabled: agent.is_enabled(),
        letters: agent.letters.len(),
    }
}
