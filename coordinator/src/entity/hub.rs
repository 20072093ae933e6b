//! Wakes those who wait for something to change, without polling and without a store operation.
//!
//! A wake-up carries no data: whoever is woken asks the owner again. So a missed or doubled wake-up can cost
//! time, never correctness.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use skein_shared::id::{Kind, Name};
use tokio::sync::{broadcast, watch};

use crate::cluster::Wake;

/// The topic that changes with every commit of any entity of a kind in a swarm.
pub fn commits_of(kind: Kind, swarm: &Name) -> String {
    format!("{kind}/{swarm}")
}

/// Topics are what [`skein_shared::entity::Entity::topics`] names (ids of tasks, calls, waits, agents …), the
/// keys of entities, which change with every commit, and those of [`commits_of`].
#[derive(Clone, Debug)]
pub struct Hub {
    topics: Arc<Mutex<HashMap<String, Topic>>>,
    bells: Arc<Mutex<Bells>>,
    /// What the entities of this node publish, for those who wait on other nodes.
    outgoing: broadcast::Sender<Wake>,
}

/// What somebody waits for.
#[derive(Debug)]
struct Topic {
    changes: watch::Sender<u64>,
    /// How many subscriptions there are. Counted where they come and go, so that two that go at once leave nothing
    /// behind.
    waiting: usize,
}

impl Topic {
    fn new() -> Self {
        Self { changes: watch::Sender::new(0), waiting: 0 }
    }

    fn wake(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

/// Wake-ups that a slow listener may fall behind; one that is further behind is told that all have to look.
const OUTGOING: usize = 8192;

impl Default for Hub {
    fn default() -> Self {
        Self { topics: Arc::default(), bells: Arc::default(), outgoing: broadcast::Sender::new(OUTGOING) }
    }
}

/// Says whether its topic has changed since it was last asked, for those who look only when they pass by. It has rung
/// when it is made.
#[derive(Debug)]
pub struct Bell(Arc<AtomicBool>);

impl Bell {
    pub fn has_rung(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }

    /// Whoever could not look looks again.
    pub fn ring(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The bells by topic. Those that nobody holds are taken down when there are twice as many as were left last time.
#[derive(Debug, Default)]
struct Bells {
    hung: HashMap<String, Vec<Weak<AtomicBool>>>,
    room: usize,
}

impl Bells {
    fn hang(&mut self, topic: String) -> Bell {
        const FEW: usize = 1024;
        if self.hung.len() >= self.room.max(FEW) {
            self.hung.retain(|_, bells| bells.iter().any(|bell| bell.strong_count() > 0));
            self.room = self.hung.len() * 2;
        }
        let bell = Arc::new(AtomicBool::new(true));
        let bells = self.hung.entry(topic).or_default();
        bells.retain(|bell| bell.strong_count() > 0);
        bells.push(Arc::downgrade(&bell));
        Bell(bell)
    }
}

fn ring(bells: &[Weak<AtomicBool>]) {
    for bell in bells.iter().filter_map(Weak::upgrade) {
        Bell(bell).ring();
    }
}

/// Waits for the next change of its topic after it was made. Make it *before* asking the owner.
pub struct Subscription {
    hub: Hub,
    topic: String,
    receiver: watch::Receiver<u64>,
}

impl Hub {
    pub fn subscribe(&self, topic: impl Into<String>) -> Subscription {
        let topic = topic.into();
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        let waited_for = topics.entry(topic.clone()).or_insert_with(Topic::new);
        waited_for.waiting += 1;
        let receiver = waited_for.changes.subscribe();
        drop(topics);
        Subscription { hub: self.clone(), topic, receiver }
    }

    pub fn bell(&self, topic: impl Into<String>) -> Bell {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner).hang(topic.into())
    }

    /// Wakes all who wait for this topic, on whichever node.
    pub fn publish(&self, topic: &str) {
        if self.outgoing.receiver_count() > 0 {
            let _ = self.outgoing.send(Wake::Topic(topic.into()));
        }
        self.wake(topic);
    }

    /// Wakes those who wait for this topic on this node.
    pub(super) fn wake(&self, topic: &str) {
        let topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(topic) = topics.get(topic) {
            topic.wake();
        }
        drop(topics);
        if let Some(bells) = self.bells.lock().unwrap_or_else(PoisonError::into_inner).hung.get(topic) {
            ring(bells);
        }
    }

    /// Wakes all who wait for anything: what happened to an entity that died may have been told to nobody.
    pub fn publish_all(&self) {
        let _ = self.outgoing.send(Wake::All);
        self.wake_all();
    }

    /// What is published from here on.
    pub(super) fn outgoing(&self) -> broadcast::Receiver<Wake> {
        self.outgoing.subscribe()
    }

    /// Wakes all who wait for anything on this node.
    pub(super) fn wake_all(&self) {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner).values().for_each(Topic::wake);
        for bells in self.bells.lock().unwrap_or_else(PoisonError::into_inner).hung.values() {
            ring(bells);
        }
    }

    /// How many topics somebody waits for.
    pub fn len(&self) -> usize {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Subscription {
    /// Returns at the next change since the subscription was made or last returned.
    pub async fn changed(&mut self) {
        // The sender outlives its subscribers, so an error cannot happen; were it to, waking up is harmless.
        let _ = self.receiver.changed().await;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut topics = self.hub.topics.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(topic) = topics.get_mut(&self.topic) else { return };
        topic.waiting -= 1;
        if topic.waiting == 0 {
            topics.remove(&self.topic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_between_subscribing_and_waiting_is_seen() {
        let hub = Hub::default();
        let mut first = hub.subscribe("task");
        let mut second = hub.subscribe("task");
        hub.publish("task");
        hub.publish("other");
        first.changed().await;
        second.changed().await;
        drop((first, second));
        assert!(hub.is_empty());
    }

    #[test]
    fn two_who_go_at_once_leave_nothing_behind() {
        let (hub, both) = (Hub::default(), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for round in 0..2000 {
                        let waiting = hub.subscribe(round.to_string());
                        both.wait();
                        drop(waiting);
                    }
                });
            }
        });
        assert!(hub.is_empty(), "{} topics of which nobody is told stay", hub.len());
    }

    #[test]
    fn a_bell_tells_once_of_what_happened_meanwhile() {
        let hub = Hub::default();
        let (bell, other) = (hub.bell("task"), hub.bell("task"));
        assert!(bell.has_rung() && !bell.has_rung());
        hub.publish("other");
        assert!(!bell.has_rung());
        hub.publish("task");
        hub.publish("task");
        assert!(bell.has_rung() && !bell.has_rung() && other.has_rung());
        hub.publish_all();
        assert!(bell.has_rung());
        for number in 0..5000 {
            hub.bell(number.to_string());
        }
        assert!(hub.bells.lock().unwrap().hung.len() < 3000, "bells that nobody holds stay");
    }
}
