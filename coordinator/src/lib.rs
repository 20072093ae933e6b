//! The coordinator: entities on their hosts, the store, and every face of Skein.

pub mod auth;
pub mod entity;
pub mod mcp;
pub mod outbox;
pub mod projection;
pub mod service;
pub mod store;
