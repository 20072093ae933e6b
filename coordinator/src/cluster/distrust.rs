//! Why two nodes do not trust one another, and what to do about it.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, CertificateError, Error as Tls};

/// The reason that TLS has for an error of a connection, if it is of TLS at all.
pub(super) fn reason(error: &io::Error) -> Option<String> {
    find(error).map(|error| explain(error).to_owned())
}

fn find<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Tls> {
    if let Some(tls) = error.downcast_ref::<Tls>() {
        return Some(tls);
    }
    // What an I/O error wraps is not its source.
    let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    inside.and_then(|inside| find(inside)).or_else(|| error.source().and_then(find))
}

/// The sentence is about the other node.
fn explain(error: &Tls) -> &'static str {
    match error {
        Tls::InvalidCertificate(problem) => unacceptable(problem),
        Tls::NoCertificatesPresented | Tls::PeerSentOversizedRecord => {
            "it shows no certificate; issue one for it with `skein cluster init`, and name its folder as `tls` in \
             [cluster] there"
        }
        Tls::InvalidMessage(_) | Tls::InappropriateMessage { .. } => {
            "it speaks plain text, and this node mutual TLS; name the folder with its certificate as `tls` in \
             [cluster] there"
        }
        Tls::NoApplicationProtocol => {
            "it speaks TLS, and not the protocol of coordinators; look at its address"
        }
        Tls::AlertReceived(AlertDescription::CertificateExpired) => {
            "it finds the certificate of this node expired; compare the clocks, and issue a new one with \
             `skein cluster init`"
        }
        Tls::AlertReceived(AlertDescription::BadCertificate) => {
            "it finds the certificate of this node not good yet, or no certificate at all; compare the clocks, and issue a \
             new one with `skein cluster init`"
        }
        Tls::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError
            | AlertDescription::AccessDenied,
        ) => {
            "it does not trust the certificate of this node, which is from another authority than its own; issue both \
             with one `skein cluster init`"
        }
        _ => "no TLS connection came about; both nodes need certificates of one `skein cluster init`",
    }
}

fn unacceptable(problem: &CertificateError) -> &'static str {
    match problem {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired; compare the clocks, and issue a new one with `skein cluster init`"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not good yet; compare the clocks"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is not for the host under which it is reached; issue one for its --node-addr with \
             `skein cluster init`"
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is from another authority; issue it with the `skein cluster init` that made this node's"
        }
        _ => "its certificate cannot be used; issue a new one with `skein cluster init`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tls_says_is_found_inside_of_other_errors() {
        let tls = || Tls::InvalidCertificate(CertificateError::UnknownIssuer);
        let wrapped = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, tls()));
        assert!(reason(&wrapped).unwrap().contains("another authority"));
        assert_eq!(reason(&io::ErrorKind::ConnectionRefused.into()), None);
    }
}
