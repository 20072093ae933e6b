//! Orders and groupings of the live tasks, so that no decision looks at all of them.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::state::{Status, Task, Term};
use super::tag::Tag;
use crate::forge::Subject;
use crate::id::InstanceId;
use crate::slack::Thread;
use crate::time::Timestamp;

/// Higher priority first, older first, and the id where both are equal: the order of the bytes is the order of
/// the tasks. As a tuple it would be half as large again, and there are several for each waiting task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank([u8; 23]);

impl Rank {
    fn of(id: Uuid, task: &Task) -> Self {
        let mut bytes = [0; 23];
        bytes[0] = !task.priority;
        // Six bytes of milliseconds last for nine thousand years.
        bytes[1..7].copy_from_slice(&task.created.0.to_be_bytes()[2..]);
        bytes[7..].copy_from_slice(id.as_bytes());
        Self(bytes)
    }

    fn id(&self) -> Uuid {
        let mut id = [0; 16];
        id.copy_from_slice(&self.0[7..]);
        Uuid::from_bytes(id)
    }
}

type Groups<K, V> = BTreeMap<K, BTreeSet<V>>;

/// All of it follows from the tasks; `add` and `remove` are each other's inverse.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Indexes {
    /// Pending tasks that can start, for each agent.
    queues: Groups<Uuid, Rank>,
    /// Tasks in progress, for each agent.
    active: Groups<Uuid, Uuid>,
    /// Tasks that belong to an agent: pending, in progress and paused.
    held: Groups<Uuid, Uuid>,
    /// Open offers to an agent, oldest first.
    offers: Groups<Uuid, (Timestamp, Uuid)>,
    /// Tasks that anybody may claim.
    pool: BTreeSet<Rank>,
    /// The same for each tag.
    tagged: Groups<Tag, Rank>,
    /// Tasks of the pool that wait for others.
    blocked: usize,
    /// Tasks in progress, for each instance.
    instances: Groups<InstanceId, Uuid>,
    /// For each task that has not ended, the live tasks that wait for it.
    dependants: Groups<Uuid, Uuid>,
    /// Tasks of the pool of which it was said that nobody takes them.
    unclaimed: BTreeSet<Uuid>,
    /// News that wait for somebody to lead.
    parked: BTreeSet<Rank>,
    /// Tasks of a thread in Slack.
    threads: Groups<Thread, Uuid>,
    /// Tasks that have to do with an issue or a request at a forge.
    subjects: Groups<Subject, Uuid>,
    /// Tasks that a schedule made.
    schedules: Groups<Uuid, Uuid>,
}

/// Tasks on their way into indexes: the same as adding all of them one by one. Most of them wait in the pool, and sorted
/// at once they take half the time and two thirds of the memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Gathering {
    /// Of those that do not just wait for anybody.
    others: Indexes,
    pool: Vec<Rank>,
    tagged: BTreeMap<Tag, Vec<Rank>>,
}

impl Gathering {
    pub(super) fn add(&mut self, id: Uuid, task: &Task) {
        let plain = task.status == Status::Unassigned && task.is_ready();
        let grouped = task.thread.is_some() || task.forge.is_some() || task.schedule.is_some();
        if !plain || grouped || task.until.is_some() {
            self.others.add(id, task);
            return;
        }
        let rank = Rank::of(id, task);
        self.pool.push(rank);
        for tag in &task.tags {
            match self.tagged.get_mut(tag) {
                Some(ranks) => ranks.push(rank),
                None => {
                    self.tagged.insert(tag.clone(), vec![rank]);
                }
            }
        }
    }

    pub(super) fn finish(self) -> Indexes {
        let mut indexes = self.others;
        let (few, few_tagged) = (std::mem::take(&mut indexes.pool), std::mem::take(&mut indexes.tagged));
        indexes.pool = self.pool.into_iter().collect();
        indexes.pool.extend(few);
        indexes.tagged =
            self.tagged.into_iter().map(|(tag, ranks)| (tag, ranks.into_iter().collect())).collect();
        for (tag, ranks) in few_tagged {
            indexes.tagged.entry(tag).or_default().extend(ranks);
        }
        indexes
    }
}

