//! A whole cluster in one thread: one seed, virtual time, and all that goes wrong between nodes, clients and the store.
//!
//! Nothing here waits or runs beside anything else. A [`world`] has one list of what happens next, ordered by time and
//! by chance; [`node`]s decide with the code of the real ones; the [`store`] does what the scripts do; the [`network`]
//! loses, doubles, delays and cuts. A [`witness`] sees each commit and each answer, and [`check`] judges the whole.
//! After the storm all is healed, and everything must come to an end.
//!
//! A rule can be [broken](config::Broken) on purpose: then the simulation has to find the harm.

pub mod check;
pub mod clients;
pub mod config;
pub mod guests;
pub mod history;
pub mod hosted;
pub mod moods;
pub mod network;
pub mod node;
pub mod ringer;
pub mod runner;
pub mod store;
pub mod trace;
pub mod waits;
pub mod witness;
pub mod world;

use config::{Broken, Config};
use world::World;

/// What came of one run.
#[derive(Debug)]
pub struct Report {
    pub seed: u64,
    pub config: Config,
    /// Equal for equal runs.
    pub hash: u64,
    pub events: u64,
    pub operations: usize,
    /// What is wrong, and the last events before it.
    pub broken: Vec<String>,
    pub last: Vec<String>,
}

/// Runs one seed, and prints all of it if it is to be `aloud`.
pub fn run(seed: u64, broken: Option<Broken>, aloud: bool) -> Report {
    run_as(Config::of(seed, broken), aloud)
}

/// Runs what a seed has been made into.
pub fn run_as(config: Config, aloud: bool) -> Report {
    let seed = config.seed;
    let mut world = World::new(config, aloud);
    world.run();
    let mut found = std::mem::take(&mut world.witness.broken);
    // A run that was broken off is not a whole one.
    if found.is_empty() {
        found = check::check(&world);
    }
    Report {
        seed,
        hash: world.trace.hash(),
        events: world.trace.events,
        operations: world.history.len(),
        broken: found,
        last: world.trace.last().cloned().collect(),
        config: world.config,
    }
}

impl Report {
    /// Everything that somebody needs who looks for the cause: first what is wrong, for a long text is cut at its end.
    pub fn explain(&self) -> String {
        format!(
            "{}\nreplay it with: just sim {:#x}\n{:#?}\n{}",
            self.broken.join("\n"),
            self.seed,
            self.config,
            self.last.join("\n")
        )
    }
}
