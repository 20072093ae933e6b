//! What happens to schedules.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::state::Schedule;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Created {
        schedule: Box<Schedule>,
    },
    Updated {
        schedule: Box<Schedule>,
    },
    Deleted {
        schedule: Uuid,
    },
    /// A one-time schedule ran, and it is long ago or there was no more room.
    Forgotten {
        schedule: Uuid,
    },
    /// An occurrence became a task.
    Fired {
        schedule: Uuid,
        nominal: Timestamp,
        at: Timestamp,
        task: Uuid,
        /// It was missed while nobody served the schedules.
        recovered: bool,
        next: Option<Timestamp>,
    },
    /// A run by hand became a task.
    Ran {
        schedule: Uuid,
        at: Timestamp,
        task: Uuid,
    },
    /// The pool refused the task, or the agent the run. Recurring schedules try again at `next`.
    Failed {
        schedule: Uuid,
        at: Timestamp,
        message: String,
        enabled: bool,
        next: Option<Timestamp>,
        /// Somebody had run it by hand: it does not count among the refusals in a row.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_hand: bool,
    },
    /// The pool made no task of an occurrence, since another one of the schedule has not ended.
    Skipped {
        schedule: Uuid,
        at: Timestamp,
    },
    /// The wall clock stands behind the entity's time: nothing is due yet.
    ClockBehind {
        look_again: Timestamp,
    },
}