impl Indexes {
    pub(super) fn add(&mut self, id: Uuid, task: &Task) {
        self.change(id, task, true);
    }

    pub(super) fn remove(&mut self, id: Uuid, task: &Task) {
        self.change(id, task, false);
    }

    fn change(&mut self, id: Uuid, task: &Task, add: bool) {
        if let Some(agent) = task.agent {
            put(&mut self.held, agent, id, add);
            if task.status == Status::InProgress {
                put(&mut self.active, agent, id, add);
            }
            if task.status == Status::Pending && task.is_ready() {
                put(&mut self.queues, agent, Rank::of(id, task), add);
            }
        }
        if let Some(agent) = task.offered_to {
            put(&mut self.offers, agent, (task.created, id), add);
        }
        if let Some(instance) = &task.instance {
            put(&mut self.instances, instance.clone(), id, add);
        }
        if task.status == Status::Unassigned {
            self.change_pool(id, task, add);
        }
        if task.news && task.status == Status::Backlog {
            let rank = Rank::of(id, task);
            match add {
                true => self.parked.insert(rank),
                false => self.parked.remove(&rank),
            };
        }
        if let Some(thread) = &task.thread {
            put(&mut self.threads, thread.clone(), id, add);
        }
        if let Some(link) = &task.forge {
            put(&mut self.subjects, link.subject().clone(), id, add);
        }
        if let Some(schedule) = task.schedule {
            put(&mut self.schedules, schedule, id, add);
        }
        for open in task.dependencies.iter().filter(|d| d.outcome.is_none()) {
            put(&mut self.dependants, open.task, id, add);
        }
    }

    fn change_pool(&mut self, id: Uuid, task: &Task, add: bool) {
        if !task.is_ready() {
            self.blocked = if add { self.blocked + 1 } else { self.blocked - 1 };
            return;
        }
        let rank = Rank::of(id, task);
        if add {
            self.pool.insert(rank);
        } else {
            self.pool.remove(&rank);
        }
        match (task.until.is_some(), add) {
            (true, true) => self.unclaimed.insert(id),
            (true, false) => self.unclaimed.remove(&id),
            (false, _) => false,
        };
        for tag in &task.tags {
            put(&mut self.tagged, tag.clone(), rank, add);
        }
    }

    pub(super) fn of_subject(&self, subject: &Subject) -> impl Iterator<Item = Uuid> + use<'_> {
        self.subjects.get(subject).into_iter().flatten().copied()
    }

    pub(super) fn of_schedule(&self, schedule: Uuid) -> impl Iterator<Item = Uuid> + use<'_> {
        self.schedules.get(&schedule).into_iter().flatten().copied()
    }

    pub(super) fn of_thread(&self, thread: &Thread) -> impl Iterator<Item = Uuid> + use<'_> {
        self.threads.get(thread).into_iter().flatten().copied()
    }

    pub(super) fn active(&self, agent: Uuid) -> usize {
        self.active.get(&agent).map_or(0, BTreeSet::len)
    }

    pub(super) fn active_of(&self, agent: Uuid) -> impl Iterator<Item = Uuid> + '_ {
        self.active.get(&agent).into_iter().flatten().copied()
    }

    /// Tasks in progress, whoever has them.
    pub(super) fn in_progress(&self) -> impl Iterator<Item = Uuid> + '_ {
        self.active.values().flatten().copied()
    }

    pub(super) fn held_by(&self, agent: Uuid) -> impl Iterator<Item = Uuid> + '_ {
        self.held.get(&agent).into_iter().flatten().copied()
    }

    pub(super) fn next_for(&self, agent: Uuid) -> Option<Uuid> {
        self.queues.get(&agent)?.first().map(Rank::id)
    }

    /// Agents with tasks that can start, each with the next of them.
    pub(super) fn queued(&self) -> impl Iterator<Item = (Uuid, Uuid)> + '_ {
        self.queues.iter().filter_map(|(agent, queue)| Some((*agent, queue.first()?.id())))
    }

    /// News that wait for somebody to lead, the most urgent first.
    pub(super) fn parked(&self) -> impl Iterator<Item = Uuid> + '_ {
        self.parked.iter().map(Rank::id)
    }

    pub(super) fn offers_to(&self, agent: Uuid) -> impl Iterator<Item = Uuid> + '_ {
        self.offers.get(&agent).into_iter().flatten().map(|&(_, id)| id)
    }

    pub(super) fn of_instance(&self, instance: &InstanceId) -> impl Iterator<Item = Uuid> + '_ {
        self.instances.get(instance).into_iter().flatten().copied()
    }

    pub(super) fn waiting_for(&self, task: Uuid) -> impl Iterator<Item = Uuid> + '_ {
        self.dependants.get(&task).into_iter().flatten().copied()
    }

    /// Number of tasks in the pool, whether or not they can start.
    pub(super) fn pool(&self) -> usize {
        self.pool.len() + self.blocked
    }

    /// How many tasks of the pool can start.
    pub(super) fn claimable(&self) -> usize {
        self.pool.len()
    }

    /// Tasks of the pool of which it was said that nobody takes them.
    pub(super) fn unclaimed(&self) -> &BTreeSet<Uuid> {
        &self.unclaimed
    }

    /// The first task of the pool that can start and has any of the tags; without tags, the first of all.
    pub(super) fn best(&self, tags: &[String]) -> Option<Uuid> {
        if tags.is_empty() {
            return self.pool.first().map(Rank::id);
        }
        tags.iter().filter_map(|tag| self.tagged.get(tag.as_str())?.first()).min().map(Rank::id)
    }
}

