//! A Redis Cluster: three primaries with a third of the slots each, and two replicas of the one that has a store's
//! slot.

use anyhow::{Context, Result};
use redis::cmd;

use crate::ports;
use crate::redis::{LASTING, Server, until};

/// The slots of a cluster.
const SLOTS: u16 = 16_384;
const PRIMARIES: u16 = 3;
const REPLICAS: usize = 2;
/// For how long a node has to be silent for the others to take it for dead, in milliseconds: one that waits for a
/// processor is not.
const SILENCE: &str = "5000";
/// A key of a store, as good as any other.
const KEY: &str = "{skein}:cluster";
/// Keys that go from one node to another at once.
const TOGETHER: usize = 100;
/// For how long a node may be silent meanwhile, in milliseconds.
const TRANSFER: u64 = 60_000;

/// The nodes. All end when dropped.
pub struct RedisCluster {
    nodes: Vec<Node>,
    /// Which of them has the store.
    owner: usize,
}

struct Node {
    server: Server,
    port: u16,
    bus: u16,
}

impl RedisCluster {
    /// Returns when all slots are served and the replicas have what their primary has.
    ///
    /// # Errors
    /// When a server does not start, or they do not find one another.
    pub async fn start() -> Result<Self> {
        let mut nodes = Vec::new();
        for _ in 0..usize::from(PRIMARIES) + REPLICAS {
            nodes.push(Node::start().await?);
        }
        let slot = nodes[0].slot().await?;
        let share = SLOTS.div_ceil(PRIMARIES);
        for (number, node) in (0..PRIMARIES).zip(&nodes) {
            let (first, last) = (number * share, ((number + 1) * share).min(SLOTS) - 1);
            let own = cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(first).arg(last).to_owned();
            let _: String = node.ask(&own).await?;
            // Equal epochs are settled by the nodes themselves, but that takes a while.
            let _: String = node.ask(cmd("CLUSTER").arg("SET-CONFIG-EPOCH").arg(number + 1)).await?;
        }
        for node in &nodes[1..] {
            let meet = cmd("CLUSTER").arg("MEET").arg("127.0.0.1").arg(node.port).arg(node.bus).to_owned();
            let _: String = nodes[0].ask(&meet).await?;
        }
        let cluster = Self { nodes, owner: usize::from(slot / share) };
        until("the nodes know one another", async || cluster.is_whole().await).await?;
        cluster.follow().await?;
        Ok(cluster)
    }

    /// Names all of its nodes, the one without the store first.
    pub fn url(&self) -> String {
        let mut ports: Vec<u16> = self.nodes.iter().map(|node| node.port).collect();
        let others = (self.owner + 1) % ports.len();
        ports.rotate_left(others);
        let names: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis-cluster://{}", names.join(","))
    }

