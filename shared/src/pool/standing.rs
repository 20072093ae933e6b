//! Polls that stand open: a task for an agent that waits is started by the very decision that makes it, and so
//! costs one commit until it is there. All of this is memory: what is not known here goes the longer way, by
//! a wake-up and another poll.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::event::Event;
use super::state::{Pool, Status, Task};
use crate::entity::{Ctx, Poller};
use crate::limits;
use crate::time::Timestamp;

/// The open polls and what was handed to them.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing {
    /// The latest of each agent, and how long it stands at most: nobody says so if its end is lost on the way.
    polls: BTreeMap<Uuid, (Poller, Timestamp)>,
    /// Tasks that were started for an open poll, which has not come for them yet.
    handed: BTreeMap<Uuid, Uuid>,
}

impl Standing {
    pub(super) fn open(&mut self, poll: &Poller, now: Timestamp) {
        self.polls.insert(poll.agent, (poll.clone(), now + limits::POLL));
    }

    pub(super) fn close(&mut self, agent: Uuid, poll: Uuid) {
        if self.polls.get(&agent).is_some_and(|(open, _)| open.poll == poll) {
            self.polls.remove(&agent);
        }
    }

    /// Whether this poll is the one that the task was started for.
    pub(super) fn is_for(&self, task: Uuid, poll: Uuid) -> bool {
        self.handed.get(&task) == Some(&poll)
    }

    /// Follows an event: one open poll gets one task.
    pub(super) fn follow(&mut self, event: &Event) {
        if event.is_steering() {
            return;
        }
        let Some(task) = event.task() else { return };
        self.handed.remove(&task);
        if let Event::Started { agent, instance, .. } = event
            && let Some((open, _)) = self.polls.remove(agent)
            && open.instance == *instance
        {
            self.handed.insert(task, open.poll);
        }
    }
}

impl Pool {
    /// The start of a new task whose agent waits for just this. If another of its tasks can be started by now, it has
    /// been woken for that, and gets the one that comes first when it polls again.
    pub(super) fn hand_over(&self, id: Uuid, task: &Task, ctx: &Ctx) -> Option<Event> {
        let agent = task.agent.filter(|_| task.status == Status::Pending && task.is_ready())?;
        let member = self.members.get(&agent)?;
        let (open, _) = self.standing.polls.get(&agent).filter(|(_, until)| ctx.now < *until)?;
        let full = self.active(agent) >= member.max_tasks as usize;
        if full || self.indexes.next_for(agent).is_some() {
            return None;
        }
        Some(super::decide::work::start(id, task, agent, &open.instance, open.managed, ctx))
    }
}
