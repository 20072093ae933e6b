//! Runs agents on one machine: registers with the coordinators, starts, freezes, thaws and ends instances,
//! and carries their MCP traffic.
//!
//! - `control` keeps a stream to each coordinator, and the lease;
//! - `instance` has one task for each run, and the ledger that outlives a crash;
//! - `container` is what a run lives in: behind [`container::Engine`];
//! - `credentials` are the keys and tokens that agents are lent;
//! - `transport` is what an agent's tools do inside its instance;
//! - `harness` is the program that an agent is: a coding agent, or any command;
//! - `supervisor` is who has started this process and wants to hear that it works;
//! - `agent_commands` are what agents call that are shell scripts;
//! - `hook` is what a coding agent is told between its steps;
//! - `endpoint` is the instance's own door to the coordinators.

pub mod agent_commands;
pub mod config;
pub mod container;
pub mod control;
pub mod credentials;
pub mod definition;
pub mod endpoint;
mod error;
pub mod harness;
pub mod hook;
pub mod instance;
pub mod supervisor;
pub mod telemetry;
pub mod transport;

pub use config::{Args, RunnerConfig, Token};
pub use container::isolation;
pub use container::limits::raise_open_files;
pub use container::shim::{ExecAgent, exec_agent};
pub use control::run;
pub use error::Error;
pub use instance::folders::usual_work;
