//! Code forges, GitHub and GitLab: what happens there and concerns the swarm (spec: Agent Swarm 4.6 and 4.7).
//!
//! The swarm has an account there, its bot. People ask it for something by that name: they mention it, assign an issue
//! to it, or ask for its review. That makes a task for the lead. From then on, what becomes of the issue or the request
//! is news for the lead, as long as a task about it is open.

mod activity;
mod bot;
mod github;
mod gitlab;
mod report;
mod subject;
#[cfg(test)]
mod tests;

pub use activity::{Act, Activity};
pub use bot::Bot;
pub use report::{Noun, Report};
pub use subject::{Forge, Item, Subject};
