//! Several coordinators over one private Redis.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use skein_coordinator::cluster::member::Member;
use skein_coordinator::cluster::rank;
use skein_coordinator::store::redis::shard::Shard;
use skein_shared::mutation::Mutation;
use tempfile::TempDir;
use tokio::process::Command;
use tokio_util::task::AbortOnDropHandle;

use crate::link::Link;
use crate::redis::Server;
use crate::up::{Folder, Up, binary};

/// The arguments of a node that takes webhooks alone.
const INGRESS: [&str; 2] = ["--roles", "ingress"];
/// How often somebody says that it lives.
const WORD: Duration = Duration::from_millis(250);
/// The files with the keys of all nodes: those that sign tokens, and those that seal secrets.
const KEYS: [&str; 2] = ["keys.json", "secrets.json"];

/// Coordinators that share a Redis and their keys.
pub struct Cluster {
    pub server: Server,
    keys: Vec<(&'static str, Vec<u8>)>,
    settings: String,
    /// Ways in which its nodes are broken on purpose.
    mutations: String,
}

impl Cluster {
    /// A Redis, and the keys of a first node. The settings are those of `[cluster]`.
    ///
    /// # Errors
    /// When Redis or the first node does not start.
    pub async fn start(settings: &str) -> Result<(Self, Up)> {
        Self::start_with(settings, &[]).await
    }

    /// Like [`Cluster::start`], with more arguments for the first node.
    ///
    /// # Errors
    /// When Redis or the first node does not start.
    pub async fn start_with(settings: &str, more: &[&str]) -> Result<(Self, Up)> {
        Self::begin(Server::in_memory().await?, settings, &[], more).await
    }

    /// Like [`Cluster::start`], with nodes that are broken on purpose, which they are only if they were built for it.
    ///
    /// # Errors
    /// When Redis or the first node does not start.
    pub async fn start_broken(settings: &str, mutations: &[Mutation]) -> Result<(Self, Up)> {
        Self::begin(Server::in_memory().await?, settings, mutations, &[]).await
    }

    /// Like [`Cluster::start`], over a server that runs already.
    ///
    /// # Errors
    /// When the first node does not start.
    pub async fn over(server: Server, settings: &str) -> Result<(Self, Up)> {
        Self::over_broken(server, settings, &[]).await
    }

    /// Like [`Cluster::start_broken`], over a server that runs already.
    ///
    /// # Errors
    /// When the first node does not start.
    pub async fn over_broken(server: Server, settings: &str, mutations: &[Mutation]) -> Result<(Self, Up)> {
        Self::begin(server, settings, mutations, &[]).await
    }

    async fn begin(
        server: Server,
        settings: &str,
        mutations: &[Mutation],
        more: &[&str],
    ) -> Result<(Self, Up)> {
        let mutations: Vec<String> = mutations.iter().map(|mutation| mutation.name()).collect();
        let (settings, mutations) = (settings.to_owned(), mutations.join(","));
        let mut cluster = Self { server, keys: Vec::new(), settings, mutations };
        let first = cluster.serve_with(cluster.folder("")?, more).await?;
        for name in KEYS {
            cluster.keys.push((name, std::fs::read(first.data().join(name))?));
        }
        Ok((cluster, first))
    }

    /// Another node, with a data folder of its own.
    ///
    /// # Errors
    /// When it does not get ready.
    pub async fn join(&self) -> Result<Up> {
        self.serve(self.folder("")?).await
    }

    /// A node that takes webhooks alone, with more settings.
    ///
    /// # Errors
    /// When it does not get ready.
    pub async fn ingress(&self, settings: &str) -> Result<Up> {
        self.ingress_in(self.folder(settings)?).await
    }

    /// A node that takes webhooks alone, in a folder that is there.
    ///
    /// # Errors
    /// When it does not get ready.
    pub async fn ingress_in(&self, folder: Folder) -> Result<Up> {
        self.serve_with(folder, &INGRESS).await
    }

    /// A node in the folder of an earlier one.
    ///
    /// # Errors
    /// When it does not get ready.
    pub async fn serve(&self, folder: Folder) -> Result<Up> {
        self.serve_with(folder, &[]).await
    }

    /// A node in the folder of an earlier one, which reaches Redis through a link that can be cut.
    ///
    /// # Errors
    /// When it does not get ready.
    pub async fn serve_through(folder: Folder, link: &Link) -> Result<Up> {
        Self::serve_at(folder, &link.redis(), &[]).await
    }

    /// A node that takes webhooks alone, and reaches Redis through a link that can be cut.
    ///
    /// # Errors
    /// When it does not get ready.
    pub async fn serve_ingress_through(folder: Folder, link: &Link) -> Result<Up> {
        Self::serve_at(folder, &link.redis(), &INGRESS).await
    }

    /// A node with more arguments.
    ///
    /// # Errors
    /// When it does not get ready.
    pub async fn serve_with(&self, folder: Folder, more: &[&str]) -> Result<Up> {
        Self::serve_at(folder, &self.server.url(), more).await
    }

    async fn serve_at(folder: Folder, redis: &str, more: &[&str]) -> Result<Up> {
        let arguments = [&["--redis", redis, "--node-addr", "127.0.0.1:0"], more].concat();
        Up::serve_in(folder, &arguments).await
    }

    /// A data folder with the keys, once there are some, and with more settings.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn folder(&self, settings: &str) -> Result<Folder> {
        let settings = format!("[cluster]\n{}\n{settings}", self.settings);
        let folder = Folder::new()?
            .on(self.server.ground())
            .with_variable("SKEIN_MUTATIONS", &self.mutations)
            .configured(&settings)?;
        for (name, keys) in &self.keys {
            let path = folder.data().join(name);
            std::fs::write(&path, keys)?;
            std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        }
        Ok(folder)
    }
}

