//! Waiting for anything to change: tasks, messages, calls, triggers, locks, questions.
//!
//! The cursor is a position in the swarm's events, so nothing that happens between two calls is lost.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use skein_shared::channels::{self, Channels};
use skein_shared::id::Kind;
use skein_shared::{Code, Refusal, uri};
use uuid::Uuid;

use super::lists::unreadable;
use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};
use crate::entity::hub::commits_of;
use crate::projection::Event;

/// Something that can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    Tasks,
    Messages,
    Calls,
    Triggers,
    Locks,
    Questions,
}

impl Topic {
    pub const ALL: [Topic; 6] =
        [Topic::Tasks, Topic::Messages, Topic::Calls, Topic::Triggers, Topic::Locks, Topic::Questions];

    pub fn as_str(self) -> &'static str {
        match self {
            Topic::Tasks => "tasks",
            Topic::Messages => "messages",
            Topic::Calls => "calls",
            Topic::Triggers => "triggers",
            Topic::Locks => "locks",
            Topic::Questions => "questions",
        }
    }

    /// The entities that have it.
    fn kinds(self) -> &'static [Kind] {
        match self {
            Topic::Tasks => &[Kind::Pool],
            Topic::Messages => &[Kind::Channels, Kind::Inboxes],
            Topic::Calls => &[Kind::Agent],
            Topic::Triggers => &[Kind::Triggers],
            Topic::Locks => &[Kind::Lockspace],
            Topic::Questions => &[Kind::Questions],
        }
    }

    fn of(kind: Kind) -> Option<Topic> {
        Topic::ALL.into_iter().find(|topic| topic.kinds().contains(&kind))
    }
}

/// What changed since the cursor.
#[derive(Clone, Debug)]
pub struct Changes {
    pub changed: Vec<Value>,
    /// Where the next wait goes on.
    pub cursor: u64,
    pub timed_out: bool,
}

/// What a caller waits for.
#[derive(Clone, Debug)]
pub struct Awaited {
    /// Empty for all.
    pub topics: BTreeSet<Topic>,
    /// Only changes of these tasks, calls, channels, locks, questions, however they are spelt; empty for all.
    pub subjects: BTreeSet<String>,
    /// `None` begins now.
    pub cursor: Option<u64>,
    /// At most so many changes in one answer.
    pub limit: usize,
}

impl Awaited {
    fn wants(&self, topic: Topic) -> bool {
        self.topics.is_empty() || self.topics.contains(&topic)
    }
}

impl Service {
    /// Waits until something happened after the cursor, at most for `patience`.
    ///
    /// # Errors
    /// `invalid_argument` for a cursor that is ahead of everything that has happened.
    pub async fn wait(
        &self,
        who: &Principal,
        awaited: Awaited,
        patience: Duration,
    ) -> Result<Changes, Refusal> {
        policy::require(who, Right::Read)?;
        if let Some(cursor) = awaited.cursor {
            self.require_reached(cursor).await?;
        }
        let awaited = Awaited { subjects: self.in_all_spellings(who, &awaited).await?, ..awaited };
        let topics = wake_topics(who, &awaited);
        let position = Mutex::new(awaited.cursor);
        let at = || position.lock().unwrap_or_else(PoisonError::into_inner);
        let look = || async {
            let known = *at();
            let Some(after) = known else {
                // It begins now: what happens from here on wakes it.
                let newest = self.newest_position().await?;
                *at() = Some(newest);
                return Ok(None);
            };
            let (found, next) = self.changes_after(who, &awaited, after).await?;
            *at() = Some(next);
            Ok((!found.is_empty()).then_some(found))
        };
        let found = self.until(who, topics, patience, look).await?;
        let cursor = at().unwrap_or_default();
        Ok(Changes { timed_out: found.is_none(), changed: found.unwrap_or_default(), cursor })
    }

