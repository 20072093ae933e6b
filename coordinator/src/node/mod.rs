//! A node: the parts of one process, from start to drain.

pub mod datadir;
pub mod tasks;
