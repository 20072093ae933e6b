//! A swarm that creates tasks as fast as it can, beside whatever else a node has to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use serde_json::json;
use skein_coordinator::auth::Role;
use tokio::task::JoinSet;
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
    agents: JoinSet<Result<Agent>>,
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
        let (stop, mut running) = (CancellationToken::new(), JoinSet::new());
        for mut agent in self.agents.drain(..) {
            let (stop, made) = (stop.clone(), Arc::clone(&self.made));
            running.spawn(async move {
                let task = json!({ "task": "one of very many", "allowDuplicate": true });
                while !stop.is_cancelled() {
                    agent.call("send-task", &task).await?;
                    made.fetch_add(1, Ordering::Relaxed);
                }
                Ok(agent)
            });
        }
        Running { agents: running, stop }
    }

    /// # Errors
    /// When an agent was refused a task meanwhile.
    pub(crate) async fn stop(&mut self, mut running: Running) -> Result<()> {
        running.stop.cancel();
        while let Some(agent) = running.agents.join_next().await {
            self.agents.push(agent??);
        }
        Ok(())
    }
}
