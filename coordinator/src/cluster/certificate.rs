//! What a certificate says of itself.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use skein_shared::time::Timestamp;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// What is asked of a certificate outside of a handshake.
pub(super) struct Facts {
    pub(super) begins: Timestamp,
    /// The first moment at which it is good no more; the certificate itself names the last second at which it is.
    pub(super) expires: Timestamp,
    /// The names and addresses that it is for.
    pub(super) hosts: Vec<String>,
    pub(super) public_key: Vec<u8>,
}

/// Reads the first certificate of a PEM file. What is wrong reads on from the name of the file.
pub(super) fn facts(pem: &[u8]) -> Result<Facts, String> {
    let der = CertificateDer::from_pem_slice(pem).map_err(|_| "holds no certificate in PEM".to_owned())?;
    let (_, parsed) =
        X509Certificate::from_der(&der).map_err(|_| "holds a certificate that cannot be read".to_owned())?;
    let names = parsed.subject_alternative_name().ok().flatten();
    let names = names.into_iter().flat_map(|names| &names.value.general_names);
    let validity = parsed.validity();
    Ok(Facts {
        begins: moment(validity.not_before.timestamp()),
        expires: moment(validity.not_after.timestamp().saturating_add(1)),
        hosts: names.filter_map(host).collect(),
        public_key: parsed.public_key().subject_public_key.data.to_vec(),
    })
}

fn moment(seconds: i64) -> Timestamp {
    Timestamp(u64::try_from(seconds).unwrap_or(0).saturating_mul(1000))
}

fn host(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(|bytes| std::net::IpAddr::from(bytes).to_string());
            four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(|b| std::net::IpAddr::from(b).to_string())).ok()
        }
        _ => None,
    }
}
