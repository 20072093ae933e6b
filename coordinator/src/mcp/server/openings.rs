//! Whether a client of the older revisions may begin a session, or ask in one. What it says of itself stays in memory,
//! and the session with it until it has been idle for a while, so both have a bound: for all, and for each agent, that
//! one which begins more and more does not keep the others out.
//!
//! A session carries no rights, but what its agent is told and asked comes on its streams. So it is that agent's alone,
//! and who else has got hold of its id hears nothing there, ends nothing and does not wake it. Whose one is that began
//! on another node nobody knows here: each agent that asks in it has one of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::transport::streamable_http_server::session::local::{LocalSessionHandle, LocalSessionManager};
use rmcp::transport::streamable_http_server::{SessionId, SessionManager};
use skein_shared::{Code, Refusal};
use tokio::time::Instant;
use uuid::Uuid;

use super::attended::{Attended, Present};
use super::broken::Streams;
use crate::auth::Principal;
use crate::mcp::quota::Quota;
use crate::mcp::sessions::{Owner, Sessions};

/// Most sessions that are awake. One falls asleep after an idle while, and wakes with its next request.
const AWAKE: usize = 20_000;
/// Most of one agent. One more has its own that was left the longest ago fall asleep.
const OWN: usize = 500;
/// What a client may say of itself, bytes. Clients say some hundred.
const SAID: usize = 16 * 1024;

/// The sessions that are awake, and whose they are: the agent's that began or woke them.
pub(super) struct Openings {
    awake: Arc<LocalSessionManager>,
    kept: Arc<Sessions>,
    /// Whether a session that is not kept may have begun on another node.
    adopts: bool,
    quota: Quota,
    own: usize,
    known: Mutex<HashMap<SessionId, Opened>>,
}

struct Opened {
    of: Owner,
    attended: Attended,
    streams: Streams,
}

/// A request that was let in.
pub(super) struct Admitted {
    pub(super) attended: Attended,
    pub(super) streams: Streams,
    /// To be held until it is answered.
    pub(super) present: Present,
    /// What the session is called here: one that begins, until it has its id.
    pub(super) session: Option<SessionId>,
}

impl Admitted {
    fn to(attended: Attended, streams: Streams) -> Self {
        Self { present: attended.enter(), attended, streams, session: None }
    }

    /// To a session that is known.
    fn again(opened: &Opened, who: &Principal, proven: bool) -> Result<Self, Refusal> {
        require(&opened.of, who, proven)?;
        Ok(Self::to(opened.attended.clone(), opened.streams.clone()))
    }
}

impl Openings {
    pub(super) fn new(
        awake: Arc<LocalSessionManager>,
        kept: Arc<Sessions>,
        adopts: bool,
        quota: Quota,
    ) -> Self {
        Self { awake, kept, adopts, quota, own: OWN, known: Mutex::default() }
    }

    /// Lets in a request that names a session, or begins one with so many bytes. `proven` is whether a token of the
    /// caller's own says which agent it is.
    ///
    /// # Errors
    /// `too_large` for a client that says too much, `not_found` for the session of another agent, `overloaded` while
    /// too many are awake, `rate_limited` for an agent that begins too many.
    pub(super) async fn admit(
        &self,
        who: &Principal,
        proven: bool,
        session: Option<&str>,
        beginning: Option<usize>,
    ) -> Result<Admitted, Refusal> {
        let begins = beginning.is_some();
        if beginning.is_some_and(|bytes| bytes > SAID) {
            let problem =
                format!("initialize has more than {SAID} bytes; name the client and its capabilities alone");
            return Err(Refusal::new(Code::TooLarge, problem));
        }
        let awake = self.awake.sessions.read().await;
        let id: SessionId = match session {
            _ if begins => Uuid::new_v4().to_string().into(),
            Some(session) => self.called(session, who, proven, &awake),
            None => return Ok(Admitted::to(Attended::default(), Streams::default())),
        };
        if let Some(owner) = self.kept.owner(&id) {
            require(&owner, who, proven)?;
        }
        let (mut admitted, oldest) = if awake.contains_key(&id) {
            let again =
                self.known().get(&id).map(|opened| Admitted::again(opened, who, proven)).transpose()?;
            (again.unwrap_or_else(|| Admitted::to(Attended::default(), Streams::default())), None)
        } else {
            self.quota.look(who, Instant::now())?;
            has_room(awake.len())?;
            self.opens(who, proven, &id, &awake)?
        };
        drop(awake);
        // One of an earlier release is theirs who wake it.
        self.kept.give(&id, Owner::of(who));
        admitted.session = Some(id);
        if let Some(oldest) = oldest {
            // One that has ended meanwhile is as good.
            let _ = self.awake.close_session(&oldest).await;
        }
        Ok(admitted)
    }

