//! Calls between agents: one calls, another one takes the call by waiting for it and answers, and the first fetches the
//! result. Each step is on the disk before it is answered.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use async_trait::async_trait;
use skein_coordinator::entity::Request;
use skein_coordinator::outbox::{Delivery, Runners, pump};
use skein_coordinator::slack::Workspaces;
use skein_shared::agent::{self, CallStatus, Caller, Command, Reply};
use skein_shared::entity::{Reign, RunnerCommand};
use skein_shared::id::EntityKey;
use skein_shared::triggers::{Filter, FilterKind};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::embedded::{Agent, Kernel, flushes, refused};
use super::server::Node;
use crate::harness::contender::{Card, Contender, Durability, Metered, Plan, Work};
use crate::harness::load::{self, Operation};
use crate::harness::mcp::{self, Client};
use crate::probes::sqlite::PAYLOAD;

/// Who is waited for: any agent that calls.
pub(crate) fn any_call() -> Filter {
    Filter {
        kind: FilterKind::AgentTrigger,
        source: None,
        event: None,
        matches: std::collections::BTreeMap::new(),
        source_agent: None,
        only: std::collections::BTreeMap::new(),
    }
}

/// There are no runners here.
pub(crate) struct Nobody;

#[async_trait]
impl Runners for Nobody {
    async fn deliver(&self, _: &str, _: &RunnerCommand, _: &Reign) -> Delivery {
        Delivery::NotConnected
    }

    async fn connected(&self) {
        std::future::pending().await
    }
}

impl Agent {
    pub(crate) fn key(&self) -> EntityKey {
        EntityKey::agent(&self.kernel.swarm, &self.name)
    }

    /// Asks an agent, once if it changes something.
    ///
    /// # Errors
    /// When it refuses.
    pub(crate) async fn ask(&self, key: &EntityKey, request: Request, command: Command) -> Result<Reply> {
        self.kernel.entities.ask::<agent::Agent>(key, request, command).await.map_err(refused)
    }

    /// Makes itself known as an instance that nobody runs.
    ///
    /// # Errors
    /// When it is refused.
    pub(crate) async fn attach(&self) -> Result<()> {
        let attach = Command::Attach { instance: self.instance.clone(), agent_id: self.id };
        self.ask(&self.key(), Request::read(), attach).await.map(|_| ())
    }

    /// A call from here to there and back.
    async fn round_trip(&self, callee: &Agent) -> Result<()> {
        let once = || Request::once(Uuid::now_v7());
        let (call, instance) = (Uuid::now_v7(), self.instance.clone());
        let inspect = Command::Inspect { instance: instance.clone() };
        let Reply::Instance(known) = self.ask(&self.key(), Request::read(), inspect).await? else {
            bail!("the caller is unknown");
        };
        let noted = known.callees.contains(&callee.name);
        let (chain, depth) = (known.chain, known.depth);
        let caller = Caller { agent: self.name.clone(), instance: instance.clone(), chain, depth };
        let there = callee.key();
        let ask = Command::Call { call, caller, context: PAYLOAD.to_owned(), noted };
        self.ask(&there, once(), ask).await?;
        let note = Command::NoteCallee { instance: instance.clone(), target: callee.name.clone() };
        self.ask(&self.key(), Request::read(), note).await?;
        let begin = Command::BeginWait {
            instance: callee.instance.clone(),
            wait: Uuid::now_v7(),
            filter: any_call(),
            timeout_ms: None,
            broadcast: false,
            look_back: false,
            asked: Uuid::nil(),
        };
        let begun = callee.ask(&there, Request::read(), begin).await?;
        ensure!(matches!(&begun, Reply::Wait(view) if view.outcome.is_some()), "no call came: {begun:?}");
        let answer = Command::ReturnValue { instance: callee.instance.clone(), value: "done".into() };
        callee.ask(&there, once(), answer).await?;
        let checked = self.ask(&there, Request::read(), Command::CheckCall { call, instance }).await?;
        let done = matches!(&checked, Reply::Call(view) if view.status == CallStatus::Completed);
        ensure!(done, "the call has no result: {checked:?}");
        Ok(())
    }
}

