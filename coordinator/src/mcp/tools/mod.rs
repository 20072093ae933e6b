//! The tools, one folder for each toolset and one file for each group.

/// `json!` for an object whose values may be large: it moves them, where that copies every one.
macro_rules! facts {
    ({ $($name:literal: $value:expr),+ }) => {
        serde_json::Value::from_iter([$(($name.to_owned(), serde_json::Value::from($value))),+])
    };
}

pub mod scheduler;
pub mod skein;
pub mod swarm;

use super::catalogue::{BadDeclaration, Catalogue};

/// The catalogue of this program.
///
/// # Errors
/// When the declarations contradict each other, which a test rules out.
pub fn catalogue() -> Result<Catalogue, BadDeclaration> {
    Catalogue::new([swarm::tools(), scheduler::tools(), skein::tools()].into_iter().flatten().collect())
}

#[cfg(test)]
mod tests;