/// Adds to or removes from a group; empty groups vanish, so that equal contents are equal indexes.
fn put<K: Ord, V: Ord>(groups: &mut Groups<K, V>, key: K, value: V, add: bool) {
    if add {
        groups.entry(key).or_default().insert(value);
        return;
    }
    if let Some(group) = groups.get_mut(&key) {
        group.remove(&value);
        if group.is_empty() {
            groups.remove(&key);
        }
    }
}

/// When what ends, by term, since each term has its own grace after a takeover.
///
/// Signs of life move an entry without a commit. That makes it later than the head says, never earlier.
#[derive(Clone, Debug, Default)]
pub(super) struct Deadlines {
    of: BTreeMap<Uuid, (Term, Timestamp)>,
    by_term: BTreeMap<Term, BTreeSet<(Timestamp, Uuid)>>,
    /// When the present owner began to serve, as far as a tick has told.
    serving_since: Timestamp,
}

impl Deadlines {
    pub(super) fn set(&mut self, task: Uuid, term: Option<Term>, until: Option<Timestamp>) {
        if let Some((term, until)) = self.of.remove(&task)
            && let Some(entries) = self.by_term.get_mut(&term)
        {
            entries.remove(&(until, task));
        }
        if let (Some(term), Some(until)) = (term, until) {
            self.of.insert(task, (term, until));
            self.by_term.entry(term).or_default().insert((until, task));
        }
    }

    /// Moves a deadline to `until` if that is later.
    pub(super) fn renew(&mut self, task: Uuid, until: Timestamp) {
        if let Some(&(term, old)) = self.of.get(&task)
            && old < until
        {
            self.set(task, Some(term), Some(until));
        }
    }

    pub(super) fn get(&self, task: Uuid) -> Option<(Term, Timestamp)> {
        self.of.get(&task).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.of.len()
    }

    pub(super) fn serve(&mut self, since: Timestamp) {
        self.serving_since = since;
    }

    pub(super) fn serving_since(&self) -> Timestamp {
        self.serving_since
    }

    pub(super) fn next(&self) -> Option<Timestamp> {
        let first = |(&term, entries): (&Term, &BTreeSet<(Timestamp, Uuid)>)| {
            let &(until, _) = entries.first()?;
            Some(until.max(self.serving_since + term.period()))
        };
        self.by_term.iter().filter_map(first).min()
    }

    /// Tasks of a term whose stored or renewed deadline has passed at `now`, the earliest first.
    pub(super) fn due(&self, term: Term, now: Timestamp) -> impl Iterator<Item = Uuid> + '_ {
        let entries = self.by_term.get(&term).into_iter().flatten();
        entries.take_while(move |&&(until, _)| until <= now).map(|&(_, task)| task)
    }
}
