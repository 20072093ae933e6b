//! What breaks a cluster while others work with it: crashes, freezes, cut links, lost answers, and a Redis that dies.

mod site;
pub mod suite;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use skein_shared::mutation::Mutation;
use tempfile::TempDir;
use tokio::process::Child;
use tokio::sync::watch;

use crate::cluster::{Cluster, Status};
use crate::link::Link;
use crate::redis::Server;
use crate::runner::Place;
use crate::up::Up;
use crate::webhook;
use crate::workload::{Field, Map, agents, evidence};
pub use site::Site;

/// How long a node may take to join, and how often it is looked for.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// `kill -9`, and started again.
    Kill,
    /// Gives its shards away, ends when it is asked to, and is started again, as for another version.
    Drain,
    /// Stands still for longer than its lease, and goes on where it was.
    Freeze,
    /// Does not reach Redis for longer than its lease.
    CutRedis,
    /// What it sends to Redis arrives, and no answer comes back.
    LoseAnswers,
    /// No other coordinator and no runner reaches it.
    CutOff,
    /// Redis dies and comes back with its log.
    CrashRedis,
    /// `kill -9` of a runner, and started again. What runs on it goes on.
    KillRunner,
    /// `kill -9` of the ingress, and started again.
    KillIngress,
}

impl Fault {
    pub const ALL: [Self; 9] = [
        Self::Kill,
        Self::Drain,
        Self::Freeze,
        Self::CutRedis,
        Self::LoseAnswers,
        Self::CutOff,
        Self::CrashRedis,
        Self::KillRunner,
        Self::KillIngress,
    ];
}

/// A runner with its folders.
struct Host {
    /// Ends first.
    process: Child,
    place: Place,
    token: String,
}

/// A cluster that can be broken everywhere.
pub struct Nemesis {
    runners: Vec<Host>,
    pub sites: Vec<Site>,
    ingress: Option<Up>,
    /// Between the ingress and Redis.
    ingress_redis: Link,
    /// Its Redis ends last.
    pub cluster: Cluster,
    lease: Duration,
    map: watch::Sender<Map>,
    random: fastrand::Rng,
    /// What is still to come of this round.
    round: Vec<Fault>,
    pub done: Vec<Fault>,
}

impl Nemesis {
    /// Starts three coordinators with a lease over a Redis, an ingress, and two runners that know the agents which
    /// `define` writes down. Runners are processes of this machine wherever the others are: what runs on them outlives
    /// them, which nothing in their container would.
    ///
    /// # Errors
    /// When a part does not start.
    pub async fn start(
        server: Server,
        lease: Duration,
        seed: u64,
        define: impl Fn(&Place) -> Result<()>,
    ) -> Result<Self> {
        Self::start_broken(server, lease, seed, define, &[]).await
    }

    /// The same with nodes that are broken on purpose, which they are only if they were built for it.
    ///
    /// # Errors
    /// When a part does not start.
    pub async fn start_broken(
        server: Server,
        lease: Duration,
        seed: u64,
        define: impl Fn(&Place) -> Result<()>,
        mutations: &[Mutation],
    ) -> Result<Self> {
        // The histories are compared with the whole log of each entity.
        let kept = "[retention]\nevents = 10000000";
        let settings = format!("lease = \"{}ms\"\nsettle = \"1s\"\n{kept}", lease.as_millis());
        let (cluster, first) = Cluster::over_broken(server, &settings, mutations).await?;
        let sites = Site::several(&cluster, first, 3).await?;
        let ingress_redis = cluster.server.link()?;
        let folder = cluster.folder(&webhook::configuration())?;
        let ingress = Cluster::serve_ingress_through(folder, &ingress_redis).await?;
        let addresses: Vec<String> = sites.iter().map(Site::grpc).collect();
        let mut runners = Vec::new();
        for name in ["box-1", "box-2"] {
            let (place, token) = (Place::new(name)?, sites[0].up.token("runner", name).await?);
            define(&place)?;
            runners.push(Host { process: place.start(&addresses, &token)?, place, token });
        }
        for name in ["box-1", "box-2"] {
            let ready = |row: &Value| row["runner"] == name && row["state"] == "ready";
            sites[0].up.row("runners", ready).await?;
        }
        let nemesis = Self {
            runners,
            sites,
            ingress: Some(ingress),
            ingress_redis,
            cluster,
            lease,
            map: watch::Sender::new(Map::default()),
            random: fastrand::Rng::with_seed(seed),
            round: Vec::new(),
            done: Vec::new(),
        };
        nemesis.draw();
        Ok(nemesis)
    }

