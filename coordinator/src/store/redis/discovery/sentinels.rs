//! Sentinels, which know the primary, and of a failover first.
//!
//! One that was cut off together with the primary of before goes on naming that. So all are asked at each connection,
//! at once, and of what they say the newest counts.

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult, TlsCertificates, cmd};

use super::heard;
use super::hosts::Hosts;
use crate::store::StoreError;
use crate::store::redis::connection::sentence;
use crate::store::redis::server::Info;

/// Where a sentinel listens when nothing else is said.
const PORT: u16 = 26379;

#[derive(Clone)]
pub(super) struct Sentinels {
    /// Themselves, as the user that speaks with them.
    asked: Hosts,
    /// How to speak with the servers that they watch. The names in it are those of the sentinels.
    watched: Hosts,
    /// The name under which they watch them.
    primary: String,
    certificates: Option<TlsCertificates>,
}

/// Who the primary is, as one sentinel knows it.
#[derive(Debug, PartialEq, Eq)]
struct Claim {
    /// It rises with each failover, so the claim with the highest one is true.
    epoch: u64,
    name: String,
    flags: String,
}

impl Claim {
    fn read(told: &HashMap<String, String>) -> Option<Self> {
        let flags = told.get("flags")?.clone();
        let (host, port) = (told.get("ip")?, told.get("port")?.parse::<u16>().ok()?);
        let name = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        Some(Self { epoch: told.get("config-epoch")?.parse().ok()?, name, flags })
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.split(',').any(|has| has == flag)
    }

    fn is_down(&self) -> bool {
        self.has("s_down") || self.has("o_down")
    }

    /// The sentinel that leads a failover has its epoch already while it still names the former primary.
    fn is_sure(&self) -> bool {
        !self.is_down() && !self.has("failover_in_progress")
    }
}

impl Sentinels {
    /// # Errors
    /// When the URL cannot be read.
    pub(super) fn new(rest: &str, certificates: Option<TlsCertificates>) -> Result<Self, StoreError> {
        Self::parse(rest, certificates).ok_or_else(|| {
            StoreError(
                "the URL of the sentinels cannot be read; write redis-sentinel://[user:password@]host[:port],host[:port]\
                 [/database]?primary=NAME, with the name under which they watch it"
                    .to_owned(),
            )
        })
    }

    fn parse(rest: &str, certificates: Option<TlsCertificates>) -> Option<Self> {
        let (place, query) = rest.split_once('?')?;
        let watched = Hosts::parse(place, certificates.is_some(), PORT);
        let (mut primary, mut user) = (None, "");
        for setting in query.split('&') {
            match setting.split_once('=')? {
                ("primary", name) if !name.is_empty() => primary = Some(name.to_owned()),
                ("sentinel_auth", text) => user = text,
                _ => return None,
            }
        }
        let asked = watched.of(user);
        // Whether they can be read.
        asked.addresses()?;
        asked.server()?;
        watched.server()?;
        Some(Self { asked, watched, primary: primary?, certificates })
    }

    /// The primary that they name. Half of the limit is for their answers: most of them may be away, and say nothing.
    ///
    /// # Errors
    /// When they name none that is up.
    pub(super) async fn primary(
        &self,
        settings: &AsyncConnectionConfig,
        limit: Duration,
    ) -> Result<Client, StoreError> {
        let limit = limit / 2;
        let asked = self.asked.names.iter().map(async |name| {
            let claim = tokio::time::timeout(limit, self.claim(name, settings)).await;
            let claim = match claim {
                Ok(claim) => claim.map_err(|error| sentence(&error)),
                Err(_) => Err(format!("no answer within {limit:?}")),
            };
            claim
                .and_then(|claim| claim.ok_or_else(|| "watches none of that name".to_owned()))
                .map_err(|problem| format!("{name}: {problem}"))
        });
        let named = newest(heard(asked.collect()).await).and_then(|claim| {
            let client = self.watched.client(&claim.name, self.certificates.as_ref());
            client.map_err(|error| sentence(&error))
        });
        named.map_err(|problem| {
            StoreError(format!(
                "the sentinels name no primary of `{}` that answers ({problem}); look after them and the servers that \
                 they watch, or correct the URL",
                self.primary
            ))
        })
    }

    async fn claim(&self, name: &str, settings: &AsyncConnectionConfig) -> RedisResult<Option<Claim>> {
        let client = self.asked.client(name, self.certificates.as_ref())?;
        let mut sentinel = client.get_multiplexed_async_connection_with_config(settings).await?;
        let told: Vec<HashMap<String, String>> =
            cmd("SENTINEL").arg("MASTERS").query_async(&mut sentinel).await?;
        let ours = |told: &&HashMap<String, String>| told.get("name") == Some(&self.primary);
        Ok(told.iter().find(ours).and_then(Claim::read))
    }
}

