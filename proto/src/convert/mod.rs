//! From the wire into the kernel's words and back. Whatever comes from outside is checked here, once.

pub mod ask;
pub mod command;
pub mod definition;
