//! Who gets which lock, and for how long.

use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use super::command::{Command, Reply};
use super::deadlock;
use super::event::Event;
use super::naming::named;
use super::state::{Key, Lock, Lockspace, Settings};
use crate::agent::{self, Agent};
use crate::code::{Code, Refusal};
use crate::entity::{Ctx, Decision, Effect};
use crate::id::{EntityKey, InstanceId, Name};
use crate::mutation::{self, Mutation};
use crate::time::Timestamp;
use crate::{limits, uri};

type Answer = Result<Decision<Lockspace>, Refusal>;

/// Greatest number of locks that a swarm may allow one instance.
const LOCKS_PER_HOLDER_MAX: usize = 1000;

/// A try for a lock.
struct Try<'a> {
    holder: &'a InstanceId,
    agent: &'a Name,
    raw: &'a str,
    key: &'a str,
    ttl_ms: Option<u64>,
}

impl Lockspace {
    pub(super) fn decide_command(&self, command: &Command, ctx: &Ctx) -> Answer {
        match command {
            Command::Acquire { holder, agent, key: raw, ttl_ms } => {
                let key = &self.canonical(raw)?;
                check_ttl(*ttl_ms, self.longest_ttl())?;
                self.acquire(&Try { holder, agent, raw, key, ttl_ms: *ttl_ms }, ctx)
            }
            Command::Release { holder, key } => self.release(holder, &self.canonical(key)?, ctx),
            Command::Heartbeat { holder, key, ttl_ms } => {
                check_ttl(*ttl_ms, self.longest_ttl())?;
                self.heartbeat(holder, key, *ttl_ms, ctx)
            }
            Command::ReleaseAll { holder, reason } => Ok(self.release_all(holder, reason)),
            Command::Extend { holder, over: true, .. } => Ok(self.shorten(holder, ctx)),
            Command::Extend { holder, until, wait, reply_to, over: false } => {
                Ok(self.extend(holder, *until, ctx).effects(vec![locks_extended(reply_to, *wait)]))
            }
            Command::ForceRelease { key, by } => self.force_release(&self.canonical(key)?, by),
            Command::Configure { settings } => self.configure(settings),
            Command::Settings => Ok(Decision::reply(Reply::Settings(self.settings.clone()))),
            Command::List => Ok(self.list(ctx)),
            Command::Tick => Ok(self.sweep(ctx)),
        }
    }

    fn longest_ttl(&self) -> Duration {
        Duration::from_millis(self.settings.max_ttl_ms)
    }

    fn canonical(&self, key: &str) -> Result<String, Refusal> {
        if self.settings.normalize_keys {
            return uri::canonical(key);
        }
        uri::check(key).map(|()| key.to_owned())
    }

    fn acquire(&self, wanted: &Try<'_>, ctx: &Ctx) -> Answer {
        let live = self.locks.get_key_value(wanted.key).filter(|(_, lock)| lock.is_live(ctx));
        let live = live.filter(|_| !mutation::is_on(Mutation::LockHeld));
        let Some((key, lock)) = live else {
            return match self.full_hands(wanted, ctx) {
                Some(refusal) => Err(refusal),
                None => Ok(self.grant(wanted, ctx)),
            };
        };
        if lock.holder == *wanted.holder {
            return Ok(self.refresh(wanted, lock, ctx));
        }
        let refusal = match deadlock::cycle(self, wanted.holder, key, ctx) {
            Some(cycle) => deadlock::refusal(cycle),
            None => self.full_hands(wanted, ctx).unwrap_or_else(|| held(key, lock, ctx)),
        };
        self.refuse(wanted, refusal, ctx)
    }

    /// Refuses and remembers the try. While the same try is fresh in memory, asking again costs no commit.
    fn refuse(&self, wanted: &Try<'_>, refusal: Refusal, ctx: &Ctx) -> Answer {
        let known = self.edge(wanted.holder).filter(|edge| edge.key == wanted.key && edge.is_fresh(ctx.now));
        if known.is_some() {
            return Err(refusal);
        }
        let noted =
            Event::EdgeNoted { holder: wanted.holder.clone(), key: wanted.key.to_owned(), at: ctx.now };
        Ok(Decision::new(Reply::Refused(refusal), vec![noted]))
    }

