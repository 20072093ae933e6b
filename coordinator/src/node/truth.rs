//! Opens the store that the settings name, and keeps it this process' own.

use std::sync::Arc;

use super::datadir::DataDir;
use super::start::StartError;
use super::tasks::Tasks;
use crate::config::Config;
use crate::entity::Clock;
use crate::store::Store;
use crate::store::redis::{Options, Redis};
use crate::store::sqlite::Sqlite;

/// `leases` gets the task that keeps the store; nothing may use the store after it has ended.
///
/// # Errors
/// When the store cannot be opened, or somebody else has it.
pub(super) async fn open(
    data: &DataDir,
    config: &Config,
    clock: &Clock,
    leases: &Tasks,
) -> Result<Arc<dyn Store>, StartError> {
    let Some(url) = &config.store.redis else {
        return Ok(Arc::new(Sqlite::open(&data.layout().store(), clock.wall())?));
    };
    let mut options = Options::new(url.clone(), data.identity()?.to_string());
    options.durability = config.store.durability;
    options.address = config.listen.grpc.to_string();
    let store = Arc::new(Redis::open(&options, clock.wall()).await?);
    let (keeper, stop) = (Arc::clone(&store), leases.stop().clone());
    leases.spawn("store", async move { keeper.keep(stop).await });
    Ok(store)
}