/// Pairs of agents of a kernel in this process, whose effects are delivered.
pub(crate) struct InProcess {
    kernel: Kernel,
    pairs: Vec<(Agent, Agent)>,
    stop: CancellationToken,
}

impl InProcess {
    /// # Errors
    /// When the store cannot be opened.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        let (kernel, stop) = (Kernel::open(folder)?, CancellationToken::new());
        tokio::spawn(pump::run(
            kernel.entities.clone(),
            Arc::new(Nobody),
            Workspaces::default(),
            stop.clone(),
        ));
        Ok(Self { kernel, pairs: Vec::new(), stop })
    }
}

#[async_trait]
impl Contender for InProcess {
    fn card(&self) -> Card {
        Card::skein(Durability::PowerCut, Metered::Myself)
    }

    async fn prepare(&mut self, in_flight: usize) -> Result<()> {
        while self.pairs.len() < in_flight {
            let number = 2 * self.pairs.len();
            let pair = (self.kernel.join(number).await?, self.kernel.join(number + 1).await?);
            pair.0.attach().await?;
            pair.1.attach().await?;
            self.pairs.push(pair);
        }
        Ok(())
    }

    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        let pairs = self.pairs.clone();
        let operation: Operation = Arc::new(move |client| {
            let (caller, callee) = pairs[client].clone();
            Box::pin(async move { caller.round_trip(&callee).await })
        });
        load::run(plan, operation).await
    }

    fn flushes(&self) -> Option<u64> {
        flushes().ok()
    }

    async fn stop(self: Box<Self>) -> Result<()> {
        self.stop.cancel();
        Ok(())
    }
}

/// Pairs of agents of a node, each on a connection of its own.
pub(crate) struct OverHttp {
    node: Arc<Node>,
    pairs: Vec<Arc<Mutex<Pair>>>,
}

struct Pair {
    caller: Client,
    callee: Client,
    target: String,
}

impl OverHttp {
    pub(crate) fn new(node: &Arc<Node>) -> Self {
        Self { node: Arc::clone(node), pairs: Vec::new() }
    }
}

impl Pair {
    async fn round_trip(&mut self) -> Result<()> {
        let call = format!(r#"{{"target_agent":"{}","context":"Write the release notes"}}"#, self.target);
        let called = self.caller.call("call_agent", &call).await?;
        let called: serde_json::Value = serde_json::from_slice(&called)?;
        let id = called["result"]["structuredContent"]["call_id"].as_str().context("no call was made")?;
        self.callee.call("wait_for_trigger", r#"{"type":"agent_trigger"}"#).await?;
        self.callee.call("return_value", r#"{"value":"done"}"#).await?;
        let checked = self.caller.call("check_call", &format!(r#"{{"call_id":"{id}"}}"#)).await?;
        let done = mcp::contains(&checked, br#""status":"completed""#);
        ensure!(done, "the call has no result: {}", String::from_utf8_lossy(&checked));
        Ok(())
    }
}

#[async_trait]
impl Contender for OverHttp {
    fn card(&self) -> Card {
        Card::skein(Durability::PowerCut, self.node.metered())
    }

    async fn prepare(&mut self, in_flight: usize) -> Result<()> {
        while self.pairs.len() < in_flight {
            let id = Uuid::now_v7().simple().to_string();
            let target = format!("callee-{}", &id[16..]);
            let caller = self.node.agent(&format!("caller-{}", &id[16..])).await?;
            let mut callee = self.node.agent(&target).await?;
            // It takes calls once it was heard of.
            callee.call("set_status", r#"{"text":"here"}"#).await?;
            self.pairs.push(Arc::new(Mutex::new(Pair { caller, callee, target })));
        }
        Ok(())
    }

    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        let pairs = self.pairs.clone();
        let operation: Operation = Arc::new(move |client| {
            let pair = Arc::clone(&pairs[client]);
            Box::pin(async move { pair.lock().await.round_trip().await })
        });
        load::run(plan, operation).await
    }

    fn flushes(&self) -> Option<u64> {
        self.node.flushes()
    }
}
