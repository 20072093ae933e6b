//! Exhaustive checks of the protocols, by breadth-first search over all that can happen within small bounds.
//!
//! Each model says what may go wrong in its world (lost answers, crashes, pauses, expiry, …), what must never be
//! seen, and what must be reachable, so that a model in which nothing happens does not pass. Each also has
//! **variants** that leave one rule of the protocol out: the checker must find the harm that the rule prevents,
//! else the model would not notice if the rule were missing in the product.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

mod calls;
mod check;
mod entity;
mod lease;
mod pool;
