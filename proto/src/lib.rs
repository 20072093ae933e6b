//! The wire between coordinators, runners and administrators.
//!
//! `proto/skein/v1` is the source. The code in `gen` is made from it and checked in, so that a build needs
//! no generator; `tests/generated.rs` makes it anew and fails when the two differ.

pub mod convert;
pub mod trace;

/// The messages, clients and servers of package `skein.v1`.
#[allow(clippy::all, unreachable_pub, unused_qualifications)]
pub mod v1 {
    include!("gen/skein.v1.rs");
}
