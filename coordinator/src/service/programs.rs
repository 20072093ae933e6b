//! Lists as programs of other systems ask for them: by offset instead of by place, or of what has just been. Those have
//! no place to be told that a list may be old, and get none then.

use std::time::Duration;

use serde_json::{Value, json};
use skein_shared::channels::GENERAL;
use skein_shared::id::Kind;
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::lists::{self, unreadable, whole};
use super::read::{message_shape, task_shape};
use super::{Event, Service};
use crate::auth::{Principal, Right, policy};
use crate::projection::{FieldPath, Filter, Order, Query, Tally, Test};

/// Records of the store that are looked through for the newest events, at most.
const RECORDS: usize = 2000;

/// Which messages of a channel are wanted.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    pub channel: Uuid,
    /// Only later ones.
    pub since: Option<Timestamp>,
    /// Only earlier ones.
    pub before: Option<Timestamp>,
    /// Only answers to this one.
    pub to: Option<Uuid>,
    pub limit: usize,
}

impl Service {
    /// Tasks from an offset on, the most urgent first, then the latest changed, and how many there are in all. What
    /// is asked of readiness is not heeded.
    ///
    /// # Errors
    /// `unavailable` when the read side cannot answer, or does not show all that was acknowledged before.
    pub async fn tasks_from(
        &self,
        who: &Principal,
        wanted: lists::Tasks,
        offset: usize,
    ) -> Result<(Vec<Value>, u64), Refusal> {
        policy::require(who, Right::Read)?;
        let mut query = lists::task_query(who, &wanted)?;
        query.offset = offset;
        let key = who.entity(Kind::Pool);
        let mut all = Query { order: Vec::new(), offset: 0, ..query.clone() };
        // Every task has one; to say so lets them be counted in the index.
        all.filters.push(Filter::new("status", Test::Present)?);
        let by_status = Tally { by: FieldPath::parse("status")?, letters: None };
        let (counted, so_far) = self.entities.tally(&key, all, by_status).await?;
        let (rows, freshness) = self.entities.list(&key, query).await?;
        let rows = whole(rows, freshness.and(so_far))?;
        let mut tasks: Vec<Value> = rows.into_iter().map(task_shape).collect();
        self.leave_out_lost_epics(who, &mut tasks).await;
        Ok((tasks, counted.values().sum()))
    }

    /// The caller's tasks that were cancelled in the time until now, the latest first.
    ///
    /// # Errors
    /// `unavailable` when the read side cannot answer, or does not show all that was acknowledged before.
    pub async fn cancelled_of(
        &self,
        who: &Principal,
        within: Duration,
        limit: usize,
    ) -> Result<Vec<Value>, Refusal> {
        policy::require(who, Right::Read)?;
        let since = json!((self.clock().wall() - within).iso());
        let mut query = Query::new(&who.swarm, Kind::Pool, "task");
        query.filters = vec![
            // What ended since then has changed since then, and that can be looked up.
            Filter::new("lastUpdatedAt", Test::AtLeast(since.clone()))?,
            Filter::new("finishedAt", Test::AtLeast(since))?,
            Filter::new("status", Test::Eq(json!("cancelled")))?,
            Filter::new("agentId", Test::Eq(json!(who.agent)))?,
        ];
        query.order = vec![Order::descending("lastUpdatedAt")?, Order::ascending("id")?];
        query.limit = limit;
        let rows = self.list(&who.entity(Kind::Pool), query).await?.whole()?.rows;
        Ok(rows.into_iter().map(task_shape).collect())
    }

