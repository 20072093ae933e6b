//! Who this node is to the others: its certificate, its key, and the authority that all of them trust.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore, ServerConfig};
use secrecy::{ExposeSecret, SecretString};
use skein_shared::time::Timestamp;
use tonic::transport::{self, ClientTlsConfig};

use super::certificate::{self, Facts};

/// The names of the files in the folder of a node.
pub const CA: &str = "ca.pem";
pub const CERTIFICATE: &str = "node.pem";
pub const KEY: &str = "node.key";
/// From then on a certificate that will expire is spoken of.
pub const WARN: Duration = Duration::from_secs(30 * 86_400);

/// A node's place in mutual TLS.
pub struct Identity {
    /// For those who come in.
    pub(super) server: Arc<ServerConfig>,
    /// For looking why somebody is not reached.
    pub(super) client: Arc<ClientConfig>,
    /// For the connections themselves.
    pub(super) channel: ClientTlsConfig,
    expires: Timestamp,
}

/// The files in a folder make no identity. The sentence names the file and says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct IdentityError {
    path: PathBuf,
    problem: String,
}

/// What is in the folder.
struct Files {
    folder: PathBuf,
    ca: Vec<u8>,
    certificate: Vec<u8>,
    key: SecretString,
}

impl Identity {
    /// Reads the folder, and checks everything that the others will check.
    ///
    /// # Errors
    /// When a file is missing or not what it should be, or the certificate is not good at this time, for `host`, or
    /// from the authority.
    pub fn load(folder: &Path, host: &str, now: Timestamp) -> Result<Self, IdentityError> {
        let files = Files::read(folder)?;
        let facts =
            certificate::facts(&files.certificate).map_err(|problem| files.wrong(CERTIFICATE, &problem))?;
        let roots = Arc::new(files.roots()?);
        let chain = files.chain()?;
        files.is_good(&facts, &roots, &chain, host, now)?;
        Ok(Self {
            server: Arc::new(files.server(&roots, &chain)?),
            client: Arc::new(files.client(&roots, &chain)?),
            channel: files.channel(),
            expires: facts.expires,
        })
    }

    /// When the certificate ends.
    pub fn expires(&self) -> Timestamp {
        self.expires
    }

    /// What is to be said of the certificate's end, if it is near.
    pub fn warning(&self, now: Timestamp) -> Option<String> {
        let end = self.expires.iso();
        let said = match self.expires.since(now) {
            left if left >= WARN => return None,
            Duration::ZERO => {
                format!("the certificate of this node ended on {end}, and the others refuse it")
            }
            _ => format!("the certificate of this node ends on {end}, and the others will refuse it then"),
        };
        Some(format!(
            "{said}; issue a new one with `skein cluster init`, put it in place of this one, and start the node again"
        ))
    }

    /// How long what [`Identity::warning`] says stays true.
    pub fn next_warning(&self, now: Timestamp) -> Duration {
        let left = self.expires.since(now);
        left.checked_sub(WARN).unwrap_or(left)
    }
}

