//! What the tests share: real programs on free ports and in folders of their own.

pub mod cluster;
pub mod history;
pub mod mcp;
pub mod nemesis;
pub mod redis;
pub mod stage;
pub mod up;
pub mod webhook;
pub mod workload;
