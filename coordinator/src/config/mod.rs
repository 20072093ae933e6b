//! The settings of a node: one `config.toml` in the data directory, `SKEIN_SECTION__KEY` in the environment,
//! and the command line, the later ones winning.

mod check;
mod load;
mod people;
mod provider;
mod schema;
mod sharing;

pub use load::{ConfigError, Overrides, load};
pub use provider::Provider;
pub use schema::{
    Account, Auth, Config, Dialect, Embeddings, Ingress, Limits, Listen, Retention, Runner, Slack, Source,
    Store, ToolLimits, Workspace,
};
pub use sharing::check_sharing;