    /// Where everything is, now and later.
    pub fn map(&self) -> watch::Receiver<Map> {
        self.map.subscribe()
    }

    fn draw(&self) {
        let nodes = self.sites.iter().map(|site| site.up.mcp.clone()).collect();
        let ingress = self.ingress.as_ref().map(|up| up.ingress.clone()).unwrap_or_default();
        self.map.send_replace(Map { nodes, ingress });
    }

    /// What the runs of an agent wrote down, on whichever runner.
    ///
    /// # Errors
    /// When a line is no JSON.
    pub fn journal(&self, agent: &str) -> Result<Vec<Value>> {
        let journals = self.runners.iter().map(|runner| runner.place.journal(agent));
        Ok(journals.collect::<Result<Vec<_>>>()?.concat())
    }

    /// Leaves the logs, the journals, the tries of clients and the entities' events in a folder that stays, for whoever
    /// looks for the cause of what was found.
    ///
    /// # Errors
    /// When something cannot be read or written.
    pub async fn leave_traces(&self, field: &Field) -> Result<PathBuf> {
        let folder = TempDir::with_prefix("skein-nemesis-")?.keep();
        std::fs::write(folder.join("tries"), field.tries())?;
        for (number, site) in self.sites.iter().enumerate() {
            std::fs::write(folder.join(format!("node-{number}.log")), site.up.log()?)?;
        }
        std::fs::write(folder.join("events"), evidence::everything(&self.cluster.server).await?)?;
        for (number, host) in self.runners.iter().enumerate() {
            std::fs::write(folder.join(format!("runner-{number}.log")), host.place.log())?;
        }
        for agent in agents::ALL {
            let lines: Vec<String> = self.journal(agent)?.iter().map(Value::to_string).collect();
            std::fs::write(folder.join(format!("{agent}.journal")), lines.join("\n"))?;
        }
        Ok(folder)
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
        let victim = self.random.usize(..self.sites.len());
        println!("nemesis: {fault:?} at {victim}");
        self.inflict(fault, victim).await?;
        self.revive().await?;
        self.done.push(fault);
        // Some of what comes next meets a cluster at peace, and some one that is still about to settle.
        tokio::time::sleep(self.lease.mul_f64(self.random.f64() / 2.0)).await;
        Ok(())
    }

    /// Redis dies, and a replica takes its place, with what it has.
    ///
    /// # Errors
    /// When it does not.
    pub async fn fail_over(&mut self, replica: Server) -> Result<()> {
        self.cluster.server.kill().await?;
        replica.promote().await?;
        for site in &self.sites {
            site.leads_to(&replica);
        }
        self.ingress_redis.leads_to_socket(replica.socket());
        self.cluster.server = replica;
        Ok(())
    }

    /// A replica takes the place of Redis, with what it has, while that goes on: whoever is cut off with it, the first
    /// coordinator, goes on with it too. Gives the former one.
    ///
    /// # Errors
    /// When the replica refuses.
    pub async fn split(&mut self, replica: Server) -> Result<Server> {
        replica.promote().await?;
        for site in &self.sites[1..] {
            site.leads_to(&replica);
        }
        self.ingress_redis.leads_to_socket(replica.socket());
        Ok(std::mem::replace(&mut self.cluster.server, replica))
    }

