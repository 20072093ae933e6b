//! Where Redis is: at an address of its own, or where its sentinels or the nodes of its cluster say.
//!
//! A URL may hold a password, so nothing here prints one.

mod cluster;
mod hosts;
mod sentinels;

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, TlsCertificates};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::{Instant, timeout_at};

use super::connection::sentence;
use super::options::Options;
use super::watch;
use crate::alarms::Alarms;
use crate::store::StoreError;
use cluster::Nodes;
use sentinels::Sentinels;

/// How long the others are waited for once most have said where the primary is.
const MOMENT: Duration = Duration::from_millis(250);

/// Makes connections to the primary.
#[derive(Clone)]
pub(super) struct Discovery {
    way: Way,
    settings: AsyncConnectionConfig,
    limit: Duration,
    alarms: Alarms,
}

#[derive(Clone)]
enum Way {
    Direct(Box<Client>),
    Sentinels(Sentinels),
    Cluster(Nodes),
}

impl Discovery {
    /// # Errors
    /// When the URL cannot be read.
    pub(super) fn new(options: &Options) -> Result<Self, StoreError> {
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(options.connect))
            .set_response_timeout(Some(options.answer));
        let url = options.url.expose_secret();
        let certificates = if url.starts_with("rediss") { Some(options.tls.read()?) } else { None };
        let way = way(url, certificates)?;
        Ok(Self { way, settings, limit: options.connect, alarms: options.alarms.clone() })
    }

    /// The same, to connections that wait for an answer no longer than that.
    pub(super) fn answering_within(&self, limit: Duration) -> Self {
        let settings = self.settings.clone().set_response_timeout(Some(limit));
        Self { settings, ..self.clone() }
    }

    /// Whether somebody may make another server the primary.
    pub(super) fn fails_over(&self) -> bool {
        !matches!(self.way, Way::Direct(_))
    }

    /// Whether it leads to the nodes of a Redis Cluster, and follows them.
    pub(super) fn follows_a_cluster(&self) -> bool {
        matches!(self.way, Way::Cluster(_))
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
        let address = client.get_connection_info().addr();
        let mut connection = connected.map_err(|error| {
            StoreError(format!(
                "Redis at {address} does not take the connection: {}; start it, or correct the URL",
                sentence(&error)
            ))
        })?;
        if matches!(self.way, Way::Sentinels(_)) {
            sentinels::check_role(&mut connection, &address.to_string()).await?;
        }
        Ok(connection)
    }

    async fn primary(&self) -> Result<Client, StoreError> {
        match &self.way {
            Way::Direct(client) => Ok(client.as_ref().clone()),
            Way::Sentinels(sentinels) => sentinels.primary(&self.settings, self.limit).await,
            Way::Cluster(nodes) => nodes.primary(&self.settings, self.limit).await,
        }
    }
}

/// What all of them say who were asked at once, or why they do not. One that takes connections and says nothing would
/// hold up each new connection: once most have named a primary the others have a moment, for one of them may have seen
/// a failover that most have not.
async fn heard<T, F>(mut asked: FuturesUnordered<F>) -> Vec<Result<T, String>>
where
    F: Future<Output = Result<T, String>>,
{
    let most = asked.len() / 2 + 1;
    let (mut told, mut named, mut until) = (Vec::with_capacity(asked.len()), 0, None);
    loop {
        let next = match until {
            None => asked.next().await,
            Some(until) => timeout_at(until, asked.next()).await.unwrap_or_default(),
        };
        let Some(answer) = next else { return told };
        named += usize::from(answer.is_ok());
        told.push(answer);
        if until.is_none() && named >= most {
            until = Some(Instant::now() + MOMENT);
        }
    }
}

/// Looks whether a URL can be read, and at no certificates: whoever has written it is told before anything is done.
///
/// # Errors
/// A sentence without its password, which says what such a URL looks like.
pub fn check_url(url: &SecretString) -> Result<(), StoreError> {
    way(url.expose_secret(), None).map(|_| ())
}

fn way(url: &str, certificates: Option<TlsCertificates>) -> Result<Way, StoreError> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    match scheme {
        "redis-sentinel" | "rediss-sentinel" => {
            return Ok(Way::Sentinels(Sentinels::new(rest, certificates)?));
        }
        "redis-cluster" | "rediss-cluster" => return Ok(Way::Cluster(Nodes::new(rest, certificates)?)),
        _ => {}
    }
    let server = url.into_connection_info().map_err(|_| {
        StoreError(
            "the URL of Redis cannot be read; write redis[s]://[user:password@]host[:port][/database], unix:///path, \
             redis[s]-sentinel://host[:port],host[:port]?primary=NAME, or redis[s]-cluster://host[:port],host[:port]"
                .to_owned(),
        )
    })?;
    let client = match certificates {
        Some(certificates) => Client::build_with_tls(server, certificates),
        None => Client::open(server),
    };
    let client = client.map_err(|_| {
        StoreError(
            "a certificate for Redis cannot be read; see that `redis_ca`, `redis_certificate` and `redis_key` in \
             [store] are files in PEM, or leave them out"
                .to_owned(),
        )
    })?;
    Ok(Way::Direct(Box::new(client)))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use futures::future::BoxFuture;

    use super::*;

    /// Says after so many milliseconds where the primary is, or that it knows of none.
    fn after(ms: u64, answer: Result<u64, &str>) -> BoxFuture<'static, Result<u64, String>> {
        let answer = answer.map_err(str::to_owned);
        tokio::time::sleep(Duration::from_millis(ms)).map(|()| answer).boxed()
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_is_waited_for_until_most_have_named_a_primary_and_a_moment_more() {
        let begun = Instant::now();
        let told =
            heard([after(60_000, Ok(2)), after(1, Ok(1)), after(2, Ok(1))].into_iter().collect()).await;
        assert_eq!((told, begun.elapsed() < MOMENT * 2), (vec![Ok(1), Ok(1)], true));
        let told = heard([after(200, Ok(2)), after(1, Ok(1)), after(2, Ok(1))].into_iter().collect()).await;
        assert_eq!(told, [Ok(1), Ok(1), Ok(2)], "it has seen the last failover");
        // Whoever knows of none, and half of them, settle nothing.
        let told =
            heard([after(60_000, Ok(2)), after(1, Ok(1)), after(2, Err("none"))].into_iter().collect()).await;
        assert_eq!(told, [Ok(1), Err("none".to_owned()), Ok(2)]);
        let told = heard([after(60_000, Ok(2)), after(1, Ok(1))].into_iter().collect()).await;
        assert_eq!(told, [Ok(1), Ok(2)]);
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_its_password() {
        for (url, advice) in [
            ("redis-sentinel://:hush@box", "?primary=NAME"),
            ("redis-sentinel://:hush@box?primary=", "?primary=NAME"),
            ("redis-sentinel://:hush@box?primary=main&color=red", "?primary=NAME"),
            ("redis-sentinel://:hush@box:x?primary=main", "?primary=NAME"),
            ("redis-cluster://:hush@box/3", "no database"),
            ("redis-cluster://:hush@box:x", "no database"),
            ("http://:hush@box", "redis[s]-cluster://"),
            (":hush@box", "redis[s]-cluster://"),
        ] {
            let StoreError(said) = check_url(&SecretString::from(url)).unwrap_err();
            assert!(said.contains(advice) && !said.contains("hush"), "{url}: {said}");
        }
    }
}
