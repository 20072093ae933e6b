//! Counts of tasks, and the tasks that hang together: what a board and a graph are drawn from.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Value, json};
use skein_shared::Refusal;
use skein_shared::id::Kind;
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::Service;
use super::lists::List;
use crate::auth::{Principal, Right, policy};
use crate::projection::{FieldPath, Filter, Freshness, Order, Query, Tally, Test};

/// Tasks that are read at a time.
const AT_ONCE: usize = 16;
/// The letters of a time up to its minute: `2026-09-21T14:13`.
const MINUTE: u32 = 16;

impl Service {
    /// How many tasks have which status, of the swarm or of one epic, and whether that may be old.
    pub async fn count_tasks(
        &self,
        who: &Principal,
        epic: Option<Uuid>,
    ) -> Result<(BTreeMap<String, u64>, Freshness), Refusal> {
        let mut tasks = Query::new(&who.swarm, Kind::Pool, "task");
        // Every task has one; to say so lets them be counted in the index.
        tasks.filters.push(Filter::new("status", Test::Present)?);
        if let Some(epic) = epic {
            tasks.filters.push(Filter::new("epicId", Test::Eq(json!(epic)))?);
        }
        self.tally(who, tasks, Tally { by: FieldPath::parse("status")?, letters: None }).await
    }

    /// How many tasks last changed in each minute since a moment, as which they now are: of tasks that are over, when
    /// that was. And whether that may be old.
    pub async fn count_ended(
        &self,
        who: &Principal,
        status: &str,
        within: Duration,
    ) -> Result<(BTreeMap<Timestamp, u64>, Freshness), Refusal> {
        let since = self.clock().wall() - within;
        let mut tasks = Query::new(&who.swarm, Kind::Pool, "task");
        tasks.filters = vec![
            Filter::new("status", Test::Eq(json!(status)))?,
            Filter::new("lastUpdatedAt", Test::AtLeast(json!(since.iso())))?,
        ];
        let by = Tally { by: FieldPath::parse("lastUpdatedAt")?, letters: Some(MINUTE) };
        let (counted, freshness) = self.tally(who, tasks, by).await?;
        let minutes = counted
            .into_iter()
            .filter_map(|(minute, count)| Some((Timestamp::parse_iso(&format!("{minute}:00Z"))?, count)));
        Ok((minutes.collect(), freshness))
    }

    async fn tally(
        &self,
        who: &Principal,
        of: Query,
        by: Tally,
    ) -> Result<(BTreeMap<String, u64>, Freshness), Refusal> {
        policy::require(who, Right::Read)?;
        self.entities.tally(&who.entity(Kind::Pool), of, by).await
    }

    /// Tasks that wait for others, the most urgent first, and those that they wait for: of the swarm or of one epic.
    pub async fn dependencies(
        &self,
        who: &Principal,
        epic: Option<Uuid>,
        limit: usize,
    ) -> Result<List, Refusal> {
        policy::require(who, Right::Read)?;
        let mut query = Query::new(&who.swarm, Kind::Pool, "task");
        query.filters = vec![Filter::new("dependsOn", Test::Not(json!("[]")))?];
        if let Some(epic) = epic {
            query.filters.push(Filter::new("epicId", Test::Eq(json!(epic)))?);
        }
        query.order = vec![Order::descending("priority")?, Order::descending("lastUpdatedAt")?];
        query.without = vec![FieldPath::parse("output")?];
        query.limit = limit;
        let List { mut rows, freshness, .. } = self.list(&who.entity(Kind::Pool), query).await?;
        let missing: Vec<Uuid> = missing(&rows).into_iter().take(limit).collect();
        let found: Vec<Option<Value>> =
            stream::iter(missing).map(|id| self.task(who, id)).buffered(AT_ONCE).try_collect().await?;
        rows.extend(found.into_iter().flatten());
        Ok(List { rows, freshness, next: None })
    }
}

/// The tasks that others wait for and that are not among them.
fn missing(tasks: &[Value]) -> BTreeSet<Uuid> {
    let id = |id: &Value| Uuid::try_parse(id.as_str()?).ok();
    let known: BTreeSet<Uuid> = tasks.iter().filter_map(|task| id(&task["id"])).collect();
    let needed = tasks.iter().flat_map(|task| task["dependsOn"].as_array().into_iter().flatten());
    needed.filter_map(id).filter(|needed| !known.contains(needed)).collect()
}
