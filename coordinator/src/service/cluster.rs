//! The coordinators that share a store, as operators see them.

use std::time::Duration;

use serde_json::{Value, json};
use skein_shared::{Code, Refusal};

use super::Service;
use crate::alarms::Alarms;
use crate::auth::{Principal, Right, policy};

/// How long somebody who looks at a node waits for what its store says. What is wrong is told within the time that a
/// health check has.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the store says; nothing if it does not: whoever looks because it stands still wants the rest all the same.
pub(crate) async fn if_told<T, E>(asked: impl Future<Output = Result<T, E>>) -> Option<T> {
    tokio::time::timeout(PATIENCE, asked).await.ok().and_then(Result::ok)
}

impl Service {
    /// The nodes with their shards, each with its epoch, and what is wrong, as the node that is asked sees it.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers; `wrong_state` on a node that has its store for itself.
    pub async fn cluster(&self, who: &Principal) -> Result<Value, Refusal> {
        policy::require(who, Right::Administer)?;
        let Some(cluster) = self.entities.cluster() else {
            let problem = "this node has its store for itself; `skein serve --redis` makes a cluster";
            return Err(Refusal::new(Code::WrongState, problem));
        };
        let (survey, me) = (cluster.survey(), cluster.me().id);
        let owned: usize = survey.iter().map(|(_, shards)| shards.len()).sum();
        let lags = self.entities.lags().await?;
        let nodes = survey.into_iter().map(|(member, shards)| {
            let shards: serde_json::Map<String, Value> =
                shards.into_iter().map(|(shard, epoch)| (shard.to_string(), json!(epoch))).collect();
            json!({
                "id": member.id,
                "address": member.address,
                "incarnation": member.incarnation,
                "format": member.formats.1,
                "draining": member.draining,
                "passesOn": member.passes_on,
                "asked": member.id == me,
                "lag": lags.get(&member.id),
                "shards": shards,
            })
        });
        let incidents = if_told(cluster.incidents()).await;
        let generation = cluster.generation();
        Ok(json!({
            "nodes": nodes.collect::<Vec<_>>(),
            "unowned": cluster.shards().saturating_sub(owned),
            "soleOwner": cluster.sole_owner(),
            "generation": {"run": generation.run, "replication": generation.replication},
            "alarms": shown(&self.entities.shared().alarms),
            "incidents": incidents,
        }))
    }

    /// Lets a node, named by its id or its address, give all its shards to the others.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers; `not_found` for a name that nobody has; `wrong_state` when nobody
    /// else could take them; `unavailable` when the node does not answer.
    pub async fn drain(&self, who: &Principal, node: &str) -> Result<(), Refusal> {
        policy::require(who, Right::Administer)?;
        self.entities.drain(node).await
    }

    /// How this node fares, for whoever looks at it. What was given up is unknown while the store does not tell.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers.
    pub async fn node(&self, who: &Principal) -> Result<Value, Refusal> {
        policy::require(who, Right::Administer)?;
        let given_up = if_told(self.entities.effects_given_up(1000)).await;
        Ok(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "entities": self.entities.in_memory().len(),
            "effectsGivenUp": given_up,
            "projectionLag": self.entities.shared().projection.lag(),
            "alarms": shown(&self.entities.shared().alarms),
        }))
    }
}

/// What is wrong, as programs read it.
fn shown(alarms: &Alarms) -> Vec<Value> {
    let shown = alarms.all().into_iter().map(|alarm| {
        json!({
            "kind": alarm.kind.as_str(),
            "subject": alarm.subject,
            "problem": alarm.problem,
            "for_s": alarm.since.as_secs(),
        })
    });
    shown.collect()
}
