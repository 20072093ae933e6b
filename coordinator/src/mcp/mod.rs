//! The MCP face: one catalogue of tools, shown in views, called by name.
//!
//! `catalogue` declares what a tool is and finds it; `tools` declares the tools, one file per group; `dispatch` takes
//! every call, direct or through `tools_call`, down the same path; `view` says what a client is shown; `finder`
//! searches; `names` lets agents be named; `quota` bounds what one caller may ask for; `audit` writes calls down;
//! `served` is for what other faces do in the place of tools; `result` shapes answers, `columns` the lists in them, and
//! `elicitation` questions to people; `door` lets requests in; `sessions` remembers clients of older revisions; `offer`
//! is what there is besides tools, and `product` this program's; `fixture` offers what the official conformance suite
//! asks for, in its place; `server` is the only part that knows the protocol, with `connection`, its other end.

mod audit;
pub mod catalogue;
pub mod client;
pub mod columns;
pub mod connection;
pub mod content;
pub mod dispatch;
pub mod door;
mod elicitation;
pub mod finder;
mod fixture;
pub mod idempotency;
pub mod instructions;
pub mod job;
mod names;
pub mod offer;
mod product;
pub mod quota;
pub mod result;
pub mod schema;
pub mod served;
pub mod server;
pub mod sessions;
pub mod tools;
mod turns;
pub mod view;

pub use catalogue::Catalogue;
pub use dispatch::Gate;
pub(crate) use door::base;
pub use door::{Config, SharedKey};
pub use server::router;

#[cfg(test)]
pub(crate) mod tests;
