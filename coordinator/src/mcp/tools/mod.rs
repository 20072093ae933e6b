//! The tools, one folder for each toolset and one file for each group.

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
