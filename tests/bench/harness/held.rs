//! Connections that are opened and then only held: what each costs its server in memory, and all of them in
//! processor time while nothing happens.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::contender::Metered;
use super::meter::Reading;
use super::wire::Connection;

/// Connections that are being opened at a time.
const OPENING: usize = 1000;
/// After this the buffers of the opening are given back.
pub(crate) const SETTLE: Duration = Duration::from_secs(3);

/// Opens the connection of one client and returns once the server holds it.
pub(crate) type Open = Arc<dyn Fn(usize) -> BoxFuture<'static, Result<Connection>> + Send + Sync>;

/// What so many open connections are to their server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// Resident bytes for each.
    pub bytes: f64,
    /// Until all were open, seconds.
    pub opened_s: f64,
    /// Until all were open again after all had broken at once, seconds.
    pub reopened_s: f64,
    /// Share of one core while nothing happens.
    pub idle_cpu: f64,
}

/// Holds `count` connections to a process for a while.
///
/// # Errors
/// When one cannot be opened, or the server ends.
pub(crate) async fn hold(server: u32, count: usize, idle: Duration, open: &Open) -> Result<Held> {
    let metered = Metered::Tree(server);
    sleep(SETTLE).await;
    let before = Reading::of(metered)?;
    let start = Instant::now();
    let held = open_all(count, open).await?;
    let opened_s = start.elapsed().as_secs_f64();
    sleep(SETTLE).await;
    let full = Reading::of(metered)?;
    let start = Instant::now();
    sleep(idle).await;
    let used = Reading::of(metered)?.since(&full);
    let idle_cpu = used.cpu_us / start.elapsed().as_secs_f64() / 1e6;
    drop(held);
    let start = Instant::now();
    let again = open_all(count, open).await?;
    let reopened_s = start.elapsed().as_secs_f64();
    drop(again);
    let bytes = (full.resident - before.resident) / count as f64;
    Ok(Held { bytes, opened_s, reopened_s, idle_cpu })
}

/// The connections break when this is dropped.
async fn open_all(count: usize, open: &Open) -> Result<JoinSet<()>> {
    let opening = stream::iter((0..count).map(|client| open(client))).buffer_unordered(OPENING);
    let add = |mut held: JoinSet<()>, mut connection: Connection| async move {
        held.spawn(async move { connection.drain().await });
        Ok(held)
    };
    opening.try_fold(JoinSet::new(), add).await
}
