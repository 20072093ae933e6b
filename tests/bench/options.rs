//! How a bench is run.

use std::path::PathBuf;
use std::time::Duration;

/// Settings that all benches follow.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub rounds: u32,
    /// One contender's turn in a round.
    pub slot: Duration,
    /// Where stores and logs go; on the disk that is measured.
    pub folder: PathBuf,
    /// Leave the other products out.
    pub without_peers: bool,
    /// Run this contender alone, for a profile.
    pub only: Option<String>,
    /// What is found is the new budget.
    pub update: bool,
}

impl Options {
    /// Five rounds of three seconds, or a first look of three rounds of one.
    pub(crate) fn new(folder: PathBuf, quick: bool, without_peers: bool) -> Self {
        let (rounds, slot) = if quick { (3, 1) } else { (5, 3) };
        Self { rounds, slot: Duration::from_secs(slot), folder, without_peers, only: None, update: false }
    }

    /// A new folder for one contender.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn folder_for(&self, name: &str) -> std::io::Result<PathBuf> {
        let id = uuid::Uuid::now_v7().simple().to_string();
        let folder = self.folder.join(format!("{name}-{}", &id[20..]));
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }
}
