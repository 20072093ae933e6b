//! What the schedules can be asked, and what they answer.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::caller::Caller;
use crate::denied::Denied;
use crate::id::Name;
use crate::time::Timestamp;
use crate::which::Which;
use crate::wire;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    Create(Box<Create>),
    Update(Box<Update>),
    Delete {
        which: Which,
        by: Caller,
    },
    SetEnabled {
        which: Which,
        by: Caller,
        enabled: bool,
    },
    /// Makes the task at once, beside the usual times.
    RunNow {
        which: Which,
        by: Caller,
    },
    List {
        #[serde(default)]
        enabled: Option<bool>,
        /// Part of the name.
        #[serde(default)]
        name: Option<String>,
        #[serde(default)]
        one_time: Option<bool>,
        /// Leaves out one-time schedules that ran.
        hide_completed: bool,
        /// Those alone that have a next run, the soonest first.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        soonest: bool,
        /// In the order of names: those alone that come behind this one.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        after: String,
    },
    /// The definition of an agent says when it runs, or that it runs at no certain times.
    Follow {
        agent: Name,
        #[serde(default)]
        cron: Option<String>,
        #[serde(default = "Create::usual_zone")]
        zone: String,
    },
    /// The pool refused the task of an occurrence.
    RunFailed {
        schedule: Uuid,
        message: String,
        /// Somebody had run it by hand: that says nothing of its usual times.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_hand: bool,
    },
    /// The pool made no task of an occurrence, since another one of the schedule has not ended.
    RunSkipped {
        schedule: Uuid,
    },
    /// An agent refused the run of an occurrence.
    RunRefused {
        agent: Name,
        message: String,
    },
    /// The service has found that an agent that is named is no member.
    Denied(Denied<Command>),
    /// Fires what is due. The host may send it at any time, such as after a step of the wall clock.
    Tick,
}

impl Command {
    /// Who asks for it, where the service says whether that is the lead.
    pub(super) fn by(&mut self) -> Option<&mut Caller> {
        match self {
            Self::Update(update) => Some(&mut update.by),
            Self::Delete { by, .. } | Self::SetEnabled { by, .. } | Self::RunNow { by, .. } => Some(by),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Create {
    pub name: String,
    pub task: String,
    /// The agent that asks.
    #[serde(default)]
    pub creator: Option<Uuid>,
    #[serde(default)]
    pub one_time: bool,
    #[serde(default)]
    pub cron: Option<String>,
    #[serde(default)]
    pub interval_ms: Option<u64>,
    /// One-time: this long from now.
    #[serde(default)]
    pub delay_ms: Option<u64>,
    /// One-time: at this moment.
    #[serde(default)]
    pub run_at: Option<Timestamp>,
    #[serde(default)]
    pub description: Option<String>,
    #[serde(default)]
    pub task_type: Option<String>,
    #[serde(default)]
    pub tags: Vec<String>,
    #[serde(default = "Create::usual_priority")]
    pub priority: u8,
    #[serde(default)]
    pub model: Option<String>,
    /// Must be a member; the service looks, and denies the command otherwise.
    #[serde(default)]
    pub target: Option<Uuid>,
    #[serde(default = "Create::usual_zone")]
    pub zone: String,
    #[serde(default = "Create::usually_enabled")]
    pub enabled: bool,
    /// Recurring: makes no task while another one of it has not ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_if_active: bool,
}

impl Create {
    fn usual_priority() -> u8 {
        50
    }

    pub(super) fn usual_zone() -> String {
        "UTC".to_owned()
    }

    fn usually_enabled() -> bool {
        true
    }

    pub fn new(name: impl Into<String>, task: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            task: task.into(),
            creator: None,
            one_time: false,
            cron: None,
            interval_ms: None,
            delay_ms: None,
            run_at: None,
            description: None,
            task_type: None,
            tags: Vec::new(),
            priority: Self::usual_priority(),
            model: None,
            target: None,
            zone: Self::usual_zone(),
            enabled: true,
            skip_if_active: false,
        }
    }
}

/// Changes what is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Update {
    pub which: Which,
    pub by: Caller,
    #[serde(default)]
    pub new_name: Option<String>,
    #[serde(default)]
    pub task: Option<String>,
    #[serde(default)]
    pub cron: Option<String>,
    #[serde(default)]
    pub interval_ms: Option<u64>,
    /// One-time schedules that have not run: a new moment.
    #[serde(default)]
    pub run_at: Option<Timestamp>,
    #[serde(default)]
    pub description: Option<String>,
    #[serde(default)]
    pub task_type: Option<String>,
    #[serde(default)]
    pub tags: Option<Vec<String>>,
    #[serde(default)]
    pub priority: Option<u8>,
    /// Null gives the tasks to the pool.
    #[serde(default, deserialize_with = "wire::cleared", skip_serializing_if = "Option::is_none")]
    pub target: Option<Option<Uuid>>,
    /// Null clears it.
    #[serde(default, deserialize_with = "wire::cleared", skip_serializing_if = "Option::is_none")]
    pub model: Option<Option<String>>,
    #[serde(default)]
    pub zone: Option<String>,
    #[serde(default)]
    pub enabled: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_if_active: Option<bool>,
}

impl Update {
    pub fn new(which: Which, by: Caller) -> Self {
        Self {
            which,
            by,
            new_name: None,
            task: None,
            cron: None,
            interval_ms: None,
            run_at: None,
            description: None,
            task_type: None,
            tags: None,
            priority: None,
            target: None,
            model: None,
            zone: None,
            enabled: None,
            skip_if_active: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The schedule as clients see it.
    Schedule(Value),
    /// The schedule after a run by hand, and the task that the run makes, or else the agent that is asked to run.
    Ran {
        schedule: Value,
        task: Option<Uuid>,
        #[serde(default)]
        agent: Option<Name>,
    },
    Deleted {
        id: Uuid,
        name: String,
    },
    List {
        /// By name, or the soonest first.
        schedules: Vec<Value>,
        /// Others that were asked for, more than a list shows.
        left_out: usize,
    },
    Done,
}
