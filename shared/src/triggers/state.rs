//! The waits, subscriptions and receipts of a swarm in memory, with their indexes.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::command::{Incoming, Reply};
use super::filter::{Envelope, Filter};
use super::index::{Index, Place};
use crate::id::{InstanceId, Name};
use crate::slack::Said;
use crate::time::Timestamp;

/// How long a wait is kept past its deadline. The agent's clock alone ends a wait, and it may run behind.
const OVERDUE: Duration = Duration::from_secs(60);
/// How long a delivery is remembered: longer than any provider repeats one.
const REMEMBER: Duration = Duration::from_secs(7 * 86_400);
/// Receipts are trimmed at most this often, so that a trickle of events costs no commit each.
const TRIM_EVERY: Duration = Duration::from_secs(3600);

/// Webhook waits and subscriptions of one swarm, and the deliveries that it has seen.
#[derive(Debug, PartialEq)]
pub struct Triggers {
    pub(super) swarm: Name,
    pub(super) waits: BTreeMap<Uuid, Wait>,
    /// By what they want.
    index: Index,
    by_instance: BTreeMap<InstanceId, Uuid>,
    by_deadline: BTreeSet<(Timestamp, Uuid)>,
    pub(super) subscriptions: BTreeMap<Name, Vec<Filter>>,
    pub(super) receipts: BTreeMap<Uuid, Receipt>,
    by_age: BTreeSet<(Timestamp, Uuid)>,
    by_delivery: BTreeMap<Uuid, Uuid>,
    by_dedupe: Filed,
    /// What each person has said that the swarm heard, or would have.
    by_speaker: Filed,
    pub(super) pause: Pause,
}

/// The last word on whether the swarm's agents are paused; also the head of its document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Pause {
    pub paused: bool,
    pub word: u64,
}

impl Pause {
    pub(super) fn reply(&self) -> Reply {
        Reply::Pause { paused: self.paused, word: self.word }
    }
}

/// An open wait; also the head of its document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Wait {
    pub agent: Name,
    pub instance: InstanceId,
    pub filter: Filter,
    pub registered_at: Timestamp,
    pub deadline: Timestamp,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub broadcast: bool,
}

/// Receipts under what they have in common, the oldest first.
type Filed = BTreeMap<Uuid, BTreeSet<(Timestamp, Uuid)>>;

/// An event that was taken in; also the head of its document, whose body holds the event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Receipt {
    pub at: Timestamp,
    /// [`delivery_id`] of the delivery; none if the provider gives no ids, and for a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Uuid>,
    /// [`dedupe_id`] of what an agent or the swarm has from it, or would have but for the limit.
    #[serde(default, alias = "said", skip_serializing_if = "Option::is_none")]
    pub dedupe: Option<Uuid>,
    /// [`speaker_id`] of who asked the swarm for something with it, in the first receipt of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speaker: Option<Uuid>,
    /// How many have the event: waits that it ended, and agents that it starts.
    #[serde(default)]
    pub matched: usize,
    /// Why nobody has it. A delivery that comes again is then looked at again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead: Option<String>,
    /// Waits that share the event, for agents with more than one. While one of them may have claimed it, the
    /// event has found its reader.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shared: BTreeMap<Name, BTreeSet<Uuid>>,
}

/// Why a receipt is a dead letter. Agents have reasons of their own, such as `disabled`.
pub(super) const NO_MATCH: &str = "no_match";
pub(super) const PARSE_ERROR: &str = "parse_error";
pub(super) const RATE_LIMITED: &str = "rate_limited";
/// How far back a speaker's messages are counted, and for how long events of a forge may tell the same.
const MINUTE: Duration = Duration::from_secs(60);

impl Receipt {
    /// Counts what came of the event. Once nobody has it, it is dead for that reason.
    pub(super) fn count(&mut self, gone: usize, come: usize, reason: &str) {
        self.matched = self.matched.saturating_sub(gone) + come;
        self.dead = (self.matched == 0).then(|| reason.to_owned());
    }

    /// `processed` or `dead_letter`, as lists show it.
    pub(super) fn status(&self) -> &'static str {
        if self.dead.is_some() { "dead_letter" } else { "processed" }
    }
}

/// A delivery's identity in 16 bytes, however long the provider's ids are.
pub(super) fn delivery_id(source: &str, delivery: &str) -> Option<Uuid> {
    const NAMESPACE: Uuid = Uuid::from_u128(0x6a1f_52d8_0c3e_4b7a_9d24_e1f0_83b5_c697);
    let name = format!("{source}\n{delivery}");
    (!delivery.is_empty()).then(|| Uuid::new_v5(&NAMESPACE, name.as_bytes()))
}

/// The identity of what an event tells the swarm, where several events may tell the same: what a person says in Slack,
/// and what became of something at a forge.
pub(super) fn dedupe_id(incoming: &Incoming) -> Option<Uuid> {
    let said = incoming.said.as_ref().map(|said| said.key());
    let key = said.or_else(|| incoming.activity.as_ref()?.dedupe_key())?;
    delivery_id(&incoming.source, &key)
}

