//! A Redis Cluster, which keeps all of a store on the node that has the slot of its hash tag.
//!
//! The nodes that the URL names are asked at each connection who that is: after a failover, or after the slot was
//! moved, it is another one.

use std::time::Duration;

use redis::{AsyncConnectionConfig, Client, RedisResult, TlsCertificates, cmd};

use super::heard;
use super::hosts::Hosts;
use crate::store::StoreError;
use crate::store::redis::connection::sentence;
use crate::store::redis::shard::OURS;

/// Where a node listens when nothing else is said.
const PORT: u16 = 6379;

#[derive(Clone)]
pub(super) struct Nodes {
    hosts: Hosts,
    certificates: Option<TlsCertificates>,
}

/// Who has a slot, as one node knows it.
#[derive(Debug, PartialEq, Eq)]
struct Claim {
    /// Of two claims the one with the higher epoch is true: that is how the nodes themselves settle it.
    epoch: u64,
    name: String,
}

impl Nodes {
    /// # Errors
    /// When the URL cannot be read.
    pub(super) fn new(rest: &str, certificates: Option<TlsCertificates>) -> Result<Self, StoreError> {
        let hosts = Hosts::parse(rest, certificates.is_some(), PORT);
        let readable = hosts.addresses().is_some() && hosts.server().is_some();
        if !readable || !hosts.database.is_empty() {
            return Err(StoreError(
                "the URL of the Redis Cluster cannot be read; write redis-cluster://[user:password@]host[:port],\
                 host[:port], with a few of its nodes and no database, for a cluster has one alone"
                    .to_owned(),
            ));
        }
        Ok(Self { hosts, certificates })
    }

    /// The node that has the store, or shall have it. Each has as long to answer as a connection may take: one that
    /// stands still says nothing.
    ///
    /// # Errors
    /// When none of the nodes knows it.
    pub(super) async fn primary(
        &self,
        settings: &AsyncConnectionConfig,
        limit: Duration,
    ) -> Result<Client, StoreError> {
        let asked = self.hosts.names.iter().map(async |name| {
            match tokio::time::timeout(limit, self.claim(name, settings)).await {
                Ok(Ok(Some(claim))) => Ok(claim),
                Ok(Ok(None)) => Err(format!("{name} knows of none")),
                Ok(Err(error)) => Err(format!("{name}: {}", sentence(&error))),
                Err(_) => Err(format!("{name}: no answer within {limit:?}")),
            }
        });
        let (claims, problems): (Vec<_>, Vec<_>) =
            heard(asked.collect()).await.into_iter().partition(Result::is_ok);
        let newest = claims.into_iter().flatten().max_by_key(|claim: &Claim| claim.epoch);
        let Some(newest) = newest else {
            let problems: Vec<String> = problems.into_iter().filter_map(Result::err).collect();
            return Err(StoreError(format!(
                "no node of the Redis Cluster says who has the slot of {OURS}* ({}); look after its nodes, or correct the \
                 URL",
                problems.join("; ")
            )));
        };
        self.client(&newest.name).map_err(|error| StoreError(sentence(&error)))
    }

    async fn claim(&self, name: &str, settings: &AsyncConnectionConfig) -> RedisResult<Option<Claim>> {
        let mut node = self.client(name)?.get_multiplexed_async_connection_with_config(settings).await?;
        let slot: u16 = cmd("CLUSTER").arg("KEYSLOT").arg(OURS).query_async(&mut node).await?;
        let nodes: String = cmd("CLUSTER").arg("NODES").query_async(&mut node).await?;
        let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
        Ok(nodes.lines().find_map(|line| claim_in(line, slot, host)))
    }

    fn client(&self, name: &str) -> RedisResult<Client> {
        self.hosts.client(name, self.certificates.as_ref())
    }
}

/// Reads a line of `CLUSTER NODES`: whether that node has the slot, and where it is. One that does not know its own
/// address is where it was asked.
fn claim_in(line: &str, slot: u16, asked: &str) -> Option<Claim> {
    let fields: Vec<&str> = line.split(' ').collect();
    let [_, address, flags, _, _, _, epoch, _, slots @ ..] = fields.as_slice() else { return None };
    let is_primary = flags.split(',').any(|flag| flag == "master");
    if !is_primary || !slots.iter().any(|range| covers(range, slot)) {
        return None;
    }
    let (place, names) = address.split_once('@').unwrap_or((address, ""));
    let (ip, port) = place.rsplit_once(':')?;
    let hostname = names.split(',').nth(1).filter(|name| !name.is_empty() && !name.contains('='));
    let host = match hostname.unwrap_or(ip) {
        "" => asked.to_owned(),
        host if host.contains(':') => format!("[{host}]"),
        host => host.to_owned(),
    };
    Some(Claim { epoch: epoch.parse().ok()?, name: format!("{host}:{port}") })
}

/// Whether `first-last`, or a single slot, covers a slot. What is being moved stands in brackets, beside its range.
fn covers(range: &str, slot: u16) -> bool {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(line: &str) -> Option<(u64, String)> {
        claim_in(line, 300, "box").map(|claim| (claim.epoch, claim.name))
    }

    #[test]
    fn the_node_with_the_slot_is_found_by_its_name_or_address() {
        let told = |at: &str, flags: &str, slots: &str| format!("0f {at} {flags} - 0 1 7 connected{slots}");
        for (at, name) in [
            ("10.0.0.1:7000@17000", "10.0.0.1:7000"),
            ("10.0.0.1:7000@17000,one.example", "one.example:7000"),
            ("10.0.0.1:7000@17000,,shard-id=ab", "10.0.0.1:7000"),
            (":7000@17000", "box:7000"),
            ("fd00::1:7000@17000", "[fd00::1]:7000"),
        ] {
            assert_eq!(claim(&told(at, "myself,master", " 0-200 300")), Some((7, name.to_owned())), "{at}");
        }
        let at = "10.0.0.1:7000@17000";
        assert!(claim(&told(at, "master", " 0-5460 [93-<-0e]")).is_some());
        assert_eq!(claim(&told(at, "master", " 0-299 301-400 [300-<-0e]")), None);
        assert_eq!(claim(&told(at, "slave", "")), None);
        assert_eq!(claim(&told(at, "master", "")), None);
        assert_eq!(claim(""), None);
    }
}