    /// The refusal for a holder that may take no further lock.
    fn full_hands(&self, wanted: &Try<'_>, ctx: &Ctx) -> Option<Refusal> {
        let held: Vec<&str> = self
            .held_by(wanted.holder)
            .filter(|(_, lock)| lock.is_live(ctx))
            .map(|(key, _)| key.as_ref())
            .collect();
        if held.len() < self.settings.locks_per_holder {
            return None;
        }
        let message = format!("already holding lock on {}, release it first", named(&held, ", "));
        let detail = json!({ "key": held.first(), "held": held, "limit": self.settings.locks_per_holder });
        Some(Refusal::new(Code::AlreadyHolding, message).with(detail))
    }

    /// Grants a free lock. What has expired and is in the way goes first: the key's last lock, and those of
    /// the holder, which must not count against it.
    fn grant(&self, wanted: &Try<'_>, ctx: &Ctx) -> Decision<Lockspace> {
        let own = self.held_by(wanted.holder).filter(|(_, lock)| !lock.is_live(ctx));
        let before = self.locks.get_key_value(wanted.key).filter(|(_, lock)| lock.holder != *wanted.holder);
        let mut events: Vec<Event> = own.chain(before).map(|(key, lock)| expired(key, lock)).collect();

        let ttl_ms = wanted.ttl_ms.unwrap_or(self.settings.default_ttl_ms);
        let expires = self.lasts(wanted.holder, ttl_ms, ctx);
        let step = u64::from(!mutation::is_on(Mutation::TokenStays));
        let token = ctx.token(self.last_token.map_or(1, |last| last.number + step));
        events.push(Event::Acquired {
            key: wanted.key.to_owned(),
            raw: wanted.raw.to_owned(),
            holder: wanted.holder.clone(),
            agent: wanted.agent.clone(),
            token,
            at: ctx.now,
            expires,
            ttl_ms,
        });
        let (key, raw) = (wanted.key.to_owned(), wanted.raw.to_owned());
        let reply = Reply::Acquired { key, raw, token, expires_at: expires, refreshed: false };
        Decision::new(reply, events)
    }

    /// The holder takes its own lock again: a new time to live under the old token, for what the token guards
    /// has not changed hands.
    fn refresh(&self, wanted: &Try<'_>, lock: &Lock, ctx: &Ctx) -> Decision<Lockspace> {
        let ttl_ms = self.renewed_for(lock, wanted.ttl_ms);
        let expires = self.lasts(wanted.holder, ttl_ms, ctx);
        let (key, raw) = (wanted.key.to_owned(), wanted.raw.to_owned());
        let event = Event::Refreshed { key: key.clone(), at: ctx.now, expires, ttl_ms };
        let reply = Reply::Acquired { key, raw, token: lock.token, expires_at: expires, refreshed: true };
        Decision::new(reply, vec![event])
    }

    /// For how long a lock is renewed: as long as it was taken for, unless another time is asked for. The swarm may
    /// allow less by now.
    fn renewed_for(&self, lock: &Lock, asked_ms: Option<u64>) -> u64 {
        asked_ms.unwrap_or(lock.ttl_ms).min(self.settings.max_ttl_ms)
    }

    fn release(&self, holder: &InstanceId, key: &str, ctx: &Ctx) -> Answer {
        let (key, lock) = self.own(holder, key, ctx)?;
        let events = vec![released(key, lock, "released")];
        Ok(Decision::new(Reply::Released { keys: vec![key.to_string()] }, events))
    }

    fn heartbeat(&self, holder: &InstanceId, raw: &str, ttl_ms: Option<u64>, ctx: &Ctx) -> Answer {
        let canonical = self.canonical(raw)?;
        let (key, lock) = self.own(holder, &canonical, ctx)?;
        let ttl_ms = self.renewed_for(lock, ttl_ms);
        let expires = self.lasts(holder, ttl_ms, ctx);
        let reply = Reply::Acquired {
            key: key.to_string(),
            raw: raw.to_owned(),
            token: lock.token,
            expires_at: expires,
            refreshed: true,
        };
        Ok(Decision::new(reply, vec![Event::Kept { key: key.to_string(), expires, ttl_ms }]))
    }