impl Files {
    fn read(folder: &Path) -> Result<Self, IdentityError> {
        let key = folder.join(KEY);
        let mode = std::fs::metadata(&key).map_err(|error| missing(&key, &error))?.permissions().mode();
        // Its group may be able to: so a container platform mounts it.
        if mode & 0o007 != 0 {
            let problem = "every user of this machine can read this key; run chmod 600 on it".to_owned();
            return Err(IdentityError { path: key, problem });
        }
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read(&path).map_err(|error| missing(&path, &error))
        };
        let key = String::from_utf8(read(KEY)?).map(SecretString::from);
        let files = Self {
            folder: folder.to_owned(),
            ca: read(CA)?,
            certificate: read(CERTIFICATE)?,
            key: key.unwrap_or_default(),
        };
        match PrivateKeyDer::from_pem_slice(files.key.expose_secret().as_bytes()) {
            Ok(_) => Ok(files),
            Err(_) => Err(files.wrong(KEY, "holds no private key in PEM")),
        }
    }

    fn wrong(&self, file: &str, problem: &str) -> IdentityError {
        let problem =
            format!("{problem}; copy this node's folder anew from where `skein cluster init` made it");
        IdentityError { path: self.folder.join(file), problem }
    }

    fn roots(&self) -> Result<RootCertStore, IdentityError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&self.ca).filter_map(Result::ok));
        match roots.is_empty() {
            true => Err(self.wrong(CA, "holds no certificate of an authority in PEM")),
            false => Ok(roots),
        }
    }

    fn chain(&self) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.certificate).collect();
        chain.map_err(|_| self.wrong(CERTIFICATE, "holds no certificate in PEM"))
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>, IdentityError> {
        PrivateKeyDer::from_pem_slice(self.key.expose_secret().as_bytes())
            .map_err(|_| self.wrong(KEY, "holds no private key in PEM"))
    }

    /// Looks at the certificate as the others will, who would only see that it is refused.
    fn is_good(
        &self,
        facts: &Facts,
        roots: &Arc<RootCertStore>,
        chain: &[CertificateDer<'static>],
        host: &str,
        now: Timestamp,
    ) -> Result<(), IdentityError> {
        let bad = |problem: String| IdentityError { path: self.folder.join(CERTIFICATE), problem };
        if facts.expires <= now {
            return Err(bad(format!(
                "the certificate ended on {}; remove this node's folder where the authority is, issue a new one with \
                 `skein cluster init`, and copy it here",
                facts.expires.iso()
            )));
        }
        if facts.begins > now {
            let begins = facts.begins.iso();
            return Err(bad(format!(
                "the certificate is good from {begins} on; set the clock of this machine"
            )));
        }
        let (first, rest) = chain.split_first().ok_or_else(|| bad("holds no certificate".to_owned()))?;
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            bad(format!("`{host}` of --node-addr is no name that a certificate could be for"))
        })?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), provider())
            .build()
            .map_err(|error| self.wrong(CA, &error.to_string()))?;
        let time = UnixTime::since_unix_epoch(Duration::from_millis(now.millis()));
        let verified = verifier.verify_server_cert(first, rest, &name, &[], time);
        match verified {
            Ok(_) => Ok(()),
            Err(Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            )) => Err(self.wrong(CERTIFICATE, "was not issued by the authority in ca.pem beside it")),
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Err(bad(format!(
                "the certificate is for {}, and the others reach this node as {host}; set --node-addr to one of those, \
                 or issue one with `skein cluster init` for {host}",
                facts.hosts.join(", ")
            ))),
            Err(other) => Err(self.wrong(CERTIFICATE, &format!("cannot be used: {other}"))),
        }
    }

    fn server(
        &self,
        roots: &Arc<RootCertStore>,
        chain: &[CertificateDer<'static>],
    ) -> Result<ServerConfig, IdentityError> {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider())
            .build()
            .map_err(|error| self.wrong(CA, &error.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| self.unusable(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.to_vec(), self.private_key()?)
            .map_err(|error| self.unusable(&error))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        // Each connection shows its certificate anew.
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    fn client(
        &self,
        roots: &Arc<RootCertStore>,
        chain: &[CertificateDer<'static>],
    ) -> Result<ClientConfig, IdentityError> {
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| self.unusable(&error))?
            .with_root_certificates(Arc::clone(roots))
            .with_client_auth_cert(chain.to_vec(), self.private_key()?)
            .map_err(|error| self.unusable(&error))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    fn channel(&self) -> ClientTlsConfig {
        ClientTlsConfig::new()
            .ca_certificate(transport::Certificate::from_pem(&self.ca))
            .identity(transport::Identity::from_pem(&self.certificate, self.key.expose_secret()))
    }

    fn unusable(&self, error: &Error) -> IdentityError {
        match error {
            Error::InconsistentKeys(_) => self.wrong(KEY, "is not the key of node.pem beside it"),
            other => self.wrong(KEY, &format!("cannot be used: {other}")),
        }
    }
}

fn missing(path: &Path, error: &io::Error) -> IdentityError {
    let refused = |path: &Path, problem| IdentityError { path: path.to_owned(), problem };
    if error.kind() == io::ErrorKind::PermissionDenied {
        let user = rustix::process::geteuid().as_raw();
        let who = "as whom this node runs, look into the folder and read its files";
        return refused(path, format!("{error}; let the user {user}, {who}"));
    }
    let make = "make the files with `skein cluster init`, and copy the folder of this node here";
    match path.parent().filter(|folder| !folder.is_dir()) {
        Some(folder) => {
            let correct = "correct --cluster-tls, or `tls` in [cluster], or";
            refused(folder, format!("there is no such folder; {correct} {make}"))
        }
        None => refused(path, format!("{error}; {make}")),
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The host of `HOST:PORT`, as certificates have it.
pub fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::authority::{Authority, Host};

    const NOW: Timestamp = Timestamp(1_790_000_000_000);
    const DAY: Duration = Duration::from_secs(86_400);

    /// A folder for a node on loopback with a year to go.
    fn folder(authority: &Authority) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let issued = authority.issue(&[Host::parse("127.0.0.1").unwrap()], NOW, 365).unwrap();
        std::fs::write(folder.path().join(CA), authority.certificate()).unwrap();
        std::fs::write(folder.path().join(CERTIFICATE), issued.certificate).unwrap();
        put_key(folder.path(), issued.key.expose_secret());
        folder
    }

    fn put_key(folder: &Path, key: &str) {
        std::fs::write(folder.join(KEY), key).unwrap();
        std::fs::set_permissions(folder.join(KEY), std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn refusal(folder: &Path, host: &str, now: Timestamp) -> String {
        let error = Identity::load(folder, host, now).err().expect("it was taken").to_string();
        assert!(!error.contains("PRIVATE KEY"), "{error}");
        error
    }

    #[test]
    fn a_certificate_is_good_for_its_host_and_its_time() {
        let (authority, _) = Authority::create(NOW).unwrap();
        let folder = folder(&authority);
        let identity = Identity::load(folder.path(), "127.0.0.1", NOW).unwrap();
        assert_eq!(identity.expires(), NOW + 365 * DAY);
        assert_eq!(identity.warning(NOW + 334 * DAY), None);
        let warning = identity.warning(NOW + 336 * DAY).unwrap();
        assert!(
            warning.contains("will refuse it then") && warning.contains("skein cluster init"),
            "{warning}"
        );
        assert_eq!(identity.next_warning(NOW + 336 * DAY), 29 * DAY);
        let over = identity.warning(NOW + 336 * DAY + identity.next_warning(NOW + 336 * DAY)).unwrap();
        assert!(over.contains("ended on"), "{over}");

        let late = refusal(folder.path(), "127.0.0.1", NOW + 366 * DAY);
        assert!(late.contains("ended on 2027-") && late.contains("skein cluster init"), "{late}");
        let early = refusal(folder.path(), "127.0.0.1", NOW - DAY);
        assert!(early.contains("clock"), "{early}");
        let elsewhere = refusal(folder.path(), "10.0.0.1", NOW);
        assert!(elsewhere.contains("is for 127.0.0.1") && elsewhere.contains("--node-addr"), "{elsewhere}");
    }

    #[test]
    fn a_folder_that_cannot_be_looked_into_is_told_from_one_that_lacks_a_file() {
        let parent = tempfile::tempdir().unwrap();
        let mistyped = refusal(&parent.path().join("mistyped"), "127.0.0.1", NOW);
        assert!(mistyped.contains("mistyped: there is no such folder; correct --cluster-tls"), "{mistyped}");
        std::fs::write(parent.path().join("file"), "").unwrap();
        let file = refusal(&parent.path().join("file"), "127.0.0.1", NOW);
        assert!(file.contains("file: there is no such folder"), "{file}");
        // Who runs the tests may read everything.
        let denied = missing(&parent.path().join(KEY), &io::ErrorKind::PermissionDenied.into()).to_string();
        let user = format!("let the user {}, as whom", rustix::process::geteuid().as_raw());
        assert!(denied.contains(&user) && denied.contains("node.key: permission denied"), "{denied}");
        assert!(!denied.contains("skein cluster init"), "{denied}");
    }

    #[test]
    fn files_that_are_missing_or_do_not_belong_together_are_named() {
        let (authority, _) = Authority::create(NOW).unwrap();
        let (stranger, _) = Authority::create(NOW).unwrap();
        let refused = |change: &dyn Fn(&Path)| {
            let folder = folder(&authority);
            change(folder.path());
            refusal(folder.path(), "127.0.0.1", NOW)
        };
        for name in [CA, CERTIFICATE, KEY] {
            let missing = refused(&|folder| std::fs::remove_file(folder.join(name)).unwrap());
            assert!(missing.contains(name) && missing.contains("skein cluster init"), "{missing}");
            let garbage = refused(&|folder| std::fs::write(folder.join(name), "scribble").unwrap());
            assert!(garbage.contains(name) && garbage.contains("PEM"), "{garbage}");
        }
        let other = refused(&|folder| std::fs::write(folder.join(CA), stranger.certificate()).unwrap());
        assert!(other.contains("node.pem: was not issued by"), "{other}");
        let mismatched = refused(&|folder| {
            let issued = authority.issue(&[Host::parse("127.0.0.1").unwrap()], NOW, 1).unwrap();
            put_key(folder, issued.key.expose_secret());
        });
        assert!(mismatched.contains("node.key: is not the key of node.pem"), "{mismatched}");
        let open = refused(&|folder| {
            let mode = std::fs::Permissions::from_mode(0o644);
            std::fs::set_permissions(folder.join(KEY), mode).unwrap();
        });
        assert!(open.contains("chmod 600"), "{open}");
    }

    #[test]
    fn the_host_of_an_address_has_no_port_and_no_brackets() {
        assert_eq!(host("node-1:7703"), "node-1");
        assert_eq!(host("[::1]:7703"), "::1");
    }
}
