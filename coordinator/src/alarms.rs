//! What is wrong until somebody looks after it. Whoever notices it raises an alarm; `skein cluster status`, `/metrics`
//! and the log show it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

/// How long a node or a store may be silent before that is an alarm: one that begins or ends is, for a moment.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long an alarm stays that nothing may take back: that it does not happen again is all that can be seen.
const STAYS: Duration = Duration::from_secs(600);
/// The same for a store that was slow, or on the move: somebody asks it all the time, though not every part of it.
const PASSES: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_secs(86_400);
/// Alarms of one kind that are kept: whoever tries may have many addresses.
const MOST: usize = 64;

/// What kind of thing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A coordinator that lives does not answer this one.
    Unreachable,
    /// A coordinator and this one do not trust or do not understand one another.
    Distrusted,
    /// Somebody who would be a coordinator was turned away.
    TurnedAway,
    /// Another process lives by the id of this node.
    Twin,
    /// The certificate of this node ends soon, or has ended.
    Certificate,
    /// The store does not answer, or slowly.
    StoreSlow,
    /// The store answers, and takes no writes.
    StoreFull,
    /// The slot of the store is on its way from one node of a Redis Cluster to another, and nothing is written.
    StoreMoving,
    /// The store takes writes, and no replica confirms them in time.
    StoreUnconfirmed,
    /// The store is set up to lose writes since it was restarted or replaced, or an import has filled it in part, so
    /// nobody relies on it.
    StoreUnfit,
    /// The store holds something that cannot be read.
    StoreGarbage,
    /// The store lost what it had acknowledged.
    StoreLost,
    /// What is stored was written by a clock that was ahead of this node's.
    Clock,
    /// A swarm has work that could be claimed, and nobody does.
    Unclaimed,
    /// Nobody says what learnings mean, so they wait for their vectors.
    Embeddings,
    /// What people are to be told in Slack waits until an operator has mended something.
    Slack,
}

impl Kind {
    pub const ALL: [Kind; 16] = [
        Kind::Unreachable,
        Kind::Distrusted,
        Kind::TurnedAway,
        Kind::Twin,
        Kind::Certificate,
        Kind::StoreSlow,
        Kind::StoreFull,
        Kind::StoreMoving,
        Kind::StoreUnconfirmed,
        Kind::StoreUnfit,
        Kind::StoreGarbage,
        Kind::StoreLost,
        Kind::Clock,
        Kind::Unclaimed,
        Kind::Embeddings,
        Kind::Slack,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Unreachable => "unreachable",
            Kind::Distrusted => "distrusted",
            Kind::TurnedAway => "turned_away",
            Kind::Twin => "twin",
            Kind::Certificate => "certificate",
            Kind::StoreSlow => "store_slow",
            Kind::StoreFull => "store_full",
            Kind::StoreMoving => "store_moving",
            Kind::StoreUnconfirmed => "store_unconfirmed",
            Kind::StoreUnfit => "store_unfit",
            Kind::StoreGarbage => "store_garbage",
            Kind::StoreLost => "store_lost",
            Kind::Clock => "clock",
            Kind::Unclaimed => "unclaimed",
            Kind::Embeddings => "embeddings",
            Kind::Slack => "slack",
        }
    }

    /// How long it has to last before it is told.
    fn patience(self) -> Duration {
        if self == Kind::Unreachable { PATIENCE } else { Duration::ZERO }
    }

    /// How long it stays after it was last seen; the others stay until they are cleared.
    fn stays(self) -> Option<Duration> {
        match self {
            Kind::TurnedAway
            | Kind::StoreGarbage
            | Kind::StoreFull
            | Kind::StoreUnconfirmed
            | Kind::Slack => Some(STAYS),
            Kind::StoreSlow | Kind::StoreMoving => Some(PASSES),
            Kind::StoreLost => Some(DAY),
            _ => None,
        }
    }
}

/// Something that is wrong now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    pub kind: Kind,
    /// What it is about: an address, a key, a part of the store.
    pub subject: String,
    /// What is wrong and what to do.
    pub problem: String,
    /// For how long.
    pub since: Duration,
}

/// The alarms of a node. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Alarms(Arc<Mutex<BTreeMap<(Kind, String), Raised>>>);

#[derive(Debug)]
struct Raised {
    problem: String,
    since: Instant,
    last: Instant,
    /// What the log has of it.
    told: Option<String>,
}

