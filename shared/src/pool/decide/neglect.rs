//! Work that does not move though nobody died: started and not reported on, claimable and not claimed, or assigned and
//! not begun.

use uuid::Uuid;

use crate::entity::Ctx;
use crate::limits;
use crate::pool::creation::TaskSpec;
use crate::pool::event::Event;
use crate::pool::state::{Pool, Source, Task, Term};
use crate::time::Timestamp;

/// Stalled tasks that one triage task names.
const NAMED: usize = 50;
/// How urgent a triage is (spec: Agent Swarm 3.8).
const PRIORITY: u8 = 70;

impl Pool {
    /// Puts what stalled before the lead: once for each stall, all that stalled by now in one task. What the lead does
    /// itself it need not be told.
    pub(super) fn stalled(&self, ctx: &mut Ctx) -> Vec<Event> {
        if ctx.grace(Timestamp::ZERO, Term::Report.period()) > ctx.now {
            return Vec::new();
        }
        let due = self.reports.due(Term::Report, ctx.now);
        let due: Vec<(Uuid, Task)> = due.filter_map(|id| Some((id, self.tasks.get(id)?))).collect();
        let mut events: Vec<Event> =
            due.iter().map(|(task, _)| Event::Stalled { task: *task, since: ctx.now }).collect();
        events.extend(self.lead.and_then(|lead| self.triage(lead, &due, ctx)));
        events
    }

    /// Puts what has stalled before whoever comes to lead, the longest silent first: while nobody led, nobody was told.
    pub(super) fn stalled_until_now(&self, lead: Uuid, ctx: &mut Ctx) -> Option<Event> {
        let started = self.indexes.in_progress().filter_map(|id| Some((id, self.tasks.get(id)?)));
        let mut stalled: Vec<(Uuid, Task)> = started.filter(|(_, task)| task.stalled).collect();
        stalled.sort_by_key(|(_, task)| task.updated);
        self.triage(lead, &stalled, ctx)
    }

    /// None where all of it is the lead's own.
    fn triage(&self, lead: Uuid, stalled: &[(Uuid, Task)], ctx: &mut Ctx) -> Option<Event> {
        let stalled: Vec<&(Uuid, Task)> =
            stalled.iter().filter(|(_, task)| task.agent != Some(lead)).collect();
        if stalled.is_empty() {
            return None;
        }
        let line = |(id, task): &(Uuid, Task)| {
            let name = task.agent.and_then(|agent| self.members.get(&agent));
            let name = name.map_or("an agent", |member| member.name.as_str());
            format!("- {id}: with {name}, last report at {}", task.updated.iso())
        };
        let mut lines: Vec<String> = stalled.iter().take(NAMED).map(|stalled| line(stalled)).collect();
        if stalled.len() > NAMED {
            lines.push(format!("- and {} more", stalled.len() - NAMED));
        }
        let minutes = limits::TASK_STALL.as_secs() / 60;
        let mut spec = TaskSpec::new(format!(
            "There has been no report on these tasks for {minutes} minutes, though their agents live:\n{}\n\nLook at each with get-task-details; ask its agent with task_steer, or cancel it.",
            lines.join("\n")
        ));
        spec.task_type = Some("heartbeat".to_owned());
        spec.tags = ["heartbeat", "triage", "auto-generated"].map(str::to_owned).to_vec();
        spec.priority = PRIORITY;
        spec.source = Source::System;
        Some(self.news(lead, spec, ctx))
    }

    /// When the task that would be claimed next ought to have been.
    pub(in crate::pool) fn claim_due(&self) -> Option<Timestamp> {
        let first = self.tasks.get(self.indexes.best(&[])?)?;
        Some(first.claim_due().max(self.deadlines.serving_since() + limits::TASK_UNCLAIMED))
    }

    /// Notes that nobody takes the task that would be claimed next. The one alone: whoever comes takes it first.
    pub(super) fn neglected(&self, ctx: &Ctx) -> Option<Event> {
        let due = ctx.grace(self.claim_due()?, limits::TASK_UNCLAIMED);
        let task = self.indexes.best(&[]).filter(|_| due <= ctx.now)?;
        Some(Event::Unclaimed { task, again: ctx.now + limits::TASK_UNCLAIMED })
    }

    /// What an operator is told while such a task waits.
    pub(in crate::pool) fn unclaimed(&self) -> Option<String> {
        let waiting = self.indexes.unclaimed();
        let first = waiting.iter().filter_map(|id| Some((self.tasks.get(*id)?.created, id))).min()?;
        Some(format!(
            "nobody claims the work of swarm `{}`: task {} waits since {}; look whether its workers run, and at its tags",
            self.swarm,
            first.1,
            first.0.iso()
        ))
    }

    /// When an operator is to be told, for the first time or again, of agents that begin nothing though work waits for
    /// them.
    pub(in crate::pool) fn begin_due(&self) -> Option<Timestamp> {
        let first = self.idle.untold().next().map(|(since, _)| since + limits::TASK_UNCLAIMED);
        let due = first.into_iter().chain(self.idle.worst().map(|(_, again)| again)).min()?;
        Some(due.max(self.deadlines.serving_since() + limits::TASK_UNCLAIMED))
    }

    /// Notes for whom work waits in vain. Who has something in progress takes what waits when that is done.
    pub(super) fn idlers(&self, ctx: &Ctx) -> Vec<Event> {
        if ctx.grace(Timestamp::ZERO, limits::TASK_UNCLAIMED) > ctx.now {
            return Vec::new();
        }
        let due = self.idle.untold().take_while(|(since, _)| *since + limits::TASK_UNCLAIMED <= ctx.now);
        let told = self.idle.worst().filter(|(_, again)| *again <= ctx.now);
        let agents = due.map(|(_, agent)| agent).chain(told.map(|(agent, _)| agent));
        agents.map(|agent| Event::Unbegun { agent, again: ctx.now + limits::TASK_UNCLAIMED }).collect()
    }

    /// What an operator is told while work waits so.
    pub(in crate::pool) fn unbegun(&self) -> Option<String> {
        let (agent, _) = self.idle.worst()?;
        let task = self.indexes.next_for(agent)?;
        let since = self.tasks.get(task)?.created.iso();
        let name = self.members.get(&agent).map_or("an agent", |member| member.name.as_str());
        Some(format!(
            "agent {name} of swarm `{}` does not begin the work that is assigned to it: task {task} waits since {since}; look whether it runs or is busy with something else. If it does not come back, remove it from the swarm, which gives its tasks back to the pool",
            self.swarm
        ))
    }
}
