//! The live tasks' heads as they lie in memory: a million of them have to fit, so each is a few packed bytes
//! that are unpacked for whoever decides about the task.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::dependency::Dependency;
use super::state::{ForgeLink, Outcome, Status, Task};
use super::tag::Numbers;
use crate::id::InstanceId;
use crate::slack::Thread;
use crate::time::Timestamp;

/// Heads by task. Most tasks wait, and what only some of them have takes no room in the others.
#[derive(Clone, Debug, Default)]
pub(super) struct Heads {
    packed: BTreeMap<Uuid, Box<[u8]>>,
    /// What is being restored. A tree that is filled in order is half empty, and another one made of it leaves
    /// holes in the memory.
    restoring: Vec<(Uuid, Box<[u8]>)>,
    tags: Numbers,
}

impl PartialEq for Heads {
    fn eq(&self, other: &Self) -> bool {
        self.packed.len() == other.packed.len() && self.iter().eq(other.iter())
    }
}

impl Heads {
    pub(super) fn get(&self, id: Uuid) -> Option<Task> {
        self.packed.get(&id).map(|bytes| unpack(bytes, &self.tags))
    }

    pub(super) fn len(&self) -> usize {
        self.packed.len()
    }

    pub(super) fn contains(&self, id: Uuid) -> bool {
        self.packed.contains_key(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Uuid, Task)> + '_ {
        self.packed.iter().map(|(&id, bytes)| (id, unpack(bytes, &self.tags)))
    }

    /// The greatest id that begins with this time.
    pub(super) fn newest_of(&self, at: Timestamp) -> Option<Uuid> {
        let first = u128::from(at.0) << 80;
        let last = first | ((1 << 80) - 1);
        let mut made = self.packed.range(Uuid::from_u128(first)..=Uuid::from_u128(last));
        made.next_back().map(|(id, _)| *id)
    }

    /// Puts a head in the place of the one that there may be.
    pub(super) fn insert(&mut self, id: Uuid, task: &Task) {
        let bytes = pack(task, &mut self.tags);
        if let Some(before) = self.packed.insert(id, bytes) {
            self.forget_tags(&before);
        }
    }

    /// Takes a head that is found once all of them are [`Heads::restored`].
    pub(super) fn restore(&mut self, id: Uuid, task: &Task) {
        let bytes = pack(task, &mut self.tags);
        self.restoring.push((id, bytes));
    }

    pub(super) fn restored(&mut self) {
        self.packed = std::mem::take(&mut self.restoring).into_iter().collect();
    }

    pub(super) fn remove(&mut self, id: Uuid) -> Option<Task> {
        let bytes = self.packed.remove(&id)?;
        let task = unpack(&bytes, &self.tags);
        self.forget_tags(&bytes);
        Some(task)
    }

    fn forget_tags(&mut self, bytes: &[u8]) {
        for number in Reader::of_tags(bytes) {
            self.tags.give_back(number);
        }
    }
}

/// What a head has beside status, priority and the time of its creation; the tags come first.
mod has {
    pub(super) const TAGS: u16 = 1;
    pub(super) const CREATOR: u16 = 1 << 1;
    pub(super) const AGENT: u16 = 1 << 2;
    pub(super) const OFFERED_TO: u16 = 1 << 3;
    pub(super) const INSTANCE: u16 = 1 << 4;
    pub(super) const MANAGED: u16 = 1 << 5;
    pub(super) const REPORTED: u16 = 1 << 6;
    pub(super) const ATTEMPTS: u16 = 1 << 7;
    pub(super) const UNTIL: u16 = 1 << 8;
    pub(super) const UPDATED: u16 = 1 << 9;
    pub(super) const DEPENDENCIES: u16 = 1 << 10;
    pub(super) const EPIC: u16 = 1 << 11;
    pub(super) const SCHEDULE: u16 = 1 << 12;
    pub(super) const PROGRESS: u16 = 1 << 13;
    /// A thread or a link to a forge; no task has both.
    pub(super) const OUTSIDE: u16 = 1 << 14;
    pub(super) const STALLED: u16 = 1 << 15;
}

/// Beside the status, whose numbers end long before: it is news for the lead.
const IS_NEWS: u8 = 1 << 7;

/// What a task belongs to outside of the swarm, in front of its name.
const THREAD: u8 = 0;
const ASKED: u8 = 1;
const PART: u8 = 2;
const NEWS: u8 = 3;

