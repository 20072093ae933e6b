//! Where Redis is: at an address of its own, or where its sentinels say.
//!
//! A URL may hold a password, so nothing here prints one.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisResult,
    TlsCertificates, TlsMode,
};
use secrecy::ExposeSecret;
use tokio::sync::Mutex;

use super::connection::sentence;
use super::options::Options;
use super::watch;
use crate::alarms::Alarms;
use crate::store::StoreError;

const SENTINELS: &str = "redis-sentinel://";
const SENTINELS_TLS: &str = "rediss-sentinel://";
/// Where a sentinel listens when nothing else is said.
const SENTINEL_PORT: u16 = 26379;

/// Makes connections to the primary.
#[derive(Clone)]
pub(super) struct Door {
    way: Way,
    settings: AsyncConnectionConfig,
    limit: Duration,
    alarms: Alarms,
}

#[derive(Clone)]
enum Way {
    Straight(Box<Client>),
    /// Asked at each connection, for they know of a failover first.
    Sentinels {
        client: Arc<Mutex<SentinelClient>>,
        primary: String,
    },
}

impl Door {
    /// # Errors
    /// When the URL cannot be read.
    pub(super) fn new(options: &Options) -> Result<Self, StoreError> {
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(options.connect))
            .set_response_timeout(Some(options.answer));
        Ok(Self { way: way(options)?, settings, limit: options.connect, alarms: options.alarms.clone() })
    }

    /// Whether sentinels may make another server the primary.
    pub(super) fn fails_over(&self) -> bool {
        matches!(self.way, Way::Sentinels { .. })
    }

    /// For a part of the store to watch how the server answers.
    pub(super) fn watch(&self, part: &'static str) -> watch::Watch {
        watch::Watch::new(self.alarms.clone(), part)
    }

    /// A connection that ends when it breaks.
    ///
    /// # Errors
    /// When there is no primary, or it does not take the connection.
    pub(super) async fn connect(&self) -> Result<MultiplexedConnection, StoreError> {
        let client = self.primary().await?;
        let connected = client.get_multiplexed_async_connection_with_config(&self.settings).await;
        connected.map_err(|error| {
            let address = client.get_connection_info().addr();
            StoreError(format!(
                "Redis at {address} does not take the connection: {}; start it, or correct the URL",
                sentence(&error)
            ))
        })
    }

    async fn primary(&self) -> Result<Client, StoreError> {
        let (sentinels, primary) = match &self.way {
            Way::Straight(client) => return Ok(client.as_ref().clone()),
            Way::Sentinels { client, primary } => (client, primary),
        };
        let unknown = |problem: String| {
            StoreError(format!(
                "the sentinels name no primary of `{primary}` that answers: {problem}; look after them and the servers \
                 that they watch, or correct the URL"
            ))
        };
        let mut sentinels = sentinels.lock().await;
        match tokio::time::timeout(self.limit, sentinels.async_get_client()).await {
            Ok(found) => found.map_err(|error| unknown(sentence(&error))),
            Err(_) => Err(unknown(format!("no answer within {:?}", self.limit))),
        }
    }
}

fn way(options: &Options) -> Result<Way, StoreError> {
    let url = options.url.expose_secret();
    for (scheme, tls) in [(SENTINELS, false), (SENTINELS_TLS, true)] {
        let Some(rest) = url.strip_prefix(scheme) else { continue };
        let sentinels = Sentinels::parse(rest, tls).ok_or_else(|| {
            StoreError(
                "the URL of the sentinels cannot be read; write redis-sentinel://[user:password@]host[:port],host[:port]\
                 [/database]?primary=NAME, with the name under which they watch it"
                    .to_owned(),
            )
        })?;
        let certificates = if tls { Some(options.tls.read()?) } else { None };
        return sentinels.way(certificates);
    }
    let client = match url.starts_with("rediss:") {
        true => Client::build_with_tls(url, options.tls.read()?),
        false => Client::open(url),
    };
    let client = client.map_err(|_| {
        StoreError(
            "the URL of Redis, or a certificate for it, cannot be read; write \
             redis[s]://[user:password@]host[:port][/database], unix:///path, or \
             redis[s]-sentinel://host[:port],host[:port]?primary=NAME"
                .to_owned(),
        )
    })?;
    Ok(Way::Straight(Box::new(client)))
}

