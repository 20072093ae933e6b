//! Skein as a contender: its kernel within this process, or the binary as a process of its own.

pub(crate) mod embedded;
pub(crate) mod fill;
pub(crate) mod node;
pub(crate) mod recorder;
pub(crate) mod server;
pub(crate) mod verbs;
pub(crate) mod witness;
