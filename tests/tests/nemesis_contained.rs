//! The suite of the nemesis, with Redis, the coordinators and the ingress each in a container. The image is made of
//! this machine's own programs: no registry is asked.

use std::time::Duration;

use anyhow::{Context, Result};
use skein_tests::docker::Image;
use skein_tests::nemesis::suite::{self, Former};
use skein_tests::program::Ground;
use skein_tests::up::binary;

/// Of a run's faults.
const SEED: u64 = 2_201_882_110_936_734_915;

async fn containers() -> Result<Ground> {
    let skein = binary("skein");
    let skein = skein.to_str().context("the folder's name is no text")?;
    Ok(Ground::of(Image::pack("cluster", &["sh", "redis-server", skein], "").await?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_told_holds_whatever_breaks_among_containers() -> Result<()> {
    suite::what_was_told_holds(containers().await?, SEED, Duration::ZERO).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_among_containers_loses_what_came_last_and_nothing_else() -> Result<()> {
    suite::a_failover_loses_what_came_last_and_nothing_else(containers().await?, 1, Former::Dies).await
}
