//! What the tests share: real programs on free ports and in folders of their own.

pub mod cluster;
pub mod history;
pub mod mcp;
pub mod ports;
pub mod redis;
pub mod sentinel;
pub mod sim;
pub mod stage;
pub mod up;
pub mod webhook;
