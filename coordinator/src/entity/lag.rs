//! How far a node is behind with what its commits have promised.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use serde::{Deserialize, Serialize};
use skein_shared::Refusal;

use super::Entities;
use super::remote::{NodeCall, read, write};
use crate::cluster::Outcome;
use crate::store::StoreError;

/// Undelivered effects that are counted; a longer outbox shows by its oldest.
const EFFECTS: usize = 1000;
/// How long another node may take to say how far it is.
const TELL: Duration = Duration::from_secs(1);

/// What is still to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lag {
    /// Effects that wait for their delivery, up to 1000.
    pub effects: usize,
    /// Age of the oldest of them, milliseconds.
    pub oldest_effect_ms: u64,
    /// Commits that the lists do not show yet.
    pub unlisted_commits: usize,
}

impl Entities {
    /// How far this node is.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn lag(&self) -> Result<Lag, StoreError> {
        let waiting = self.shared().store.outbox(0, EFFECTS).await?;
        let now = self.clock().now();
        let age = waiting.first().map_or(Duration::ZERO, |oldest| now.since(oldest.at));
        Ok(Lag {
            effects: waiting.len(),
            oldest_effect_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
            unlisted_commits: self.shared().projection.lag(),
        })
    }

    /// How far each node of the cluster is, by its id. Those that do not say so in time are left out.
    ///
    /// # Errors
    /// When the question cannot be written.
    pub async fn lags(&self) -> Result<BTreeMap<String, Lag>, Refusal> {
        let Some(cluster) = self.cluster() else { return Ok(BTreeMap::new()) };
        let call = write(&NodeCall::Lag)?;
        let others = cluster.others();
        let asked = others.iter().map(|member| cluster.forward(member, None, TELL, call.clone()));
        let (answers, own) = tokio::join!(join_all(asked), tokio::time::timeout(TELL, self.lag()));
        let mut lags = BTreeMap::new();
        for (member, answer) in others.iter().zip(answers) {
            if let Ok(Outcome::Answer(answer)) = answer
                && let Ok(lag) = read(&answer)
            {
                lags.insert(member.id.clone(), lag);
            }
        }
        if let Ok(Ok(own)) = own {
            lags.insert(cluster.me().id, own);
        }
        Ok(lags)
    }
}
