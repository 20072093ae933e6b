//! Signs of life: they move deadlines in memory, and nothing that is written down.

use uuid::Uuid;

use crate::entity::Signal;
use crate::id::InstanceId;
use crate::limits;
use crate::pool::state::{Pool, Status};
use crate::time::Timestamp;

impl Pool {
    pub(in crate::pool) fn note_alive(&mut self, signal: &Signal, now: Timestamp) {
        match signal {
            Signal::RunnerAlive { instances, .. } => {
                for instance in instances {
                    let instance = InstanceId(instance.clone());
                    let tasks: Vec<Uuid> = self.indexes.of_instance(&instance).collect();
                    for task in tasks {
                        self.deadlines.renew(task, now + limits::TASK_LEASE_RUNNER);
                    }
                }
            }
            Signal::AgentsAlive { agents } => {
                for (agent, instance) in agents {
                    self.note_agent(*agent, instance, now);
                }
            }
            Signal::AgentPolls(poller) => self.standing.open(poller, now),
            Signal::AgentWent { agent, poll } => self.standing.close(*agent, *poll),
        }
    }

    /// A call speaks for the agent's own tasks without a runner and for what it paused; of a task that a
    /// runner watches it speaks only when the very instance calls.
    fn note_agent(&mut self, agent: Uuid, instance: &str, now: Timestamp) {
        let tasks: Vec<Uuid> = self.indexes.held_by(agent).collect();
        for id in tasks {
            let Some(task) = self.tasks.get(id) else { continue };
            match task.status {
                Status::Paused => self.deadlines.renew(id, now + limits::TASK_LEASE_AGENT),
                Status::InProgress if !task.managed => {
                    self.deadlines.renew(id, now + limits::TASK_LEASE_AGENT);
                }
                Status::InProgress if task.instance.as_ref().is_some_and(|i| i.as_str() == instance) => {
                    self.deadlines.renew(id, now + limits::TASK_LEASE_RUNNER);
                }
                _ => {}
            }
        }
    }
}