    /// Tasks that an agent made in the time until now, the newest first.
    ///
    /// # Errors
    /// `unavailable` when the read side cannot answer, or does not show all that was acknowledged before.
    pub async fn tasks_made_by(
        &self,
        who: &Principal,
        creator: Uuid,
        within: Duration,
        limit: usize,
    ) -> Result<Vec<Value>, Refusal> {
        policy::require(who, Right::Read)?;
        let since = json!((self.clock().wall() - within).iso());
        let mut query = Query::new(&who.swarm, Kind::Pool, "task");
        query.filters = vec![
            // What was made since then has changed since then, and that can be looked up.
            Filter::new("lastUpdatedAt", Test::AtLeast(since.clone()))?,
            Filter::new("createdAt", Test::AtLeast(since))?,
            Filter::new("creatorAgentId", Test::Eq(json!(creator)))?,
        ];
        query.order = vec![Order::descending("createdAt")?, Order::ascending("id")?];
        query.limit = limit;
        let rows = self.list(&who.entity(Kind::Pool), query).await?.whole()?.rows;
        let mut tasks: Vec<Value> = rows.into_iter().map(task_shape).collect();
        self.leave_out_lost_epics(who, &mut tasks).await;
        Ok(tasks)
    }

    /// Messages of a channel, the oldest first. They stay unread.
    ///
    /// # Errors
    /// `not_found`; `unavailable` when the read side cannot answer, or does not show all that was acknowledged before.
    pub async fn list_messages(&self, who: &Principal, wanted: Messages) -> Result<Vec<Value>, Refusal> {
        policy::require(who, Right::Read)?;
        let Messages { channel, since, before, to, limit } = wanted;
        // The general one is there, whether it has a document yet or not.
        let known = channel == GENERAL || self.channel_exists(who, channel).await?;
        if !known {
            let problem = format!("there is no channel {channel}; list-channels shows those there are");
            return Err(Refusal::new(Code::NotFound, problem));
        }
        let after = since.map(|since| since + Duration::from_millis(1));
        let conditions = [
            ("channelId", Some(Test::Eq(json!(channel)))),
            ("createdAt", after.map(|after| Test::AtLeast(json!(after.iso())))),
            ("createdAt", before.map(|before| Test::Below(json!(before.iso())))),
            ("replyToId", to.map(|to| Test::Eq(json!(to)))),
        ];
        let mut query = Query::new(&who.swarm, Kind::Channels, "message");
        for (path, test) in conditions {
            query.filters.extend(test.map(|test| Filter::new(path, test)).transpose()?);
        }
        // Several may be of one moment.
        query.order = vec![Order::descending("createdAt")?, Order::descending("number")?];
        query.limit = limit;
        let (rows, freshness) = self.entities.list(&who.entity(Kind::Channels), query).await?;
        Ok(whole(rows, freshness)?.into_iter().rev().map(message_shape).collect())
    }

    async fn channel_exists(&self, who: &Principal, channel: Uuid) -> Result<bool, Refusal> {
        let found = self.body(&who.entity(Kind::Channels), &format!("channel/{channel}")).await?;
        Ok(found.is_some())
    }

    /// The caller's messages of the inbox that it was given and has neither answered nor delegated, the newest first.
    ///
    /// # Errors
    /// `unavailable` when the read side cannot answer, or does not show all that was acknowledged before.
    pub async fn messages_in_work(&self, who: &Principal, limit: usize) -> Result<Vec<Value>, Refusal> {
        policy::require(who, Right::Read)?;
        let mut query = Query::new(&who.swarm, Kind::Inboxes, "message");
        query.filters = vec![
            Filter::new("agentId", Test::Eq(json!(who.agent)))?,
            Filter::new("status", Test::Eq(json!("processing")))?,
        ];
        query.order = vec![Order::descending("createdAt")?, Order::ascending("id")?];
        query.limit = limit;
        Ok(self.list(&who.entity(Kind::Inboxes), query).await?.whole()?.rows)
    }

    /// The newest events of the swarm, the newest first, as far as they stand among the last records of the store.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn newest_events(&self, who: &Principal) -> Result<Vec<Event>, Refusal> {
        policy::require(who, Right::Read)?;
        let mut events = self.projection().latest(&who.swarm, RECORDS).await.map_err(unreadable)?;
        events.reverse();
        Ok(events)
    }
}
