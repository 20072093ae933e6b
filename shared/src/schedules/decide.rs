//! The rules of schedules.

use std::ops::Bound;
use std::time::Duration;

use uuid::Uuid;

use super::check::{check, interval, template, timing};
use super::command::{Command, Create, Reply, Update};
use super::effects::{BY_HAND, manual_task_id, occurrence, task_id};
use super::event::Event;
use super::state::{Schedule, Schedules};
use crate::caller::Caller;
use crate::code::{Code, Refusal};
use crate::entity::{Ctx, Decision};
use crate::json;
use crate::mutation::{self, Mutation};
use crate::slice::Slice;
use crate::time::Timestamp;
use crate::which::Which;

/// Most schedules of a swarm.
const SCHEDULES: usize = 100_000;
/// What their texts, which stay in memory, may come to, bytes.
const TEXTS: usize = 64 << 20;
/// Most schedules that a list shows.
const LISTED: usize = 1000;
/// Most schedules that one tick fires, plans anew or forgets. The others follow with the next, so that nobody waits for
/// all of them.
const AT_ONCE: usize = 256;
/// Longest error message that is kept, characters.
pub(super) const ERROR: usize = 500;
/// An occurrence that is later than this was missed, not slow.
const MISSED: Duration = Duration::from_secs(15);
/// How long a schedule rests after its first, second, … refusal in a row.
const BACK_OFF: [Duration; 5] = [
    Duration::from_secs(60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(15 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(60 * 60),
];
/// A recurring schedule with so many refusals in a row is disabled.
const ERRORS_MAX: u32 = 5;
/// How often a wall clock that stands behind is looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

pub(super) fn decide(
    state: &Schedules,
    command: &Command,
    ctx: &mut Ctx,
) -> Result<Decision<Schedules>, Refusal> {
    match command {
        Command::Create(create) => state.create(create, ctx),
        Command::Update(update) => state.update(update, ctx),
        Command::Delete { which, by } => state.delete(which, *by),
        Command::SetEnabled { which, by, enabled } => {
            let update = Update { enabled: Some(*enabled), ..Update::new(which.clone(), *by) };
            state.update(&update, ctx)
        }
        Command::RunNow { which, by } => state.run_now(which, *by, ctx),
        Command::List { enabled, name, one_time, hide_completed, soonest, after } => {
            Ok(state.list(*enabled, name.as_deref(), *one_time, *hide_completed, *soonest, after))
        }
        Command::Follow { agent, cron, zone } => state.follow(agent, cron.as_deref(), zone, ctx),
        Command::RunFailed { schedule, message, by_hand } => {
            Ok(state.run_failed(*schedule, message, *by_hand, ctx))
        }
        Command::RunSkipped { schedule } => Ok(state.run_skipped(*schedule, ctx)),
        Command::RunRefused { agent, message } => Ok(state.run_refused(agent, message, ctx)),
        Command::Denied(denied) => Err(denied.refusal.clone()),
        Command::Tick => Ok(state.tick_due(ctx)),
    }
}

impl Schedules {
    fn find(&self, which: &Which) -> Result<&Schedule, Refusal> {
        let id = match which {
            Which::Id(id) => Some(id),
            Which::Name(name) => self.ids.get(name),
        };
        id.and_then(|id| self.schedules.get(id)).ok_or_else(|| {
            Refusal::new(
                Code::NotFound,
                format!("there is no schedule `{which}`; list-schedules shows those there are"),
            )
        })
    }

    fn name_is_free(&self, name: &str, own: Option<Uuid>) -> Result<(), Refusal> {
        match self.ids.get(name) {
            Some(&id) if Some(id) != own => Err(Refusal::new(
                Code::AlreadyExists,
                format!("a schedule named `{name}` exists; choose another name or update that one"),
            )),
            _ => Ok(()),
        }
    }

    fn create(&self, create: &Create, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        let moment = timing(create, ctx.wall)?;
        template(Some(&create.task))?;
        let schedule = Schedule { moment, ..Schedule::new(ctx.id(), create.clone(), ctx.wall) };
        self.add(schedule, ctx.wall)
    }

    /// Takes in a new schedule.
    pub(super) fn add(&self, schedule: Schedule, wall: Timestamp) -> Result<Decision<Self>, Refusal> {
        check(&schedule)?;
        self.name_is_free(&schedule.name, None)?;
        let gone = self.make_room(&schedule)?;
        let added = stored(planned(schedule, wall, false)?, |schedule| Event::Created { schedule });
        Ok(after(gone, added))
    }

    /// What gives way to a new schedule, or to a longer text of a known one: of those that ran and are done the oldest,
    /// as many as it takes.
    fn make_room(&self, schedule: &Schedule) -> Result<Vec<Event>, Refusal> {
        let known = self.schedules.get(&schedule.id);
        let (before, after) = (known.map_or(0, Schedule::bytes), schedule.bytes());
        let mut count = self.schedules.len() + usize::from(known.is_none());
        let mut bytes = self.bytes - before + after;
        let (mut gone, mut oldest) = (Vec::new(), self.done.iter());
        loop {
            let many = known.is_none() && count > SCHEDULES;
            let long = after > before && bytes > TEXTS;
            if !many && !long {
                return Ok(gone);
            }
            let done = oldest.next().and_then(|(_, id)| self.schedules.get(id));
            let done = done.ok_or_else(|| if many { too_many() } else { too_long() })?;
            (count, bytes) = (count - 1, bytes - done.bytes());
            gone.push(Event::Forgotten { schedule: done.id });
        }
    }

    fn update(&self, update: &Update, ctx: &Ctx) -> Result<Decision<Self>, Refusal> {
        let before = self.find(&update.which)?;
        update.by.may_change("schedule", &[before.creator])?;
        if !update.only_enables() {
            before.is_nobodys_definition()?;
        }
        if before.is_done() {
            return Err(Refusal::new(
                Code::WrongState,
                format!("the one-time schedule `{}` has run; create a new one", before.name),
            ));
        }
        let mut changed = changed(before, update, ctx.wall)?;
        check(&changed)?;
        self.name_is_free(&changed.name, Some(changed.id))?;
        let gone = self.make_room(&changed)?;
        let enabled_again = changed.enabled && !before.enabled;
        if enabled_again {
            changed.errors = 0;
            changed.refused = false;
        }
        let timing = update.cron.is_some()
            || update.interval_ms.is_some()
            || update.zone.is_some()
            || update.run_at.is_some();
        let keep = !timing && !enabled_again;
        if keep {
            changed.updated = before.updated.max(ctx.wall);
        }
        let changed = planned(changed, ctx.wall, keep)?;
        Ok(after(gone, stored(changed, |schedule| Event::Updated { schedule })))
    }

    fn delete(&self, which: &Which, by: Caller) -> Result<Decision<Self>, Refusal> {
        let schedule = self.find(which)?;
        by.may_change("schedule", &[schedule.creator])?;
        schedule.is_nobodys_definition()?;
        let reply = Reply::Deleted { id: schedule.id, name: schedule.name.clone() };
        Ok(Decision::new(reply, vec![Event::Deleted { schedule: schedule.id }]))
    }

    fn run_now(&self, which: &Which, by: Caller, ctx: &Ctx) -> Result<Decision<Self>, Refusal> {
        let schedule = self.find(which)?;
        by.may_change("schedule", &[schedule.creator])?;
        if schedule.is_done() {
            return Err(Refusal::new(
                Code::WrongState,
                format!("the one-time schedule `{}` has run; create a new one", schedule.name),
            ));
        }
        if !schedule.enabled {
            return Err(Refusal::new(
                Code::Disabled,
                format!("the schedule `{}` is disabled; enable it with update-schedule first", schedule.name),
            ));
        }
        let task = manual_task_id(schedule.id, ctx.request);
        let effect = occurrence(schedule, task, Some(BY_HAND), &self.swarm);
        let mut after = schedule.clone();
        after.last_run = Some(ctx.wall);
        if after.one_time {
            after.enabled = false;
            after.next_run = None;
        }
        let event = Event::Ran { schedule: schedule.id, at: ctx.wall, task };
        let agent = after.runs.clone();
        let reply = Reply::Ran { schedule: after.view(), task: agent.is_none().then_some(task), agent };
        Ok(Decision::new(reply, vec![event]).effects(vec![effect]))
    }

    fn list(
        &self,
        enabled: Option<bool>,
        name: Option<&str>,
        one_time: Option<bool>,
        hide_completed: bool,
        soonest: bool,
        after: &str,
    ) -> Decision<Self> {
        let wanted = |schedule: &&Schedule| {
            enabled.is_none_or(|enabled| enabled == schedule.enabled)
                && name.is_none_or(|part| schedule.name.contains(part))
                && one_time.is_none_or(|one_time| one_time == schedule.one_time)
                && !(hide_completed && schedule.is_done())
        };
        let by_time = self.wakes.iter().map(|(_, id)| id).filter(|_| soonest);
        let behind = self.ids.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
        let by_name = behind.map(|(_, id)| id).filter(|_| !soonest);
        let mut found = by_time.chain(by_name).filter_map(|id| self.schedules.get(id)).filter(wanted);
        let schedules = found.by_ref().take(LISTED).map(Schedule::view).collect();
        Decision::reply(Reply::List { schedules, left_out: found.count() })
    }

    /// A refusal may arrive after the schedule is gone; then nothing is left to do. That of a run by hand leaves the
    /// usual times as they are.
    fn run_failed(&self, schedule: Uuid, message: &str, by_hand: bool, ctx: &Ctx) -> Decision<Self> {
        let Some(schedule) = self.schedules.get(&schedule) else { return Decision::reply(Reply::Done) };
        let (enabled, next) = match by_hand {
            true => (schedule.enabled, schedule.next_run),
            false => after_refusal(schedule, ctx.wall),
        };
        let event = Event::Failed {
            schedule: schedule.id,
            at: ctx.wall,
            message: message.chars().take(ERROR).collect(),
            enabled,
            next,
            by_hand,
        };
        Decision::new(Reply::Done, vec![event])
    }

    /// One that does not fire is no failure. It may be gone by then.
    fn run_skipped(&self, schedule: Uuid, ctx: &Ctx) -> Decision<Self> {
        let skipped = Event::Skipped { schedule, at: ctx.wall };
        let known = self.schedules.contains_key(&schedule);
        Decision::new(Reply::Done, known.then_some(skipped).into_iter().collect())
    }

    /// Fires due schedules once, however many of their times have passed, and goes on from now; so do those that were
    /// planned by a clock that was ahead for a while. Forgets what ran long ago.
    fn tick_due(&self, ctx: &Ctx) -> Decision<Self> {
        let (mut events, mut effects) = (Vec::new(), Vec::new());
        let mut slice = Slice::default();
        for schedule in self.due(ctx.wall, AT_ONCE).take_while(|schedule| slice.takes(written(schedule))) {
            let Some(nominal) = schedule.next_run else { continue };
            let task = task_id(schedule.id, nominal);
            let recovered = ctx.wall.since(nominal) >= MISSED;
            effects.push(occurrence(schedule, task, recovered.then_some("recovered"), &self.swarm));
            let at = ctx.wall;
            let (next, failed) = following(schedule, nominal, at);
            events.push(Event::Fired { schedule: schedule.id, nominal, at, task, recovered, next });
            events.extend(failed);
        }
        let ahead = self.planned_after(ctx.wall + MISSED, AT_ONCE);
        let ahead = ahead.take_while(|schedule| slice.takes(written(schedule)));
        events.extend(ahead.filter_map(|schedule| planned_anew(schedule, ctx.wall)));
        let outlived = self.outlived(ctx.wall, AT_ONCE).take_while(|_| slice.takes(0));
        events.extend(outlived.map(|schedule| Event::Forgotten { schedule }));
        if events.is_empty() {
            return self.wait_for_the_clock(ctx);
        }
        Decision::new(Reply::Done, events).effects(effects)
    }

    /// The timer goes by the entity's time, which never goes back; the wall clock may have. Then the timer
    /// moves on until the wall clock has caught up.
    fn wait_for_the_clock(&self, ctx: &Ctx) -> Decision<Self> {
        let Some(next) = self.earliest() else { return Decision::reply(Reply::Done) };
        if next.max(self.look_again) > ctx.now {
            return Decision::reply(Reply::Done);
        }
        let look_again = ctx.now + next.since(ctx.wall).min(LOOK_AGAIN);
        Decision::new(Reply::Done, vec![Event::ClockBehind { look_again }])
    }
}

/// What follows the occurrence at `nominal`. An expression that can no longer be read (its time zone may have
/// left the database) disables its schedule instead of holding up the others.
fn following(schedule: &Schedule, nominal: Timestamp, at: Timestamp) -> (Option<Timestamp>, Option<Event>) {
    if mutation::is_on(Mutation::FireAgain) {
        return (Some(nominal), None);
    }
    if schedule.one_time {
        return (None, None);
    }
    match schedule.occurrence(at) {
        Ok(next) => (next, None),
        Err(refusal) => {
            let message = refusal.message.chars().take(ERROR).collect();
            let (schedule, enabled, next) = (schedule.id, false, None);
            let failed = Event::Failed { schedule, at, message, enabled, next, by_hand: false };
            (None, Some(failed))
        }
    }
}

/// Whether a schedule goes on after an occurrence of it was refused, and when it tries again.
fn after_refusal(schedule: &Schedule, wall: Timestamp) -> (bool, Option<Timestamp>) {
    let errors = schedule.errors.saturating_add(1);
    let enabled = schedule.enabled && !schedule.one_time && errors < ERRORS_MAX;
    let rest = BACK_OFF[(errors as usize - 1).min(BACK_OFF.len() - 1)];
    let again = schedule.first_open(wall, |after| Some(after + rest));
    (enabled, again.filter(|_| enabled))
}

/// What a tick writes of a schedule that it fires or plans anew: its text stands in the head and in the body of its
/// document, and in the task that is asked for or in the event.
fn written(schedule: &Schedule) -> usize {
    3 * json::length(schedule)
}

/// The schedule as it goes on from now. No occurrence comes twice: those that have fired are passed by, and what fires
/// from now on stands apart from them.
fn planned_anew(schedule: &Schedule, wall: Timestamp) -> Option<Event> {
    let next_run = schedule.occurrence(wall).ok()?;
    let schedule = Box::new(Schedule { next_run, updated: wall, leapt: true, ..schedule.clone() });
    schedule.next_run.is_some().then_some(Event::Updated { schedule })
}

/// The schedule with the update's changes, its times not yet planned.
fn changed(before: &Schedule, update: &Update, wall: Timestamp) -> Result<Schedule, Refusal> {
    let moved = update.cron.is_some() || update.interval_ms.is_some();
    if before.one_time && moved {
        return Err(Refusal::new(
            Code::InvalidArgument,
            "a one_time schedule has no cronExpression or intervalMs; create a recurring one instead",
        ));
    }
    if before.cron.is_some() && update.cron.is_none() && update.interval_ms.is_some() {
        return Err(goes_by_cron(&before.name));
    }
    interval(update.interval_ms)?;
    template(update.task.as_deref())?;
    if !before.one_time && update.run_at.is_some() {
        return Err(Refusal::new(
            Code::InvalidArgument,
            "a recurring schedule has no runAt; change cronExpression or intervalMs",
        ));
    }
    if update.run_at.is_some_and(|at| at <= wall) {
        return Err(Refusal::new(
            Code::InvalidArgument,
            "runAt lies in the past; give a time that is still to come",
        ));
    }
    let mut after = before.clone();
    let update = update.clone();
    set(&mut after.name, update.new_name);
    set(&mut after.task, update.task);
    set(&mut after.tags, update.tags);
    set(&mut after.priority, update.priority);
    set(&mut after.zone, update.zone);
    set(&mut after.enabled, update.enabled);
    set(&mut after.skip_if_active, update.skip_if_active);
    set(&mut after.target, update.target);
    set(&mut after.model, update.model);
    after.cron = update.cron.or(after.cron);
    after.interval_ms = update.interval_ms.or(after.interval_ms);
    after.description = update.description.or(after.description);
    after.task_type = update.task_type.or(after.task_type);
    after.moment = update.run_at.or(after.moment);
    after.updated = wall;
    Ok(after)
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

/// Plans the next run. `keep` leaves a plan that nothing has touched.
pub(super) fn planned(mut schedule: Schedule, wall: Timestamp, keep: bool) -> Result<Schedule, Refusal> {
    if !schedule.enabled {
        schedule.next_run = None;
        return Ok(schedule);
    }
    if keep {
        return Ok(schedule);
    }
    if schedule.one_time && schedule.moment.is_none_or(|moment| moment <= wall) {
        return Err(Refusal::new(
            Code::WrongState,
            format!("the time of the one-time schedule `{}` has passed; create a new one", schedule.name),
        ));
    }
    schedule.next_run = if schedule.one_time { schedule.moment } else { schedule.occurrence(wall)? };
    Ok(schedule)
}

/// What gave way goes first.
fn after(gone: Vec<Event>, mut decision: Decision<Schedules>) -> Decision<Schedules> {
    decision.events.splice(0..0, gone);
    decision
}

fn goes_by_cron(name: &str) -> Refusal {
    let message = format!(
        "the schedule `{name}` goes by its cronExpression, which comes before intervalMs; give another cronExpression, or delete it and create one with intervalMs"
    );
    Refusal::new(Code::InvalidArgument, message)
}

fn too_many() -> Refusal {
    Refusal::new(
        Code::QueueFull,
        format!("the swarm has {SCHEDULES} schedules, the most there may be; delete one first"),
    )
}

fn too_long() -> Refusal {
    let message = format!(
        "the texts of the swarm's schedules would come to more than {TEXTS} bytes; delete a schedule or shorten its taskTemplate first"
    );
    Refusal::new(Code::QueueFull, message)
}

pub(super) fn stored(schedule: Schedule, event: impl FnOnce(Box<Schedule>) -> Event) -> Decision<Schedules> {
    let reply = Reply::Schedule(schedule.view());
    Decision::new(reply, vec![event(Box::new(schedule))])
}
