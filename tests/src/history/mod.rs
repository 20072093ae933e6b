//! Records what clients asked and were told, and checks that it can have been so.
//!
//! The checkers are pure functions over a finished history. They need no search: tokens, ids and texts are unique, so
//! each answer names what it is about. An operation without an answer is *unknown*: it may have happened at any time
//! after it was invoked, or never. It explains much and proves nothing.

pub mod claims;
pub mod inbox;
pub mod locks;
pub mod record;

pub use record::{Moment, Operation, Outcome, Recorder};
