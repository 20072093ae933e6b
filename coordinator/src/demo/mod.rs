//! `skein demo`: a swarm that does real work on a real repository, on one machine.
//!
//! `run` sets the stage and watches; the agents in `agents` are programs of their own that the runner starts:
//! they know a URL and a token and speak MCP, nothing else. `survey` is the work that they do.

mod agents;
mod client;
mod run;
mod stage;
mod survey;
mod watch;
mod webhook;

pub use agents::{AgentRole, run_agent};
pub use run::{DemoError, Options, run};
