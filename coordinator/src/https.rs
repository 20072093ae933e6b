//! HTTP to others: Slack, X, issuers of tokens, and whoever knows what texts mean. With the certificates that the
//! system trusts, bounded in time and size, and without following redirects: what a request carries goes to the host
//! that it names.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Request, Response};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

const AGENT: &str = concat!("skein/", env!("CARGO_PKG_VERSION"));
/// How long a connection may take. For an answer it depends on what is asked.
const CONNECT: Duration = Duration::from_secs(5);

pub(crate) type Client<B = Full<Bytes>> = legacy::Client<HttpsConnector<HttpConnector>, B>;
/// An answer that is read as it comes.
pub(crate) type Coming = UnsyncBoxBody<Bytes, Failure>;
type Source = Box<dyn std::error::Error + Send + Sync>;

/// What a try came to when there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Nothing was sent.
    #[error("{0}")]
    Unreachable(String),
    /// Something was, and the answer did not come, or not whole.
    #[error("{0}")]
    Unanswered(String),
    #[error("the answer is too long")]
    TooLarge,
}

/// Which addresses it may ask is the caller's to say: it speaks plain text as well.
pub(crate) fn client<B>(tls: ClientConfig) -> Client<B>
where
    B: Body<Data: Send> + Send,
{
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

/// Sends a request, and takes its answer whole. Redirects are answers.
pub(crate) async fn send<B>(
    client: &Client<B>,
    request: Request<B>,
    largest: u64,
    patience: Duration,
) -> Result<Response<Bytes>, Failure>
where
    B: Body<Data: Send, Error: Into<Source>> + Send + Unpin + 'static,
{
    let exchange = async {
        let (head, body) = open(client, request).await?.into_parts();
        let longest = usize::try_from(largest).unwrap_or(usize::MAX);
        match Limited::new(body, longest).collect().await {
            Ok(body) => Ok(Response::from_parts(head, body.to_bytes())),
            Err(error) if error.is::<LengthLimitError>() => Err(Failure::TooLarge),
            Err(error) => Err(Failure::Unanswered(innermost(error.as_ref()))),
        }
    };
    within(patience, exchange).await
}

/// Sends a request, and leaves its answer to be read.
pub(crate) async fn open<B>(client: &Client<B>, mut request: Request<B>) -> Result<Response<Coming>, Failure>
where
    B: Body<Data: Send, Error: Into<Source>> + Send + Unpin + 'static,
{
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(AGENT));
    let answer = client.request(request).await.map_err(|error| {
        let problem = innermost(&error);
        if error.is_connect() { Failure::Unreachable(problem) } else { Failure::Unanswered(problem) }
    })?;
    Ok(answer.map(|body| body.map_err(|error| Failure::Unanswered(innermost(&error))).boxed_unsync()))
}

/// The next bytes of an answer that was opened; none after the last.
pub(crate) async fn next(body: &mut Coming) -> Result<Option<Bytes>, Failure> {
    while let Some(frame) = body.frame().await.transpose()? {
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// For so long an answer is waited for.
pub(crate) async fn within<T>(
    patience: Duration,
    answer: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let late = |_| Err(Failure::Unanswered(format!("it did not come to an end in {} s", patience.as_secs())));
    tokio::time::timeout(patience, answer).await.unwrap_or_else(late)
}

/// The header with a token, which is shown nowhere.
pub(crate) fn bearer(token: &SecretString) -> Result<HeaderValue, Failure> {
    let mut header = HeaderValue::try_from(format!("Bearer {}", token.expose_secret()))
        .map_err(|_| Failure::Unreachable("the token has characters that no header may have".to_owned()))?;
    header.set_sensitive(true);
    Ok(header)
}

/// The header with a name and a password, which is shown nowhere.
pub(crate) fn basic(name: &str, password: &SecretString) -> Result<HeaderValue, Failure> {
    let pair = STANDARD.encode(format!("{name}:{}", password.expose_secret()));
    let mut header = HeaderValue::try_from(format!("Basic {pair}"))
        .map_err(|_| Failure::Unreachable("the name has characters that no header may have".to_owned()))?;
    header.set_sensitive(true);
    Ok(header)
}

/// How long a service wants to be left alone, if it says.
pub(crate) fn retry_after(answer: &Response<Bytes>) -> Option<Duration> {
    let header = answer.headers().get(RETRY_AFTER)?.to_str().ok()?;
    header.trim().parse().ok().map(Duration::from_secs)
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

/// Whether what goes to the address cannot be read on the way: TLS, or this machine.
pub(crate) fn is_private(address: &Url) -> bool {
    let local = match address.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    address.scheme() == "https" || (address.scheme() == "http" && local)
}

/// What is at the bottom of an error: the outer ones repeat that something failed.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_others_can_read_are_not_taken() {
        for (address, private) in [
            ("https://login.example.com", true),
            ("http://localhost:8080/x", true),
            ("http://127.0.0.1/", true),
            ("http://[::1]:1/", true),
            ("http://login.example.com", false),
            ("http://127.0.0.1.example.com", false),
            ("ftp://localhost/", false),
        ] {
            assert_eq!(is_private(&Url::parse(address).unwrap()), private, "{address}");
        }
    }
}
