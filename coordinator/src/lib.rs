//! The coordinator: entities on their hosts, the store, and every face of Skein.

pub mod auth;
pub mod config;
pub mod ingress;
pub mod node;
pub mod store;
