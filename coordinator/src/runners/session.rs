//! One runner's stream, from its registration to its end.

use std::collections::VecDeque;

use futures::stream::{FuturesUnordered, StreamExt};
use skein_proto::convert::command;
use skein_proto::v1::coordinator_message::Message as Answer;
use skein_proto::v1::runner_message::Message;
use skein_proto::v1::{
    Acknowledge, Heartbeat, Outranked, Refused, Register, Renewed, RunnerMessage, Welcome,
};
use skein_shared::entity::Signal;
use skein_shared::fence::Epoch;
use skein_shared::id::{EntityKey, Name};
use skein_shared::{Code, Refusal, limits};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::Streaming;
use tracing::{info, warn};
use uuid::Uuid;

use super::Sessions;
use super::coordinators::Coordinators;
use super::register::{self, Registered};
use super::reports::Reports;
use super::sessions::Outgoing;
use crate::cluster::Cluster;
use crate::entity::Entities;

pub(super) struct Session {
    pub(super) entities: Entities,
    pub(super) sessions: Sessions,
    pub(super) mcp_url: String,
    pub(super) outgoing: Outgoing,
    /// The runner that the stream's token was issued to.
    pub(super) named: Name,
}

/// The runner's stream broke, or it may no longer write to it.
struct Gone;

impl Session {
    pub(super) async fn serve(self, mut messages: Streaming<RunnerMessage>) {
        let Ok(Some(RunnerMessage { message: Some(Message::Register(register)) })) = messages.message().await
        else {
            let problem = Refusal::new(Code::WrongState, "a runner registers first; update the runner");
            return self.refuse(&problem).await;
        };
        let id = Uuid::now_v7();
        let closing = self.sessions.closing(&register.name, id);
        // From before the registration on: what a former life of the store has taken in is worth nothing.
        let lives = self.entities.cluster().map(Cluster::lives);
        let registered = match self.begin(id, &register).await {
            Ok(registered) => registered,
            Err(refusal) => {
                warn!(runner = register.name, problem = %refusal.message, "a runner was turned away");
                drop(closing);
                return self.refuse(&refusal).await;
            }
        };
        info!(
            runner = register.name,
            slots = register.slots,
            held = register.held.len(),
            attaches = register.attaches,
            "a runner registered"
        );
        let _ = self.listen(id, &register, (registered, lives), &mut messages).await;
        drop(closing);
        info!(runner = register.name, "a runner's stream ended");
    }

    async fn begin(&self, id: Uuid, register: &Register) -> Result<Registered, Refusal> {
        if register.name != self.named.as_str() {
            let problem =
                format!("this token is of runner `{}`; issue one with --name {}", self.named, register.name);
            return Err(Refusal::new(Code::Forbidden, problem));
        }
        // Of a runner of another group its own fleet knows nothing, and commands find a runner by its name alone: the
        // one that has a stream here would lose it.
        if let Some(fleet) = self.sessions.fleet_of(&register.name) {
            register::may_have_its_name(&self.entities, &fleet, register).await?;
        }
        let registered = match register.attaches {
            true => register::attach(&self.entities, register).await?,
            false => register::register(&self.entities, register).await?,
        };
        let welcome = Answer::Welcome(Welcome {
            epoch: self.entities.epoch(&registered.fleet).0,
            lease_ms: u64::try_from(limits::RUNNER_LEASE.as_millis()).unwrap_or(u64::MAX),
            mcp_url: self.mcp_url.clone(),
            lost: registered.lost.clone(),
            problems: registered.problems.clone(),
        });
        // The welcome has to be the first thing on the stream, so commands may come only after it.
        self.send(welcome).await.map_err(|Gone| Refusal::new(Code::Unavailable, "the stream broke"))?;
        let (fleet, grants) = (registered.fleet.clone(), registered.grants.clone());
        self.sessions.open(&register.name, id, fleet, self.outgoing.clone(), grants);
        Ok(registered)
    }

    /// The runner has other agents, or wants what it holds compared with what it was told.
    async fn begin_anew(&self, id: Uuid, register: Register) -> Result<(Register, Registered), Gone> {
        let (runner, attaches) = (register.name.as_str(), register.attaches);
        match self.begin(id, &register).await {
            Ok(anew) => {
                info!(runner, attaches, agents = register.agents.len(), "a runner says anew what it is");
                Ok((register, anew))
            }
            Err(refusal) => {
                warn!(runner, attaches, problem = %refusal.message, "what a runner says anew was not taken");
                self.refuse(&refusal).await;
                Err(Gone)
            }
        }
    }

    /// Starts what a registration wants started, while the stream is served: an agent that cannot be asked keeps nobody
    /// waiting. Whoever attaches has said it elsewhere.
    fn starts(&self, register: &Register) -> Option<impl Future<Output = ()> + use<>> {
        (!register.attaches).then(|| register::autostart(&self.entities, register))
    }