/// A person's identity in 16 bytes.
pub(super) fn speaker_id(said: &Said) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, said.user.as_bytes())
}

impl Triggers {
    pub(super) fn new(swarm: Name) -> Self {
        Self {
            swarm,
            waits: BTreeMap::new(),
            index: Index::default(),
            by_instance: BTreeMap::new(),
            by_deadline: BTreeSet::new(),
            subscriptions: BTreeMap::new(),
            receipts: BTreeMap::new(),
            by_age: BTreeSet::new(),
            by_delivery: BTreeMap::new(),
            by_dedupe: BTreeMap::new(),
            by_speaker: BTreeMap::new(),
            pause: Pause::default(),
        }
    }

    /// The waits that an event ends: for each agent the longest-waiting one that matches, and each that asked for
    /// broadcast. `ended` is a wait that its agent has said to be over.
    pub(super) fn woken(&self, event: &Envelope, ended: Option<Uuid>) -> BTreeMap<&Name, Vec<Place>> {
        let matches = |place: &&Place| {
            Some(place.1) != ended && self.waits.get(&place.1).is_some_and(|wait| wait.filter.matches(event))
        };
        let mut woken: BTreeMap<&Name, Vec<Place>> = BTreeMap::new();
        for (agent, line) in self.index.lines(event) {
            let single = line.single.iter().find(matches);
            let found: Vec<Place> =
                single.into_iter().chain(line.broadcast.iter().filter(matches)).copied().collect();
            if !found.is_empty() {
                woken.entry(agent).or_default().extend(found);
            }
        }
        for places in woken.values_mut() {
            places.sort();
            let first = places.first().copied();
            let is_broadcast = |wait: Uuid| self.waits.get(&wait).is_some_and(|wait| wait.broadcast);
            places.retain(|place| Some(*place) == first || is_broadcast(place.1));
        }
        woken
    }

    /// Agents whose subscription is for the event.
    pub(super) fn subscribed<'a>(&'a self, event: &'a Envelope) -> impl Iterator<Item = &'a Name> {
        self.subscriptions.keys().filter(|agent| self.is_subscribed(agent, event))
    }

    pub(super) fn is_subscribed(&self, agent: &Name, event: &Envelope) -> bool {
        self.subscriptions.get(agent).is_some_and(|filters| filters.iter().any(|f| f.matches(event)))
    }

    pub(super) fn wait_of(&self, instance: &InstanceId) -> Option<Uuid> {
        self.by_instance.get(instance).copied()
    }

    /// The receipt under which the delivery was taken in before.
    pub(super) fn seen(&self, delivery: Option<Uuid>) -> Option<Uuid> {
        self.by_delivery.get(&delivery?).copied()
    }

    /// Whether the swarm heard the same by another event, or an agent did. What people say is said once; at a forge the
    /// same can happen again later.
    pub(super) fn is_repeated(&self, incoming: &Incoming, now: Timestamp) -> bool {
        let Some(dedupe) = dedupe_id(incoming) else { return false };
        let lasts = |at: Timestamp| incoming.said.is_some() || now.since(at) < MINUTE;
        let mut heard = self.by_dedupe.get(&dedupe).into_iter().flatten();
        heard.any(|(at, receipt)| lasts(*at) && *receipt != incoming.receipt)
    }

    /// How much of what somebody said within the last minute was heard, and how much was not for there was too much.
    pub(super) fn messages_of(&self, speaker: Uuid, now: Timestamp) -> (usize, usize) {
        let said = self.by_speaker.get(&speaker).into_iter().flatten().rev();
        let recent = said.take_while(|(at, _)| now.since(*at) < MINUTE);
        let is_heard = |id: &Uuid| self.receipts.get(id).is_some_and(|receipt| receipt.dead.is_none());
        recent.fold((0, 0), |(heard, refused), (_, id)| match is_heard(id) {
            true => (heard + 1, refused),
            false => (heard, refused + 1),
        })
    }

    pub(super) fn overdue(&self, now: Timestamp) -> impl Iterator<Item = Uuid> {
        self.by_deadline.iter().take_while(move |(end, _)| *end + OVERDUE <= now).map(|(_, id)| *id)
    }

    /// Receipts past their time.
    pub(super) fn outdated(&self, now: Timestamp) -> impl Iterator<Item = Uuid> {
        self.by_age.iter().take_while(move |(at, _)| *at + REMEMBER <= now).map(|(_, id)| *id)
    }

    /// From the one behind `after` on. Where that is forgotten, so is all that is older.
    pub(super) fn received_since(&self, at: Timestamp, after: Option<Uuid>) -> impl Iterator<Item = Uuid> {
        let seen = after.and_then(|id| Some((self.receipts.get(&id)?.at, id)));
        let begin = seen.map_or(Bound::Included((at, Uuid::nil())), Bound::Excluded);
        self.by_age.range((begin, Bound::Unbounded)).map(|(_, id)| *id)
    }

