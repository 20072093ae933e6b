//! A coordinator whose every connection goes over a link of its own: to Redis, from the other coordinators, and from
//! the runners, who look for it at one place however often it is started again.

use anyhow::{Context, Result};

use crate::cluster::Cluster;
use crate::link::Link;
use crate::redis::Server;
use crate::up::{Folder, Up};

pub struct Site {
    pub up: Up,
    redis: Link,
    peers: Link,
    grpc: Link,
}

impl Site {
    /// So many nodes over the Redis of a cluster whose first node has just been started.
    ///
    /// # Errors
    /// When one does not get ready.
    pub async fn several(cluster: &Cluster, first: Up, count: usize) -> Result<Vec<Self>> {
        let mut sites = vec![Self::start(cluster, first.terminate().await?).await?];
        while sites.len() < count {
            sites.push(Self::start(cluster, cluster.folder("")?).await?);
        }
        Ok(sites)
    }

    async fn start(cluster: &Cluster, folder: Folder) -> Result<Self> {
        let (redis, peers, grpc) = (cluster.server.link()?, Link::port().await?, Link::port().await?);
        let config = folder.data().join("config.toml");
        let settings = std::fs::read_to_string(&config)?;
        let (section, rest) = settings.split_once('\n').context("the settings have no section")?;
        let ways = format!(
            "{section}\nadvertise = \"{}\"\n{rest}\n[listen]\nrunner_url = \"http://{}\"\n",
            peers.address(),
            grpc.address()
        );
        std::fs::write(&config, ways)?;
        let up = Cluster::serve_through(folder, &redis).await?;
        Self { up, redis, peers, grpc }.at_home()
    }

    /// The links lead to where the node listens now.
    fn at_home(self) -> Result<Self> {
        self.grpc.leads_to(&self.up.grpc);
        let address = self.up.node.as_ref().context("the node has no address for others")?;
        self.peers.leads_to(address);
        Ok(self)
    }

    /// Where runners find it.
    pub fn grpc(&self) -> String {
        self.grpc.address()
    }

    /// Where the other coordinators find it.
    pub fn peers(&self) -> String {
        self.peers.address()
    }

    /// Ends it as a crash does, or finds it ended, and starts it again.
    ///
    /// # Errors
    /// When it does not get ready.
    pub async fn restart(self) -> Result<Self> {
        let Self { up, redis, peers, grpc } = self;
        Self { up: Cluster::serve_through(up.kill().await?, &redis).await?, redis, peers, grpc }.at_home()
    }

    /// Asks it to end, and starts it again.
    ///
    /// # Errors
    /// When it does not end, or does not get ready.
    pub async fn renew(self) -> Result<Self> {
        let Self { up, redis, peers, grpc } = self;
        Self { up: Cluster::serve_through(up.terminate().await?, &redis).await?, redis, peers, grpc }
            .at_home()
    }

    /// It finds another Redis where it had one.
    pub fn leads_to(&self, server: &Server) {
        self.redis.leads_to_socket(server.socket());
    }

    /// # Errors
    /// When it has ended.
    pub async fn freeze(&self) -> Result<()> {
        self.up.freeze().await
    }

    /// # Errors
    /// When it has ended.
    pub fn thaw(&self) -> Result<()> {
        self.up.thaw()
    }

    /// It does not reach Redis any more.
    pub fn cut_redis(&self) {
        self.redis.cut();
    }

    /// What it sends to Redis arrives, and no answer comes back.
    pub fn lose_answers(&self) {
        self.redis.lose_answers();
    }

    /// No other coordinator and no runner reaches it; it reaches them.
    pub fn cut_off(&self) {
        self.peers.cut();
        self.grpc.cut();
    }

    pub fn heal(&self) {
        for link in [&self.redis, &self.peers, &self.grpc] {
            link.heal();
        }
    }
}
