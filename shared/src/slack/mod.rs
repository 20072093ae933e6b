//! Slack without Slack: what a message is to the swarm, and how texts are written for people there.

mod mrkdwn;
mod note;
mod said;

pub use mrkdwn::mrkdwn;
pub use note::{Note, Thread};
pub use said::{Named, Said};
