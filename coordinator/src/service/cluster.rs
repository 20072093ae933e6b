//! The coordinators that share a store, as operators see them.

use std::time::Duration;

use serde_json::{Value, json};
use skein_shared::{Code, Refusal};

use super::Service;
use crate::alarms::Alarms;
use crate::auth::{Principal, Right, policy};

/// How long somebody who looks at the cluster waits for what the store remembers.
const INCIDENTS: Duration = Duration::from_secs(1);

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
        // Whoever looks because the store stands still wants the rest all the same.
        let incidents = tokio::time::timeout(INCIDENTS, cluster.incidents()).await;
        let generation = cluster.generation();
        Ok(json!({
            "nodes": nodes.collect::<Vec<_>>(),
            "unowned": cluster.shards().saturating_sub(owned),
            "generation": {"run": generation.run, "replication": generation.replication},
            "alarms": shown(&self.entities.shared().alarms),
            "incidents": incidents.ok().and_then(Result::ok),
        }))
    }

    /// Lets a node, named by its id or its address, give all its shards to the others.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers; `not_found` for a name that nobody has; `wrong_state` when nobody else
    /// could take them; `unavailable` when the node does not answer.
    pub async fn drain(&self, who: &Principal, node: &str) -> Result<(), Refusal> {
        policy::require(who, Right::Administer)?;
        self.entities.drain(node).await
    }

    /// How this node fares, for whoever looks at it.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers; `unavailable` when the store cannot be read.
    pub async fn node(&self, who: &Principal) -> Result<Value, Refusal> {
        policy::require(who, Right::Administer)?;
        Ok(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "entities": self.entities.in_memory().len(),
            "effectsGivenUp": self.entities.effects_given_up(1000).await?,
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