fn pack(task: &Task, tags: &mut Numbers) -> Box<[u8]> {
    let mut writer = Writer { bytes: Vec::with_capacity(128), has: 0 };
    let status = task.status as u8 | if task.news { IS_NEWS } else { 0 };
    writer.bytes.extend([0, 0, status, task.priority]);
    if !task.tags.is_empty() {
        writer.has |= has::TAGS;
        writer.number(task.tags.len() as u64);
        for tag in &task.tags {
            let number = tags.take(tag);
            writer.number(u64::from(number));
        }
    }
    writer.number(task.created.0);
    writer.id(has::CREATOR, task.creator);
    writer.id(has::AGENT, task.agent);
    writer.id(has::OFFERED_TO, task.offered_to);
    if let Some(instance) = &task.instance {
        writer.has |= has::INSTANCE;
        writer.text(instance.as_str());
    }
    writer.flag(has::MANAGED, task.managed);
    writer.flag(has::REPORTED, task.reported);
    writer.flag(has::STALLED, task.stalled);
    if (task.attempt, task.generation) != (0, 0) {
        writer.has |= has::ATTEMPTS;
        writer.number(u64::from(task.attempt));
        writer.number(u64::from(task.generation));
    }
    writer.some(has::UNTIL, task.until.map(|until| until.0));
    writer.some(has::UPDATED, (task.updated != task.created).then_some(task.updated.0));
    if !task.dependencies.is_empty() {
        writer.has |= has::DEPENDENCIES;
        writer.number(task.dependencies.len() as u64);
        for dependency in &task.dependencies {
            writer.bytes.extend(dependency.task.as_bytes());
            writer.bytes.push(dependency.outcome.map_or(0, |outcome| outcome as u8 + 1));
        }
    }
    writer.id(has::EPIC, task.epic);
    writer.id(has::SCHEDULE, task.schedule);
    writer.some(has::PROGRESS, task.progress.map(u64::from));
    if task.thread.is_some() || task.forge.is_some() {
        writer.has |= has::OUTSIDE;
        writer.outside(task);
    }
    writer.bytes[..2].copy_from_slice(&writer.has.to_le_bytes());
    // Of its exact size: to shrink the vector would leave a hole behind each head.
    writer.bytes.as_slice().into()
}

fn unpack(bytes: &[u8], tags: &Numbers) -> Task {
    let mut reader = Reader { bytes, has: 0 };
    reader.has = u16::from_le_bytes(reader.take());
    let [status, priority] = reader.take();
    let count = if reader.has(has::TAGS) { reader.number() } else { 0 };
    let tags = (0..count).filter_map(|_| tags.tag(reader.number() as u32).cloned()).collect();
    let created = Timestamp(reader.number());
    let mut task = Task {
        status: Status::ALL[usize::from(status & !IS_NEWS)],
        news: status & IS_NEWS != 0,
        priority,
        tags,
        created,
        creator: reader.id(has::CREATOR),
        agent: reader.id(has::AGENT),
        offered_to: reader.id(has::OFFERED_TO),
        instance: reader.has(has::INSTANCE).then(|| InstanceId(reader.text())),
        managed: reader.has(has::MANAGED),
        reported: reader.has(has::REPORTED),
        stalled: reader.has(has::STALLED),
        attempt: if reader.has(has::ATTEMPTS) { reader.number() as u32 } else { 0 },
        generation: if reader.has(has::ATTEMPTS) { reader.number() as u32 } else { 0 },
        until: reader.some(has::UNTIL).map(Timestamp),
        updated: reader.some(has::UPDATED).map_or(created, Timestamp),
        dependencies: reader.dependencies(),
        epic: reader.id(has::EPIC),
        schedule: reader.id(has::SCHEDULE),
        progress: reader.some(has::PROGRESS).map(|hash| hash as u32),
        thread: None,
        forge: None,
    };
    (task.thread, task.forge) = reader.outside();
    task
}

struct Writer {
    bytes: Vec<u8>,
    has: u16,
}

impl Writer {
    /// Seven bits a byte, the lowest first.
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes.extend(text.bytes());
    }

    fn outside(&mut self, task: &Task) {
        if let Some(thread) = &task.thread {
            self.bytes.push(THREAD);
            self.text(&thread.channel);
            self.text(&thread.ts);
        } else if let Some(link) = &task.forge {
            self.bytes.push(match link {
                ForgeLink::Asked(_) => ASKED,
                ForgeLink::Part(_) => PART,
                ForgeLink::News(_) => NEWS,
            });
            self.text(&link.subject().to_string());
        }
    }

    fn flag(&mut self, field: u16, set: bool) {
        if set {
            self.has |= field;
        }
    }

    fn some(&mut self, field: u16, number: Option<u64>) {
        if let Some(number) = number {
            self.has |= field;
            self.number(number);
        }
    }

    fn id(&mut self, field: u16, id: Option<Uuid>) {
        if let Some(id) = id {
            self.has |= field;
            self.bytes.extend(id.as_bytes());
        }
    }
}

/// Reads what [`Writer`] wrote, in the same order.
struct Reader<'a> {
    bytes: &'a [u8],
    has: u16,
}

