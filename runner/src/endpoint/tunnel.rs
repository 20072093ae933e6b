//! The only way out for an instance whose definition has an `egress` list: its endpoint is a proxy for `CONNECT` to the
//! places on that list.
//!
//! Names are resolved here, by the machine, and one that leads back to the machine is refused: what listens there
//! is none of the agent's business. A place that is given by its address is reached as it is given.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{HeaderMap, PROXY_AUTHORIZATION};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Open tunnels of one instance.
const TUNNELS: usize = 256;
const CONNECT: Duration = Duration::from_secs(10);
/// By this name an instance shows its secret as a password.
pub const USER: &str = "skein";

/// A place that an instance may reach: `HOST:PORT`, or `*.DOMAIN:PORT` for all below a domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Place {
    /// In small letters; without the leading `*` if it is a domain.
    host: String,
    port: u16,
    below: bool,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no place; write HOST:PORT, such as \"api.anthropic.com:443\" or \"*.github.com:443\""
            )
        };
        let (host, port) = split(text).ok_or_else(wrong)?;
        let (host, below) = match host.strip_prefix("*.") {
            Some(domain) => (format!(".{domain}"), true),
            None => (host, false),
        };
        let letters = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte));
        if host.trim_matches('.').is_empty() || !letters || port == 0 {
            return Err(wrong());
        }
        Ok(Self { host, port, below })
    }
}

impl TryFrom<String> for Place {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Place> for String {
    fn from(place: Place) -> Self {
        let Place { host, port, below } = place;
        match (below, host.contains(':')) {
            (true, _) => format!("*{host}:{port}"),
            (false, true) => format!("[{host}]:{port}"),
            (false, false) => format!("{host}:{port}"),
        }
    }
}

impl Place {
    fn is(&self, host: &str, port: u16) -> bool {
        let same = if self.below { host.ends_with(&self.host) } else { host == self.host };
        same && self.port == port
    }
}

/// The host, in small letters and without brackets, and the port of an authority.
fn split(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.strip_prefix('[').map_or(Some(host), |rest| rest.strip_suffix(']'))?;
    Some((host.trim_end_matches('.').to_ascii_lowercase(), port.parse().ok()?))
}

/// What an instance may reach, and what it does reach.
pub(super) struct Tunnels {
    places: Vec<Place>,
    secret: String,
    open: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Tunnels {
    pub(super) fn new(places: Vec<Place>, secret: &str, stop: CancellationToken) -> Self {
        Self { places, secret: secret.to_owned(), open: Arc::new(Semaphore::new(TUNNELS)), stop }
    }

    /// Opens a tunnel once the answer has been sent.
    ///
    /// # Errors
    /// A status and a sentence for the instance.
    pub(super) async fn open(&self, request: Request<Incoming>) -> Result<(), (StatusCode, String)> {
        if !self.admits(request.headers()) {
            let problem = "show the value of SKEIN_TOKEN as the proxy's password".to_owned();
            return Err((StatusCode::PROXY_AUTHENTICATION_REQUIRED, problem));
        }
        let asked = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let (host, port) = split(&asked)
            .ok_or_else(|| (StatusCode::BAD_REQUEST, "name a host and a port after CONNECT".to_owned()))?;
        if !self.places.iter().any(|place| place.is(&host, port)) {
            let problem = format!(
                "this agent may not reach {host}:{port}; its definition lists in `egress` what it may"
            );
            return Err((StatusCode::FORBIDDEN, problem));
        }
        let Ok(permit) = Arc::clone(&self.open).try_acquire_owned() else {
            let problem = format!("{TUNNELS} connections are open already; close some");
            return Err((StatusCode::TOO_MANY_REQUESTS, problem));
        };
        let mut far = reach(&host, port)
            .await
            .map_err(|error| (StatusCode::BAD_GATEWAY, format!("{host}:{port} is not reached: {error}")))?;
        let carrying = async move {
            // Either side may hang up whenever it likes.
            if let Ok(near) = hyper::upgrade::on(request).await {
                let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(near), &mut far).await;
            }
            drop(permit);
        };
        tokio::spawn(self.stop.clone().run_until_cancelled_owned(carrying));
        Ok(())
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let shown =
            headers.get(PROXY_AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let decoded = BASE64_STANDARD.decode(shown.strip_prefix("Basic ").unwrap_or_default());
        let expected = format!("{USER}:{}", self.secret);
        bool::from(decoded.unwrap_or_default().ct_eq(expected.as_bytes()))
    }
}

async fn reach(host: &str, port: u16) -> io::Result<TcpStream> {
    let found: Vec<SocketAddr> = match host.parse::<IpAddr>() {
        Ok(address) => vec![(address, port).into()],
        Err(_) => {
            let found = tokio::net::lookup_host((host, port)).await?.filter(|found| !is_near(found.ip()));
            found.collect()
        }
    };
    if found.is_empty() {
        return Err(io::Error::other("the name leads to this machine, or nowhere"));
    }
    let late = || io::Error::new(io::ErrorKind::TimedOut, "it did not answer in ten seconds");
    tokio::time::timeout(CONNECT, TcpStream::connect(&found[..])).await.map_err(|_| late())?
}

/// Of this machine, or of the link that it hangs on, where machines are told their secrets.
fn is_near(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(four) => four.is_loopback() || four.is_unspecified() || four.is_link_local(),
        IpAddr::V6(six) => six.is_loopback() || six.is_unspecified() || six.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Place {
        text.parse().unwrap()
    }

    #[test]
    fn a_place_is_itself_and_a_domain_is_what_is_below_it() {
        let exact = place("API.example.com:443");
        assert!(exact.is("api.example.com", 443));
        assert!(!exact.is("api.example.com", 80) && !exact.is("x.api.example.com", 443));
        let below = place("*.example.com:443");
        assert!(below.is("a.b.example.com", 443));
        assert!(!below.is("example.com", 443) && !below.is("badexample.com", 443));
        assert!(place("[::1]:80").is("::1", 80));
        for text in ["API.example.com:443", "*.example.com:443", "[::1]:80"] {
            assert_eq!(String::from(place(text)), text.to_ascii_lowercase());
        }
    }

    #[test]
    fn mistakes_are_named() {
        for text in [
            "example.com",
            "example.com:0",
            "example.com:https",
            ":443",
            "*.:443",
            "a b:443",
            "https://a:443",
        ] {
            assert!(text.parse::<Place>().unwrap_err().contains("write HOST:PORT"), "{text}");
        }
    }

    #[test]
    fn what_is_near_is_known_in_all_its_spellings() {
        for near in ["127.0.0.1", "0.0.0.0", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fe80::1"] {
            assert!(is_near(near.parse().unwrap()), "{near}");
        }
        for far in ["10.0.0.1", "1.1.1.1", "2606:4700::1111"] {
            assert!(!is_near(far.parse().unwrap()), "{far}");
        }
    }
}
