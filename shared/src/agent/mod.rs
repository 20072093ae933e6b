//! One agent of a swarm: its runs, its work queue, the calls made to it and the waits of its instances.
//!
//! Whether a call resumes a waiting instance, starts a run or queues is one decision here, so no event can
//! fall between two of them. What happens elsewhere (locks, leases, webhooks, slots, processes) is an effect
//! (`effects`), and its acknowledgement comes back as a command.

mod command;
mod event;
mod state;

pub use command::{CallView, Caller, Command, Overview, Reply, Report, WaitView};
pub use event::{DeadLetter, Event};
pub use state::{
    Agent, CallRecord, CallStatus, Class, Defined, Definition, End, Exit, Instance, Item, Outcome, Party,
    State, WaitRecord,
};

/// What an instance waits for, in the form that triggers decide by.
pub type Filter = serde_json::Value;