    /// The first coordinator finds the Redis of the others again.
    pub fn unite(&self) {
        self.sites[0].leads_to(&self.cluster.server);
    }

    /// The same, and what it knew of its own is gone.
    ///
    /// # Errors
    /// When it does not start again.
    pub async fn unite_anew(&mut self) -> Result<()> {
        self.unite();
        let site = self.sites.remove(0).restart().await?;
        self.sites.insert(0, site);
        self.draw();
        Ok(())
    }

    /// Leaves traces if something is broken, or nobody could say.
    ///
    /// # Errors
    /// Then.
    pub async fn is_sound(&self, field: &Field, judged: Result<Vec<String>>) -> Result<()> {
        if matches!(&judged, Ok(broken) if broken.is_empty()) {
            return Ok(());
        }
        bail!("{} has traces: {judged:#?}", self.leave_traces(field).await?.display());
    }

    async fn inflict(&mut self, fault: Fault, victim: usize) -> Result<()> {
        let past_the_lease = self.lease + Duration::from_secs(1);
        let site = &self.sites[victim];
        match fault {
            Fault::Kill => {
                let site = self.sites.remove(victim).restart().await?;
                self.sites.insert(victim, site);
            }
            Fault::Drain => {
                self.joins(victim).await?;
                let site = &self.sites[victim];
                self.sites[(victim + 1) % self.sites.len()]
                    .up
                    .skein(&["cluster", "drain", &site.peers()])
                    .await?;
                let site = self.sites.remove(victim).renew().await?;
                self.sites.insert(victim, site);
            }
            Fault::Freeze => {
                site.freeze().await?;
                tokio::time::sleep(past_the_lease).await;
                site.thaw()?;
            }
            Fault::CutRedis => {
                site.cut_redis();
                tokio::time::sleep(past_the_lease).await;
                site.heal();
            }
            Fault::LoseAnswers => {
                site.lose_answers();
                tokio::time::sleep(self.lease / 4).await;
                site.heal();
            }
            Fault::CutOff => {
                site.cut_off();
                tokio::time::sleep(past_the_lease).await;
                site.heal();
            }
            Fault::CrashRedis => self.cluster.server.crash_and_restart().await?,
            Fault::KillRunner => {
                let runner = victim % self.runners.len();
                let host = &mut self.runners[runner];
                host.process.kill().await?;
                let addresses: Vec<String> = self.sites.iter().map(Site::grpc).collect();
                host.process = host.place.start(&addresses, &host.token)?;
            }
            Fault::KillIngress => {
                let folder = self.ingress.take().context("there is no ingress")?.kill().await?;
                self.ingress = Some(Cluster::serve_ingress_through(folder, &self.ingress_redis).await?);
            }
        }
        Ok(())
    }

    /// Waits until the next one takes a node for a member: one that was cut off from Redis may still be about to end.
    async fn joins(&mut self, place: usize) -> Result<()> {
        let (address, next) = (self.sites[place].peers(), (place + 1) % self.sites.len());
        let looking = async {
            loop {
                self.revive().await?;
                // The next one may be about to end too.
                let status = Status::of(&self.sites[next].up).await;
                if status.is_ok_and(|status| status.shards().iter().any(|(member, _)| *member == address)) {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(PATIENCE, looking).await.with_context(|| format!("{address} does not join"))?
    }

    /// Starts again what has ended, as a supervisor does, and says where it is now.
    async fn revive(&mut self) -> Result<()> {
        for place in 0..self.sites.len() {
            if self.sites[place].up.has_ended()? {
                let site = self.sites.remove(place).restart().await?;
                self.sites.insert(place, site);
            }
        }
        if let Some(mut ingress) = self.ingress.take() {
            if ingress.has_ended()? {
                ingress = Cluster::serve_ingress_through(ingress.folder, &self.ingress_redis).await?;
            }
            self.ingress = Some(ingress);
        }
        self.draw();
        Ok(())
    }
}
