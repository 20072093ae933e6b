//! Skein as a contender: its kernel within this process, or the binary as a process of its own.

pub(crate) mod calls;
pub(crate) mod coordinators;
pub(crate) mod embedded;
pub(crate) mod fill;
pub(crate) mod fleet;
pub(crate) mod flood;
pub(crate) mod inboxes;
pub(crate) mod lock_wait;
pub(crate) mod neighbours;
pub(crate) mod node;
pub(crate) mod over_redis;
pub(crate) mod place;
pub(crate) mod push;
pub(crate) mod recorder;
pub(crate) mod server;
pub(crate) mod sleepers;
pub(crate) mod verbs;
pub(crate) mod witness;
