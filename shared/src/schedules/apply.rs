//! How events change the schedules and their documents.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::command::Command;
use super::effects::BY_HAND;
use super::event::Event;
use super::state::{Schedule, Schedules};
use super::{Reply, decide};
use crate::code::{Code, Refusal};
use crate::entity::{Changes, Corrupt, Ctx, Decision, Entity, LiveDocument};
use crate::id::{EntityKey, Kind};
use crate::json::Json;
use crate::pool::{self, Rules};
use crate::time::Timestamp;

/// The document that remembers when to look at the wall clock again.
const CLOCK: &str = "clock/behind";

#[derive(Serialize, Deserialize)]
struct Clock {
    look_again: Timestamp,
}

impl Entity for Schedules {
    const KIND: Kind = Kind::Schedules;
    type Command = Command;
    type Event = Event;
    type Reply = Reply;

    fn empty(key: &EntityKey) -> Self {
        Self::new(key.swarm.clone())
    }

    fn restore(&mut self, document: LiveDocument) -> Result<(), Corrupt> {
        match document.split().0 {
            "schedule" => self.insert(document.read()?),
            "clock" => self.look_again = document.read::<Clock>()?.look_again,
            _ => return Err(document.corrupt("schedules have no such document")),
        }
        Ok(())
    }

    fn decide(&self, command: &Command, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        decide::decide(self, command, ctx)
    }

    /// A firing that the pool or an agent refuses counts as an error of its schedule, unless it was to be skipped.
    fn refused(target: &EntityKey, command: &Json, refusal: &Refusal) -> Option<Command> {
        if let (Kind::Agent, Some(agent)) = (target.kind, &target.name) {
            return Some(Command::RunRefused { agent: agent.clone(), message: refusal.message.clone() });
        }
        let pool::Command::Create(create) = command.read().ok()? else { return None };
        let schedule = create.spec.schedule?;
        if create.rules == Rules::Alone && refusal.code == Code::Duplicate {
            return Some(Command::RunSkipped { schedule });
        }
        let by_hand = create.spec.tags.last().is_some_and(|tag| tag == BY_HAND);
        Some(Command::RunFailed { schedule, message: refusal.message.clone(), by_hand })
    }

    fn apply(&mut self, event: &Event, changes: &mut Changes) {
        match event {
            Event::Created { schedule } => {
                self.insert((**schedule).clone());
                changes.create(Schedule::key(schedule.id), schedule, schedule.body());
                self.look_at_once(changes);
            }
            Event::Updated { schedule } => {
                self.insert((**schedule).clone());
                self.put(schedule.id, changes);
                self.look_at_once(changes);
            }
            Event::Deleted { schedule } | Event::Forgotten { schedule } => {
                self.remove(*schedule);
                changes.delete(Schedule::key(*schedule));
            }
            Event::Fired { schedule, nominal, at, recovered, next, .. } => {
                self.change(*schedule, changes, |schedule| schedule.fire(*nominal, *recovered, *at, *next));
            }
            Event::Ran { schedule, at, .. } => {
                self.change(*schedule, changes, |schedule| schedule.run(*at));
            }
            Event::Failed { schedule, at, message, enabled, next, by_hand } => {
                self.change(*schedule, changes, |schedule| {
                    schedule.errors = schedule.errors.saturating_add(u32::from(!by_hand));
                    schedule.fail(*at, message, *enabled, *next);
                });
                self.look_at_once(changes);
            }
            Event::Skipped { schedule, at } => self.change(*schedule, changes, |schedule| {
                schedule.last_skipped = Some(*at);
                schedule.updated = schedule.updated.max(*at);
            }),
            Event::ClockBehind { look_again } => {
                self.look_again = *look_again;
                changes.put(CLOCK, &Clock { look_again: *look_again }, None);
            }
        }
    }

    /// The host looks at the wall as well, so that a wake is not late by what the wall clock is ahead.
    fn next_wake(&self) -> Option<Timestamp> {
        self.earliest().map(|next| next.max(self.look_again))
    }

    fn tick() -> Command {
        Command::Tick
    }

