//! The rules: which command leads to which events.

mod create;
pub(super) mod ended;
mod expiry;
mod finish;
mod forge;
mod hear;
mod invariants;
mod mail;
mod members;
mod neglect;
mod news;
mod offers;
mod steer;
mod succession;
pub(super) mod untaken;
pub(super) mod work;

use std::collections::BTreeMap;

use serde_json::json;
use uuid::Uuid;

use super::command::{Command, Reply};
use super::event::Event;
use super::state::{Member, Pool, Status, Task};
use crate::code::{Code, Refusal};
use crate::entity::{Ctx, Decision, Effect};
use crate::epics::{self, Epics};
use crate::id::{EntityKey, Kind};
use crate::limits;
use crate::wire;

type Answer = Result<Decision<Pool>, Refusal>;

impl Pool {
    pub(super) fn answer(&self, command: &Command, ctx: &mut Ctx) -> Answer {
        match command {
            Command::Join(join) => self.decide_join(join, ctx),
            Command::Leave { agent } => self.decide_leave(*agent, ctx),
            Command::Offline { agent } => self.decide_offline(*agent, ctx),
            Command::Ping { agent, managed } => self.decide_ping(*agent, *managed, ctx),
            Command::SetCapacity { agent, max_tasks } => self.decide_capacity(*agent, *max_tasks, ctx),
            Command::Describe { agent, profile, before, edit } => {
                self.decide_describe(*agent, profile, before, edit.as_deref(), ctx)
            }
            Command::Create(create) => self.decide_create(create, ctx),
            Command::Steer { task, by, text } => self.decide_steer(*task, *by, text, ctx),
            Command::TakeSteering { agent, instance } => Ok(self.decide_take_steering(*agent, instance, ctx)),
            Command::SteeringLost { messages } => Ok(self.decide_steering_lost(messages)),
            Command::Survey => Ok(Decision::reply(Reply::Surveyed(self.survey()))),
            Command::Find { name } => self.decide_find(name),
            Command::Inspect { task } => Ok(Self::unchanged(*task, &self.live(*task)?)),
            Command::Poll { agent, instance, managed, last } => {
                let polled = self.decide_poll(*agent, instance, *managed, *last, ctx)?;
                Ok(self.awake(polled, *agent, *managed, ctx))
            }
            Command::Peek { agent, instance } => self.decide_peek(*agent, instance),
            Command::Review { agent } => self.decide_review(*agent, ctx),
            Command::Claim { agent, instance, managed, task } => {
                let claimed = self.decide_claim(*agent, instance, *managed, *task, ctx)?;
                Ok(self.awake(claimed, *agent, *managed, ctx))
            }
            Command::ClaimNext { agent, instance, managed, tags } => {
                let claimed = self.decide_claim_next(*agent, instance, *managed, tags, ctx)?;
                Ok(self.awake(claimed, *agent, *managed, ctx))
            }
            Command::Release { agent, task } => self.decide_release(*agent, *task, ctx),
            Command::Accept { agent, task } => self.decide_accept(*agent, *task, ctx),
            Command::Reject { agent, task, reason } => self.decide_reject(*agent, *task, reason, ctx),
            Command::ToBacklog { task, by } => self.decide_park(*task, *by, ctx),
            Command::FromBacklog { task, by } => self.decide_unpark(*task, *by, ctx),
            Command::Progress(progress) => self.decide_progress(progress, ctx),
            Command::Cancel { task, by, reason } => self.decide_cancel(*task, *by, reason, ctx),
            Command::Pause { task, by } => self.decide_pause(*task, *by, ctx),
            Command::Resume { task, by, instance, managed } => {
                self.decide_resume(*task, *by, instance, *managed, ctx)
            }
            Command::NoteSession { task, by, session } => self.decide_session(*task, *by, session, ctx),
            Command::AssignEpic { task, epic, by } => self.decide_epic(*task, Some(*epic), *by, ctx),
            Command::UnassignEpic { task, by } => self.decide_epic(*task, None, *by, ctx),
            Command::ExtendLease { instance, over: true, .. } => Ok(self.decide_shorten(instance, ctx)),
            Command::ExtendLease { instance, until, wait, reply_to, over: false } => {
                Ok(self.decide_extend(instance, *until, *wait, reply_to, ctx))
            }
            Command::EndInstance { instance, reason } => Ok(self.decide_end(instance, reason, ctx)),
            Command::Hear(said) => self.decide_hear(said, ctx),
            Command::Untaken { message, refusal } => self.decide_untaken(message, refusal, ctx),
            Command::Mail(mailed) => self.decide_mail(mailed, ctx),
            Command::Forge(activity) => self.decide_forge(activity, ctx),
            Command::Tick => Ok(self.decide_tick(ctx)),
        }
    }