impl<'a> Reader<'a> {
    /// The numbers of the tags of a packed head.
    fn of_tags(bytes: &'a [u8]) -> impl Iterator<Item = u32> + use<'a> {
        let mut reader = Reader { bytes, has: 0 };
        reader.has = u16::from_le_bytes(reader.take());
        let [_, _] = reader.take();
        let count = if reader.has(has::TAGS) { reader.number() } else { 0 };
        (0..count).map(move |_| reader.number() as u32)
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.bytes.split_first_chunk().expect("packed in this order");
        self.bytes = rest;
        *taken
    }

    fn has(&self, field: u16) -> bool {
        self.has & field != 0
    }

    fn number(&mut self) -> u64 {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.take();
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        number
    }

    fn some(&mut self, field: u16) -> Option<u64> {
        self.has(field).then(|| self.number())
    }

    fn id(&mut self, field: u16) -> Option<Uuid> {
        self.has(field).then(|| Uuid::from_bytes(self.take()))
    }

    fn text(&mut self) -> String {
        let length = self.number() as usize;
        let (text, rest) = self.bytes.split_at(length);
        self.bytes = rest;
        String::from_utf8_lossy(text).into_owned()
    }

    fn outside(&mut self) -> (Option<Thread>, Option<ForgeLink>) {
        if !self.has(has::OUTSIDE) {
            return (None, None);
        }
        let [kind] = self.take();
        if kind == THREAD {
            return (Some(Thread { channel: self.text(), ts: self.text() }), None);
        }
        let subject = self.text().parse().expect("packed as it is written");
        let link = match kind {
            ASKED => ForgeLink::Asked(subject),
            PART => ForgeLink::Part(subject),
            _ => ForgeLink::News(subject),
        };
        (None, Some(link))
    }

    fn dependencies(&mut self) -> Vec<Dependency> {
        let count = if self.has(has::DEPENDENCIES) { self.number() } else { 0 };
        let read = |_| {
            let task = Uuid::from_bytes(self.take());
            let outcome = match self.take() {
                [1] => Some(Outcome::Completed),
                [2] => Some(Outcome::Failed),
                [3] => Some(Outcome::Cancelled),
                _ => None,
            };
            Dependency { task, outcome }
        };
        (0..count).map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pool::tag::Tag;

    fn id() -> impl Strategy<Value = Option<Uuid>> {
        prop::option::of(any::<u128>().prop_map(Uuid::from_u128))
    }

    fn time() -> impl Strategy<Value = Timestamp> {
        any::<u64>().prop_map(Timestamp)
    }

    fn dependency() -> impl Strategy<Value = Dependency> {
        let outcomes = [None, Some(Outcome::Completed), Some(Outcome::Failed), Some(Outcome::Cancelled)];
        (any::<u128>(), prop::sample::select(outcomes.to_vec()))
            .prop_map(|(task, outcome)| Dependency { task: Uuid::from_u128(task), outcome })
    }

    /// One of them at most.
    fn outside() -> impl Strategy<Value = (Option<Thread>, Option<ForgeLink>)> {
        let link = |(repo, number, kind): (String, u64, usize)| {
            let subject = format!("gitlab:{repo}!{number}").parse().unwrap();
            [ForgeLink::Asked, ForgeLink::Part, ForgeLink::News][kind](subject)
        };
        prop_oneof![
            Just((None, None)),
            ("[A-Z0-9]{0,12}", "[0-9.]{0,17}").prop_map(|thread| (Some(Thread::from(thread)), None)),
            ("[a-z]{1,9}/[a-z.]{1,9}", any::<u64>(), 0..3_usize).prop_map(move |of| (None, Some(link(of)))),
        ]
    }

    prop_compose! {
        fn task()(
            (status, priority) in (0..10_usize, any::<u8>()),
            (managed, reported, stalled, news) in any::<(bool, bool, bool, bool)>(),
            (creator, agent, offered_to, epic, schedule) in (id(), id(), id(), id(), id()),
            (attempt, generation, progress) in (any::<u32>(), any::<u32>(), any::<Option<u32>>()),
            (created, updated, until) in (time(), time(), prop::option::of(time())),
            instance in prop::option::of("[a-zé]{0,70}"),
            (thread, forge) in outside(),
            dependencies in prop::collection::vec(dependency(), 0..4),
            tags in prop::collection::btree_set("[a-d]", 0..3),
        ) -> Task {
            let instance = instance.map(InstanceId);
            let tags = tags.iter().map(|tag| Tag::from(tag.as_str())).collect();
            Task {
                status: Status::ALL[status], priority, managed, reported, stalled, news, creator, agent, offered_to,
                epic, schedule, attempt, generation, progress, created, updated, until, instance, dependencies, tags,
                thread, forge,
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(tasks in prop::collection::vec((0..4_u128, task()), 1..12)) {
            let (mut heads, mut plain) = (Heads::default(), BTreeMap::new());
            for (id, task) in tasks {
                let id = Uuid::from_u128(id);
                heads.insert(id, &task);
                plain.insert(id, task);
            }
            prop_assert!(heads.iter().eq(plain.clone()));
            for (id, task) in plain {
                prop_assert_eq!(heads.remove(id), Some(task));
            }
            prop_assert!(heads.tags.tag(0).is_none(), "a tag without a task stayed");
        }
    }

    /// A million waiting tasks are to fit into a few hundred megabytes.
    #[test]
    fn a_waiting_task_is_small() {
        let mut numbers = Numbers::default();
        let head = serde_json::json!({
            "s": "unassigned", "p": 50, "t": ["rust", "docs"], "c": Uuid::max(),
            "b": 1_790_000_000_000_u64, "u": 1_790_000_000_000_u64,
        });
        let task = serde_json::from_value(head).expect("a head");
        assert!(pack(&task, &mut numbers).len() <= 32);
    }
}
