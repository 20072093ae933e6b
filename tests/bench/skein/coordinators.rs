//! Coordinators over one Redis, whose agents are spread over many swarms and ask whichever node they know.

use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use skein_coordinator::auth::Role;
use skein_coordinator::auth::token::Keys;
use skein_tests::cluster::{Cluster, Status};
use skein_tests::up::Up;
use uuid::Uuid;

use super::node;
use super::server::cycle;
use crate::harness::contender::{Card, Contender, Durability, Metered, Plan, Work};
use crate::harness::mcp::{Client, Clients, Target};
use crate::harness::meter::Reading;

/// Short, so that the shards are shared soon.
const SETTINGS: &str = "lease = \"4s\"\nsettle = \"1s\"";
/// How long the nodes may take to share the shards.
const SHARE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

/// Nodes, and an agent for each swarm.
pub(crate) struct Coordinators {
    label: &'static str,
    cluster: Cluster,
    nodes: Vec<Up>,
    keys: Keys,
    clients: Clients,
    /// Of each node, when the clients began.
    began: Vec<Reading>,
}

impl Coordinators {
    /// # Errors
    /// When a node does not start, or they do not share the shards.
    pub(crate) async fn start(label: &'static str, count: usize) -> Result<Self> {
        let (cluster, first) = Cluster::start(SETTINGS).await?;
        let mut nodes = vec![first];
        while nodes.len() < count {
            nodes.push(cluster.join().await?);
        }
        shared(&nodes).await?;
        let keys = Keys::load_or_create(&nodes[0].data())?;
        Ok(Self { label, cluster, nodes, keys, clients: Clients::default(), began: Vec::new() })
    }

    /// An agent of a swarm of its own, at one of the nodes.
    async fn agent(&self, number: usize) -> Result<Client> {
        let up = &self.nodes[number % self.nodes.len()];
        let name = format!("agent-{number}");
        let swarm = format!("swarm-{number}");
        let token = node::token_in(&self.keys, &swarm, Role::Worker, Uuid::now_v7(), &name)?;
        let address = up.mcp.trim_start_matches("http://").trim_end_matches("/mcp").parse()?;
        let mut client = Client::connect(&Target { address, path: "/mcp" }, Some(&token)).await?;
        client.succeed("join-swarm", &format!(r#"{{"name":"{name}"}}"#)).await?;
        Ok(client)
    }

    fn readings(&self) -> Result<Vec<Reading>> {
        self.ids()[1..].iter().map(|id| Reading::of(Metered::Tree(*id))).collect()
    }

    /// Redis, and the nodes.
    fn ids(&self) -> Vec<u32> {
        self.cluster.server.id().into_iter().chain(self.nodes.iter().filter_map(Up::id)).collect()
    }

    /// The processor time of the busiest node, as a multiple of what each would have if all had the same.
    ///
    /// # Errors
    /// When a node has ended.
    pub(crate) fn busiest(&self) -> Result<f64> {
        let readings = self.readings()?;
        let used: Vec<f64> =
            readings.iter().zip(&self.began).map(|(now, then)| now.since(then).cpu_us).collect();
        let most = used.iter().copied().fold(0.0, f64::max);
        Ok(most * used.len() as f64 / used.iter().sum::<f64>().max(1.0))
    }
}

/// Waits until each node has its share of the shards.
pub(crate) async fn shared(nodes: &[Up]) -> Result<()> {
    let shared = async {
        loop {
            let status = Status::of(&nodes[0]).await?;
            let shares = status.shards();
            let fair = |(_, count): &(String, usize)| *count * nodes.len() * 2 > 256;
            if shares.len() == nodes.len() && shares.iter().all(fair) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(SHARE, shared).await.context("the nodes do not share the shards")?
}

#[async_trait]
impl Contender for Coordinators {
    fn card(&self) -> Card {
        Card { label: self.label, ..Card::skein(Durability::PowerCut, Metered::Trees(self.ids())) }
    }

    async fn prepare(&mut self, in_flight: usize) -> Result<()> {
        for number in self.clients.len()..in_flight {
            self.clients.add(self.agent(number).await?);
        }
        self.began = self.readings()?;
        Ok(())
    }

    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        self.clients.work(plan, cycle).await
    }
}
