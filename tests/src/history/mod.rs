//! Records what clients asked and were told, and checks that it can have been so.
//!
//! The checkers are pure functions over a finished history. They need no search: tokens, ids and texts are unique, so
//! each answer names what it is about. An operation without an answer is *unknown*: it may have happened at any time
//! after it was invoked, or never. It explains much and proves nothing. What nobody asks for one by one (occurrences of
//! schedules, events from outside, runs) is held against the entities' logs and what the agents wrote down themselves.

pub mod calls;
pub mod claims;
pub mod events;
pub mod inbox;
pub mod locks;
pub mod record;
pub mod schedules;

pub use record::{Lost, Moment, NOTHING, Operation, Outcome, Recorder, forget_between};
