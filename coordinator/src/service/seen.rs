//! Signs of life. Every call is one of whoever may work; the pool hears of an instance once in a while, for its leases
//! are long.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use skein_shared::entity::Signal;
use skein_shared::id::{InstanceId, Kind};
use tokio::time::Instant;
use uuid::Uuid;

use super::Service;
use crate::auth::{Principal, policy};

/// What the pool may know too late: the shortest lease is 60 times as long.
const PAUSE: Duration = Duration::from_secs(1);
/// From this many callers on those who were silent for a pause are forgotten.
const CALLERS: usize = 10_000;

/// When the pool last heard of each instance.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    told: Arc<Mutex<Told>>,
}

#[derive(Debug)]
struct Told {
    at: HashMap<(Uuid, InstanceId), Instant>,
    /// Callers from which on they are looked through again: twice as many as were left, so that in a storm of
    /// them each call does not go through all the others.
    room: usize,
}

impl Default for Told {
    fn default() -> Self {
        Self { at: HashMap::new(), room: CALLERS }
    }
}

impl Seen {
    /// Whether the pool is to be told now.
    fn is_news(&self, who: &Principal, now: Instant) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |at: &Instant| now.duration_since(*at) < PAUSE;
        let caller = (who.agent, who.instance.clone());
        if told.at.get(&caller).is_some_and(fresh) {
            return false;
        }
        if told.at.len() >= told.room {
            told.at.retain(|_, at| fresh(at));
            told.room = CALLERS.max(told.at.len() * 2);
        }
        told.at.insert(caller, now);
        true
    }
}

impl Service {
    /// Notes that the caller is alive: it keeps the leases of tasks that no runner watches. A dashboard that only reads
    /// with a token of the agent goes on when that has died, so it keeps none.
    pub fn seen(&self, who: &Principal) {
        if !policy::may_work(who) || !self.seen.is_news(who, Instant::now()) {
            return;
        }
        let signal = Signal::AgentsAlive { agents: vec![(who.agent, who.instance.to_string())] };
        self.entities.observe(&who.entity(Kind::Pool), signal);
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::auth::Role;

    #[test]
    fn the_pool_hears_of_each_instance_once_in_a_pause() {
        let caller = |number: u128| Principal {
            instance: InstanceId(format!("worker-{number}")),
            ..Principal::named("worker", Role::Worker)
        };
        let (seen, now) = (Seen::default(), Instant::now());
        assert!(seen.is_news(&caller(1), now));
        assert!(!seen.is_news(&caller(1), now + PAUSE / 2));
        assert!(seen.is_news(&caller(2), now + PAUSE / 2));
        assert!(seen.is_news(&caller(1), now + PAUSE));
    }
}