    /// Where one of its nodes is.
    pub fn node(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.nodes[self.owner].port)
    }

    /// Says something to each node.
    ///
    /// # Errors
    /// When one refuses it.
    pub async fn tell(&self, order: &redis::Cmd) -> Result<()> {
        for node in &self.nodes {
            let () = node.ask(order).await?;
        }
        Ok(())
    }

    /// Empties the node that has the store.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn empty(&self) -> Result<()> {
        let _: String = self.nodes[self.owner].ask(&cmd("FLUSHALL")).await?;
        Ok(())
    }

    /// Ends the node that has the store as a crash does, and waits until a replica has its place.
    ///
    /// # Errors
    /// When that does not happen.
    pub async fn kill_the_owner(&mut self) -> Result<()> {
        let mut dead = self.nodes.remove(self.owner);
        dead.server.kill().await?;
        self.until_followed_by(REPLICAS - 1).await
    }

    /// Lets the node that has the store change places with a replica, as an operator does before work on its machine.
    ///
    /// # Errors
    /// When that does not happen.
    pub async fn change_places(&mut self) -> Result<()> {
        let old = self.owner;
        let replica = self.nodes.last().context("there are nodes")?;
        let _: String = replica.ask(cmd("CLUSTER").arg("FAILOVER")).await?;
        until("they change places", async || self.nodes[old].is("role:slave").await).await?;
        self.until_followed_by(REPLICAS).await
    }

    /// Begins to move the slot of the store to another primary, as an operator does who spreads the load anew. No key
    /// is there yet; one of the replicas follows that primary from now on.
    ///
    /// # Errors
    /// When the nodes refuse.
    pub async fn begin_to_move(&self) -> Result<()> {
        let (from, to) = (&self.nodes[self.owner], &self.nodes[self.next()]);
        let replica = self.nodes.last().context("there are nodes")?;
        let _: String = replica.ask(cmd("CLUSTER").arg("REPLICATE").arg(to.id().await?)).await?;
        until("a replica follows the next owner", async || to.is("state=online").await).await?;
        let slot = from.slot().await?;
        let state = |state: &str, other: String| {
            cmd("CLUSTER").arg("SETSLOT").arg(slot).arg(state).arg(other).to_owned()
        };
        let _: String = to.ask(&state("IMPORTING", from.id().await?)).await?;
        let _: String = from.ask(&state("MIGRATING", to.id().await?)).await?;
        Ok(())
    }

    /// Moves all keys of the slot, and lets the other primary have it.
    ///
    /// # Errors
    /// When the nodes refuse.
    pub async fn end_the_move(&mut self) -> Result<()> {
        let next = self.next();
        let (from, to) = (&self.nodes[self.owner], &self.nodes[next]);
        let slot = from.slot().await?;
        loop {
            let ask = cmd("CLUSTER").arg("GETKEYSINSLOT").arg(slot).arg(TOGETHER).to_owned();
            let keys: Vec<String> = from.ask(&ask).await?;
            if keys.is_empty() {
                break;
            }
            let mut order = cmd("MIGRATE");
            order.arg("127.0.0.1").arg(to.port).arg("").arg(0).arg(TRANSFER).arg("KEYS").arg(keys);
            let _: String = from.ask(&order).await?;
        }
        let has = cmd("CLUSTER").arg("SETSLOT").arg(slot).arg("NODE").arg(to.id().await?).to_owned();
        // The one that gets it first: or else it is nobody's for a moment.
        for node in [to, from] {
            let _: String = node.ask(&has).await?;
        }
        self.owner = next;
        Ok(())
    }

    /// A primary without the store.
    fn next(&self) -> usize {
        (self.owner + 1) % usize::from(PRIMARIES)
    }

    /// Waits for a primary with so many replicas, which is the owner then, and until all slots are served.
    async fn until_followed_by(&mut self, replicas: usize) -> Result<()> {
        let followed = format!("connected_slaves:{replicas}");
        until("a replica takes over, and others follow it", async || {
            Ok(self.find(&followed).await?.is_some())
        })
        .await?;
        self.owner = self.find(&followed).await?.context("it has lost them again")?;
        until("all slots are served", async || self.is_whole().await).await
    }

    async fn find(&self, said: &str) -> Result<Option<usize>> {
        for (place, node) in self.nodes.iter().enumerate() {
            if node.is(said).await? {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Makes the last nodes the replicas of the owner.
    async fn follow(&self) -> Result<()> {
        let id = self.nodes[self.owner].id().await?;
        for replica in &self.nodes[usize::from(PRIMARIES)..] {
            let _: String = replica.ask(cmd("CLUSTER").arg("REPLICATE").arg(&id)).await?;
            until("the replica has everything", async || replica.is("master_link_status:up").await).await?;
        }
        // Before the others know, they would not let one take over.
        until("all know of the replicas", async || {
            for node in &self.nodes {
                let nodes: String = node.ask(cmd("CLUSTER").arg("NODES")).await?;
                if nodes.lines().filter(|line| line.contains("slave")).count() < REPLICAS {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await
    }

    async fn is_whole(&self) -> Result<bool> {
        for node in &self.nodes {
            let said: String = node.ask(cmd("CLUSTER").arg("INFO")).await?;
            let whole = said.contains("cluster_state:ok") && said.contains("cluster_slots_ok:16384");
            let nodes: String = node.ask(cmd("CLUSTER").arg("NODES")).await?;
            if !whole || nodes.lines().count() < self.nodes.len() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Node {
    async fn start() -> Result<Self> {
        let (port, bus) = (ports::free()?, ports::free()?);
        let (own, own_bus) = (port.to_string(), bus.to_string());
        let mut settings = LASTING.to_vec();
        settings.extend(["--bind", "127.0.0.1", "--port", &own]);
        settings.extend(["--cluster-enabled", "yes", "--cluster-port", &own_bus]);
        settings.extend(["--cluster-node-timeout", SILENCE, "--repl-diskless-sync-delay", "0"]);
        settings.extend(["--min-replicas-to-write", "1", "--min-replicas-max-lag", "10"]);
        Ok(Self { server: Server::start_with(&settings).await?, port, bus })
    }

    /// By which the others know it.
    async fn id(&self) -> Result<String> {
        self.ask(cmd("CLUSTER").arg("MYID")).await
    }

    /// That of the store.
    async fn slot(&self) -> Result<u16> {
        self.ask(cmd("CLUSTER").arg("KEYSLOT").arg(KEY)).await
    }

    /// Whether it says this of its replication.
    async fn is(&self, said: &str) -> Result<bool> {
        let replication: String = self.ask(cmd("INFO").arg("replication")).await?;
        Ok(replication.contains(said))
    }

    async fn ask<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> Result<T> {
        Ok(command.query_async(&mut self.server.connection().await?).await?)
    }
}
