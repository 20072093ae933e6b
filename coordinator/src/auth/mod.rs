//! Who calls, how they prove it, and what they may do.
//!
//! `token` issues and verifies, with the keys in `signing`; `issuer` verifies those of an OpenID provider; `credential`
//! is all that a verified token says and `principal` who holds it; `policy` is the table of rights, `rights` what a
//! token was left with of them.

pub mod credential;
pub mod issuer;
pub(crate) mod key_file;
pub mod policy;
pub mod principal;
pub mod rights;
mod signing;
pub mod token;
mod verified;

pub use credential::Credential;
pub use policy::Right;
pub use principal::{Principal, Role, Scope, View};
pub use rights::Rights;
