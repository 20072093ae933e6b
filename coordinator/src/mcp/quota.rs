//! How much one caller may ask for, so that a loop gone wild in one agent does not starve the others.
//!
//! Calls are counted by agent in token buckets; open waits by instance, because many instances of one agent
//! may rightly sleep at a time. The limits are far above what a model does: only a runaway program meets them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use skein_shared::id::{InstanceId, Name};
use skein_shared::spelling::nearest;
use skein_shared::{Code, Refusal};
use tokio::time::Instant;
use uuid::Uuid;

use super::catalogue::{Catalogue, Effect, Tool};
use crate::auth::Principal;
use crate::config::{self, ToolLimits};

/// What a caller may do in a second, and how many of its requests may be under way at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    pub writes_per_second: u32,
    pub reads_per_second: u32,
    pub searches_per_second: u32,
    pub waits_per_instance: usize,
    /// Of all callers together: each open wait holds a connection and some kilobytes.
    pub waits: usize,
    /// Of one agent, those that wait apart.
    pub calls_per_agent: usize,
    /// Of one agent in all its sessions: each looks again with every change.
    pub watches_per_agent: usize,
    /// Less for single tools.
    pub tools: Arc<BTreeMap<String, ToolLimits>>,
}

impl From<&config::Limits> for Limits {
    fn from(limits: &config::Limits) -> Self {
        Self {
            writes_per_second: limits.writes_per_second,
            reads_per_second: limits.reads_per_second,
            searches_per_second: limits.searches_per_second,
            waits_per_instance: limits.waits_per_instance,
            waits: limits.waits,
            calls_per_agent: limits.calls_per_agent,
            watches_per_agent: WATCHES,
            tools: Arc::new(limits.tools.clone()),
        }
    }
}

impl Limits {
    /// What is wrong with the names of single tools, for a limit counts under the name of its tool alone.
    pub fn problem(&self, catalogue: &Catalogue) -> Option<String> {
        self.tools.keys().find_map(|name| match catalogue.get(name) {
            None => Some(unknown(name, catalogue)),
            Some(tool) if tool.name != name => Some(format!(
                "[limits.tools] names `{name}`, which is an alias; limit `{}` instead",
                tool.name
            )),
            Some(_) => None,
        })
    }
}

fn unknown(name: &str, catalogue: &Catalogue) -> String {
    let advice = match nearest(name, catalogue.tools().map(|tool| tool.name)) {
        Some(right) => format!("did you mean `{right}`?"),
        None => "take it out, or write the name of a tool, such as send-task".to_owned(),
    };
    format!("[limits.tools] names `{name}`, which is no tool; {advice}")
}

impl Default for Limits {
    fn default() -> Self {
        Self::from(&config::Limits::default())
    }
}

/// Resources that one agent may watch: those of twenty sessions that watch all they may.
const WATCHES: usize = 1000;
/// A bucket holds what its rate gives in this many seconds: a burst after a pause is no fault.
const BURST: f64 = 2.0;
/// From this many buckets on the full ones are thrown away: they say nothing.
const BUCKETS: usize = 10_000;
/// What a caller without a free wait is told to sleep before it tries again.
const WAIT_AGAIN_MS: u64 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Write,
    Read,
    Search,
    /// One tool that has limits of its own.
    Tool(&'static str),
}

impl Kind {
    fn of(tool: &Tool) -> Kind {
        match tool.effect {
            _ if tool.searches => Kind::Search,
            Effect::Write => Kind::Write,
            Effect::Read => Kind::Read,
        }
    }

    fn plural(self) -> String {
        match self {
            Kind::Write => "writes".to_owned(),
            Kind::Read => "reads".to_owned(),
            Kind::Search => "searches".to_owned(),
            Kind::Tool(name) => format!("calls of {name}"),
        }
    }
}

/// Counts. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Quota {
    limits: Limits,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Debug)]
