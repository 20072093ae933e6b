//! The settings of a node: one `config.toml` in the data directory, `SKEIN_SECTION__KEY` in the environment,
//! and the command line, the later ones winning.

mod check;
mod load;
mod schema;

pub use load::{ConfigError, Overrides, load};
pub use schema::{
    Account, Auth, Config, Dialect, Embeddings, Ingress, Limits, Listen, Provider, Retention, Runner, Slack,
    Source, Store, ToolLimits, Workspace,
};
