//! The store of a node that does not run, for one command.

use std::sync::Arc;
use std::time::Duration;

use super::datadir::DataDir;
use super::start::StartError;
use super::tasks::Tasks;
use crate::config::Config;
use crate::entity::Clock;
use crate::store::Store;
use crate::store::redis::{Options, Redis};
use crate::store::sqlite::Sqlite;

/// How long the store may take to be given back.
const CLOSE: Duration = Duration::from_secs(10);

/// A store that nobody else can write to while this lives.
pub struct Alone {
    pub store: Arc<dyn Store>,
    leases: Tasks,
    _data: DataDir,
}

impl Alone {
    /// Opens the store that the settings name, or makes it where there is none if `makes`.
    ///
    /// # Errors
    /// When it cannot be opened, or a node has it.
    pub async fn open(data: DataDir, config: &Config, makes: bool) -> Result<Self, StartError> {
        let (clock, leases) = (Clock::start(), Tasks::default());
        let store: Arc<dyn Store> = match &config.store.redis {
            None => Arc::new(Sqlite::open(&data.layout().store(), clock.wall())?),
            Some(url) => {
                let mut options = Options::new(url.clone(), data.identity()?.to_string());
                options.durability = config.store.durability;
                options.tls = config.store.tls();
                options.awaits = (!makes).then_some(Duration::ZERO);
                let store = Arc::new(Redis::open(&options, clock.wall()).await?);
                let (keeper, stop) = (Arc::clone(&store), leases.stop().clone());
                leases.spawn("store", async move { keeper.keep(stop).await });
                store
            }
        };
        Ok(Self { store, leases, _data: data })
    }

    /// Lets others have the store.
    ///
    /// # Errors
    /// When the store was lost meanwhile.
    pub async fn close(self) -> Result<(), StartError> {
        self.leases.stop().cancel();
        match self.leases.finish(CLOSE).await {
            None => Ok(()),
            Some(problem) => Err(StartError::Failed(problem)),
        }
    }
}