    /// What the epics are told: every change of status of a task that belongs to one, and tasks that come
    /// to it (`from` null) or leave it (`to` null).
    pub(super) fn epic_progress(&self, events: &[Event]) -> Vec<Effect> {
        let mut now: BTreeMap<Uuid, (Option<Uuid>, Status)> = BTreeMap::new();
        let mut told = Vec::new();
        for event in events {
            if let Event::Created(created) = event {
                now.insert(created.task, (created.spec.epic, created.status));
                told.extend(
                    created.spec.epic.map(|e| self.task_changed(e, created.task, None, Some(created.status))),
                );
                continue;
            }
            let id = match (event, event.status()) {
                (Event::EpicSet { task, .. }, _) => *task,
                (_, Some((task, _))) => task,
                _ => continue,
            };
            let Some((epic, from)) =
                now.get(&id).copied().or_else(|| self.tasks.get(id).map(|task| (task.epic, task.status)))
            else {
                continue;
            };
            if let Event::EpicSet { epic: next, .. } = event {
                if epic != *next {
                    told.extend(epic.map(|old| self.task_changed(old, id, Some(from), None)));
                    told.extend(next.map(|new| self.task_changed(new, id, None, Some(from))));
                }
                now.insert(id, (*next, from));
            } else if let Some((_, to)) = event.status() {
                if from != to {
                    told.extend(epic.map(|epic| self.task_changed(epic, id, Some(from), Some(to))));
                }
                now.insert(id, (epic, to));
            }
        }
        told
    }

    fn task_changed(&self, epic: Uuid, task: Uuid, from: Option<Status>, to: Option<Status>) -> Effect {
        let status = |status: Option<Status>| status.map(|status| status.to_string());
        let command = epics::Command::TaskChanged { epic, task, from: status(from), to: status(to) };
        Effect::entity::<Epics>(EntityKey::of(Kind::Epics, &self.swarm), &command)
    }

    fn joined(&self, agent: Uuid) -> Result<&Member, Refusal> {
        self.members.get(&agent).ok_or_else(|| {
            Refusal::new(
                Code::NotJoined,
                format!("agent {agent} has not joined this swarm; call join-swarm with a name first"),
            )
        })
    }

    /// A task that has not ended. The refusal is not the last word: the caller may find the task among the
    /// ended ones and then asks [`ended::answer_for_ended`].
    fn live(&self, task: Uuid) -> Result<Task, Refusal> {
        self.tasks.get(task).ok_or_else(|| {
            Refusal::new(
                Code::NotFound,
                format!("there is no live task {task}; look for its id with get-tasks"),
            )
            .with(json!({ "task": task }))
        })
    }

    fn require_capacity(&self, agent: Uuid) -> Result<(), Refusal> {
        let member = self.joined(agent)?;
        let active = self.active(agent);
        if active < member.max_tasks as usize {
            return Ok(());
        }
        Err(Refusal::new(
            Code::NoCapacity,
            format!(
                "{} has no free capacity ({active}/{}): finish, release or pause a task first",
                member.name, member.max_tasks
            ),
        )
        .with(json!({ "current": active, "max": member.max_tasks })))
    }

    /// The decision that does `events` to one task, with the task as it then is.
    fn changed(&self, id: Uuid, task: &Task, events: Vec<Event>) -> Decision<Pool> {
        let view = after(task.clone(), &events).view(id);
        Decision::new(Reply::Task { task: view, repeated: false }, events)
    }

    fn unchanged(task: Uuid, head: &Task) -> Decision<Pool> {
        Decision::reply(Reply::Task { task: head.view(task), repeated: true })
    }
}

/// A task's head as `events` leave it: the same edits that `apply` makes.
fn after(mut task: Task, events: &[Event]) -> Task {
    for event in events {
        task.edit(event);
    }
    task
}

fn require_ready(id: Uuid, task: &Task) -> Result<(), Refusal> {
    if task.is_ready() {
        return Ok(());
    }
    let unmet = task.unmet();
    let broken = task.broken();
    let list = unmet.iter().map(Uuid::to_string).collect::<Vec<_>>().join(", ");
    let advice = if broken.is_empty() {
        "wait until they are completed"
    } else {
        "some of them failed or were cancelled and never will be: cancel this task or create it anew without them"
    };
    Err(Refusal::new(
        Code::Blocked,
        format!("task {id} depends on tasks that are not completed: {list}; {advice}"),
    )
    .with(json!({ "unmet": unmet, "blocked_by": broken })))
}

/// Why a task is cancelled or an offer rejected.
fn require_reason(reason: Option<&str>) -> Result<(), Refusal> {
    reason.map_or(Ok(()), |reason| wire::length("reason", reason, 0, limits::REASON))
}

fn wrong_state(id: Uuid, status: Status, doing: &str, allowed: &str) -> Refusal {
    Refusal::new(
        Code::WrongState,
        format!("task {id} is {status} and cannot be {doing}; that is possible while it is {allowed}"),
    )
    .with(json!({ "task": id, "status": status }))
}

fn not_yours(id: Uuid, doing: &str, who: &str) -> Refusal {
    Refusal::new(Code::Forbidden, format!("task {id} can only be {doing} by {who}"))
        .with(json!({ "task": id }))
}
