//! What a firing asks of the pool, or of an agent.

use serde_json::json;
use uuid::Uuid;

use super::state::Schedule;
use crate::agent::{self, Agent, Class};
use crate::entity::Effect;
use crate::id::{EntityKey, Kind, Name};
use crate::pool::{self, Create, Fact, Pool, Rules, Source, Target, TaskSpec};
use crate::time::Timestamp;
use crate::wire;

/// The tag of the task of a run by hand, which stands last.
pub(super) const BY_HAND: &str = "manual-run";

/// What comes of an occurrence: a run of the agent whose definition has the times, or else a task.
pub(super) fn occurrence(schedule: &Schedule, id: Uuid, extra_tag: Option<&str>, swarm: &Name) -> Effect {
    let Some(agent) = &schedule.runs else {
        return TaskTemplate::new(schedule, id, extra_tag).effect(swarm);
    };
    let command = agent::Command::Enqueue {
        class: Class::Schedule,
        source: "schedule".to_owned(),
        receipt: None,
        input: json!({"type": "schedule", "schedule": schedule.name, "cron": schedule.cron, "timezone": schedule.zone}),
    };
    Effect::entity::<Agent>(EntityKey::agent(swarm, agent), &command)
}

/// The task that a firing makes.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskTemplate {
    /// Derived from the schedule and the nominal time: a repeat makes the same task.
    pub id: Uuid,
    pub task: String,
    pub task_type: Option<String>,
    pub tags: Vec<String>,
    pub priority: u8,
    pub model: Option<String>,
    pub target: Option<Uuid>,
    pub schedule: Uuid,
    pub creator: Option<Uuid>,
    /// It is made only if no other one of the schedule is left that has not ended. A run by hand is made all the same.
    pub alone: bool,
}

impl TaskTemplate {
    /// The task of an occurrence of `schedule`.
    pub fn new(schedule: &Schedule, id: Uuid, extra_tag: Option<&str>) -> Self {
        let mut tags = schedule.tags.clone();
        tags.push("scheduled".to_owned());
        tags.push(wire::tag(&format!("schedule:{}", schedule.name)));
        tags.extend(extra_tag.map(str::to_owned));
        Self {
            id,
            task: schedule.task.clone(),
            task_type: schedule.task_type.clone(),
            tags,
            priority: schedule.priority,
            model: schedule.model.clone(),
            target: schedule.target,
            schedule: schedule.id,
            creator: schedule.creator,
            alone: schedule.skip_if_active && extra_tag != Some(BY_HAND),
        }
    }

    /// The command for the swarm's pool.
    pub fn effect(&self, swarm: &Name) -> Effect {
        let target = match self.target {
            Some(agent) => Target::Assign { agent: Some(agent) },
            None => Target::Pool,
        };
        let spec = TaskSpec {
            id: Some(self.id),
            task_type: self.task_type.clone(),
            tags: self.tags.clone(),
            priority: self.priority,
            schedule: Some(self.schedule),
            model: self.model.clone(),
            source: Source::Schedule,
            ..TaskSpec::new(self.task.clone())
        };
        // The id is made for this task alone, so no task that ended long ago can have it.
        let facts = vec![Fact::unknown(self.id)];
        let rules = if self.alone { Rules::Alone } else { Rules::Plain };
        let create = Create { by: self.creator, spec, target, rules, facts };
        let command = pool::Command::Create(Box::new(create));
        Effect::entity::<Pool>(EntityKey::of(Kind::Pool, swarm), &command)
    }
}

/// The id of the task that an occurrence makes.
pub(super) fn task_id(schedule: Uuid, nominal: Timestamp) -> Uuid {
    Uuid::new_v5(&schedule, format!("at {}", nominal.millis()).as_bytes())
}

/// The id of the task that a run by hand makes.
pub(super) fn manual_task_id(schedule: Uuid, request: Uuid) -> Uuid {
    Uuid::new_v5(&schedule, format!("by {request}").as_bytes())
}