    /// What a session is called here. One that may have begun on another node has a name that follows from its agent,
    /// too: nobody can be refused it, and nobody wakes it in another's place.
    fn called(
        &self,
        session: &str,
        who: &Principal,
        proven: bool,
        awake: &HashMap<SessionId, LocalSessionHandle>,
    ) -> SessionId {
        let is_own = awake.contains_key(session) || self.kept.knows(session);
        if !self.adopts || is_own || Uuid::try_parse(session).is_err() {
            return session.into();
        }
        let name = [who.swarm.as_str(), session].join("\n");
        // With the shared key one session may speak for many.
        let agent = if proven { who.agent } else { Uuid::nil() };
        Uuid::new_v5(&agent, name.as_bytes()).to_string().into()
    }

    /// Notes a session down, and says which of the agent's own has to make room for it.
    fn opens(
        &self,
        who: &Principal,
        proven: bool,
        id: &SessionId,
        awake: &HashMap<SessionId, LocalSessionHandle>,
    ) -> Result<(Admitted, Option<SessionId>), Refusal> {
        let of = Owner::of(who);
        let mut known = self.known();
        if let Some(opened) = known.get(id) {
            // Another request wakes it just now.
            return Ok((Admitted::again(opened, who, proven)?, None));
        }
        known.retain(|id, opened| opened.attended.is_attended() || awake.contains_key(id));
        let own = known.iter().filter(|(_, opened)| opened.of == of);
        let mut oldest = None;
        if own.clone().count() >= self.own {
            let left = own.filter_map(|(id, opened)| Some((opened.attended.left()?, id.clone())));
            oldest = left.min_by_key(|(left, _)| *left).map(|(_, id)| id);
            let Some(oldest) = &oldest else {
                let problem = format!(
                    "{} of your sessions have requests under way, the most there may be; end those that you do not use",
                    self.own
                );
                return Err(Refusal::new(Code::RateLimited, problem).retry_after(10_000));
            };
            known.remove(oldest);
        }
        // Somebody is there for it before anybody else looks for those that nobody is there for.
        let admitted = Admitted::to(Attended::default(), Streams::default());
        let (attended, streams) = (admitted.attended.clone(), admitted.streams.clone());
        known.insert(id.clone(), Opened { of, attended, streams });
        Ok((admitted, oldest))
    }