impl Raised {
    fn is_due(&self, kind: Kind, now: Instant) -> bool {
        now >= self.since + kind.patience()
    }

    fn is_over(&self, kind: Kind, now: Instant) -> bool {
        kind.stays().is_some_and(|stays| now >= self.last + stays)
    }
}

impl Alarms {
    /// Something is wrong, or still is. The log says it once, and again when the problem is another one.
    pub fn raise(&self, kind: Kind, subject: &str, problem: &str) {
        let (mut raised, now) = (self.lock(), Instant::now());
        raised.retain(|(kind, _), alarm| !alarm.is_over(*kind, now));
        let key = (kind, subject.to_owned());
        if !raised.contains_key(&key) && raised.keys().filter(|(other, _)| *other == kind).count() >= MOST {
            return;
        }
        let alarm = raised.entry(key).or_insert_with(|| Raised {
            problem: String::new(),
            since: now,
            last: now,
            told: None,
        });
        problem.clone_into(&mut alarm.problem);
        alarm.last = now;
        if alarm.is_due(kind, now) && alarm.told.as_deref() != Some(problem) {
            warn!(alarm = kind.as_str(), subject, problem, "something is wrong");
            alarm.told = Some(problem.to_owned());
        }
    }

    /// It is well again.
    pub fn clear(&self, kind: Kind, subject: &str) {
        let cleared = self.lock().remove(&(kind, subject.to_owned()));
        if cleared.is_some_and(|alarm| alarm.told.is_some()) {
            info!(alarm = kind.as_str(), subject, "it is well again");
        }
    }

    /// Forgets the alarms of a kind about whatever is gone.
    pub fn keep_only(&self, kind: Kind, is_there: impl Fn(&str) -> bool) {
        self.lock().retain(|(other, subject), _| *other != kind || is_there(subject));
    }

    /// What is wrong now.
    pub fn all(&self) -> Vec<Alarm> {
        let now = Instant::now();
        let raised = self.lock();
        let due =
            raised.iter().filter(|((kind, _), alarm)| alarm.is_due(*kind, now) && !alarm.is_over(*kind, now));
        due.map(|((kind, subject), alarm)| Alarm {
            kind: *kind,
            subject: subject.clone(),
            problem: alarm.problem.clone(),
            since: now - alarm.since,
        })
        .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Kind, String), Raised>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(alarms: &Alarms) -> Vec<(Kind, String)> {
        alarms.all().into_iter().map(|alarm| (alarm.kind, alarm.subject)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_alarm_is_shown_for_as_long_as_it_is_one() {
        let alarms = Alarms::default();
        alarms.raise(Kind::Unreachable, "a", "silent");
        alarms.raise(Kind::Distrusted, "b", "a stranger");
        let distrusted = (Kind::Distrusted, "b".to_owned());
        assert_eq!(
            shown(&alarms),
            std::slice::from_ref(&distrusted),
            "whoever begins is silent for a moment"
        );
        tokio::time::advance(PATIENCE).await;
        alarms.raise(Kind::Unreachable, "a", "still silent");
        let [first, _] = &alarms.all()[..] else { panic!("two are wrong") };
        assert_eq!((first.problem.as_str(), first.since), ("still silent", PATIENCE));
        alarms.clear(Kind::Unreachable, "a");
        assert_eq!(shown(&alarms), [distrusted]);
        alarms.keep_only(Kind::Distrusted, |subject| subject != "b");
        assert_eq!(shown(&alarms), []);
    }

    #[tokio::test(start_paused = true)]
    async fn what_nothing_can_take_back_is_forgotten_after_a_while() {
        let alarms = Alarms::default();
        for number in 0..2 * MOST {
            alarms.raise(Kind::TurnedAway, &format!("10.0.0.{number}"), "no certificate");
        }
        assert_eq!(alarms.all().len(), MOST, "a stranger fills the memory");
        tokio::time::advance(STAYS / 2).await;
        alarms.raise(Kind::TurnedAway, "10.0.0.1", "no certificate");
        tokio::time::advance(STAYS / 2).await;
        assert_eq!(shown(&alarms), [(Kind::TurnedAway, "10.0.0.1".to_owned())]);
        // Nobody may ask again for what was slow once.
        alarms.raise(Kind::StoreSlow, "commits", "no answer");
        tokio::time::advance(PASSES).await;
        assert_eq!(shown(&alarms), [(Kind::TurnedAway, "10.0.0.1".to_owned())]);
    }
}
