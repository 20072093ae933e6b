//! The part of a URL that names several servers.

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisResult, TlsCertificates};
use secrecy::{ExposeSecret, SecretString};

/// `[user:password@]host[:port],host[:port][/database]`.
#[derive(Clone)]
pub(super) struct Hosts {
    user: SecretString,
    pub(super) names: Vec<String>,
    pub(super) database: String,
    tls: bool,
}

impl Hosts {
    /// The port is for those of which it does not say one.
    pub(super) fn parse(text: &str, tls: bool, port: u16) -> Self {
        let (authority, database) = text.split_once('/').unwrap_or((text, ""));
        let (user, names) = authority.rsplit_once('@').unwrap_or(("", authority));
        let names = names.split(',').map(|name| with_port(name, port)).collect();
        Self { user: user.into(), names, database: database.to_owned(), tls }
    }

    /// Where each of them is; none when one cannot be read.
    pub(super) fn addresses(&self) -> Option<Vec<ConnectionAddr>> {
        let address = |name: &String| Some(self.url("", name).into_connection_info().ok()?.addr().clone());
        self.names.iter().map(address).collect()
    }

    /// How to speak with a server; the address in it means nothing.
    pub(super) fn server(&self) -> Option<ConnectionInfo> {
        self.url(self.user.expose_secret(), "localhost").into_connection_info().ok()
    }

    /// The same servers for another user, and no database of theirs.
    pub(super) fn of(&self, user: &str) -> Self {
        Self { user: user.into(), database: String::new(), ..self.clone() }
    }

    /// For one server alone, named by the URL or not.
    pub(super) fn client(&self, name: &str, certificates: Option<&TlsCertificates>) -> RedisResult<Client> {
        let url = self.url(self.user.expose_secret(), name);
        match certificates {
            Some(certificates) => Client::build_with_tls(url, certificates.clone()),
            None => Client::open(url),
        }
    }

    fn url(&self, user: &str, name: &str) -> String {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let at = if user.is_empty() { "" } else { "@" };
        format!("{scheme}://{user}{at}{name}/{}", self.database)
    }
}

fn with_port(host: &str, port: u16) -> String {
    let named = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    // The last group of an address of version 6 may look like a port.
    if named && (!host.starts_with('[') || host.contains("]:")) {
        return host.to_owned();
    }
    format!("{host}:{port}")
}
