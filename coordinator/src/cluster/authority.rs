//! The authority of a cluster: it issues the certificates by which coordinators know one another.

use std::net::IpAddr;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::ServerName;
use secrecy::{ExposeSecret, SecretString};
use skein_shared::time::Timestamp;
use time::OffsetDateTime;
use uuid::Uuid;

use super::certificate;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);
/// How long an authority lasts.
const LASTS: Duration = Duration::from_secs(20 * 365 * 86_400);
/// Clocks of two nodes may differ by this much.
const LEEWAY: Duration = Duration::from_secs(3600);

/// Issues certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    ends: Timestamp,
}

/// A certificate and its key, both as PEM.
pub struct Certified {
    pub certificate: String,
    /// `SecretString` shows nothing when printed.
    pub key: SecretString,
}

/// No certificate was issued. The sentence says why and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct AuthorityError(String);

impl Authority {
    /// Makes a new authority; its key is to be kept by whoever issues certificates, and by nobody else.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn create(now: Timestamp) -> Result<(Self, SecretString), AuthorityError> {
        let key = KeyPair::generate().map_err(|error| failed(&error))?;
        let secret = SecretString::from(key.serialize_pem());
        // A name of its own: of two authorities with one name, nobody could say whose a certificate is.
        let id = Uuid::new_v4().simple().to_string();
        let mut params = within(now, LASTS, &format!("Skein cluster {}", &id[..8]))?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(|error| failed(&error))?.pem();
        Ok((Self { issuer: Issuer::new(params, key), certificate, ends: now + LASTS }, secret))
    }

    /// Takes an authority that was made before, from its certificate and its key.
    ///
    /// # Errors
    /// When one of them is not what it should be, or they do not belong together.
    pub fn open(certificate: String, key: &SecretString) -> Result<Self, AuthorityError> {
        let key = KeyPair::from_pem(key.expose_secret())
            .map_err(|_| AuthorityError("ca.key holds no private key that can be used".to_owned()))?;
        let facts = certificate::facts(certificate.as_bytes())
            .map_err(|problem| AuthorityError(format!("ca.pem {problem}")))?;
        if facts.public_key != key.public_key_raw() {
            return Err(AuthorityError("ca.key is not the key of ca.pem; put the right one back".to_owned()));
        }
        let issuer = Issuer::from_ca_cert_pem(&certificate, key).map_err(|error| failed(&error))?;
        Ok(Self { issuer, certificate, ends: facts.expires })
    }

    /// The certificate that all nodes trust, as PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues a certificate for a node, which it shows as a server and as a client.
    ///
    /// # Errors
    /// When it would outlive the authority, or cannot be made.
    pub fn issue(&self, hosts: &[Host], now: Timestamp, days: u32) -> Result<Certified, AuthorityError> {
        let ends = now + DAY * days;
        if ends > self.ends {
            let end = self.ends.iso();
            return Err(AuthorityError(format!(
                "the authority ends on {end}, before the certificate; ask for fewer --days, or make a new authority \
                 in another folder and give all nodes certificates of it"
            )));
        }
        let first = hosts.first().map_or("node", Host::as_str);
        let mut params = within(now, DAY * days, first)?;
        params.subject_alt_names =
            CertificateParams::new(hosts.iter().map(|host| host.0.clone()).collect::<Vec<_>>())
                .map_err(|error| failed(&error))?
                .subject_alt_names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(|error| failed(&error))?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(|error| failed(&error))?.pem();
        Ok(Certified { certificate, key: SecretString::from(key.serialize_pem()) })
    }
}

/// A name or an address under which a node is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host(String);

impl Host {
    /// # Errors
    /// When the text is neither a name nor an address.
    pub fn parse(text: &str) -> Result<Self, AuthorityError> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(Self(address.to_string()));
        }
        if bare.contains(':') {
            return Err(AuthorityError(format!("`{text}`: name the host alone, without a port")));
        }
        match ServerName::try_from(bare) {
            Ok(_) => Ok(Self(bare.to_ascii_lowercase())),
            Err(_) => Err(AuthorityError(format!("`{text}` is neither the name of a host nor its address"))),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn within(from: Timestamp, span: Duration, name: &str) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    // The last second is part of it.
    (params.not_before, params.not_after) = (moment(from - LEEWAY)?, moment(from + span - SECOND)?);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

fn moment(at: Timestamp) -> Result<OffsetDateTime, AuthorityError> {
    let seconds = i64::try_from(at.millis() / 1000).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds)
        .map_err(|_| AuthorityError(format!("{} is no time for a certificate", at.iso())))
}

fn failed(error: &rcgen::Error) -> AuthorityError {
    AuthorityError(format!("the certificate could not be made: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_or_addresses_without_a_port() {
        assert_eq!(Host::parse("Node-1.Example").unwrap().as_str(), "node-1.example");
        assert_eq!(Host::parse("[2001:DB8::1]").unwrap().as_str(), "2001:db8::1");
        assert_eq!(Host::parse("10.0.0.1").unwrap().as_str(), "10.0.0.1");
        assert!(Host::parse("10.0.0.1:7703").unwrap_err().to_string().contains("without a port"));
        for wrong in ["", "../a", "a b", "a/b"] {
            assert!(Host::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_authority_is_opened_with_its_own_key_alone() {
        let now = Timestamp(1_790_000_000_000);
        let (first, key) = Authority::create(now).unwrap();
        let (_, other) = Authority::create(now).unwrap();
        let host = [Host::parse("a").unwrap()];
        let again = Authority::open(first.certificate().to_owned(), &key).unwrap();
        again.issue(&host, now, 365).unwrap();
        let refused = Authority::open(first.certificate().to_owned(), &other).err().unwrap().to_string();
        assert!(refused.contains("not the key of ca.pem"), "{refused}");
        let late = again.issue(&host, now, 40 * 365).err().unwrap().to_string();
        assert!(late.contains("--days"), "{late}");
    }
}
