//! Lists, searches and histories, from the read side of the node that has the entity.
//!
//! Each node projects the entities of its own shards, so a list goes to the owner, as a command does: only there can be
//! known that it shows every write acknowledged before. What comes from many entities (the agents of a swarm) is asked
//! of all nodes and put together.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use skein_shared::id::EntityKey;
use skein_shared::{Code, Refusal};
use tokio::sync::watch;

use super::Entities;
use super::remote::{Call, NodeCall, read, write};
use crate::cluster::{Cluster, Outcome};
use crate::projection::{Event, Freshness, Hit, ProjectionError, Query, Sought, Tally, merge};

/// How long a list waits for the read side.
const CATCH_UP: Duration = Duration::from_secs(2);
/// How long another node may take for its part of a list.
const PART: Duration = Duration::from_secs(5);

/// What is wanted of the read side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Read {
    List(Box<Query>),
    Tally(Box<Query>, Tally),
    Search(Box<Sought>),
    History { subject: String, limit: usize },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Found {
    Rows(Vec<Value>),
    Counts(BTreeMap<String, u64>),
    Hits(Vec<Hit>),
    Events(Vec<Event>),
}

impl Entities {
    /// The documents of an entity that a query matches, and whether they show all that was acknowledged before.
    ///
    /// # Errors
    /// `unavailable` when the read side or the owner cannot answer.
    pub async fn list(&self, key: &EntityKey, query: Query) -> Result<(Vec<Value>, Freshness), Refusal> {
        match self.find(key, Read::List(Box::new(query))).await? {
            (Found::Rows(rows), freshness) => Ok((rows, freshness)),
            _ => Err(unexpected()),
        }
    }

    /// How many of the documents of an entity that a query matches have which value.
    ///
    /// # Errors
    /// Those of [`Entities::list`].
    pub async fn tally(
        &self,
        key: &EntityKey,
        query: Query,
        by: Tally,
    ) -> Result<(BTreeMap<String, u64>, Freshness), Refusal> {
        match self.find(key, Read::Tally(Box::new(query), by)).await? {
            (Found::Counts(counts), freshness) => Ok((counts, freshness)),
            _ => Err(unexpected()),
        }
    }

    /// The learnings of a memory that are sought, the best first.
    ///
    /// # Errors
    /// Those of [`Entities::list`].
    pub async fn search(&self, key: &EntityKey, sought: Sought) -> Result<(Vec<Hit>, Freshness), Refusal> {
        match self.find(key, Read::Search(Box::new(sought))).await? {
            (Found::Hits(hits), freshness) => Ok((hits, freshness)),
            _ => Err(unexpected()),
        }
    }

    /// The newest events of an entity about a subject, oldest first.
    ///
    /// # Errors
    /// Those of [`Entities::list`].
    pub async fn history(
        &self,
        key: &EntityKey,
        subject: &str,
        limit: usize,
    ) -> Result<(Vec<Event>, Freshness), Refusal> {
        match self.find(key, Read::History { subject: subject.to_owned(), limit }).await? {
            (Found::Events(events), freshness) => Ok((events, freshness)),
            _ => Err(unexpected()),
        }
    }

    /// The documents that a query matches, from whichever entities and nodes. A node that does not answer leaves gaps,
    /// and the list says so.
    ///
    /// # Errors
    /// `unavailable` when the read side of this node cannot answer.
    pub async fn list_everywhere(&self, query: Query) -> Result<(Vec<Value>, Freshness), Refusal> {
        let own = self.list_own(query.clone());
        let Some(router) = &self.shared().router else { return own.await };
        let shards = Shards::watched(&router.cluster);
        let call = write(&NodeCall::List(Box::new(query.clone())))?;
        let mut others = router.cluster.others();
        // Who only passes on what comes from outside has no entities.
        others.retain(|member| !member.passes_on);
        let asked = others.iter().map(|member| router.cluster.forward(member, None, PART, call.clone()));
        let (own, others) = tokio::join!(own, join_all(asked));
        let (rows, mut freshness) = own?;
        if !shards.stayed() {
            freshness = Freshness::Rebuilding;
        }
        let mut parts = vec![rows];
        for other in others {
            match other.ok().and_then(|outcome| match outcome {
                Outcome::Answer(answer) => read::<(Vec<Value>, Freshness)>(&answer).ok(),
                Outcome::NotOwner { .. } => None,
            }) {
                Some((rows, theirs)) => {
                    parts.push(rows);
                    freshness = freshness.and(theirs);
                }
                None => freshness = Freshness::Rebuilding,
            }
        }
        Ok((merge(&query, parts), freshness))
    }