    /// The holder's live lock on `key`.
    fn own(&self, holder: &InstanceId, key: &str, ctx: &Ctx) -> Result<(&Key, &Lock), Refusal> {
        match self.locks.get_key_value(key).filter(|(_, lock)| lock.is_live(ctx)) {
            None => Err(not_found(key)),
            Some((_, lock)) if lock.holder != *holder => Err(Refusal::new(
                Code::NotHolding,
                format!("held by {}; the lock on {key} is not yours to use", lock.holder),
            )
            .with(json!({ "key": key, "holder": lock.holder }))),
            Some(own) => Ok(own),
        }
    }

    /// Idempotent: an instance's end may be told more than once.
    fn release_all(&self, holder: &InstanceId, reason: &str) -> Decision<Lockspace> {
        let mut events: Vec<Event> =
            self.held_by(holder).map(|(key, lock)| released(key, lock, reason)).collect();
        let keys = self.held_by(holder).map(|(key, _)| key.to_string()).collect();
        if self.edge(holder).is_some() {
            events.push(Event::EdgesDropped { holders: vec![holder.clone()] });
        }
        events.extend(self.wait_over(holder));
        Decision::new(Reply::Released { keys }, events)
    }

    /// Also what the holder takes or renews from now on lasts so long: it is frozen only later, and nobody knows when.
    fn extend(&self, holder: &InstanceId, until: Timestamp, ctx: &Ctx) -> Decision<Lockspace> {
        // What has expired and was not swept yet is nobody's any more, and must not count as held in a wait.
        let dead = self.held_by(holder).filter(|(_, lock)| !lock.is_live(ctx));
        let mut events: Vec<Event> = dead.map(|(key, lock)| expired(key, lock)).collect();
        let short = self.held_by(holder).filter(|(_, lock)| lock.is_live(ctx) && lock.expires < until);
        let keys: Vec<String> = short.map(|(key, _)| key.to_string()).collect();
        events.extend(keys.iter().map(|key| Event::Extended { key: key.clone(), expires: until }));
        if self.wait_of(holder).unwrap_or(ctx.now).max(ctx.now) < until {
            events.push(Event::WaitNoted { holder: holder.clone(), until });
        }
        Decision::new(Reply::Extended { keys }, events)
    }

    /// The wait is over: what it had extended has its own time again, from now, for the holder can refresh it itself. A
    /// lock whose end the wait had fixed lasts longer by that, if little of the wait was left.
    fn shorten(&self, holder: &InstanceId, ctx: &Ctx) -> Decision<Lockspace> {
        let wait = self.wait_of(holder);
        let mut events: Vec<Event> = self.wait_over(holder).into_iter().collect();
        events.extend(self.held_by(holder).filter(|(_, lock)| lock.is_live(ctx)).filter_map(
            |(key, lock)| {
                let own = Duration::from_millis(self.renewed_for(lock, None));
                let (key, expires) = (key.to_string(), ctx.now + own);
                if expires < lock.expires {
                    return Some(Event::Shortened { key, expires });
                }
                (wait == Some(lock.expires) && lock.expires < expires)
                    .then_some(Event::Extended { key, expires })
            },
        ));
        Decision::new(Reply::Done, events)
    }

    fn wait_over(&self, holder: &InstanceId) -> Option<Event> {
        self.wait_of(holder).map(|_| Event::WaitsDropped { holders: vec![holder.clone()] })
    }

    fn force_release(&self, key: &str, by: &str) -> Answer {
        let (key, lock) = self.locks.get_key_value(key).ok_or_else(|| not_found(key))?;
        let events = vec![released(key, lock, &format!("forced by {by}"))];
        Ok(Decision::new(Reply::Released { keys: vec![key.to_string()] }, events))
    }