struct Counts {
    buckets: HashMap<(Name, Uuid, Kind), Bucket>,
    /// Buckets from which on they are looked through again: twice as many as were left, so that a crowd of
    /// callers does not pay for all the others with each call.
    room: usize,
    waits: HashMap<(Name, InstanceId), usize>,
    open: usize,
    /// Calls under way: of each agent, and of each tool with limits of its own.
    under_way: HashMap<(Name, Uuid, Option<&'static str>), usize>,
    /// Resources that each agent watches in its sessions.
    watches: HashMap<(Name, Uuid), usize>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    /// In a second.
    rate: f64,
    at: Instant,
}

/// The right to be under way; dropping it gives the place to the next, also when the client goes away.
#[derive(Debug)]
pub struct Seat {
    counts: Arc<Mutex<Counts>>,
    swarm: Name,
    agent: Uuid,
    held: Held,
    /// The tool, if it has limits of its own.
    tool: Option<&'static str>,
}

/// The place that a call has.
#[derive(Debug)]
enum Held {
    /// Among all calls of its agent.
    Call,
    /// Among the waits of this instance.
    Wait(InstanceId),
    /// None: the call that it makes for its caller has one.
    Within,
}

impl Held {
    fn by(who: &Principal, tool: &Tool) -> Held {
        match (tool.hands_on, tool.waits) {
            (true, _) => Held::Within,
            (false, true) => Held::Wait(who.instance.clone()),
            (false, false) => Held::Call,
        }
    }
}

/// The right of a session to watch something; dropping it gives the place back.
#[derive(Debug)]
pub struct Watch {
    counts: Arc<Mutex<Counts>>,
    of: (Name, Uuid),
}

impl Default for Quota {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Quota {
    pub fn new(limits: Limits) -> Self {
        let counts = Counts {
            buckets: HashMap::new(),
            room: BUCKETS,
            waits: HashMap::new(),
            open: 0,
            under_way: HashMap::new(),
            watches: HashMap::new(),
        };
        Self { limits, counts: Arc::new(Mutex::new(counts)) }
    }

    /// Lets a call pass. What it gives back is held for as long as the call runs.
    ///
    /// # Errors
    /// `rate_limited`, with the time after which another try is worth it.
    pub fn admit(&self, who: &Principal, tool: &Tool, now: Instant) -> Result<Seat, Refusal> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = Kind::of(tool);
        let rate = f64::from(match kind {
            Kind::Write => self.limits.writes_per_second,
            Kind::Read | Kind::Tool(_) => self.limits.reads_per_second,
            Kind::Search => self.limits.searches_per_second,
        });
        self.spend(&mut counts, who, kind, rate, now)?;
        let own = self.limits.tools.get(tool.name).copied();
        if let Some(rate) = own.and_then(|own| own.per_second) {
            self.spend(&mut counts, who, Kind::Tool(tool.name), rate, now)?;
        }
        let own = own.and_then(|own| own.at_a_time).map(|most| (tool.name, most));
        let held = Held::by(who, tool);
        self.enter(&mut counts, who, &held, own)?;
        Ok(self.seat(who, held, own.map(|(name, _)| name)))
    }

    /// Lets a look at something pass that is no tool.
    ///
    /// # Errors
    /// `rate_limited`, as for a tool that reads.
    pub fn look(&self, who: &Principal, now: Instant) -> Result<(), Refusal> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        self.spend(&mut counts, who, Kind::Read, f64::from(self.limits.reads_per_second), now)
    }

