//! Sentinels, which know the primary, and of a failover first.

use std::sync::Arc;
use std::time::Duration;

use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{Client, ConnectionAddr, ConnectionInfo, RedisResult, TlsCertificates, TlsMode};
use tokio::sync::Mutex;

use super::hosts::Hosts;
use crate::store::StoreError;
use crate::store::redis::connection::sentence;

/// Where a sentinel listens when nothing else is said.
const PORT: u16 = 26379;

/// Asked at each connection.
#[derive(Clone)]
pub(super) struct Sentinels {
    client: Arc<Mutex<SentinelClient>>,
    primary: String,
}

impl Sentinels {
    /// # Errors
    /// When the URL cannot be read.
    pub(super) fn new(rest: &str, certificates: Option<TlsCertificates>) -> Result<Self, StoreError> {
        let said = Said::parse(rest, certificates.is_some()).ok_or_else(|| {
            StoreError(
                "the URL of the sentinels cannot be read; write redis-sentinel://[user:password@]host[:port],host[:port]\
                 [/database]?primary=NAME, with the name under which they watch it"
                    .to_owned(),
            )
        })?;
        let primary = said.primary.clone();
        let client = said.client(certificates);
        let client = client.map_err(|error| StoreError(format!("the URL of the sentinels: {error}")))?;
        Ok(Self { client: Arc::new(Mutex::new(client)), primary })
    }

    /// # Errors
    /// When they name no primary within the limit.
    pub(super) async fn primary(&self, limit: Duration) -> Result<Client, StoreError> {
        let unknown = |problem: String| {
            StoreError(format!(
                "the sentinels name no primary of `{}` that answers: {problem}; look after them and the servers that \
                 they watch, or correct the URL",
                self.primary
            ))
        };
        let mut sentinels = self.client.lock().await;
        match tokio::time::timeout(limit, sentinels.async_get_client()).await {
            Ok(found) => found.map_err(|error| unknown(sentence(&error))),
            Err(_) => Err(unknown(format!("no answer within {limit:?}"))),
        }
    }
}

/// What a URL of sentinels says.
struct Said {
    addresses: Vec<ConnectionAddr>,
    primary: String,
    /// With whom to speak at a sentinel, and at the primary; the addresses in them mean nothing.
    sentinel: ConnectionInfo,
    server: ConnectionInfo,
}

impl Said {
    fn parse(rest: &str, tls: bool) -> Option<Self> {
        let (place, query) = rest.split_once('?')?;
        let hosts = Hosts::parse(place, tls, PORT);
        let (mut primary, mut sentinel_user) = (None, "");
        for setting in query.split('&') {
            match setting.split_once('=')? {
                ("primary", name) if !name.is_empty() => primary = Some(name.to_owned()),
                ("sentinel_auth", user) => sentinel_user = user,
                _ => return None,
            }
        }
        Some(Self {
            addresses: hosts.addresses()?,
            primary: primary?,
            sentinel: hosts.as_user(sentinel_user)?,
            server: hosts.server()?,
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_sentinels_names_them_all_and_whom_they_watch() {
        let text = "me:p%40ss@box,other:7000,[::1]/3?primary=main&sentinel_auth=:hush";
        for tls in [false, true] {
            let said = Said::parse(text, tls).unwrap();
            let addresses: Vec<String> = said.addresses.iter().map(ToString::to_string).collect();
            assert_eq!(addresses, ["box:26379", "other:7000", "::1:26379"]);
            let encrypted = |address: &ConnectionAddr| matches!(address, ConnectionAddr::TcpTls { .. });
            assert!(said.addresses.iter().all(|address| encrypted(address) == tls));
            assert_eq!(said.primary, "main");
            let server = said.server.redis_settings();
            assert_eq!((server.username(), server.password(), server.db()), (Some("me"), Some("p@ss"), 3));
            let sentinel = said.sentinel.redis_settings();
            assert_eq!((sentinel.username(), sentinel.password()), (None, Some("hush")));
        }
    }
}
