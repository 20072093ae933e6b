//! Which runner has a stream here, and how commands get onto it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use skein_proto::convert::command;
use skein_proto::trace;
use skein_proto::v1::{self, CoordinatorMessage};
use skein_shared::ask::Ask;
use skein_shared::entity::{Reign, RunnerCommand};
use skein_shared::id::{EntityKey, InstanceId, Name, agent_id};
use skein_shared::{Code, Refusal};
use tokio::sync::{Notify, mpsc};
use tonic::Status;
use tracing::{Span, error, info};
use uuid::Uuid;

use super::asks::Asks;
use crate::auth::Role;
use crate::auth::token::{self, Claims, Keys};
use crate::entity::Clock;
use crate::entity::ownership::Streams;
use crate::outbox::{Delivery, Runners};

/// What goes to a runner.
pub(super) type Outgoing = mpsc::Sender<Result<CoordinatorMessage, Status>>;

/// The streams of this node's runners. Clones share them.
#[derive(Clone)]
pub struct Sessions {
    inner: Arc<Inner>,
}

struct Inner {
    keys: Keys,
    clock: Clock,
    open: Mutex<HashMap<String, Session>>,
    connected: Notify,
    asks: Asks,
}

struct Session {
    /// Tells a stream from the one that took its place.
    id: Uuid,
    /// Of the runner's group.
    fleet: EntityKey,
    outgoing: Outgoing,
    grants: Grants,
}

/// What the instances of each (swarm, agent) may do, by the definitions that the runner registered.
pub(super) type Grants = HashMap<(String, String), Role>;

/// Dropped when a stream ends, in whichever way.
#[must_use]
pub(super) struct Closing<'a> {
    sessions: &'a Sessions,
    runner: &'a str,
    id: Uuid,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.sessions.close(self.runner, self.id);
    }
}

impl Sessions {
    pub fn new(keys: Keys, clock: Clock) -> Self {
        let inner =
            Inner { keys, clock, open: Mutex::default(), connected: Notify::new(), asks: Asks::default() };
        Self { inner: Arc::new(inner) }
    }

    /// The runners that have a stream here.
    pub fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    /// Makes a stream the one of its runner; an older one of the same runner gets no more commands and ends.
    pub(super) fn open(&self, runner: &str, id: Uuid, fleet: EntityKey, outgoing: Outgoing, grants: Grants) {
        let before = self.lock().insert(runner.to_owned(), Session { id, fleet, outgoing, grants });
        if before.is_some_and(|before| before.id != id) {
            info!(runner, "a runner connected anew; its older stream ends");
        }
        self.inner.connected.notify_waiters();
    }

    /// The fleet of the runner that has a stream here under a name.
    pub(super) fn fleet_of(&self, runner: &str) -> Option<EntityKey> {
        self.lock().get(runner).map(|session| session.fleet.clone())
    }

    /// Whether the stream is still the one of its runner.
    pub(super) fn is_current(&self, runner: &str, id: Uuid) -> bool {
        self.lock().get(runner).is_some_and(|session| session.id == id)
    }

    /// A part of an answer came on a stream.
    pub(super) fn answered(&self, id: Uuid, part: v1::Answer) {
        self.inner.asks.answered(id, part);
    }

    /// Closes a stream once the guard is dropped: whoever serves it may be dropped in the middle.
    pub(super) fn closing<'a>(&'a self, runner: &'a str, id: Uuid) -> Closing<'a> {
        Closing { sessions: self, runner, id }
    }