/// What `skein cluster init` makes.
pub struct Certificates(TempDir);

impl Certificates {
    /// For nodes at these hosts.
    ///
    /// # Errors
    /// When the command refuses.
    pub async fn init(hosts: &[&str]) -> Result<Self> {
        let folder = TempDir::with_prefix("skein-authority-")?;
        let mut command = Command::new(binary("skein"));
        command.args(["cluster", "init", "--out"]).arg(folder.path()).args(hosts);
        let made = command.output().await?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Ok(Self(folder))
    }

    /// Where the authority is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The folder of one node.
    pub fn of(&self, host: &str) -> PathBuf {
        self.0.path().join(host)
    }
}

/// What one node sees of the cluster.
pub struct Status(Value);

impl Status {
    /// Asks a node.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn of(node: &Up) -> Result<Self> {
        Ok(Self(serde_json::from_str(&node.skein(&["cluster", "status", "--json"]).await?)?))
    }

    /// The alarms: what kind, and what is said of it.
    pub fn alarms(&self) -> Vec<(String, String)> {
        let alarms = self.0["alarms"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        alarms.map(|alarm| (text(&alarm["kind"]), text(&alarm["problem"]))).collect()
    }

    /// The shards of each node with their epochs, by its address.
    pub fn epochs(&self) -> BTreeMap<&str, &Value> {
        let nodes = self.0["nodes"].as_array().into_iter().flatten();
        nodes.map(|node| (node["address"].as_str().unwrap_or_default(), &node["shards"])).collect()
    }

    /// How many shards each node has, by its address.
    pub fn shards(&self) -> Vec<(String, usize)> {
        let nodes = self.0["nodes"].as_array().into_iter().flatten();
        let shards = |node: &Value| node["shards"].as_object().map_or(0, serde_json::Map::len);
        nodes.map(|node| (node["address"].as_str().unwrap_or_default().to_owned(), shards(node))).collect()
    }

    /// The address of the node that was asked.
    ///
    /// # Errors
    /// When it is not among those that live.
    pub fn address(&self) -> Result<String> {
        let nodes = self.0["nodes"].as_array().into_iter().flatten();
        let mut asked = nodes.filter(|node| node["asked"] == Value::Bool(true));
        Ok(asked.next().context("it does not see itself")?["address"].as_str().unwrap_or_default().to_owned())
    }

    /// The address of the node that has a shard.
    pub fn owner(&self, shard: u16) -> Option<String> {
        let nodes = self.0["nodes"].as_array().into_iter().flatten();
        let mut owner = nodes.filter(|node| node["shards"].get(shard.to_string()).is_some());
        Some(owner.next()?["address"].as_str()?.to_owned())
    }

    /// Whether each shard is with that of these nodes to which it falls by rank.
    pub fn is_shared_by(&self, addresses: &[&str]) -> bool {
        let nodes = || self.0["nodes"].as_array().into_iter().flatten();
        let ours = nodes().filter(|node| addresses.contains(&node["address"].as_str().unwrap_or_default()));
        let ids: Vec<&str> = ours.filter_map(|node| node["id"].as_str()).collect();
        ids.len() == addresses.len()
            && Shard::all().all(|shard| {
                let first = rank::order(shard, ids.iter().copied()).first().copied().unwrap_or_default();
                nodes()
                    .any(|node| node["id"] == first && !node["shards"][shard.number().to_string()].is_null())
            })
    }
}

/// Waits until a node shows an alarm of a kind, and gives what it says.
///
/// # Errors
/// When it shows none.
pub async fn alarm(node: &Up, kind: &str, about: &str) -> Result<String> {
    node.until(&format!("an alarm `{kind}` about `{about}`"), async || {
        let mut alarms = Status::of(node).await?.alarms().into_iter();
        Ok(alarms.find(|(shown, problem)| shown == kind && problem.contains(about)))
    })
    .await
    .map(|(_, problem)| problem)
}

/// Waits until a node shows no alarm.
///
/// # Errors
/// When it goes on showing one.
pub async fn all_is_well(node: &Up) -> Result<()> {
    let waited =
        node.until("no alarm", async || Ok(Status::of(node).await?.alarms().is_empty().then_some(()))).await;
    match waited {
        Ok(()) => Ok(()),
        Err(error) => Err(error.context(format!("{:?}", Status::of(node).await?.alarms()))),
    }
}

/// What `/metrics` says of one number.
///
/// # Errors
/// When it does not say it.
pub async fn number(node: &Up, name: &str) -> Result<f64> {
    let all = reqwest::get(node.mcp.replace("/mcp", "/metrics")).await?.text().await?;
    let line = all.lines().find_map(|line| line.strip_prefix(name)).with_context(|| all.clone())?;
    Ok(line.trim().parse()?)
}

/// Somebody of whom there is nothing but its word that it lives, given again and again until this is dropped.
///
/// # Errors
/// When Redis does not take it.
pub async fn pretender(server: &Server, member: &Member) -> Result<AbortOnDropHandle<()>> {
    let (mut connection, id) = (server.connection().await?, member.id.clone());
    let record = serde_json::to_string(member)?;
    let says = move |word: u64| {
        let entry = format!("{} {record}", u64::MAX / 2 + word);
        redis::cmd("HSET").arg("{skein}:members").arg(&id).arg(entry).to_owned()
    };
    says(0).exec_async(&mut connection).await?;
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        for word in 1.. {
            tokio::time::sleep(WORD).await;
            // Redis may be away for a while, or end before this does.
            let _ = says(word).exec_async(&mut connection).await;
        }
    })))
}