    /// The subjects as they were given, and as events name them: a lock by the canonical form of its URI, an id in
    /// lower case, a channel by its id.
    async fn in_all_spellings(
        &self,
        who: &Principal,
        awaited: &Awaited,
    ) -> Result<BTreeSet<String>, Refusal> {
        let mut subjects = awaited.subjects.clone();
        let mut are_names = false;
        for given in &awaited.subjects {
            if let Ok(id) = Uuid::try_parse(given) {
                subjects.insert(id.to_string());
            } else {
                subjects.extend(uri::canonical(given).ok());
                are_names = true;
            }
        }
        if are_names && awaited.wants(Topic::Messages) {
            let list = channels::Command::List;
            let channels::Reply::List(known) =
                self.ask::<Channels>(&who.entity(Kind::Channels), list).await?
            else {
                return Err(unexpected("the channels"));
            };
            let meant = known.into_iter().filter(|channel| awaited.subjects.contains(&channel.name));
            subjects.extend(meant.map(|channel| channel.id.to_string()));
        }
        Ok(subjects)
    }

    /// Events of interest after a position, and the position of the last one looked at.
    async fn changes_after(
        &self,
        who: &Principal,
        awaited: &Awaited,
        mut after: u64,
    ) -> Result<(Vec<Value>, u64), Refusal> {
        const PAGE: usize = 500;
        let mut changed = Vec::new();
        loop {
            let page = self.projection().events(Some(&who.swarm), after, PAGE).await.map_err(unreadable)?;
            for event in page.events {
                if let Some(change) = of_interest(awaited, &event) {
                    changed.push(change);
                }
                if changed.len() == awaited.limit {
                    return Ok((changed, event.position));
                }
            }
            after = page.next;
            if page.last || !changed.is_empty() {
                return Ok((changed, after));
            }
        }
    }

    async fn require_reached(&self, cursor: u64) -> Result<(), Refusal> {
        if self.projection().has_reached(cursor).await.map_err(unreadable)? {
            return Ok(());
        }
        Err(Refusal::new(
            Code::InvalidArgument,
            "cursor: it is ahead of everything that has happened: the store was moved, or an earlier state of it restored; look at the lists, and call without a cursor",
        ))
    }

    /// Everything that was acknowledged before is up to this position, everything later after it.
    pub(super) async fn newest_position(&self) -> Result<u64, Refusal> {
        self.projection().position().await.map_err(unreadable)
    }
}

/// What wakes the waiter: the named things; else every commit of the entities that have what it waits for.
fn wake_topics(who: &Principal, awaited: &Awaited) -> BTreeSet<String> {
    let mut topics = awaited.subjects.clone();
    if awaited.subjects.is_empty() {
        for topic in Topic::ALL.into_iter().filter(|topic| awaited.wants(*topic)) {
            topics.extend(topic.kinds().iter().map(|kind| commits_of(*kind, &who.swarm)));
        }
    }
    topics
}

