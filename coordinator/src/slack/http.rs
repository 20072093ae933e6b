//! HTTP to Slack, to its own hosts alone.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use rustls::ClientConfig;
use url::Url;

use super::error::Error;
use crate::https::{self, Client, Coming, Failure};

/// The domain of Slack and of whatever it serves files from.
const SLACK: &str = "slack.com";

impl Failure {
    pub(super) fn of(self, method: &'static str) -> Error {
        match self {
            Failure::Unreachable(problem) => Error::Unreachable { method, problem },
            Failure::Unanswered(problem) => Error::Unanswered { method, problem },
            Failure::TooLarge => Error::Garbled { method, problem: "it is too long".to_owned() },
        }
    }
}

/// What a request carries: all of it at once, or as it comes.
pub(super) type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// All that a request carries.
pub(super) fn whole(content: Bytes) -> Body {
    Full::new(content).map_err(|never| match never {}).boxed_unsync()
}

/// The transport of one workspace.
pub(super) struct Http {
    client: Client<Body>,
    tls: Arc<ClientConfig>,
    /// What the methods' names are put behind.
    api: Url,
}

impl Http {
    pub(super) fn new(api: Url) -> Result<Self, Error> {
        // Plain text is for a stand-in on this machine; the settings allow it nowhere else.
        let tls = https::trusted(&api).map_err(Error::Certificates)?;
        Ok(Self { client: https::client(tls.clone()), tls: Arc::new(tls), api })
    }

    /// Whom to trust, for connections of another kind.
    pub(super) fn tls(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.tls)
    }

    /// The host that the settings name.
    pub(super) fn host(&self) -> Option<&str> {
        self.api.host_str()
    }

    pub(super) fn url(&self, method: &str) -> String {
        format!("{}{method}", self.api)
    }

    /// The address, if it may have the token: one of Slack's, or on the host that the settings name.
    pub(super) fn own(&self, address: &str) -> Result<Url, Error> {
        let url = Url::parse(address).map_err(|_| Error::Foreign("this".to_owned()))?;
        let host = url.host_str().unwrap_or_default();
        let slacks = url.scheme() == "https"
            && url.port().is_none()
            && (host == SLACK || host.strip_suffix(SLACK).is_some_and(|before| before.ends_with('.')));
        let named = url.origin() == self.api.origin();
        if slacks || named { Ok(url) } else { Err(Error::Foreign(host.to_owned())) }
    }

    /// Sends a request, and takes its answer whole. Redirects are answers.
    pub(super) async fn send(
        &self,
        request: Request<Body>,
        largest: u64,
        patience: Duration,
    ) -> Result<Response<Bytes>, Failure> {
        https::send(&self.client, request, largest, patience).await
    }

    /// Sends a request, and leaves its answer to be read. Redirects are answers.
    pub(super) async fn open(
        &self,
        request: Request<Body>,
        patience: Duration,
    ) -> Result<Response<Coming>, Failure> {
        https::within(patience, https::open(&self.client, request)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_goes_to_slacks_hosts_alone() {
        let http = Http::new(Url::parse("http://127.0.0.1:9/api/").unwrap()).unwrap();
        for good in [
            "https://files.slack.com/files-pri/T1-F1/x.txt",
            "https://slack.com/x",
            "http://127.0.0.1:9/files/F1",
        ] {
            assert!(http.own(good).is_ok(), "{good}");
        }
        for foreign in [
            "http://files.slack.com/x",
            "https://files.slack.com:8443/x",
            "https://slack.com.evil.example/x",
            "https://evilslack.com/x",
            "https://evil.example/?slack.com",
            "https://files.slack.com@evil.example/x",
            "http://127.0.0.1:10/files/F1",
            "file:///etc/passwd",
            "not an address",
        ] {
            assert!(http.own(foreign).is_err(), "{foreign}");
        }
    }
}
