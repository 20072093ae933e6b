//! Slack without Slack: what a message is to the swarm, and how texts are written for people there.

mod mrkdwn;
mod note;
mod question;
mod said;

pub use mrkdwn::mrkdwn;
pub use note::{Note, Thread};
pub use question::{Question, help, status};
pub(crate) use said::IN_THREAD;
pub use said::{Named, Said, typed};
