//! What the tests share: real programs on free ports and in folders of their own.

pub mod agents;
pub mod browser;
pub mod cluster;
pub mod coder;
pub mod docker;
pub mod embeddings;
pub mod engine;
pub mod first_request;
pub mod history;
pub mod link;
pub mod mcp;
pub mod model;
pub mod nemesis;
pub mod porter;
pub mod ports;
pub mod process;
pub mod redis;
pub mod redis_cluster;
pub mod runner;
pub mod sentinel;
pub mod sim;
pub mod slack;
pub mod stage;
pub mod up;
pub mod webhook;
pub mod workload;
