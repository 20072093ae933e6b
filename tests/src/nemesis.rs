//! What breaks a cluster while others work with it: crashes, freezes, cut links, lost answers, and a Redis that dies.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::sync::watch;

use crate::cluster::{Cluster, signal};
use crate::redis::Link;
use crate::up::Up;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// `kill -9`, and started again.
    Kill,
    /// Stands still for longer than its lease, and goes on where it was.
    Freeze,
    /// Does not reach Redis for longer than its lease.
    Cut,
    /// What it sends arrives, and no answer comes back.
    LoseAnswers,
    /// Redis dies and comes back with its log.
    CrashRedis,
}

impl Fault {
    pub const ALL: [Self; 5] = [Self::Kill, Self::Freeze, Self::Cut, Self::LoseAnswers, Self::CrashRedis];
}

/// A cluster whose nodes reach Redis through links of their own.
pub struct Nemesis {
    pub cluster: Cluster,
    pub nodes: Vec<Up>,
    links: Vec<Link>,
    lease: Duration,
    addresses: watch::Sender<Vec<String>>,
    random: fastrand::Rng,
    /// What is still to come of this round.
    round: Vec<Fault>,
    pub done: Vec<Fault>,
}

impl Nemesis {
    /// Starts so many nodes with a lease.
    ///
    /// # Errors
    /// When Redis or a node does not start.
    pub async fn start(count: usize, lease: Duration, seed: u64) -> Result<Self> {
        let settings = format!("lease = \"{}ms\"\nsettle = \"1s\"", lease.as_millis());
        let (cluster, first) = Cluster::start(&settings).await?;
        let mut folders = vec![first.terminate().await?];
        for _ in 1..count {
            folders.push(cluster.join().await?.terminate().await?);
        }
        let (mut nodes, mut links) = (Vec::new(), Vec::new());
        for folder in folders {
            let link = Link::to(&cluster.server)?;
            nodes.push(Cluster::serve_through(folder, &link).await?);
            links.push(link);
        }
        let addresses = watch::Sender::new(nodes.iter().map(|node| node.mcp.clone()).collect());
        let random = fastrand::Rng::with_seed(seed);
        let (round, done) = (Vec::new(), Vec::new());
        Ok(Self { cluster, nodes, links, lease, addresses, random, round, done })
    }

    /// Where the nodes can be asked, now and later.
    pub fn addresses(&self) -> watch::Receiver<Vec<String>> {
        self.addresses.subscribe()
    }

    /// Does one thing, and mends it. Everything comes once before anything comes again.
    ///
    /// # Errors
    /// When it cannot be mended.
    pub async fn strike(&mut self) -> Result<()> {
        if self.round.is_empty() {
            self.round = Fault::ALL.into();
            self.random.shuffle(&mut self.round);
        }
        let Some(fault) = self.round.pop() else { return Ok(()) };
        let victim = self.random.usize(..self.nodes.len());
        println!("nemesis: {fault:?} at node {victim}");
        self.inflict(fault, victim).await?;
        self.revive().await?;
        self.done.push(fault);
        // Some of what comes next meets a cluster at peace, and some one that is still about to settle.
        tokio::time::sleep(self.lease.mul_f64(self.random.f64() / 2.0)).await;
        Ok(())
    }

    async fn inflict(&mut self, fault: Fault, victim: usize) -> Result<()> {
        let past_the_lease = self.lease + Duration::from_secs(1);
        match fault {
            Fault::Kill => {
                let node = self.nodes.remove(victim);
                let folder = node.kill().await?;
                self.nodes.insert(victim, Cluster::serve_through(folder, &self.links[victim]).await?);
            }
            Fault::Freeze => {
                signal(&self.nodes[victim], "STOP").await?;
                tokio::time::sleep(past_the_lease).await;
                signal(&self.nodes[victim], "CONT").await?;
            }
            Fault::Cut => {
                self.links[victim].cut();
                tokio::time::sleep(past_the_lease).await;
                self.links[victim].heal();
            }
            Fault::LoseAnswers => {
                self.links[victim].lose_answers();
                tokio::time::sleep(self.lease / 4).await;
                self.links[victim].heal();
            }
            Fault::CrashRedis => {
                self.cluster.server.crash_and_restart().await?;
                // Memory may be ahead of what Redis has, so all of them end; whoever runs them starts them again.
                for node in &mut self.nodes {
                    let status = node.ended().await?;
                    ensure!(status.code() == Some(1), "a node ended with {status}");
                }
            }
        }
        Ok(())
    }

    /// Starts again what has ended, as a supervisor does, and says where it is now.
    async fn revive(&mut self) -> Result<()> {
        for place in 0..self.nodes.len() {
            if self.nodes[place].has_ended()? {
                let folder = self.nodes.remove(place).folder;
                self.nodes.insert(place, Cluster::serve_through(folder, &self.links[place]).await?);
            }
        }
        self.addresses.send_replace(self.nodes.iter().map(|node| node.mcp.clone()).collect());
        Ok(())
    }
}