    fn configure(&self, settings: &Settings) -> Answer {
        check_ttl(Some(settings.max_ttl_ms), limits::LOCK_TTL_ALLOWED)?;
        check_ttl(Some(settings.default_ttl_ms), Duration::from_millis(settings.max_ttl_ms))?;
        if !(1..=LOCKS_PER_HOLDER_MAX).contains(&settings.locks_per_holder) {
            let message = format!(
                "locks_per_holder is {}; choose 1 to {LOCKS_PER_HOLDER_MAX}",
                settings.locks_per_holder
            );
            return Err(Refusal::new(Code::InvalidArgument, message));
        }
        if *settings == self.settings {
            return Ok(Decision::reply(Reply::Done));
        }
        if settings.locks_per_holder < self.most_held() {
            return Err(Refusal::new(
                Code::WrongState,
                format!("an instance holds {} locks; wait until they are released", self.most_held()),
            ));
        }
        // The rule says what "the same resource" is: changed under a lock, two could hold one resource.
        if settings.normalize_keys != self.settings.normalize_keys && !self.locks.is_empty() {
            return Err(Refusal::new(
                Code::WrongState,
                format!(
                    "{} locks are held; how keys are compared can change only while there are none, so release them first",
                    self.locks.len()
                ),
            ));
        }
        Ok(Decision::new(Reply::Done, vec![Event::Configured { settings: settings.clone() }]))
    }

    fn list(&self, ctx: &Ctx) -> Decision<Lockspace> {
        let live = self.locks.iter().filter(|(_, lock)| lock.is_live(ctx));
        Decision::reply(Reply::Locks(live.map(|(key, lock)| lock.view(key, ctx)).collect()))
    }

    /// Ends what is due, and moves on what this owner must not end yet.
    fn sweep(&self, ctx: &Ctx) -> Decision<Lockspace> {
        let due = self.due(ctx.now).map(|(key, lock)| match lock.is_live(ctx) {
            true => Event::Extended { key: key.to_string(), expires: lock.ends(ctx) },
            false => expired(key, lock),
        });
        let mut events: Vec<Event> = due.collect();
        let holders: Vec<InstanceId> = self.stale_edges(ctx.now).cloned().collect();
        if !holders.is_empty() {
            events.push(Event::EdgesDropped { holders });
        }
        let holders: Vec<InstanceId> = self.stale_waits(ctx.now).cloned().collect();
        if !holders.is_empty() {
            events.push(Event::WaitsDropped { holders });
        }
        Decision::new(Reply::Done, events)
    }
}

fn held(key: &str, lock: &Lock, ctx: &Ctx) -> Refusal {
    let ends = lock.ends(ctx);
    let left = ends.since(ctx.now);
    let message = format!(
        "{key} is held by {} for at most {} more; leave it alone and do other work, or ask the holder",
        lock.holder,
        humantime::format_duration(Duration::from_secs(left.as_secs().max(1)))
    );
    Refusal::new(Code::LockHeld, message).with(json!({
        "key": key,
        "holder": lock.holder,
        "agent": lock.agent,
        "held_since": lock.since.iso(),
        "expires_at": ends.iso(),
        "remaining_ms": ends.0.saturating_sub(ctx.now.0),
    }))
}

fn not_found(key: &str) -> Refusal {
    let message = format!("lock not found: {key} is not held, it was released or has expired");
    Refusal::new(Code::NotHolding, message).with(json!({ "key": key }))
}

fn check_ttl(ttl_ms: Option<u64>, longest: Duration) -> Result<(), Refusal> {
    match ttl_ms.map(Duration::from_millis) {
        Some(ttl) if ttl.is_zero() || ttl > longest => Err(Refusal::new(
            Code::InvalidArgument,
            format!(
                "the time to live of a lock is more than zero and at most {} seconds, not {}",
                longest.as_secs(),
                ttl.as_secs_f64()
            ),
        )),
        _ => Ok(()),
    }
}

fn released(key: &Key, lock: &Lock, reason: &str) -> Event {
    Event::Released { key: key.to_string(), holder: lock.holder.clone(), reason: reason.to_owned() }
}

fn expired(key: &Key, lock: &Lock) -> Event {
    Event::Expired { key: key.to_string(), holder: lock.holder.clone() }
}

/// Tells the agent that the locks of its instance outlast the wait, which it may now begin.
fn locks_extended(reply_to: &EntityKey, wait: Uuid) -> Effect {
    Effect::entity::<Agent>(reply_to.clone(), &agent::Command::LocksExtended { wait })
}
