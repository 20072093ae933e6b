//! What a command takes that is about one swarm.

use clap::Args;
use skein_shared::id::Name;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::{CliError, Common};
use crate::api::client;

/// Which swarm it is, and what every command takes. Only for those that differ by the swarm.
#[derive(Debug, Args)]
pub(super) struct InSwarm {
    /// The swarm.
    #[arg(long, value_name = "NAME", env = "SKEIN_SWARM", default_value = "default")]
    pub(super) swarm: Name,
    #[command(flatten)]
    pub(super) common: Common,
}

impl InSwarm {
    /// The member of the swarm that has the name, if a node runs and knows one: no other agent may join under it.
    pub(super) async fn member(&self, name: &Name) -> Result<Option<Uuid>, CliError> {
        let mut admin = match self.common.admin().await {
            Err(refusal) if refusal.code == Code::Unavailable => return Ok(None),
            reached => reached?,
        };
        let members = client::list(&mut admin, "agents", self.swarm.as_str(), u32::MAX).await?;
        let found = members.rows.iter().find(|member| member["name"] == name.as_str());
        if found.is_none() && members.rebuilding {
            let problem = "not all members can be listed yet, so nobody knows whether one has the name; try again in a moment, or say which agent it is with --agent";
            return Err(Refusal::new(Code::Unavailable, problem).into());
        }
        Ok(found.and_then(|member| member["id"].as_str()?.parse().ok()))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;

    use crate::cli::Cli;

    /// Whoever gives what changes nothing would believe that it has.
    #[test]
    fn a_command_takes_no_swarm_and_no_form_that_changes_nothing() {
        let read = |line: &str| Cli::try_parse_from(line.split(' ')).map_err(|error| error.kind());
        for (line, without) in [
            ("skein status", "--swarm build"),
            ("skein backup copy.db", "--swarm build"),
            ("skein cluster status", "--swarm build"),
            ("skein cluster drain 127.0.0.1:7703", "--swarm build"),
            ("skein secrets keys", "--swarm build"),
            ("skein secrets rotate", "--swarm build"),
            ("skein credentials set github_token", "--swarm build"),
            ("skein credentials list", "--swarm build"),
            ("skein credentials remove github_token", "--swarm build"),
            ("skein swarm create build", "--swarm build"),
            ("skein swarm scale build 8", "--swarm build"),
            ("skein swarm locks build", "--swarm build"),
            ("skein swarm list", "--swarm build"),
            ("skein runners list", "--swarm build"),
            ("skein token rotate-keys", "--swarm build"),
            ("skein agent validate", "--swarm build"),
            ("skein mcp-config --client codex --role lead", "--json"),
        ] {
            assert!(read(line).is_ok(), "{line}");
            let refused = read(&format!("{line} {without}")).unwrap_err();
            assert_eq!(refused, ErrorKind::UnknownArgument, "{line} {without}");
        }
        assert!(read("skein mcp-config --client codex --role lead --swarm build --data d").is_ok());
    }
}
