//! A swarm that creates tasks as fast as it can, beside whatever else a node has to do.
//!
//! Its agents stand for other machines: they have a thread of their own, which gets what processor time the node and
//! those who are measured leave.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::json;
use skein_coordinator::auth::Role;
use tokio_util::sync::CancellationToken;

use super::fleet::{Agent, Node};

/// Agents that create tasks, each as soon as its last one is there.
const AGENTS: usize = 32;

/// The agents of the swarm, which rest between floods.
pub(crate) struct Flood {
    agents: Vec<Agent>,
    made: Arc<AtomicU64>,
}

/// A flood that goes on until it is stopped.
pub(crate) struct Running {
    thread: JoinHandle<Result<Vec<Agent>>>,
    stop: CancellationToken,
}

impl Flood {
    /// # Errors
    /// When the node refuses an agent.
    pub(crate) async fn prepare(node: &Node) -> Result<Self> {
        let mut agents = Vec::new();
        for number in 0..AGENTS {
            agents.push(node.agent_in("flood", Role::Worker, &format!("flood-{number}")).await?);
        }
        Ok(Self { agents, made: Arc::default() })
    }

    /// Tasks so far.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    pub(crate) fn start(&mut self) -> Running {
        let stop = CancellationToken::new();
        let (agents, made, until) = (std::mem::take(&mut self.agents), Arc::clone(&self.made), stop.clone());
        let thread = std::thread::spawn(move || {
            give_way()?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(pour(agents, made, until))
        });
        Running { thread, stop }
    }

    /// # Errors
    /// When an agent was refused a task meanwhile.
    pub(crate) async fn stop(&mut self, running: Running) -> Result<()> {
        running.stop.cancel();
        let joined = tokio::task::spawn_blocking(move || running.thread.join()).await?;
        self.agents = joined.map_err(|_| anyhow!("the flood panicked"))??;
        Ok(())
    }
}

/// Leaves the processor at once to any thread that wakes. The lowest priority alone does not: the kernel lets what runs
/// end its slice of some milliseconds, and no other machine would hold up the node for that.
fn give_way() -> Result<()> {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let set =
        Command::new("chrt").args(["--idle", "--pid", "0", &thread]).status().context("chrt (util-linux)")?;
    ensure!(set.success(), "chrt cannot put the flood's thread behind all others: {set}");
    Ok(())
}

async fn pour(agents: Vec<Agent>, made: Arc<AtomicU64>, stop: CancellationToken) -> Result<Vec<Agent>> {
    let pouring = agents.into_iter().map(|mut agent| {
        let (stop, made) = (stop.clone(), Arc::clone(&made));
        async move {
            // A connection belongs to the runtime on which it was made.
            agent.connection = None;
            let task = json!({ "task": "one of very many", "allowDuplicate": true });
            while !stop.is_cancelled() {
                agent.call("send-task", &task).await?;
                made.fetch_add(1, Ordering::Relaxed);
            }
            agent.connection = None;
            anyhow::Ok(agent)
        }
    });
    futures::future::try_join_all(pouring).await
}
