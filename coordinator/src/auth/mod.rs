//! Who calls, how they prove it, and what they may do.
//!
//! `token` issues and verifies, `principal` is what a verified token says, `policy` is the table of rights.

pub(crate) mod key_file;
pub mod policy;
pub mod principal;
pub mod token;
mod verified;

pub use policy::Right;
pub use principal::{Principal, Role, Scope, View, agent_id};
