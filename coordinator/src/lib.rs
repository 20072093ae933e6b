//! The coordinator: entities on their hosts, the store, and every face of Skein.

pub mod alarms;
pub mod api;
pub mod auth;
pub mod cli;
pub mod cluster;
pub mod compat;
pub mod config;
pub mod console;
pub mod demo;
pub mod embeddings;
pub mod entity;
pub mod gateway;
mod https;
pub mod ingress;
pub mod mcp;
pub mod node;
pub mod oauth;
pub mod outbox;
pub mod projection;
pub mod runners;
pub mod runtime;
pub mod service;
pub mod slack;
mod sleep;
pub mod store;
pub mod vault;
pub mod x;
