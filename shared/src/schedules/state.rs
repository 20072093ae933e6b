//! What the swarm's schedules are.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::command::Create;
use super::fired::Stretch;
use crate::code::Refusal;
use crate::cron::Cron;
use crate::id::Name;
use crate::limits;
use crate::time::Timestamp;
use crate::wire;

/// All schedules of a swarm.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedules {
    pub(super) swarm: Name,
    pub(super) schedules: BTreeMap<Uuid, Schedule>,
    pub(super) ids: BTreeMap<String, Uuid>,
    /// When each schedule with a next run comes, earliest first.
    pub(super) wakes: BTreeSet<(Timestamp, Uuid)>,
    /// When each of those that recur was planned, by the wall clock of then.
    pub(super) plans: BTreeSet<(Timestamp, Uuid)>,
    /// When each of those that are done ran, the longest ago first.
    pub(super) done: BTreeSet<(Timestamp, Uuid)>,
    /// What the texts of all schedules come to, bytes.
    pub(super) bytes: usize,
    /// While the wall clock stands behind the entity's time: when to look again.
    pub(super) look_again: Timestamp,
}

/// One schedule. It is its document's head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    pub id: Uuid,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Made for one moment; it is done after it.
    pub one_time: bool,
    /// When a one-time schedule shall run; it outlives being disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moment: Option<Timestamp>,
    /// Wins over `interval_ms` where both are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u64>,
    /// IANA time zone of the cron expression.
    pub zone: String,
    pub task: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_type: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    pub priority: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The agent that gets the tasks; without one the pool does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creator: Option<Uuid>,
    /// The agent that runs instead of a task being made. Its definition has the times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<Name>,
    pub enabled: bool,
    /// No task is made while another one of it has not ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_if_active: bool,
    /// When the pool made no task for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_skipped: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<Timestamp>,
    /// The nominal time of the next occurrence; only an enabled schedule has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_run: Option<Timestamp>,
    /// Nominal times up to this one have fired. Later ones must be later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fired: Option<Timestamp>,
    /// Later ones that have fired as well, for which the wall clock may have been ahead; the earliest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) apart: Vec<Stretch>,
    /// The latest that fired was missed, or the clock was set back since: the next one stands apart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) leapt: bool,
    /// Refused occurrences since the last one that the pool took.
    #[serde(default)]
    pub errors: u32,
    /// The latest occurrence was refused. Until the next one, `errors` may still count.
    #[serde(default)]
    pub refused: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    pub created: Timestamp,
    pub updated: Timestamp,
}

impl Schedule {
    /// As it is asked for, with no run planned yet.
    pub(super) fn new(id: Uuid, create: Create, wall: Timestamp) -> Self {
        Self {
            id,
            name: create.name,
            description: create.description,
            one_time: create.one_time,
            moment: None,
            cron: create.cron,
            interval_ms: create.interval_ms,
            zone: create.zone,
            task: create.task,
            task_type: create.task_type,
            tags: create.tags,
            priority: create.priority,
            model: create.model,
            target: create.target,
            creator: create.creator,
            runs: None,
            enabled: create.enabled,
            skip_if_active: create.skip_if_active,
            last_skipped: None,
            last_run: None,
            next_run: None,
            fired: None,
            apart: Vec::new(),
            leapt: false,
            errors: 0,
            refused: false,
            last_error_at: None,
            last_error: None,
            created: wall,
            updated: wall,
        }
    }

    /// Ran and will not run again. A one-time schedule that was made disabled is not done.
    pub fn is_done(&self) -> bool {
        self.one_time && self.last_run.is_some()
    }

    /// When it ran, if it is done.
    pub(super) fn done(&self) -> Option<(Timestamp, Uuid)> {
        Some((self.last_run.filter(|_| self.is_done())?, self.id))
    }

    /// When it was planned, if it recurs. Whatever plans it notes the time, and whatever else does leaves a later one.
    pub(super) fn plan(&self) -> Option<(Timestamp, Uuid)> {
        (!self.one_time && self.next_run.is_some()).then_some((self.updated, self.id))
    }

    /// What its texts come to.
    pub(super) fn bytes(&self) -> usize {
        let texts = [&self.description, &self.last_error].into_iter().flatten().map(String::len);
        self.name.len()
            + self.task.len()
            + texts.sum::<usize>()
            + self.tags.iter().map(String::len).sum::<usize>()
    }

    pub(super) fn key(id: Uuid) -> String {
        format!("schedule/{id}")
    }

