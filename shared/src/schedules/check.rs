//! What a schedule may say, by itself.

use std::time::Duration;

use super::command::Create;
use super::state::Schedule;
use crate::code::{Code, Refusal};
use crate::cron::Cron;
use crate::limits;
use crate::time::Timestamp;
use crate::wire;

/// Longest name, characters.
pub(super) const NAME: usize = 100;
const DESCRIPTION: usize = 10_000;
const TASK_TYPE: usize = 50;
const MODEL: usize = 100;
/// Tags that a firing adds to the schedule's own.
const ADDED_TAGS: usize = 3;
/// The shortest interval, milliseconds: that of cron.
const INTERVAL_MIN: u64 = 1000;
/// The longest interval and delay: ten years, so that times stay far from their end.
const INTERVAL_MAX: u64 = 10 * 366 * 86_400_000;

/// Checks what a new schedule says about its times; a one-time schedule gets its moment.
pub(super) fn timing(create: &Create, wall: Timestamp) -> Result<Option<Timestamp>, Refusal> {
    let invalid = |message: &str| Err(Refusal::new(Code::InvalidArgument, message));
    if !create.one_time {
        if create.delay_ms.is_some() || create.run_at.is_some() {
            return invalid(
                "delayMs and runAt are for scheduleType one_time; a recurring schedule takes cronExpression or intervalMs",
            );
        }
        if create.cron.is_none() && create.interval_ms.is_none() {
            return invalid("a recurring schedule needs cronExpression or intervalMs; give one of them");
        }
        interval(create.interval_ms)?;
        return Ok(None);
    }
    if create.cron.is_some() || create.interval_ms.is_some() {
        return invalid(
            "cronExpression and intervalMs are for recurring schedules; a one_time schedule takes delayMs or runAt",
        );
    }
    match (create.delay_ms, create.run_at) {
        (Some(delay), None) if delay == 0 || delay > INTERVAL_MAX => {
            invalid("delayMs: use 1 millisecond to ten years")
        }
        (Some(delay), None) => Ok(Some(wall + Duration::from_millis(delay))),
        (None, Some(at)) if at <= wall => {
            invalid("runAt lies in the past; give a time that is still to come")
        }
        (None, Some(at)) => Ok(Some(at)),
        _ => invalid("a one_time schedule needs either delayMs or runAt; give exactly one of them"),
    }
}

/// An interval that somebody gives. Stored ones may be shorter: they were taken before there was a shortest.
pub(super) fn interval(given: Option<u64>) -> Result<(), Refusal> {
    if given.is_none_or(|given| (INTERVAL_MIN..=INTERVAL_MAX).contains(&given)) {
        return Ok(());
    }
    let problem = format!("intervalMs: use {INTERVAL_MIN} (one second) to {INTERVAL_MAX} (ten years)");
    Err(Refusal::new(Code::InvalidArgument, problem))
}

/// A text that somebody gives for the tasks: the pool refuses a blank one. Stored ones may be blank: they were taken
/// before that was looked at.
pub(super) fn template(given: Option<&str>) -> Result<(), Refusal> {
    if given.is_none_or(|given| !given.trim().is_empty()) {
        return Ok(());
    }
    let problem =
        "taskTemplate: it is blank, and the pool takes no task without words; say what is to be done";
    Err(Refusal::new(Code::InvalidArgument, problem))
}

/// Checks everything that does not depend on other schedules.
pub(super) fn check(schedule: &Schedule) -> Result<(), Refusal> {
    wire::length("name", &schedule.name, 1, NAME)?;
    wire::text("taskTemplate", &schedule.task, 1)?;
    if let Some(description) = &schedule.description {
        wire::length("description", description, 0, DESCRIPTION)?;
    }
    if let Some(task_type) = &schedule.task_type {
        wire::length("taskType", task_type, 0, TASK_TYPE)?;
    }
    if let Some(model) = &schedule.model {
        wire::length("model", model, 1, MODEL)?;
    }
    wire::tags(&schedule.tags)?;
    if schedule.tags.len() + ADDED_TAGS > limits::TAGS {
        return Err(Refusal::new(
            Code::TooLarge,
            format!(
                "tags: a schedule adds {ADDED_TAGS} of its own; keep {} at most",
                limits::TAGS - ADDED_TAGS
            ),
        ));
    }
    wire::priority(schedule.priority)?;
    if schedule.one_time && schedule.skip_if_active {
        let problem =
            "skipIfActive is for recurring schedules: one that runs once has no earlier task; leave it out";
        return Err(Refusal::new(Code::InvalidArgument, problem));
    }
    Cron::parse(schedule.cron.as_deref().unwrap_or("@daily"), &schedule.zone, "").map(|_| ())
}
