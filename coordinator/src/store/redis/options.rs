//! What a store in Redis is opened with.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use redis::{ClientTlsConfig, TlsCertificates};
use secrecy::SecretString;
use serde::Deserialize;

use crate::alarms::Alarms;
use crate::store::StoreError;

/// How much a crash may lose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Nothing, as long as the disk of Redis returns: the server flushes its log before it answers.
    #[default]
    Always,
    /// About a second of acknowledged writes, when Redis crashes.
    Everysec,
    /// Acknowledged writes are on a replica too. A failover can still lose some, but seldom.
    Replicated,
}

impl Durability {
    pub fn as_str(self) -> &'static str {
        match self {
            Durability::Always => "always",
            Durability::Everysec => "everysec",
            Durability::Replicated => "replicated",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is needed to trust a Redis that speaks TLS, and to be trusted by it: files in PEM.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Who signs its certificates; without one those whom the system trusts.
    pub ca: Option<PathBuf>,
    /// The certificate by which it knows this process, with the key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn read(&self) -> Result<TlsCertificates, StoreError> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|error| StoreError(format!("{}: {error}", path.display())))
        };
        let client_tls = match &self.certificate {
            None => None,
            Some((certificate, key)) => {
                Some(ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? })
            }
        };
        Ok(TlsCertificates { client_tls, root_cert: self.ca.as_ref().map(read).transpose()? })
    }
}

/// How to reach the store, and as whom.
#[derive(Clone, Debug)]
pub struct Options {
    /// `redis[s]://[user:password@]host[:port][/database]`, `unix:///path`,
    /// `redis[s]-sentinel://[user:password@]host[:port],host[:port][/database]?primary=NAME`, or
    /// `redis[s]-cluster://[user:password@]host[:port],host[:port]`. It may hold a password.
    pub url: SecretString,
    pub durability: Durability,
    pub tls: Tls,
    /// The id of the store that has to be there; none for whichever is, or a new one.
    pub store: Option<String>,
    /// For how long another process is waited for to make a store of an empty database; none for who makes one itself.
    pub awaits: Option<Duration>,
    /// Who holds the leases. Whoever comes with the same name takes them over at once, so it has to be certain that no
    /// two processes have one name at a time.
    pub owner: String,
    /// Where the owner can be reached, for people who look into the store.
    pub address: String,
    /// How long a shard stays with an owner that does not renew.
    pub lease: Duration,
    /// How long to wait for a connection.
    pub connect: Duration,
    /// How long to wait for an answer; after that the outcome is unknown. Leases wait for less of theirs. What could
    /// not be sent is kept as long for a server that is away, and then refused.
    pub answer: Duration,
    /// Takes what is wrong with the server.
    pub alarms: Alarms,
}

/// A server that is well, on a machine that is busy, may take so long; half of it where a lease has no time for more.
const BUSY: Duration = Duration::from_secs(1);

impl Options {
    /// How long the leases wait for an answer. A connection that has fallen silent has to be given up while there is
    /// time to renew them, and to say that this process lives, over another one.
    pub(super) fn patience(&self) -> Duration {
        self.answer.min((self.lease / 4).clamp(BUSY / 2, BUSY).max(self.lease / 6))
    }

    pub fn new(url: impl Into<SecretString>, owner: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            durability: Durability::default(),
            tls: Tls::default(),
            store: None,
            awaits: None,
            owner: owner.into(),
            address: String::new(),
            lease: Duration::from_secs(10),
            connect: Duration::from_secs(2),
            answer: Duration::from_secs(5),
            alarms: Alarms::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A renewal falls due after a third of the lease, which its holder relies on for four fifths.
    #[test]
    fn a_connection_that_falls_silent_is_given_up_while_there_is_time_to_renew() {
        for seconds in [2, 3, 4, 6, 10, 60] {
            let lease = Duration::from_secs(seconds);
            let options = Options { lease, ..Options::new("redis://localhost", "owner") };
            // How late it is noticed at most that it is due.
            let asked = lease / 3 + Duration::from_millis(250);
            let patience = options.patience();
            assert!(asked + patience < lease * 4 / 5, "of {lease:?} a renewal may take {patience:?}");
        }
    }
}
