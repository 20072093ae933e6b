//! Where Redis is: at an address of its own, or where its sentinels say.
//!
//! A URL may hold a password, so nothing here prints one.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo};
use secrecy::ExposeSecret;
use tokio::sync::Mutex;

use super::connection::sentence;
use super::options::Options;
use super::watch;
use crate::alarms::Alarms;
use crate::store::StoreError;

const SENTINELS: &str = "redis-sentinel://";
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
    Straight(Client),
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
        Ok(Self {
            way: way(options.url.expose_secret())?,
            settings,
            limit: options.connect,
            alarms: options.alarms.clone(),
        })
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
            Way::Straight(client) => return Ok(client.clone()),
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

fn way(url: &str) -> Result<Way, StoreError> {
    if url.starts_with("rediss:") {
        return Err(StoreError(
            "rediss: TLS to Redis is not built in; use redis:// or unix:// within a network you trust, or a tunnel"
                .to_owned(),
        ));
    }
    if let Some(rest) = url.strip_prefix(SENTINELS) {
        let watch = Watch::parse(rest).ok_or_else(|| {
            StoreError(
                "the URL of the sentinels cannot be read; write redis-sentinel://[user:password@]host[:port],host[:port]\
                 [/database]?primary=NAME, with the name under which they watch it"
                    .to_owned(),
            )
        })?;
        return watch.way();
    }
    let client = Client::open(url).map_err(|_| {
        StoreError(
            "the URL of Redis cannot be read; write redis://[user:password@]host[:port][/database], unix:///path, or \
             redis-sentinel://host[:port],host[:port]?primary=NAME"
                .to_owned(),
        )
    })?;
    Ok(Way::Straight(client))
}

/// What a URL of sentinels says.
struct Watch {
    sentinels: Vec<ConnectionInfo>,
    primary: String,
    /// With whom to speak at the primary; the address in it means nothing.
    server: ConnectionInfo,
}

impl Watch {
    fn parse(rest: &str) -> Option<Self> {
        let (place, query) = rest.split_once('?')?;
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (mut primary, mut sentinel_user) = (None, String::new());
        for setting in query.split('&') {
            match setting.split_once('=')? {
                ("primary", name) if !name.is_empty() => primary = Some(name.to_owned()),
                ("sentinel_auth", user) => user.clone_into(&mut sentinel_user),
                _ => return None,
            }
        }
        let info = |user: &str, host: &str, database: &str| {
            let at = if user.is_empty() { "" } else { "@" };
            format!("redis://{user}{at}{host}/{database}").into_connection_info().ok()
        };
        let sentinels = hosts.split(',').map(|host| info(&sentinel_user, &with_port(host), ""));
        Some(Self {
            sentinels: sentinels.collect::<Option<_>>()?,
            primary: primary?,
            server: info(user, "localhost", database)?,
        })
    }

    fn way(self) -> Result<Way, StoreError> {
        let server = SentinelNodeConnectionInfo::default()
            .set_redis_connection_info(self.server.redis_settings().clone());
        let primary = self.primary;
        let client =
            SentinelClient::build(self.sentinels, primary.clone(), Some(server), SentinelServerType::Master);
        let client = client.map_err(|error| StoreError(format!("the URL of the sentinels: {error}")))?;
        Ok(Way::Sentinels { client: Arc::new(Mutex::new(client)), primary })
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
        let watch =
            Watch::parse("me:p%40ss@box,other:7000,[::1]/3?primary=main&sentinel_auth=:hush").unwrap();
        let addresses: Vec<String> = watch.sentinels.iter().map(|info| info.addr().to_string()).collect();
        assert_eq!(addresses, ["box:26379", "other:7000", "::1:26379"]);
        assert_eq!(watch.primary, "main");
        let server = watch.server.redis_settings();
        assert_eq!((server.username(), server.password(), server.db()), (Some("me"), Some("p@ss"), 3));
        let sentinel = watch.sentinels[0].redis_settings();
        assert_eq!((sentinel.username(), sentinel.password()), (None, Some("hush")));
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
            let StoreError(said) = way(url).err().unwrap();
            assert!(said.contains("redis-sentinel://") && !said.contains("hush"), "{url}: {said}");
        }
    }
}
