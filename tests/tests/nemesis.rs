//! 32 clients and real agents work with a whole cluster while a nemesis breaks one thing after another.
//!
//! `SKEIN_NEMESIS_SEED` repeats the faults and the clients' choices of a run; `SKEIN_NEMESIS_SECONDS` makes it longer,
//! and draws them anew.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::time::Duration;

use anyhow::Result;
use skein_tests::nemesis::suite::{self, Former};
use skein_tests::program::Ground;

/// Of a run that nobody has given one.
const SEED: u64 = 9_649_729_908_229_128_386;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_holds_whatever_breaks() -> Result<()> {
    // One round of all faults, or as long as is said.
    let seconds = setting("SKEIN_NEMESIS_SECONDS");
    let drawn = seconds.map_or(SEED, |_| fastrand::u64(..));
    let seed = setting("SKEIN_NEMESIS_SEED").unwrap_or(drawn);
    suite::what_was_told_holds(Ground::default(), seed, Duration::from_secs(seconds.unwrap_or(0))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_a_replica_that_lags_loses_what_came_last_and_nothing_else() -> Result<()> {
    suite::a_failover_loses_what_came_last_and_nothing_else(Ground::default(), 1, Former::Dies).await
}

/// Its replication is held back, so it takes writes until it finds that its replica is too late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_redis_that_was_replaced_goes_on_to_take_is_lost_and_named_and_nothing_else() -> Result<()> {
    suite::a_failover_loses_what_came_last_and_nothing_else(Ground::default(), 1, Former::GoesOn).await
}

/// What runners have heard of the coordinator that dies is higher than what the others have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_that_dies_with_a_redis_that_was_replaced_leaves_nobody_deaf() -> Result<()> {
    suite::a_failover_loses_what_came_last_and_nothing_else(Ground::default(), 1, Former::TakesOneAlong).await
}
