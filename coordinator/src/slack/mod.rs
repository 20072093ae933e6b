//! Slack's Web API, and the workspaces that the node's settings name.
//!
//! One client for each workspace: it keeps to Slack's limits, says in words what Slack refused, and sends the token to
//! Slack's own hosts alone. `method` has what is known of each method, `pace` when the next call may go, `rests` which
//! channels wait for an operator, `people` who may speak, `http` the hosts that may be asked, `client` a call from end
//! to end, `workspace` the methods with their arguments, `socket` a connection for Socket Mode.

mod client;
mod error;
mod files;
mod http;
mod method;
mod pace;
mod people;
mod rests;
mod socket;
mod workspace;

use std::collections::BTreeMap;
use std::sync::Arc;

use skein_shared::id::Name;
use skein_shared::{Code, Refusal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use error::Error;
pub use files::{Content, Download, LARGEST};
pub use socket::{Frame, Socket};
pub use workspace::{Page, Post, SETTLED, SHOWN, Workspace};

use crate::config;

/// The workspaces by the swarm whose people they hold.
#[derive(Clone, Debug, Default)]
pub struct Workspaces(Arc<BTreeMap<Name, Arc<Workspace>>>);

impl Workspaces {
    /// # Errors
    /// When the system's certificates cannot be read.
    pub fn new(settings: &config::Slack) -> Result<Self, Error> {
        let open = |workspace: &config::Workspace| {
            Ok((workspace.swarm.clone(), Arc::new(Workspace::new(workspace)?)))
        };
        settings.workspace.iter().map(open).collect::<Result<_, _>>().map(|found| Self(Arc::new(found)))
    }

    /// Asks each workspace whom it takes us for, so that a token that is not good shows at once; then stays until
    /// `stop`.
    pub async fn greet(self, stop: CancellationToken) {
        for (swarm, workspace) in self.0.iter() {
            let Some(answer) = stop.run_until_cancelled(workspace.identity()).await else { return };
            match answer {
                Ok(who) => info!(%swarm, team = %who["team"], bot = %who["user"], "connected to Slack"),
                Err(problem) => warn!(%swarm, %problem, "Slack does not answer as it should"),
            }
        }
        stop.cancelled().await;
    }

    pub fn iter(&self) -> impl Iterator<Item = &Workspace> {
        self.0.values().map(AsRef::as_ref)
    }

    pub fn of(&self, swarm: &Name) -> Option<&Arc<Workspace>> {
        self.0.get(swarm)
    }

    /// # Errors
    /// `slack_not_configured` when the swarm has none.
    pub fn require(&self, swarm: &Name) -> Result<&Arc<Workspace>, Refusal> {
        self.of(swarm).ok_or_else(|| {
            Refusal::new(
                Code::SlackNotConfigured,
                "no Slack workspace is connected; an operator connects one, until then use post-message",
            )
        })
    }
}
