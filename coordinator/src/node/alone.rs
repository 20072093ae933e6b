//! The store of a node that does not run, for one command.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;

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
                let options = options(url, &data, config, makes)?;
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

fn options(url: &SecretString, data: &DataDir, config: &Config, makes: bool) -> Result<Options, StartError> {
    let mut options = Options::new(url.clone(), data.identity()?.to_string());
    // As long as those of the coordinators: one that was killed has its shards for so long.
    (options.durability, options.lease) = (config.store.durability, config.cluster.lease);
    options.tls = config.store.tls();
    if !makes {
        // What is read has to be this node's own store, and to be there.
        (options.store, options.awaits) = (data.store()?, Some(Duration::ZERO));
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Overrides};

    #[test]
    fn a_command_waits_as_long_as_a_coordinator_has_its_shards() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        std::fs::write(&file, "[cluster]\nlease = \"60s\"").unwrap();
        let config = config::load(&file, &Overrides::default()).unwrap();
        let data = DataDir::open(&folder.path().join("data")).unwrap();
        data.belongs_to("ours").unwrap();
        let url = SecretString::from("redis://box");
        let open = |makes| options(&url, &data, &config, makes).unwrap();
        let (reads, makes) = (open(false), open(true));
        assert_eq!((reads.lease, makes.lease), (Duration::from_secs(60), Duration::from_secs(60)));
        assert_eq!((reads.store.as_deref(), makes.store), (Some("ours"), None));
        assert_eq!((reads.awaits, makes.awaits), (Some(Duration::ZERO), None));
    }
}
