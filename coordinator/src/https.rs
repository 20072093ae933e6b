//! HTTP to others: Slack, and issuers of tokens. With the certificates that the system trusts.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};
use url::Url;

/// How long a connection may take. For an answer it depends on what is asked.
const CONNECT: Duration = Duration::from_secs(5);

pub(crate) type Client = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Which addresses it may ask is the caller's to say: it speaks plain text as well.
pub(crate) fn client(tls: ClientConfig) -> Client {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_nodelay(true);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector);
    legacy::Client::builder(TokioExecutor::new()).build(connector)
}

/// What the system trusts, for a connection that needs it.
///
/// # Errors
/// When the system trusts nobody.
pub(crate) fn trusted(address: &Url) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    if address.scheme() == "https" {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            return Err(found
                .errors
                .first()
                .map_or_else(|| "there are none; install ca-certificates".to_owned(), ToString::to_string));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// What is at the bottom of an error: the outer ones repeat that something failed.
pub(crate) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
