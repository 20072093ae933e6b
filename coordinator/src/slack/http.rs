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
/// What the paths of files begin with: `/files-pri/`, `/files-tmb/` …
const FILES: &str = "/files";

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

    /// The address, if it is of a file and may have the token. Methods take their arguments in an address too, so whoever
    /// chose one freely could do with the token whatever the app may.
    pub(super) fn file(&self, address: &str) -> Result<Url, Error> {
        let url = self.own(address)?;
        if is_file(url.path()) { Ok(url) } else { Err(Error::NoFile) }
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

/// Whether a path is one of a file. A server may take an escaped slash for one, and go up from there.
fn is_file(path: &str) -> bool {
    let plain = path.to_ascii_lowercase();
    plain.starts_with(FILES) && !["%2f", "%5c"].iter().any(|slash| plain.contains(slash))
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

    #[test]
    fn an_address_that_an_agent_gives_calls_no_method() {
        let http = Http::new(Url::parse("http://127.0.0.1:9/api/").unwrap()).unwrap();
        for good in [
            "https://files.slack.com/files-pri/T1-F1/download/x%20y.txt",
            "https://files.slack.com/files-tmb/T1-F1-0a/x_360.png",
        ] {
            assert!(http.file(good).is_ok(), "{good}");
        }
        for method in [
            "https://slack.com/api/auth.revoke",
            "https://acme.slack.com/api/chat.postMessage?channel=C1&text=hi",
            "https://files.slack.com/files-pri/../api/conversations.history?channel=D1",
            "https://files.slack.com/files-pri/%2e%2e/api/auth.revoke",
            "https://slack.com//api/auth.revoke",
            "https://slack.com/%61pi/auth.revoke",
            "https://slack.com/files-pri/..%2Fapi/auth.revoke",
            "http://127.0.0.1:9/api/auth.revoke",
            "https://edgeapi.slack.com/cache/T1/users/info",
            "https://slack.com/",
        ] {
            assert_eq!(http.file(method).unwrap_err(), Error::NoFile, "{method}");
        }
    }
}
