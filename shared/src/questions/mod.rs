//! Questions that agents ask people, and what came of them.
//!
//! A question is open until somebody answers it, will not answer it, its asker takes it back, or its time is over. The
//! first of these counts. What came of it is kept for a while, so that its asker finds it whenever it looks.

mod apply;
mod command;
mod decide;
mod event;
mod state;
#[cfg(test)]
mod tests;

pub use command::{Ask, Asked, By, Command, Reply, Through};
pub use decide::fitting;
pub use event::Event;
pub use state::{Questions, State};

/// Fields that a question's shape has as null where they have no value. Stored bodies leave them out; readers pass
/// bodies through [`crate::wire::shown`] with these.
pub const NULLABLE: [&str; 1] = ["taskId"];

/// The key of a question's document.
pub fn key(question: impl std::fmt::Display) -> String {
    format!("question/{question}")
}
