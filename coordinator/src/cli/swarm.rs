//! `skein swarm create|scale|locks|remove-member|list`

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use skein_proto::v1::{ConfigureLocksRequest, CreateSwarmRequest, RemoveMemberRequest, ScaleSwarmRequest};
use skein_shared::id::Name;

use super::table::Column;
use super::{CliError, Common, InSwarm, list};
use crate::service::scale::USUAL_GROUP;

const COLUMNS: &[Column] = &[("NAME", &["name"])];

#[derive(Debug, Subcommand)]
pub(super) enum Swarm {
    /// Make a swarm.
    Create {
        /// Its name: small letters, digits and hyphens.
        name: Name,
        #[command(flatten)]
        common: Common,
    },
    /// Limit how many runs of a swarm are under way at a time on a group of runners, or show the limit.
    Scale {
        /// The swarm, as `skein swarm list` shows it.
        name: Name,
        /// The most runs at a time; `unlimited` lifts the limit [default: only show it].
        #[arg(value_parser = scale)]
        scale: Option<u32>,
        /// The group of runners that it is for.
        #[arg(long, default_value = USUAL_GROUP)]
        group: Name,
        #[command(flatten)]
        common: Common,
    },
    /// Say how the locks of a swarm are to be, or show how they are.
    Locks {
        /// The swarm, as `skein swarm list` shows it.
        name: Name,
        /// Locks that one run may hold at a time; with more than one there can be deadlocks, which are refused.
        #[arg(long)]
        per_instance: Option<u32>,
        /// How long a lock lasts that asks for no time of its own, such as 30m.
        #[arg(long, value_parser = humantime::parse_duration)]
        ttl: Option<Duration>,
        /// The longest that a lock may ask for, such as 1d.
        #[arg(long, value_parser = humantime::parse_duration)]
        max_ttl: Option<Duration>,
        /// Whether spellings of one URI are one lock.
        #[arg(long)]
        normalize: Option<bool>,
        #[command(flatten)]
        common: Common,
    },
    /// Take a member out of a swarm for good: its tasks go back to the pool. Who has a token for it may join anew.
    RemoveMember {
        /// Its name or its id, as `skein agents list` shows them.
        member: String,
        /// A file with the token of the swarm's lead, or of the member itself, to do it as that one; - reads it from
        /// standard input [default: as the operator].
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
        #[command(flatten)]
        at: InSwarm,
    },
    /// List the swarms.
    List {
        #[command(flatten)]
        common: Common,
    },
}

impl Swarm {
    pub(super) async fn run(self) -> Result<(), CliError> {
        match self {
            Swarm::List { common } => {
                let swarms = list::beside(&common, "swarms", list::ALL).await?;
                list::print(swarms, COLUMNS, list::ALL, common.json)
            }
            Swarm::Create { name, common } => {
                let request = CreateSwarmRequest { name: name.to_string() };
                common.print(common.admin().await?.create_swarm(request).await)
            }
            Swarm::Scale { name, scale, group, common } => {
                let request = ScaleSwarmRequest { swarm: name.to_string(), group: group.to_string(), scale };
                common.print(common.admin().await?.scale_swarm(request).await)
            }
            Swarm::Locks { name, per_instance, ttl, max_ttl, normalize, common } => {
                let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
                let request = ConfigureLocksRequest {
                    swarm: name.to_string(),
                    per_instance,
                    ttl_ms: ttl.map(millis),
                    max_ttl_ms: max_ttl.map(millis),
                    normalize,
                };
                common.print(common.admin().await?.configure_locks(request).await)
            }
            Swarm::RemoveMember { member, token_file, at } => {
                let request = RemoveMemberRequest { swarm: at.swarm.to_string(), member };
                let mut admin = at.common.admin_as(token_file.as_deref()).await?;
                at.common.print(admin.remove_member(request).await)
            }
        }
    }
}

/// A limit as it is typed. Nobody means zero runs: that is what pausing is for.
fn scale(text: &str) -> Result<u32, String> {
    let number = || text.parse().ok().filter(|scale| *scale > 0);
    if text == "unlimited" {
        Ok(0)
    } else {
        number().ok_or_else(|| "write a number from 1 on, or `unlimited`".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_a_number_or_unlimited() {
        assert_eq!((scale("8"), scale("unlimited")), (Ok(8), Ok(0)));
        for wrong in ["0", "-1", "1.5", "", "none", "4294967296"] {
            assert!(scale(wrong).unwrap_err().contains("unlimited"), "{wrong}");
        }
    }
}