    pub(super) fn oldest_receipts(&self, count: usize) -> impl Iterator<Item = Uuid> {
        self.by_age.iter().take(count).map(|(_, id)| *id)
    }

    pub(super) fn insert_wait(&mut self, id: Uuid, wait: Wait) {
        self.remove_wait(id);
        self.index.insert(id, &wait);
        self.by_instance.insert(wait.instance.clone(), id);
        self.by_deadline.insert((wait.deadline, id));
        self.waits.insert(id, wait);
    }

    /// Whether there was one.
    pub(super) fn remove_wait(&mut self, id: Uuid) -> bool {
        let Some(wait) = self.waits.remove(&id) else { return false };
        self.index.remove(id, &wait);
        self.by_instance.remove(&wait.instance);
        self.by_deadline.remove(&(wait.deadline, id));
        true
    }

    pub(super) fn insert_receipt(&mut self, id: Uuid, receipt: Receipt) {
        self.remove_receipt(id);
        self.by_age.insert((receipt.at, id));
        if let Some(delivery) = receipt.delivery {
            self.by_delivery.insert(delivery, id);
        }
        for (filed, by) in [(receipt.dedupe, &mut self.by_dedupe), (receipt.speaker, &mut self.by_speaker)] {
            filed.map(|what| by.entry(what).or_default().insert((receipt.at, id)));
        }
        self.receipts.insert(id, receipt);
    }

    pub(super) fn remove_receipt(&mut self, id: Uuid) {
        let Some(receipt) = self.receipts.remove(&id) else { return };
        self.by_age.remove(&(receipt.at, id));
        if let Some(delivery) = receipt.delivery {
            self.by_delivery.remove(&delivery);
        }
        for (filed, by) in [(receipt.dedupe, &mut self.by_dedupe), (receipt.speaker, &mut self.by_speaker)] {
            if let Some(Entry::Occupied(mut group)) = filed.map(|what| by.entry(what)) {
                group.get_mut().remove(&(receipt.at, id));
                if group.get().is_empty() {
                    group.remove();
                }
            }
        }
    }

    pub(super) fn earliest(&self) -> Option<Timestamp> {
        let wait = self.by_deadline.first().map(|(end, _)| *end + OVERDUE);
        let receipt = self.by_age.first().map(|(at, _)| *at + REMEMBER + TRIM_EVERY);
        wait.into_iter().chain(receipt).min()
    }

    #[cfg(test)]
    pub(super) fn index_is_empty(&self) -> bool {
        self.index == Index::default()
    }

    fn is_filed(&self, by: &Filed, under: impl Fn(&Receipt) -> Option<Uuid>) -> bool {
        let filed =
            self.receipts.iter().filter_map(|(id, receipt)| Some((under(receipt)?, (receipt.at, *id))));
        let known =
            filed.clone().all(|(what, entry)| by.get(&what).is_some_and(|group| group.contains(&entry)));
        known && filed.count() == by.values().map(BTreeSet::len).sum::<usize>()
    }

    /// The first broken invariant, by name.
    pub(super) fn broken(&self) -> Option<String> {
        let filed = self
            .waits
            .iter()
            .all(|(id, wait)| self.by_deadline.contains(&(wait.deadline, *id)) && self.index.has(*id, wait));
        if !filed || self.index.len() != self.waits.len() || self.by_deadline.len() != self.waits.len() {
            return Some("triggers.every_wait_is_filed".to_owned());
        }
        let own = self.waits.iter().all(|(id, wait)| self.by_instance.get(&wait.instance) == Some(id));
        if !own || self.by_instance.len() != self.waits.len() {
            return Some("triggers.one_wait_per_instance".to_owned());
        }
        let deliveries = self.receipts.iter().filter_map(|(id, r)| r.delivery.map(|d| (d, id)));
        let known = deliveries.clone().all(|(delivery, id)| self.by_delivery.get(&delivery) == Some(id));
        if !known || deliveries.count() != self.by_delivery.len() {
            return Some("triggers.one_receipt_per_delivery".to_owned());
        }
        if !self.is_filed(&self.by_dedupe, |receipt| receipt.dedupe) {
            return Some("triggers.what_is_told_is_heard_once".to_owned());
        }
        if !self.is_filed(&self.by_speaker, |receipt| receipt.speaker) {
            return Some("triggers.every_message_counts".to_owned());
        }
        if self.by_age.len() != self.receipts.len()
            || !self.receipts.iter().all(|(id, receipt)| self.by_age.contains(&(receipt.at, *id)))
        {
            return Some("triggers.every_receipt_ages".to_owned());
        }
        if self.subscriptions.values().any(Vec::is_empty) {
            return Some("triggers.subscriptions_are_not_empty".to_owned());
        }
        None
    }
}
