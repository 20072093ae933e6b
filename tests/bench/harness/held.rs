//! Connections that are opened and then only held: what each costs its server in memory, and how long it takes
//! until all are open, at first and after all have broken.

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
const SETTLE: Duration = Duration::from_secs(3);

/// Opens the connection of one client and returns once the server holds it.
pub(crate) type Open = Arc<dyn Fn(usize) -> BoxFuture<'static, Result<Connection>> + Send + Sync>;

/// Open connections to a server. They break when this is dropped.
pub(crate) struct Held {
    open: Open,
    count: usize,
    connections: JoinSet<()>,
    /// Resident bytes for each.
    pub bytes: f64,
    /// Until all were open, seconds.
    pub opened_s: f64,
}

impl Held {
    /// Opens `count` connections to a process.
    ///
    /// # Errors
    /// When one cannot be opened, or the server ends.
    pub(crate) async fn open(server: u32, count: usize, open: Open) -> Result<Self> {
        let before = resident(server)?;
        let start = Instant::now();
        let connections = open_all(count, &open).await?;
        let opened_s = start.elapsed().as_secs_f64();
        let bytes = (settled(server).await? - before) / count as f64;
        Ok(Self { open, count, connections, bytes, opened_s })
    }

    /// Breaks all connections at once and opens them again; gives the seconds until all were open.
    ///
    /// # Errors
    /// As [`Held::open`].
    pub(crate) async fn open_again(self) -> Result<f64> {
        drop(self.connections);
        let start = Instant::now();
        open_all(self.count, &self.open).await?;
        Ok(start.elapsed().as_secs_f64())
    }
}

/// What a process has in memory once it has nothing to do any more, bytes.
///
/// # Errors
/// When it has ended.
pub(crate) async fn settled(server: u32) -> Result<f64> {
    sleep(SETTLE).await;
    resident(server)
}

fn resident(server: u32) -> Result<f64> {
    Ok(Reading::of(Metered::Tree(server))?.resident)
}

async fn open_all(count: usize, open: &Open) -> Result<JoinSet<()>> {
    let opening = stream::iter((0..count).map(|client| open(client))).buffer_unordered(OPENING);
    let add = |mut held: JoinSet<()>, mut connection: Connection| async move {
        held.spawn(async move { connection.drain().await });
        Ok(held)
    };
    opening.try_fold(JoinSet::new(), add).await
}