/// Of what the sentinels said the newest, or why there is nothing to go by.
fn newest(told: Vec<Result<Claim, String>>) -> Result<Claim, String> {
    let (claims, problems): (Vec<_>, Vec<_>) = told.into_iter().partition(Result::is_ok);
    let newest = claims.into_iter().flatten().max_by_key(|claim| (claim.epoch, claim.is_sure()));
    match newest {
        Some(claim) if claim.is_down() => Err(format!("{} is down, and none has its place yet", claim.name)),
        Some(claim) => Ok(claim),
        None => Err(problems.into_iter().filter_map(Result::err).collect::<Vec<_>>().join("; ")),
    }
}

/// Whether the server is what the sentinels take it for, which they hear from it now and then.
///
/// # Errors
/// When it is a replica, or does not say.
pub(super) async fn check_role(server: &mut MultiplexedConnection, address: &str) -> Result<(), StoreError> {
    let told: RedisResult<String> = cmd("INFO").arg("replication").query_async(server).await;
    let told = told.map_err(|error| {
        StoreError(format!("Redis at {address} does not say whether it is the primary: {}", sentence(&error)))
    })?;
    if Info::parse(&told).is_primary() {
        return Ok(());
    }
    Err(StoreError(format!(
        "Redis at {address}, which the sentinels name as the primary, is a replica; try again in some seconds, when they \
         have settled who is the primary, or look after them"
    )))
}

#[cfg(test)]
mod tests {
    use redis::ConnectionAddr;

    use super::*;

    #[test]
    fn a_url_of_sentinels_names_them_all_and_whom_they_watch() {
        let text = "me:p%40ss@box,other:7000,[::1]/3?primary=main&sentinel_auth=:hush";
        for tls in [false, true] {
            let certificates = tls.then_some(TlsCertificates { client_tls: None, root_cert: None });
            let said = Sentinels::parse(text, certificates).unwrap();
            let addresses = said.asked.addresses().unwrap();
            let shown: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            assert_eq!(shown, ["box:26379", "other:7000", "::1:26379"]);
            let encrypted = |address: &ConnectionAddr| matches!(address, ConnectionAddr::TcpTls { .. });
            assert!(addresses.iter().all(|address| encrypted(address) == tls));
            assert_eq!(said.primary, "main");
            let server = said.watched.server().unwrap();
            let server = server.redis_settings();
            assert_eq!((server.username(), server.password(), server.db()), (Some("me"), Some("p@ss"), 3));
            let sentinel = said.asked.server().unwrap();
            let sentinel = sentinel.redis_settings();
            assert_eq!((sentinel.username(), sentinel.password(), sentinel.db()), (None, Some("hush"), 0));
        }
    }

    fn told(ip: &str, epoch: &str, flags: &str) -> Result<Claim, String> {
        let told =
            [("name", "main"), ("ip", ip), ("port", "6379"), ("config-epoch", epoch), ("flags", flags)];
        let told = told.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Claim::read(&told.into()).ok_or_else(|| "unreadable".to_owned())
    }

    #[test]
    fn of_sentinels_that_disagree_the_one_that_has_seen_the_last_failover_counts() {
        let away = || Err::<Claim, _>("box: no answer".to_owned());
        let name = |told: Vec<Result<Claim, String>>| newest(told).map(|claim| claim.name);
        let (old, new) = (|| told("10.0.0.1", "9", "master"), || told("10.0.0.2", "10", "master"));
        for all in [vec![old(), old(), new()], vec![new(), old()], vec![away(), new(), away(), old()]] {
            assert_eq!(name(all), Ok("10.0.0.2:6379".to_owned()));
        }
        assert_eq!(name(vec![told("fd00::1", "0", "master,disconnected")]), Ok("[fd00::1]:6379".to_owned()));
        // Who leads the failover names the former primary for a moment longer.
        let leads = || told("10.0.0.1", "10", "master,failover_in_progress");
        assert_eq!(name(vec![leads(), new()]), name(vec![new(), leads()]));
        assert_eq!(name(vec![leads(), new()]), Ok("10.0.0.2:6379".to_owned()));
        // One alone may not reach what the others reach.
        let blind = || told("10.0.0.2", "10", "s_down,master,disconnected");
        assert_eq!(name(vec![new(), blind()]), Ok("10.0.0.2:6379".to_owned()));
        // The one of before has not become the primary again.
        let problem = name(vec![old(), blind()]).unwrap_err();
        assert!(problem.contains("10.0.0.2:6379 is down"), "{problem}");
        assert_eq!(newest(vec![away(), away()]), Err("box: no answer; box: no answer".to_owned()));
    }
}
