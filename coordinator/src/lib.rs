//! The coordinator: entities on their hosts, the store, and every face of Skein.

pub mod entity;
pub mod outbox;
pub mod projection;
pub mod store;