    fn asked(command: &Command) -> Option<Command> {
        if let Command::Denied(denied) = command {
            return Some(denied.asked::<Self>());
        }
        let mut asked = command.clone();
        asked.by()?.lead = false;
        Some(asked)
    }

    fn subject(event: &Event) -> Option<String> {
        match event {
            Event::Created { schedule } | Event::Updated { schedule } => Some(schedule.id.to_string()),
            Event::Deleted { schedule }
            | Event::Forgotten { schedule }
            | Event::Fired { schedule, .. }
            | Event::Ran { schedule, .. }
            | Event::Skipped { schedule, .. }
            | Event::Failed { schedule, .. } => Some(schedule.to_string()),
            Event::ClockBehind { .. } => None,
        }
    }

    fn check(&self) -> Result<(), String> {
        if self.ids.len() != self.schedules.len() {
            return Err("schedules: every name names one schedule".to_owned());
        }
        let wakes = self.schedules.values().filter_map(|schedule| Some((schedule.next_run?, schedule.id)));
        if !wakes.collect::<BTreeSet<_>>().eq(&self.wakes) {
            return Err("schedules: each next run is in the order of times".to_owned());
        }
        let plans = self.schedules.values().filter_map(Schedule::plan);
        if !plans.collect::<BTreeSet<_>>().eq(&self.plans) {
            return Err("schedules: it is known by which time each was planned".to_owned());
        }
        let done = self.schedules.values().filter_map(Schedule::done);
        if !done.collect::<BTreeSet<_>>().eq(&self.done) {
            return Err("schedules: those that ran and are done are in the order of times".to_owned());
        }
        if self.bytes != self.schedules.values().map(Schedule::bytes).sum::<usize>() {
            return Err("schedules: the texts are counted".to_owned());
        }
        for (id, schedule) in &self.schedules {
            if self.ids.get(&schedule.name) != Some(id) {
                return Err(format!("schedules: the name of {id} leads to it"));
            }
            if !schedule.enabled && schedule.next_run.is_some() {
                return Err(format!("schedules: {id} is disabled and has no next run"));
            }
            if schedule.next_run.is_some_and(|next| schedule.has_fired(next)) {
                return Err(format!("schedules: no nominal time of {id} comes twice"));
            }
        }
        Ok(())
    }
}

impl Schedules {
    fn change(&mut self, id: Uuid, changes: &mut Changes, change: impl FnOnce(&mut Schedule)) {
        let Some(mut schedule) = self.remove(id) else { return };
        change(&mut schedule);
        self.insert(schedule);
        self.put(id, changes);
    }

    /// What has another time may come before the moment at which a wall clock that stands behind is looked at again.
    fn look_at_once(&mut self, changes: &mut Changes) {
        if self.look_again != Timestamp::ZERO {
            self.look_again = Timestamp::ZERO;
            changes.delete(CLOCK);
        }
    }

    fn put(&self, id: Uuid, changes: &mut Changes) {
        let Some(schedule) = self.schedules.get(&id) else { return };
        changes.put(Schedule::key(id), schedule, Some(schedule.body().into()));
    }
}

impl Schedule {
    fn fire(&mut self, nominal: Timestamp, recovered: bool, at: Timestamp, next: Option<Timestamp>) {
        self.note_fired(nominal, recovered);
        self.next_run = next;
        self.run(at);
        self.updated = at;
    }

    fn run(&mut self, at: Timestamp) {
        // The pool's refusal of an occurrence arrives well before the next one: no refusal means success.
        if !self.refused {
            self.errors = 0;
            self.last_error = None;
            self.last_error_at = None;
        }
        self.refused = false;
        self.last_run = Some(at);
        self.updated = self.updated.max(at);
        if self.one_time {
            self.enabled = false;
            self.next_run = None;
        }
    }

    fn fail(&mut self, at: Timestamp, message: &str, enabled: bool, next: Option<Timestamp>) {
        self.refused = true;
        self.last_error_at = Some(at);
        self.last_error = Some(message.to_owned());
        self.enabled = enabled;
        // What leaves the plan alone hides no clock that was ahead when it was made.
        self.updated = if next == self.next_run { self.updated.max(at) } else { at };
        self.next_run = next;
    }
}
