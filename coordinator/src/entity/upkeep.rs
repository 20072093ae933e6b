//! What a node does with its store as a whole: forget, copy, count.

use std::collections::BTreeSet;
use std::path::Path;

use skein_shared::id::{Kind, Name};
use skein_shared::{Code, Refusal};
use tokio::time::Instant;

use super::Entities;
use crate::store::{CopyError, TrimPlan, Trimmed};

/// The swarms as they were read last, and when that was begun.
#[derive(Default)]
pub(super) struct Swarms {
    names: BTreeSet<Name>,
    read: Option<Instant>,
}

impl Entities {
    /// Forgets what the plan names, in small steps, and tells the read side.
    ///
    /// # Errors
    /// `unavailable` when the store refuses; what was forgotten until then stays so.
    pub async fn forget(&self, plan: &TrimPlan) -> Result<Trimmed, Refusal> {
        let store = &self.shared().store;
        let mut all = Trimmed::default();
        loop {
            let step = store.trim(plan.clone()).await.map_err(|error| {
                Refusal::new(Code::Unavailable, format!("nothing more can be forgotten now: {error}"))
            })?;
            if step.is_nothing() {
                break;
            }
            all.records += step.records;
            all.replies += step.replies;
            all.marks += step.marks;
            all.documents += step.documents;
            all.dead_letters += step.dead_letters;
            all.loose += step.loose;
        }
        if all.documents > 0 {
            self.shared().documents.forget();
        }
        let projection = &self.shared().projection;
        projection.trim(plan.archived_before, plan.events_before, plan.events_per_entity);
        Ok(all)
    }

    /// Writes a consistent copy of the store while it is in use.
    ///
    /// # Errors
    /// `invalid_argument` when there is no such folder, `unavailable` when the file cannot be written, `wrong_state`
    /// where the store is copied in another way.
    pub async fn backup(&self, path: &Path) -> Result<(), Refusal> {
        if !path.parent().is_some_and(Path::is_dir) {
            let problem = format!("{} is in no folder that there is; make the folder first", path.display());
            return Err(Refusal::new(Code::InvalidArgument, problem));
        }
        self.shared().store.backup(path).await.map_err(|error| match error {
            CopyError::AnotherWay(way) => {
                Refusal::new(Code::WrongState, format!("the copy was not made: {way}"))
            }
            CopyError::Failed(problem) => {
                Refusal::new(Code::Unavailable, format!("the copy was not made: {problem}"))
            }
        })
    }

    /// The default swarm, and all that have written anything. Fleets belong to runners, not to a swarm.
    ///
    /// # Errors
    /// `unavailable` when the store cannot be read.
    pub async fn swarms(&self) -> Result<Vec<Name>, Refusal> {
        let entities = self.shared().store.entities().await.map_err(|error| {
            Refusal::new(Code::Unavailable, format!("{error}; try again in a moment")).retry_after(500)
        })?;
        let swarms: BTreeSet<Name> = entities
            .into_iter()
            .filter(|key| key.kind != Kind::Fleet)
            .map(|key| key.swarm)
            .chain([Name::parse("default")?])
            .collect();
        Ok(swarms.into_iter().collect())
    }

    /// Whether there is a swarm. One that was there stays; for any other the store is looked through, once for all who
    /// ask at the same time: anybody may ask, with whatever name.
    ///
    /// # Errors
    /// As [`Self::swarms`].
    pub async fn has_swarm(&self, swarm: &Name) -> Result<bool, Refusal> {
        let (this, name) = (self.clone(), swarm.clone());
        // In a task of its own: whoever asks may be left alone, and all others would wait with it.
        let looking = tokio::spawn(async move { this.look_for_swarm(&name).await });
        looking.await.unwrap_or_else(|_| {
            Err(Refusal::new(
                Code::Unavailable,
                format!("whether there is a swarm `{swarm}` was not found out; try again"),
            ))
        })
    }

    async fn look_for_swarm(&self, swarm: &Name) -> Result<bool, Refusal> {
        let asked = Instant::now();
        let mut known = self.shared().swarms.lock().await;
        if !known.names.contains(swarm) && known.read.is_none_or(|read| read < asked) {
            let read = Instant::now();
            let names = self.swarms().await?.into_iter().collect();
            *known = Swarms { names, read: Some(read) };
        }
        Ok(known.names.contains(swarm))
    }

    /// Effects that could not be delivered, at most `limit`.
    ///
    /// # Errors
    /// `unavailable` when the store cannot be read.
    pub async fn effects_given_up(&self, limit: usize) -> Result<usize, Refusal> {
        let letters = self.shared().store.dead_letters(0, limit).await;
        letters
            .map(|letters| letters.len())
            .map_err(|error| Refusal::new(Code::Unavailable, error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entity::tests::node;

    #[tokio::test]
    async fn a_store_that_is_copied_in_another_way_says_so_and_asks_for_no_other_path() {
        let (node, folder) = (node(), tempfile::tempdir().unwrap());
        let refused = node.entities.backup(&folder.path().join("copy.db")).await.unwrap_err();
        assert_eq!(refused.code, Code::WrongState);
        assert!(!refused.message.contains("another path"), "{}", refused.message);
    }
}