    /// The first nominal time after `wall` of a recurring schedule. Times that already fired are passed by,
    /// even when the wall clock has gone back before them.
    ///
    /// # Errors
    /// `invalid_argument` when the cron expression or its zone cannot be read.
    pub(super) fn occurrence(&self, wall: Timestamp) -> Result<Option<Timestamp>, Refusal> {
        if let Some(cron) = &self.cron {
            let cron = Cron::parse(cron, &self.zone, &self.id.to_string())?;
            return Ok(self.first_open(wall, |after| cron.next(after)));
        }
        let interval = self.interval_ms.map(Duration::from_millis);
        Ok(interval.and_then(|interval| self.first_open(wall, |after| Some(after + interval))))
    }

    /// The shape `Schedule` of Agent Swarm, with nulls for what is absent, and two fields more.
    pub(super) fn body(&self) -> Value {
        json!({
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "cronExpression": self.cron,
            "intervalMs": self.interval_ms,
            "taskTemplate": self.task,
            "taskType": self.task_type,
            "tags": self.tags,
            "priority": self.priority,
            "targetAgentId": self.target,
            "enabled": self.enabled,
            "lastRunAt": wire::iso(self.last_run),
            "nextRunAt": wire::iso(self.next_run),
            "createdByAgentId": self.creator,
            "timezone": self.zone,
            "consecutiveErrors": self.errors,
            "lastErrorAt": wire::iso(self.last_error_at),
            "lastErrorMessage": self.last_error,
            "model": self.model,
            "scheduleType": if self.one_time { "one_time" } else { "recurring" },
            "createdAt": self.created.iso(),
            "lastUpdatedAt": self.updated.iso(),
            "skipIfActive": self.skip_if_active.then_some(true),
            "lastSkippedAt": wire::iso(self.last_skipped),
        })
    }

    /// The same as clients see it.
    pub fn view(&self) -> Value {
        wire::shown(self.body(), &[])
    }
}

impl Schedules {
    pub(super) fn new(swarm: Name) -> Self {
        Self {
            swarm,
            schedules: BTreeMap::new(),
            ids: BTreeMap::new(),
            wakes: BTreeSet::new(),
            plans: BTreeSet::new(),
            done: BTreeSet::new(),
            bytes: 0,
            look_again: Timestamp::ZERO,
        }
    }

    /// Takes a schedule in, or what has become of it.
    pub(super) fn insert(&mut self, schedule: Schedule) {
        self.remove(schedule.id);
        self.ids.insert(schedule.name.clone(), schedule.id);
        self.wakes.extend(schedule.next_run.map(|at| (at, schedule.id)));
        self.plans.extend(schedule.plan());
        self.done.extend(schedule.done());
        self.bytes += schedule.bytes();
        self.schedules.insert(schedule.id, schedule);
    }

    pub(super) fn remove(&mut self, id: Uuid) -> Option<Schedule> {
        let schedule = self.schedules.remove(&id)?;
        self.ids.remove(&schedule.name);
        if let Some(at) = schedule.next_run {
            self.wakes.remove(&(at, id));
        }
        if let Some(plan) = schedule.plan() {
            self.plans.remove(&plan);
        }
        if let Some(done) = schedule.done() {
            self.done.remove(&done);
        }
        self.bytes -= schedule.bytes();
        Some(schedule)
    }

    /// Schedules whose time has come by the wall clock, earliest first, so many at most.
    pub(super) fn due(&self, wall: Timestamp, most: usize) -> impl Iterator<Item = &Schedule> {
        let come = self.wakes.iter().take_while(move |(at, _)| *at <= wall);
        come.take(most).filter_map(|(_, id)| self.schedules.get(id))
    }

    /// Recurring schedules that were planned by a later time than this, so many at most.
    pub(super) fn planned_after(&self, wall: Timestamp, most: usize) -> impl Iterator<Item = &Schedule> {
        let later = self.plans.range((Bound::Excluded((wall, Uuid::max())), Bound::Unbounded));
        later.take(most).filter_map(|(_, id)| self.schedules.get(id))
    }

    /// Those that are done and ran so long ago that nobody looks them up any more, so many at most.
    pub(super) fn outlived(&self, wall: Timestamp, most: usize) -> impl Iterator<Item = Uuid> {
        let old = self.done.iter().take_while(move |(at, _)| *at + limits::SCHEDULE_KEEP <= wall);
        old.take(most).map(|(_, id)| *id)
    }

    /// The next moment at which something is due.
    pub(super) fn earliest(&self) -> Option<Timestamp> {
        let wake = self.wakes.first().map(|(at, _)| *at);
        let outlived = self.done.first().map(|(at, _)| *at + limits::SCHEDULE_KEEP);
        wake.into_iter().chain(outlived).min()
    }
}
