//! The MCP face: one catalogue of tools, shown in views, called by name.
//!
//! `catalogue` declares what a tool is and finds it; `tools` declares the tools, one file per group;
//! `dispatch` takes every call, direct or through `tools_call`, down the same path; `view` says what a client
//! is shown; `finder` searches; `names` lets agents be named; `quota` bounds what one caller may ask for; `result` shapes answers; `door`
//! lets requests in; `sessions` remembers clients of older revisions; `server` is the only part that knows
//! the protocol, with `client`, its other end.

pub mod catalogue;
pub mod client;
pub mod dispatch;
pub mod door;
pub mod finder;
pub mod idempotency;
pub mod instructions;
mod names;
pub mod quota;
pub mod result;
pub mod schema;
pub mod server;
pub mod sessions;
pub mod tools;
pub mod view;

pub use catalogue::Catalogue;
pub use dispatch::Gate;
pub use door::{Config, SharedKey};
pub use server::router;

#[cfg(test)]
mod tests;