    /// Like [`Entities::list_everywhere`], for whoever takes an empty list for the word that there is nothing.
    ///
    /// # Errors
    /// `unavailable` also when nothing is found and not all could be asked.
    pub async fn look_up(&self, query: Query) -> Result<Vec<Value>, Refusal> {
        match self.list_everywhere(query).await? {
            (rows, freshness) if rows.is_empty() && freshness != Freshness::Fresh => Err(not_all_asked()),
            (rows, _) => Ok(rows),
        }
    }

    /// Like [`Entities::list_everywhere`], of this node's entities alone. Those in memory are asked how far they are;
    /// others have not changed since this node has them.
    pub(super) async fn list_own(&self, query: Query) -> Result<(Vec<Value>, Freshness), Refusal> {
        let shards = self.cluster().map(Shards::watched);
        let projection = &self.shared().projection;
        // What has come to this node a moment ago is being brought in.
        let is_there = projection.whole(CATCH_UP).await
            && self.followed(CATCH_UP).await
            && projection.settled(CATCH_UP).await;
        if !is_there {
            return Ok((projection.list(query).await.map_err(unreadable)?, Freshness::Rebuilding));
        }
        let mut freshness = Freshness::Fresh;
        let concerned = self.in_memory().into_iter().map(|(key, _)| key);
        for key in concerned.filter(|key| key.kind == query.kind && key.swarm == query.swarm) {
            // One that has just moved away is another node's to show.
            let Ok(version) = self.version(&key).await else { continue };
            match projection.caught_up(&key, version, CATCH_UP).await {
                Freshness::Fresh => {}
                late => freshness = late,
            }
        }
        let rows = projection.list(query).await.map_err(unreadable)?;
        if shards.is_some_and(|shards| !shards.stayed()) {
            freshness = Freshness::Rebuilding;
        }
        Ok((rows, freshness))
    }

    async fn find(&self, key: &EntityKey, wanted: Read) -> Result<(Found, Freshness), Refusal> {
        let call = Call::Read(Box::new(wanted.clone()));
        self.read_routed(key, &call, || self.read_here(key, wanted.clone())).await
    }

    pub(super) async fn read_here(
        &self,
        key: &EntityKey,
        wanted: Read,
    ) -> Result<(Found, Freshness), Refusal> {
        let version = self.version(key).await?;
        let projection = &self.shared().projection;
        let freshness = projection.caught_up(key, version, CATCH_UP).await;
        let found = match wanted {
            Read::List(query) => projection.list(*query).await.map(Found::Rows),
            Read::Tally(query, by) => projection.tally(*query, by).await.map(Found::Counts),
            Read::Search(sought) => projection.search(key, *sought).await.map(Found::Hits),
            Read::History { subject, limit } => {
                projection.history(key, &subject, limit).await.map(Found::Events)
            }
        };
        Ok((found.map_err(unreadable)?, freshness))
    }
}

/// The shards while a list is put together: it has gaps if one of them is nobody's, or goes from one node that was
/// asked to another.
struct Shards<'a> {
    cluster: &'a Cluster,
    changes: watch::Receiver<u64>,
    were_whole: bool,
}

impl<'a> Shards<'a> {
    fn watched(cluster: &'a Cluster) -> Self {
        let changes = cluster.changes();
        Self { cluster, changes, were_whole: cluster.is_whole() }
    }

    fn stayed(&self) -> bool {
        self.were_whole && self.changes.has_changed().is_ok_and(|changed| !changed) && self.cluster.is_whole()
    }
}

/// To those who have found nothing where not everybody could be asked.
fn not_all_asked() -> Refusal {
    let problem = "it was not found, and not everything can be listed yet, since a node is away or has just started; try again in a moment";
    Refusal::new(Code::Unavailable, problem).retry_after(1000)
}

fn unreadable(error: ProjectionError) -> Refusal {
    Refusal::new(Code::Unavailable, format!("{error}; try again in a moment")).retry_after(500)
}

fn unexpected() -> Refusal {
    Refusal::new(Code::Internal, "the read side gave an answer of another kind; report this")
}