fn of_interest(awaited: &Awaited, event: &Event) -> Option<Value> {
    let topic = Topic::of(event.key.kind)?;
    if !awaited.wants(topic) {
        return None;
    }
    let subject = event.subject.as_deref()?;
    if !awaited.subjects.is_empty() && !awaited.subjects.contains(subject) {
        return None;
    }
    let mut change =
        json!({ "topic": topic.as_str(), "id": subject, "event": event.kind, "at": event.at.iso() });
    // How a task ended, and what was answered, so that nobody has to ask for it. What a wait came to is its own
    // agent's.
    let told: &[&str] = match topic {
        Topic::Tasks => &["outcome"],
        Topic::Questions => &["outcome", "answer", "reason", "by"],
        _ => &[],
    };
    for fact in told {
        let value = event.body.get(&event.kind).and_then(|facts| facts.get(fact));
        if let Some(value) = value.filter(|value| !value.is_null()) {
            change[fact] = value.clone();
        }
    }
    if let Some(name) = &event.key.name {
        change["agent"] = json!(name);
    }
    Some(change)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::future::BoxFuture;
    use skein_shared::channels::Type;
    use skein_shared::id::EntityKey;
    use skein_shared::pool::{self, Pool};
    use skein_shared::triggers;

    use super::*;
    use crate::auth::Role;
    use crate::entity::{Clock, Entities, Hub, Request};
    use crate::ingress::Intake;
    use crate::projection::Projection;
    use crate::service::messages::Draft;
    use crate::service::swarm::Introduction;
    use crate::service::tasks::Action;
    use crate::service::waits::Wish;
    use crate::store::memory::Memory;

    const HOUR: Duration = Duration::from_secs(3600);

    struct World {
        service: Service,
        _folder: tempfile::TempDir,
    }

    fn world() -> World {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::start();
        let store = Arc::new(Memory::new(clock.wall()));
        let projection = Projection::open(&folder.path().join("read.db"), store.clone()).unwrap();
        let entities = Entities::new(store, projection, clock, Hub::default());
        World {
            service: Service::new(entities).asking_again_every(Duration::from_secs(86_400)),
            _folder: folder,
        }
    }

    fn agent(name: &str) -> Principal {
        Principal::named(name, Role::Worker)
    }

    async fn join(service: &Service, who: &Principal) {
        let introduction = Introduction { name: who.agent_name.to_string(), ..Introduction::default() };
        service.join(who, Uuid::now_v7(), introduction).await.unwrap();
    }

    async fn create(service: &Service, text: String) -> String {
        let create = pool::Create {
            by: None,
            spec: pool::TaskSpec::new(text),
            target: pool::Target::Pool,
            rules: pool::Rules::Plain,
            facts: Vec::new(),
        };
        let (key, request) =
            (EntityKey::of(Kind::Pool, &agent("writer").swarm), Request::once(Uuid::now_v7()));
        let command = pool::Command::Create(Box::new(create));
        match service.entities.ask::<Pool>(&key, request, command).await.unwrap() {
            pool::Reply::Created { task, .. } => task.id.to_string(),
            other => panic!("{other:?}"),
        }
    }

    fn all_of(topic: Topic, cursor: Option<u64>) -> Awaited {
        Awaited { topics: BTreeSet::from([topic]), subjects: BTreeSet::new(), cursor, limit: 50 }
    }

    /// Begins to wait for one topic, lets something happen to it, and gives what the wait saw.
    async fn woken_by(world: &World, topic: Topic, happen: BoxFuture<'_, ()>) -> Vec<Value> {
        let who = agent("waiter");
        let begin = world.service.wait(&who, all_of(topic, None), Duration::ZERO).await.unwrap();
        let wait = Box::pin(world.service.wait(&who, all_of(topic, Some(begin.cursor)), HOUR));
        let both = async { futures::join!(wait, happen).0.unwrap() };
        tokio::time::timeout(Duration::from_secs(60), both).await.expect("nothing woke the wait").changed
    }

    #[tokio::test]
    async fn whatever_happens_in_the_swarm_wakes_a_wait_for_all_of_it() {
        let world = world();
        let (service, other) = (&world.service, agent("other"));
        join(service, &other).await;
        let seen = woken_by(
            &world,
            Topic::Tasks,
            Box::pin(async {
                create(service, "new".to_owned()).await;
            }),
        )
        .await;
        assert_eq!(seen[0]["topic"], "tasks");
        let seen = woken_by(
            &world,
            Topic::Locks,
            Box::pin(async {
                service.acquire(&other, Uuid::now_v7(), "file:///a".to_owned(), None).await.unwrap();
            }),
        )
        .await;
        assert_eq!(seen[0]["topic"], "locks");
        let seen = woken_by(
            &world,
            Topic::Messages,
            Box::pin(async {
                let draft = Draft { content: "hello".to_owned(), ..Draft::default() };
                service.post_message(&other, Uuid::now_v7(), draft).await.unwrap();
            }),
        )
        .await;
        assert_eq!(seen[0]["topic"], "messages");
        let seen = woken_by(
            &world,
            Topic::Calls,
            Box::pin(async {
                let filter: triggers::Filter = serde_json::from_value(json!({"kind": "webhook"})).unwrap();
                let wish = Wish { filter, timeout: None, broadcast: false, look_back: false };
                let wait = service.wait_for_trigger(&other, Uuid::now_v7(), wish, Duration::ZERO);
                wait.await.unwrap();
            }),
        )
        .await;
        assert_eq!((&seen[0]["topic"], &seen[0]["agent"]), (&json!("calls"), &json!("other")));
        let incoming = triggers::Incoming {
            receipt: Uuid::now_v7(),
            delivery: "1".to_owned(),
            source: "hooks".to_owned(),
            provider: "github".to_owned(),
            event: "push".to_owned(),
            context: json!({}),
            payload: json!({}),
            received_at: service.entities.clock().now(),
            unsigned: false,
            said: None,
            letter: None,
            activity: None,
        };
        let seen = woken_by(
            &world,
            Topic::Triggers,
            Box::pin(async {
                Intake::deliver(&service.entities, &other.swarm, incoming).await.unwrap();
            }),
        )
        .await;
        assert_eq!(seen[0]["topic"], "triggers");
    }

    /// Somebody waits, and for what happens from here on.
    async fn waited_for(service: &Service) {
        while service.entities.hub().is_empty() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_is_waited_for_is_known_in_whatever_spelling() {
        let world = world();
        let (service, other, who) = (&world.service, agent("other"), agent("waiter"));
        let operator = Principal::named("boss", Role::Operator);
        join(service, &other).await;
        let builds = "builds".to_owned();
        let channel = service.create_channel(&other, Uuid::now_v7(), builds, None, Type::Public, Vec::new());
        let channel = channel.await.unwrap()["id"].as_str().unwrap().to_owned();
        let task = create(service, "new".to_owned()).await;
        let id = Uuid::try_parse(&task).unwrap();
        let begin = service.wait(&who, all_of(Topic::Tasks, None), Duration::ZERO).await.unwrap();
        let happenings: [(String, String, BoxFuture<'_, ()>); 3] = [
            (
                "FILE:///a/./b/".to_owned(),
                "file:///a/b".to_owned(),
                Box::pin(async {
                    waited_for(service).await;
                    service.acquire(&other, Uuid::now_v7(), "file:///a/b".to_owned(), None).await.unwrap();
                }),
            ),
            (
                "builds".to_owned(),
                channel.clone(),
                Box::pin(async {
                    waited_for(service).await;
                    let draft =
                        Draft { channel: Some(channel), content: "done".to_owned(), ..Draft::default() };
                    service.post_message(&other, Uuid::now_v7(), draft).await.unwrap();
                }),
            ),
            (
                task.to_uppercase(),
                task,
                Box::pin(async {
                    waited_for(service).await;
                    let cancel = Action::Cancel { reason: None };
                    service.act(&operator, Uuid::now_v7(), id, cancel).await.unwrap();
                }),
            ),
        ];
        for (spelling, id, happen) in happenings {
            let subjects = BTreeSet::from([spelling]);
            let awaited =
                Awaited { topics: BTreeSet::new(), subjects, cursor: Some(begin.cursor), limit: 50 };
            let wait = Box::pin(service.wait(&who, awaited, HOUR));
            let both = async { futures::join!(wait, happen).0.unwrap() };
            let seen = tokio::time::timeout(Duration::from_secs(60), both).await;
            assert_eq!(seen.expect("nothing woke the wait").changed[0]["id"], json!(id));
        }
    }

    #[tokio::test]
    async fn no_event_between_two_waits_is_lost_or_seen_twice() {
        const TASKS: usize = 200;
        let world = world();
        let (service, who) = (world.service.clone(), agent("waiter"));
        let begin = service.wait(&who, all_of(Topic::Tasks, None), Duration::ZERO).await.unwrap();
        let writer = tokio::spawn({
            let service = service.clone();
            async move {
                let mut made = Vec::new();
                for number in 0..TASKS / 4 {
                    let four = (0..4).map(|part| create(&service, format!("task {number} {part}")));
                    made.extend(futures::future::join_all(four).await);
                }
                made
            }
        });
        let mut cursor = begin.cursor;
        let mut seen = Vec::new();
        let listen = async {
            while seen.len() < TASKS {
                let next = service.wait(&who, all_of(Topic::Tasks, Some(cursor)), HOUR).await.unwrap();
                assert!(next.cursor > cursor && !next.timed_out);
                cursor = next.cursor;
                seen.extend(next.changed.iter().map(|change| change["id"].as_str().unwrap().to_owned()));
            }
        };
        tokio::time::timeout(Duration::from_secs(60), listen).await.expect("an event was lost");
        let mut made = writer.await.unwrap();
        made.sort();
        seen.sort();
        assert_eq!(seen, made);
    }
}
