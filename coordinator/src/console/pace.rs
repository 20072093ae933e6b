//! How many pages one agent may ask for: each asks the services for much. An agent may log in with its token, too, and
//! a loop gone wild in it must not starve the others. The bound is far above what a person does with all their tabs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use skein_shared::id::Name;
use skein_shared::{Code, Refusal};
use tokio::time::Instant;
use uuid::Uuid;

use crate::auth::{Principal, Right, policy};

/// A page comes to this much time in the long run.
const EACH: Duration = Duration::from_millis(100);
/// So many may come at once after a pause.
const AT_ONCE: u32 = 120;
/// From this many agents on those are let go of who have paused for long enough.
const AGENTS: usize = 1000;

/// Who has asked for how much of late. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Pace(Arc<Mutex<Asked>>);

#[derive(Default)]
struct Asked {
    /// Until when what each agent has asked for is made up for.
    until: HashMap<(Name, Uuid), Instant>,
    /// Agents from which on they are looked through again: twice as many as were left, so that a crowd does not pay for
    /// all the others with each page.
    room: usize,
}

impl Pace {
    /// Lets a page pass; any of those who administer.
    ///
    /// # Errors
    /// `rate_limited`, with the time after which another try is worth it.
    pub(super) fn admit(&self, who: &Principal, now: Instant) -> Result<(), Refusal> {
        if policy::may(who, Right::Administer) {
            return Ok(());
        }
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.until.len() >= asked.room.max(AGENTS) {
            asked.until.retain(|_, until| *until > now);
            asked.room = asked.until.len() * 2;
        }
        let until = asked.until.entry((who.swarm.clone(), who.agent)).or_insert(now);
        let next = (*until).max(now) + EACH;
        let early = next.saturating_duration_since(now + EACH * AT_ONCE);
        if early.is_zero() {
            *until = next;
            return Ok(());
        }
        let millis = u64::try_from(early.as_millis()).unwrap_or(u64::MAX).max(1);
        let problem = "you have asked for too many pages at a time; wait a moment, then load this one again";
        Err(Refusal::new(Code::RateLimited, problem).retry_after(millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Role;

    #[test]
    fn pages_are_counted_by_agent_and_those_of_operators_are_not() {
        let (pace, now) = (Pace::default(), Instant::now());
        let [ann, bob] = ["ann", "bob"].map(|name| Principal::named(name, Role::Worker));
        for _ in 0..AT_ONCE {
            pace.admit(&ann, now).unwrap();
        }
        let refused = pace.admit(&ann, now).unwrap_err();
        assert_eq!((refused.code, refused.retry_after_ms), (Code::RateLimited, Some(100)));
        pace.admit(&bob, now).unwrap();
        pace.admit(&ann, now + EACH).unwrap();
        assert!(pace.admit(&ann, now + EACH).is_err());
        let operator = Principal::named("operator", Role::Operator);
        assert!((0..=AT_ONCE).all(|_| pace.admit(&operator, now).is_ok()));
    }

    #[test]
    fn whoever_has_paused_takes_no_memory() {
        let (pace, now) = (Pace::default(), Instant::now());
        let agent = |number: usize| {
            let agent = Uuid::from_u128(number as u128);
            Principal { agent, ..Principal::named("ann", Role::Worker) }
        };
        for number in 0..AGENTS {
            pace.admit(&agent(number), now).unwrap();
        }
        pace.admit(&agent(AGENTS), now + EACH).unwrap();
        assert_eq!(pace.0.lock().unwrap().until.len(), 1);
    }
}