    /// A session that has begun has its id, and is its agent's from now on.
    pub(super) fn begun(&self, begins: Option<&SessionId>, id: &str) {
        let opened = begins.and_then(|begins| self.known().remove(begins));
        let Some(opened) = opened else { return };
        // This may write a file, and nobody is told the id before it is back.
        self.kept.give(id, opened.of.clone());
        self.known().insert(id.into(), opened);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<SessionId, Opened>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn require(owner: &Owner, who: &Principal, proven: bool) -> Result<(), Refusal> {
    if owner.admits(who, proven) {
        return Ok(());
    }
    // As of one that there is not: nobody is told which ids there are.
    Err(Refusal::new(Code::NotFound, "there is no such session; begin one with initialize"))
}

fn has_room(awake: usize) -> Result<(), Refusal> {
    if awake < AWAKE {
        return Ok(());
    }
    let problem = format!(
        "{awake} sessions are open, the most there may be; end those that you do not use, or try later"
    );
    Err(Refusal::new(Code::Overloaded, problem).retry_after(10_000))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use skein_shared::id::Name;

    use super::*;
    use crate::auth::Role;

    fn openings() -> Openings {
        Openings::new(Arc::default(), Arc::new(Sessions::fleeting()), false, Quota::default())
    }

    fn agent(number: u128) -> Principal {
        let instance = skein_shared::id::InstanceId(format!("worker-{number}"));
        Principal { agent: Uuid::from_u128(number), instance, ..Principal::named("worker", Role::Worker) }
    }

    /// A session that was begun, as rmcp has it.
    async fn begin(openings: &Openings, who: &Principal) -> Result<(SessionId, Attended), Refusal> {
        let admitted = openings.admit(who, true, None, Some(100)).await?;
        let (id, _transport) = openings.awake.create_session().await.unwrap();
        openings.kept.store(&id, Value::Null);
        openings.begun(admitted.session.as_ref(), &id);
        Ok((id, admitted.attended))
    }

    #[test]
    fn sessions_have_an_end() {
        assert!(has_room(AWAKE - 1).is_ok());
        let refusal = has_room(AWAKE).unwrap_err();
        assert_eq!((refusal.code, refusal.retry_after_ms), (Code::Overloaded, Some(10_000)));
    }

    #[tokio::test(start_paused = true)]
    async fn one_agent_cannot_take_the_sessions_of_all() {
        let openings = Openings { own: 2, ..openings() };
        let (flood, other) = (agent(1), agent(2));
        let theirs = begin(&openings, &other).await.unwrap().0;
        let mut own = Vec::new();
        for _ in 0..3 {
            own.push(begin(&openings, &flood).await.unwrap());
            tokio::time::advance(std::time::Duration::from_secs(1)).await;
        }
        let is_awake = async |id: &SessionId| openings.awake.has_session(id).await.unwrap();
        assert!(!is_awake(&own[0].0).await, "its oldest goes first");
        assert!(is_awake(&own[1].0).await && is_awake(&own[2].0).await && is_awake(&theirs).await);
        // What somebody is there for does not go; what has gone wakes as any other.
        let busy = [own[1].1.enter(), own[2].1.enter()];
        assert_eq!(begin(&openings, &flood).await.unwrap_err().code, Code::RateLimited);
        let wakes = openings.admit(&flood, true, Some(&own[0].0), None).await;
        assert_eq!(wakes.map(|_| ()).unwrap_err().code, Code::RateLimited);
        begin(&openings, &other).await.unwrap();
        drop(busy);
        begin(&openings, &flood).await.unwrap();
    }

    #[tokio::test]
    async fn a_session_is_known_to_its_agent_alone_and_to_who_may_be_any() {
        let openings = openings();
        let (own, other) = (agent(1), agent(2));
        let elsewhere = Principal { swarm: Name::parse("elsewhere").unwrap(), ..agent(1) };
        let (id, _) = begin(&openings, &own).await.unwrap();
        let admit = async |who: &Principal, proven: bool| {
            openings.admit(who, proven, Some(&id), None).await.err().map(|refusal| refusal.code)
        };
        assert_eq!(admit(&own, true).await, None);
        assert_eq!(admit(&other, true).await, Some(Code::NotFound));
        assert_eq!(admit(&other, false).await, None, "the shared key names no agent");
        for proven in [true, false] {
            assert_eq!(admit(&elsewhere, proven).await, Some(Code::NotFound));
        }
    }

    #[tokio::test]
    async fn a_session_that_sleeps_is_its_agents_alone_too() {
        let openings = openings();
        let (own, other) = (agent(1), agent(2));
        let (id, _) = begin(&openings, &own).await.unwrap();
        openings.awake.close_session(&id).await.unwrap();
        openings.known().clear();
        let admit = async |who: &Principal, proven: bool| {
            openings.admit(who, proven, Some(&id), None).await.err().map(|refusal| refusal.code)
        };
        assert_eq!(admit(&other, true).await, Some(Code::NotFound));
        assert_eq!(admit(&own, true).await, None);
        assert_eq!(admit(&other, false).await, None, "the shared key names no agent");
        // What was written down without an owner is theirs who wake it first.
        openings.kept.store("before", Value::Null);
        for (who, refused) in [(&other, None), (&own, Some(Code::NotFound))] {
            let admitted = openings.admit(who, true, Some("before"), None).await;
            assert_eq!(admitted.err().map(|refusal| refusal.code), refused);
            openings.known().clear();
        }
    }

    #[tokio::test]
    async fn a_session_of_another_node_is_another_for_each_agent() {
        let openings = Openings { adopts: true, ..openings() };
        let (own, other) = (agent(1), agent(2));
        let elsewhere = Uuid::new_v4().to_string();
        let admit = async |who: &Principal, proven: bool, session: &str| {
            openings.admit(who, proven, Some(session), None).await.unwrap().session.unwrap()
        };
        assert_eq!(
            admit(&own, false, elsewhere.as_str()).await,
            admit(&other, false, elsewhere.as_str()).await
        );
        let called = async |who: &Principal, session: &str| admit(who, true, session).await;
        let theirs = called(&other, elsewhere.as_str()).await;
        let ours = called(&own, elsewhere.as_str()).await;
        assert!(theirs != ours && Uuid::try_parse(&ours).is_ok());
        assert_eq!(called(&own, elsewhere.as_str()).await, ours);
        // One of this node keeps its name.
        let (id, _) = begin(&openings, &own).await.unwrap();
        assert_eq!(called(&own, id.as_ref()).await, id);
        openings.awake.close_session(&id).await.unwrap();
        assert_eq!(called(&own, id.as_ref()).await, id);
    }

    #[tokio::test]
    async fn a_client_that_says_too_much_of_itself_begins_no_session() {
        let openings = openings();
        let admit = async |beginning: Option<usize>| {
            openings.admit(&agent(1), true, None, beginning).await.map(|_| ())
        };
        assert!(admit(Some(SAID)).await.is_ok());
        assert_eq!(admit(Some(SAID + 1)).await.unwrap_err().code, Code::TooLarge);
        assert!(admit(None).await.is_ok(), "it says nothing of itself");
    }
}
