//! The coordinator's side of its runners: one control stream each, from registration to the last report.
//!
//! `sessions` knows which runner has a stream here and puts commands on it; `control` is the service that takes streams
//! in; `register` tells the kernel what a runner is; `session` serves one stream, `reports` hands on what it reports,
//! `asks` puts questions to it, and `coordinators` tells it of the others.

mod asks;
mod control;
mod coordinators;
mod register;
mod reports;
mod session;
mod sessions;

pub use control::Control;
pub use sessions::Sessions;
