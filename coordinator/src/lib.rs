//! The coordinator: entities on their hosts, the store, and every face of Skein.

pub mod auth;
pub mod store;