/// What a URL of sentinels says.
struct Sentinels {
    addresses: Vec<ConnectionAddr>,
    primary: String,
    /// With whom to speak at a sentinel, and at the primary; the addresses in them mean nothing.
    sentinel: ConnectionInfo,
    server: ConnectionInfo,
}

impl Sentinels {
    fn parse(rest: &str, tls: bool) -> Option<Self> {
        let (place, query) = rest.split_once('?')?;
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (mut primary, mut sentinel_user) = (None, "");
        for setting in query.split('&') {
            match setting.split_once('=')? {
                ("primary", name) if !name.is_empty() => primary = Some(name.to_owned()),
                ("sentinel_auth", user) => sentinel_user = user,
                _ => return None,
            }
        }
        let scheme = if tls { "rediss" } else { "redis" };
        let info = |user: &str, host: &str, database: &str| {
            let at = if user.is_empty() { "" } else { "@" };
            format!("{scheme}://{user}{at}{host}/{database}").into_connection_info().ok()
        };
        let addresses = hosts.split(',').map(|host| Some(info("", &with_port(host), "")?.addr().clone()));
        Some(Self {
            addresses: addresses.collect::<Option<_>>()?,
            primary: primary?,
            sentinel: info(sentinel_user, "localhost", "")?,
            server: info(user, "localhost", database)?,
        })
    }

    fn way(self, certificates: Option<TlsCertificates>) -> Result<Way, StoreError> {
        let primary = self.primary.clone();
        let client = self.client(certificates);
        let client = client.map_err(|error| StoreError(format!("the URL of the sentinels: {error}")))?;
        Ok(Way::Sentinels { client: Arc::new(Mutex::new(client)), primary })
    }

    fn client(self, certificates: Option<TlsCertificates>) -> RedisResult<SentinelClient> {
        let (server, sentinel) = (self.server.redis_settings(), self.sentinel.redis_settings());
        let mut builder =
            SentinelClientBuilder::new(self.addresses, self.primary, SentinelServerType::Master)?
                .set_client_to_redis_db(server.db());
        if let Some(user) = server.username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = server.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if let Some(user) = sentinel.username() {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = sentinel.password() {
            builder = builder.set_client_to_sentinel_password(password);
        }
        if let Some(certificates) = certificates {
            builder = builder
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_tls_mode(TlsMode::Secure)
                .set_client_to_sentinel_certificates(certificates);
        }
        builder.build()
    }
}

fn with_port(host: &str) -> String {
    let named = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    // The last group of an address of version 6 may look like a port.
    if named && (!host.starts_with('[') || host.contains("]:")) {
        return host.to_owned();
    }
    format!("{host}:{SENTINEL_PORT}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_sentinels_names_them_all_and_whom_they_watch() {
        let text = "me:p%40ss@box,other:7000,[::1]/3?primary=main&sentinel_auth=:hush";
        for tls in [false, true] {
            let sentinels = Sentinels::parse(text, tls).unwrap();
            let addresses: Vec<String> = sentinels.addresses.iter().map(ToString::to_string).collect();
            assert_eq!(addresses, ["box:26379", "other:7000", "::1:26379"]);
            let encrypted = |address: &ConnectionAddr| matches!(address, ConnectionAddr::TcpTls { .. });
            assert!(sentinels.addresses.iter().all(|address| encrypted(address) == tls));
            assert_eq!(sentinels.primary, "main");
            let server = sentinels.server.redis_settings();
            assert_eq!((server.username(), server.password(), server.db()), (Some("me"), Some("p@ss"), 3));
            let sentinel = sentinels.sentinel.redis_settings();
            assert_eq!((sentinel.username(), sentinel.password()), (None, Some("hush")));
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_its_password() {
        for url in [
            "redis-sentinel://:hush@box",
            "redis-sentinel://:hush@box?primary=",
            "redis-sentinel://:hush@box?primary=main&color=red",
            "redis-sentinel://:hush@box:x?primary=main",
            "http://:hush@box",
        ] {
            let StoreError(said) = way(&Options::new(url, "owner")).err().unwrap();
            assert!(said.contains("-sentinel://") && !said.contains("hush"), "{url}: {said}");
        }
    }
}