    fn close(&self, runner: &str, id: Uuid) {
        self.inner.asks.closed(id);
        let mut open = self.lock();
        if open.get(runner).is_some_and(|session| session.id == id) {
            open.remove(runner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.inner.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token of a new instance. It is made on the way out and never stored.
    fn mint(&self, command: &RunnerCommand, grants: &Grants) -> Result<String, Refusal> {
        let RunnerCommand::Start { instance, agent, swarm, .. } = command else { return Ok(String::new()) };
        let role = grants.get(&(swarm.clone(), agent.clone())).ok_or_else(|| {
            Refusal::new(Code::NotFound, format!("the runner has no agent `{agent}` in swarm `{swarm}`"))
        })?;
        let (swarm, agent_name) = (Name::parse(swarm)?, Name::parse(agent)?);
        let claims = Claims {
            agent: agent_id(&swarm, &agent_name),
            swarm,
            agent_name,
            role: *role,
            view: None,
            instance: Some(InstanceId(instance.clone())),
            // A run may sleep as often as it likes, which does not count against it, and nobody gives it another token.
            // With its end the token holds no more.
            lifetime: token::OWN,
        };
        let issued = self.inner.keys.issue(claims, self.inner.clock.wall())?;
        Ok(issued.text().to_owned())
    }
}

#[async_trait]
impl Streams for Sessions {
    async fn send(&self, runner: &str, command: &RunnerCommand, reign: &Reign) -> Delivery {
        Runners::deliver(self, runner, command, reign).await
    }

    async fn ask(&self, runner: &str, ask: &Ask) -> Option<Result<String, Refusal>> {
        let (session, outgoing) = {
            let open = self.lock();
            let session = open.get(runner)?;
            (session.id, session.outgoing.clone())
        };
        self.inner.asks.ask(session, outgoing, ask).await
    }

    fn withdraw(&self, id: Uuid) {
        self.inner.asks.withdraw(id);
    }
}

#[async_trait]
impl Runners for Sessions {
    async fn deliver(&self, runner: &str, command: &RunnerCommand, reign: &Reign) -> Delivery {
        let open = self.lock();
        let Some(session) = open.get(runner) else { return Delivery::NotConnected };
        let token = match self.mint(command, &session.grants) {
            Ok(token) => token,
            Err(refusal) if refusal.code == Code::NotFound => return Delivery::NotOffered,
            Err(refusal) => {
                error!(runner, problem = %refusal.message, "a start was not sent");
                return Delivery::NotConnected;
            }
        };
        let mut message = command::to_message(command.clone(), &token, reign);
        message.traceparent = trace::traceparent(&Span::current());
        match session.outgoing.try_send(Ok(message)) {
            Ok(()) => Delivery::Sent,
            // Full or broken: the pump comes back.
            Err(_) => Delivery::NotConnected,
        }
    }

    async fn connected(&self) {
        self.inner.connected.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skein_proto::v1::coordinator_message::Message;
    use skein_shared::fence::{Epoch, Token};
    use skein_shared::limits;

    use super::*;

    fn start(agent: &str) -> RunnerCommand {
        RunnerCommand::Start {
            instance: format!("{agent}-00000001"),
            agent: agent.into(),
            swarm: "default".into(),
            token: Token { epoch: Epoch(1), number: 1 },
            input: json!({}),
        }
    }

    #[tokio::test]
    async fn a_start_carries_a_token_for_just_this_instance() {
        let (keys, clock) = (Keys::ephemeral().unwrap(), Clock::start());
        let sessions = Sessions::new(keys.clone(), clock.clone());
        let reign = Reign { source: "agent/default/worker".parse().unwrap(), epoch: Epoch(1) };
        assert_eq!(sessions.deliver("r1", &start("worker"), &reign).await, Delivery::NotConnected);

        let (outgoing, mut sent) = mpsc::channel(4);
        let grants = Grants::from([(("default".to_owned(), "worker".to_owned()), Role::Worker)]);
        let (id, fleet) = (Uuid::now_v7(), EntityKey::fleet(&Name::parse("default").unwrap()));
        sessions.open("r1", id, fleet, outgoing, grants);
        assert_eq!(sessions.deliver("r1", &start("worker"), &reign).await, Delivery::Sent);
        assert_eq!(sessions.deliver("r1", &start("stranger"), &reign).await, Delivery::NotOffered);

        let Some(Message::Start(started)) = sent.recv().await.unwrap().unwrap().message else {
            panic!("a start")
        };
        let after_many_waits = clock.wall() + limits::WAIT_MAX * 13;
        let who = keys.verify(&started.access_token, after_many_waits).unwrap();
        assert_eq!((who.instance.as_str(), who.role, who.managed), ("worker-00000001", Role::Worker, true));

        sessions.close("r1", Uuid::now_v7());
        assert!(sessions.is_current("r1", id), "another stream's end changes nothing");
        sessions.close("r1", id);
        assert!(sessions.names().is_empty());
    }
}