    /// Lets somebody listen, which holds what a wait holds.
    ///
    /// # Errors
    /// `rate_limited`, as for a tool that waits.
    pub fn listen(&self, who: &Principal, now: Instant) -> Result<Seat, Refusal> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        self.spend(&mut counts, who, Kind::Read, f64::from(self.limits.reads_per_second), now)?;
        self.sit(&mut counts, who)?;
        Ok(self.seat(who, Held::Wait(who.instance.clone()), None))
    }

    /// Lets a session watch something, which takes no place of a wait.
    ///
    /// # Errors
    /// `rate_limited` for an agent that watches too much.
    pub fn watch(&self, who: &Principal) -> Result<Watch, Refusal> {
        let (of, most) = ((who.swarm.clone(), who.agent), self.limits.watches_per_agent);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let own = counts.watches.get(&of).copied().unwrap_or_default();
        if own >= most {
            let problem = format!(
                "{own} resources are watched in your sessions, the most there may be; unsubscribe from one, or end a session that you do not use"
            );
            return Err(Refusal::new(Code::RateLimited, problem));
        }
        counts.watches.insert(of.clone(), own + 1);
        Ok(Watch { counts: Arc::clone(&self.counts), of })
    }

    fn seat(&self, who: &Principal, held: Held, tool: Option<&'static str>) -> Seat {
        Seat { counts: Arc::clone(&self.counts), swarm: who.swarm.clone(), agent: who.agent, held, tool }
    }

    /// Takes all the places that the call needs, or none.
    fn enter(
        &self,
        counts: &mut Counts,
        who: &Principal,
        held: &Held,
        own: Option<(&'static str, usize)>,
    ) -> Result<(), Refusal> {
        let key = |tool| (who.swarm.clone(), who.agent, tool);
        let all = Some((None, self.limits.calls_per_agent)).filter(|_| matches!(held, Held::Call));
        let places = all.into_iter().chain(own.map(|(name, most)| (Some(name), most)));
        for (tool, most) in places.clone() {
            let now = counts.under_way.get(&key(tool)).copied().unwrap_or_default();
            if now >= most {
                let of = tool.map_or_else(String::new, |tool| format!(" of {tool}"));
                let problem = format!(
                    "{now} of your calls{of} are under way, the most there may be; let one end first"
                );
                return Err(Refusal::new(Code::RateLimited, problem).retry_after(WAIT_AGAIN_MS));
            }
        }
        if matches!(held, Held::Wait(_)) {
            self.sit(counts, who)?;
        }
        for (tool, _) in places {
            *counts.under_way.entry(key(tool)).or_default() += 1;
        }
        Ok(())
    }

    /// Requests that wait now.
    #[cfg(test)]
    fn open_waits(&self) -> usize {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).open
    }

    fn spend(
        &self,
        counts: &mut Counts,
        who: &Principal,
        kind: Kind,
        rate: f64,
        now: Instant,
    ) -> Result<(), Refusal> {
        // A tool's own rate of less than one in two seconds has room for one all the same.
        let least = if matches!(kind, Kind::Tool(_)) { 1.0 } else { 0.0 };
        let full = (rate * BURST).max(least);
        if counts.buckets.len() >= counts.room {
            let full_after = |bucket: &Bucket| BURST.max(1.0 / bucket.rate);
            counts
                .buckets
                .retain(|_, bucket| now.duration_since(bucket.at).as_secs_f64() < full_after(bucket));
            counts.room = BUCKETS.max(counts.buckets.len() * 2);
        }
        let key = (who.swarm.clone(), who.agent, kind);
        let bucket = counts.buckets.entry(key).or_insert(Bucket { tokens: full, rate, at: now });
        let gained = now.duration_since(bucket.at).as_secs_f64() * rate;
        *bucket = Bucket { tokens: (bucket.tokens + gained).min(full), rate, at: now };
        if bucket.tokens >= 1.0 {
            bucket.tokens -= 1.0;
            return Ok(());
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at least 1, and saturating"
        )]
        let millis = ((1.0 - bucket.tokens) / rate.max(0.001) * 1000.0).ceil().max(1.0) as u64;
        Err(Refusal::new(
            Code::RateLimited,
            format!(
                "more than {rate} {} a second; sleep for retry_after_ms, and wait for changes with `wait` instead of asking in a loop",
                kind.plural()
            ),
        )
        .retry_after(millis))
    }

    fn sit(&self, counts: &mut Counts, who: &Principal) -> Result<(), Refusal> {
        let full = |message: String| Err(Refusal::new(Code::RateLimited, message).retry_after(WAIT_AGAIN_MS));
        if counts.open >= self.limits.waits {
            return full(format!("{} requests wait here already; try again later", counts.open));
        }
        let own = counts.waits.entry((who.swarm.clone(), who.instance.clone())).or_default();
        if *own >= self.limits.waits_per_instance {
            return full(format!(
                "{own} of your requests wait already; let one end before you wait again, one `wait` can watch all topics"
            ));
        }
        *own += 1;
        counts.open += 1;
        Ok(())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut leave = |tool| less(&mut counts.under_way, (self.swarm.clone(), self.agent, tool));
        if self.tool.is_some() {
            leave(self.tool);
        }
        match &self.held {
            Held::Within => {}
            Held::Call => leave(None),
            Held::Wait(instance) => {
                less(&mut counts.waits, (self.swarm.clone(), instance.clone()));
                counts.open = counts.open.saturating_sub(1);
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        less(&mut counts.watches, self.of.clone());
    }
}

/// One less; what nobody counts any more is not kept.
fn less<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: K) {
    if let Entry::Occupied(mut entry) = counts.entry(key) {
        *entry.get_mut() = entry.get().saturating_sub(1);
        if *entry.get() == 0 {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::auth::Role;
    use crate::mcp::tools::catalogue;

    fn caller(number: u128) -> Principal {
        let instance = InstanceId(format!("worker-{number}"));
        Principal { agent: Uuid::from_u128(number), instance, ..Principal::named("worker", Role::Worker) }
    }

    #[test]
    fn a_bucket_fills_with_time_and_belongs_to_one_agent() {
        let quota = Quota::new(Limits { writes_per_second: 10, ..Limits::default() });
        let (catalogue, now) = (catalogue().unwrap(), Instant::now());
        let send = catalogue.get("send-task").unwrap();
        for _ in 0..20 {
            quota.admit(&caller(1), send, now).unwrap();
        }
        let refusal = quota.admit(&caller(1), send, now).unwrap_err();
        assert_eq!((refusal.code, refusal.retry_after_ms), (Code::RateLimited, Some(100)));
        quota.admit(&caller(2), send, now).unwrap();
        quota.admit(&caller(1), catalogue.get("get-tasks").unwrap(), now).unwrap();
        let now = now + Duration::from_millis(100);
        quota.admit(&caller(1), send, now).unwrap();
        assert!(quota.admit(&caller(1), send, now).is_err());
    }

    #[test]
    fn a_limit_stands_under_the_name_of_its_tool() {
        let catalogue = catalogue().unwrap();
        let problem = |name: &str| {
            let tools = [(name.to_owned(), ToolLimits { per_second: Some(0.1), at_a_time: None })];
            Limits { tools: Arc::new(tools.into()), ..Limits::default() }.problem(&catalogue)
        };
        assert_eq!(problem("release_lock"), None);
        assert!(problem("runlock").is_some_and(|problem| problem.contains("limit `release_lock` instead")));
        for (name, advice) in
            [("send-tsk", "did you mean `send-task`?"), ("zzzzzzzzzzzzzzzzzzzz", "take it out")]
        {
            let told = problem(name).unwrap();
            assert!(told.contains("which is no tool") && told.contains(advice), "{told}");
        }
    }

    #[test]
    fn single_tools_have_limits_of_their_own() {
        let slow = ToolLimits { per_second: Some(0.1), at_a_time: None };
        let narrow = ToolLimits { per_second: None, at_a_time: Some(1) };
        let tools = [("send-task".to_owned(), slow), ("get-tasks".to_owned(), narrow)];
        let quota =
            Quota::new(Limits { tools: Arc::new(tools.into()), calls_per_agent: 2, ..Limits::default() });
        let (catalogue, now) = (catalogue().unwrap(), Instant::now());
        let (send, get) = (catalogue.get("send-task").unwrap(), catalogue.get("get-tasks").unwrap());
        drop(quota.admit(&caller(1), send, now).unwrap());
        let refusal = quota.admit(&caller(1), send, now).unwrap_err();
        assert_eq!((refusal.code, refusal.retry_after_ms), (Code::RateLimited, Some(10_000)));
        assert!(refusal.message.contains("send-task"), "{}", refusal.message);
        drop(quota.admit(&caller(2), send, now).unwrap());
        drop(quota.admit(&caller(1), send, now + Duration::from_secs(10)).unwrap());

        let first = quota.admit(&caller(1), get, now).unwrap();
        assert_eq!(quota.admit(&caller(1), get, now).unwrap_err().code, Code::RateLimited);
        let _other = quota.admit(&caller(2), get, now).unwrap();
        drop(first);
        let _again = quota.admit(&caller(1), get, now).unwrap();
        // A refused call takes no place, and those that wait are counted apart.
        let list = catalogue.get("get-swarm").unwrap();
        let _second = quota.admit(&caller(1), list, now).unwrap();
        let refusal = quota.admit(&caller(1), list, now).unwrap_err();
        assert_eq!((refusal.code, refusal.retry_after_ms), (Code::RateLimited, Some(1000)));
        let _wait = quota.admit(&caller(1), catalogue.get("wait").unwrap(), now).unwrap();
    }

    #[test]
    fn a_place_to_wait_is_given_back() {
        let quota = Quota::new(Limits { waits: 3, waits_per_instance: 2, ..Limits::default() });
        let (catalogue, now) = (catalogue().unwrap(), Instant::now());
        let wait = catalogue.get("wait").unwrap();
        let first = quota.admit(&caller(1), wait, now).unwrap();
        let _second = quota.admit(&caller(1), wait, now).unwrap();
        assert_eq!(quota.admit(&caller(1), wait, now).unwrap_err().code, Code::RateLimited);
        let _other = quota.admit(&caller(2), wait, now).unwrap();
        assert_eq!(quota.admit(&caller(3), wait, now).unwrap_err().code, Code::RateLimited);
        drop(first);
        assert_eq!(quota.open_waits(), 2);
        quota.admit(&caller(1), wait, now).unwrap();
    }
}
