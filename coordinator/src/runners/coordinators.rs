//! Which coordinators a runner shall hold a stream to, as this one knows them.

use skein_proto::v1::{self, Coordinator};
use tokio::sync::watch;

use crate::entity::Entities;

/// The list as it was told to one runner.
pub(super) struct Coordinators<'a> {
    entities: &'a Entities,
    /// None for a node that has its store for itself: there is nobody else.
    changes: Option<watch::Receiver<u64>>,
    told: v1::Coordinators,
}

impl<'a> Coordinators<'a> {
    pub(super) fn new(entities: &'a Entities) -> Self {
        let changes = entities.cluster().map(|cluster| {
            let mut changes = cluster.changes();
            changes.mark_changed();
            changes
        });
        Self { entities, changes, told: v1::Coordinators::default() }
    }

    /// The list, as soon as it is another than was told. A call that is dropped loses nothing.
    pub(super) async fn changed(&mut self) -> v1::Coordinators {
        let Some(changes) = &mut self.changes else { return std::future::pending().await };
        while changes.changed().await.is_ok() {
            let now = all(self.entities);
            if now != self.told {
                self.told.clone_from(&now);
                return now;
            }
        }
        std::future::pending().await
    }
}

/// Those that runners can reach, this one too.
fn all(entities: &Entities) -> v1::Coordinators {
    let members = entities.cluster().map(|cluster| cluster.members()).unwrap_or_default();
    let reached = members.into_iter().filter(|member| !member.runners.is_empty());
    let coordinators = reached.map(|member| Coordinator { node: member.id, url: member.runners }).collect();
    v1::Coordinators { coordinators }
}