    async fn listen(
        &self,
        id: Uuid,
        first: &Register,
        (mut registered, mut lives): (Registered, Option<watch::Receiver<u64>>),
        messages: &mut Streaming<RunnerMessage>,
    ) -> Result<(), Gone> {
        let runner = first.name.as_str();
        let mut renewed = Instant::now();
        let mut starts: FuturesUnordered<_> = self.starts(first).into_iter().collect();
        let mut reports = Reports::new(self.entities.clone(), runner);
        let mut coordinators = Coordinators::new(&self.entities);
        let mut beats = FuturesUnordered::new();
        // What the runner says anew of itself, one after another, for each is answered in its turn: heartbeats do not
        // wait.
        let (mut said, mut beginning) = (VecDeque::new(), FuturesUnordered::new());
        loop {
            if beginning.is_empty() {
                beginning.extend(said.pop_front().map(|register| self.begin_anew(id, register)));
            }
            let message = tokio::select! {
                biased;
                Some((number, known)) = beats.next() => {
                    self.renew(number, known).await?;
                    continue;
                }
                () = next_life(&mut lives) => {
                    // What it was told may be forgotten, and what it reported too: the ledgers have to be compared.
                    let problem = "Redis was replaced, and may have lost what was written last; register again";
                    self.refuse(&Refusal::new(Code::StaleToken, problem)).await;
                    return Err(Gone);
                }
                Some(begun) = beginning.next() => {
                    let (register, anew) = begun?;
                    registered = anew;
                    starts.extend(self.starts(&register));
                    continue;
                }
                Some(()) = starts.next() => continue,
                all = coordinators.changed() => {
                    self.send(Answer::Coordinators(all)).await?;
                    continue;
                }
                sequence = reports.acknowledged() => {
                    self.send(Answer::Acknowledge(Acknowledge { sequence })).await?;
                    continue;
                }
                message = messages.message() => message,
            };
            let Ok(Some(message)) = message else { return Ok(()) };
            if !self.sessions.is_current(runner, id) {
                self.refuse(&Refusal::new(Code::Duplicate, "this runner has connected anew")).await;
                return Err(Gone);
            }
            match message.message {
                Some(Message::Heartbeat(heartbeat)) => {
                    // The fleet may have given its instances away: only a registration can tell.
                    if renewed.elapsed() >= limits::RUNNER_LEASE {
                        let problem = "the lease has ended between two heartbeats; register again";
                        self.refuse(&Refusal::new(Code::StaleToken, problem)).await;
                        return Err(Gone);
                    }
                    renewed = Instant::now();
                    beats.push(self.alive(runner, &registered, heartbeat));
                }
                Some(Message::Report(report)) => reports.take_in(report),
                // Answered by the end of the stream: whoever is done waits for that.
                Some(Message::Leaving(leaving)) => {
                    register::leaves(&self.entities, &registered.fleet, runner, leaving.done).await;
                    if leaving.done {
                        return Ok(());
                    }
                }
                Some(Message::Answer(part)) => self.sessions.answered(id, part),
                Some(Message::Outranked(outranked)) => self.outranked(&registered, &outranked).await?,
                Some(Message::Register(register)) => said.push_back(register),
                // A newer runner's message: what it needs an answer for it sends again.
                None => {}
            }
        }
    }

    /// Passes the sign of life on, and gives what the fleet says of the runner: its owner may be another node, or away.
    fn alive(
        &self,
        runner: &str,
        registered: &Registered,
        heartbeat: Heartbeat,
    ) -> impl Future<Output = (u64, Result<(), Refusal>)> + use<> {
        let Heartbeat { instances, number } = heartbeat;
        let signal = Signal::RunnerAlive { runner: runner.to_owned(), instances };
        self.entities.observe(&registered.fleet, signal.clone());
        for pool in &registered.pools {
            self.entities.observe(pool, signal.clone());
        }
        let (entities, fleet, runner) = (self.entities.clone(), registered.fleet.clone(), runner.to_owned());
        async move { (number, register::is_known(&entities, &fleet, &runner).await) }
    }

    /// Renews the lease, as far as the runner is concerned, only by the word of the fleet.
    async fn renew(&self, number: u64, known: Result<(), Refusal>) -> Result<(), Gone> {
        match known {
            Ok(()) => self.send(Answer::Renewed(Renewed { heartbeat: number })).await,
            Err(refusal) if refusal.code == Code::NotFound => {
                self.refuse(&register::given_up()).await;
                Err(Gone)
            }
            // The next heartbeat may come through, or one through another coordinator.
            Err(_) => Ok(()),
        }
    }

    /// The runner has refused a command, for another owner has commanded it under a higher epoch. A former owner shall
    /// be refused. The owner of now gets a higher one, and what was refused is found missing when the runner registers
    /// anew.
    async fn outranked(&self, registered: &Registered, outranked: &Outranked) -> Result<(), Gone> {
        let (source, epoch) = (outranked.source.parse::<EntityKey>(), Epoch(outranked.epoch));
        let known =
            source.ok().filter(|source| registered.pools.iter().any(|pool| pool.swarm == source.swarm));
        let (Some(source), Some(cluster)) = (known, self.entities.cluster()) else { return Ok(()) };
        if cluster.outranked(&source, epoch) {
            let problem = "another Redis has given this agent away under a higher epoch; register again";
            self.refuse(&Refusal::new(Code::StaleToken, problem)).await;
            return Err(Gone);
        }
        Ok(())
    }

    async fn send(&self, answer: Answer) -> Result<(), Gone> {
        self.outgoing.send(Ok(command::plain(answer))).await.map_err(|_| Gone)
    }

    async fn refuse(&self, refusal: &Refusal) {
        let refused = Refused { code: refusal.code.as_str().to_owned(), message: refusal.message.clone() };
        let _ = self.send(Answer::Refused(refused)).await;
    }
}

/// Returns when the store has begun another life. Without a cluster it has one.
async fn next_life(lives: &mut Option<watch::Receiver<u64>>) {
    let begun = match lives {
        Some(lives) => lives.changed().await.is_ok(),
        None => false,
    };
    if !begun {
        std::future::pending().await
    }
}
