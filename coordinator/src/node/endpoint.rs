//! Where a node listens, written down for the command line once it is ready.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};
use skein_shared::{Code, Refusal};
use url::Url;

use super::datadir::{Layout, denied};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    pub http: SocketAddr,
    pub grpc: SocketAddr,
    /// Missing when the node takes no webhooks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<SocketAddr>,
    /// For the coordinators that share the store; missing when there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<SocketAddr>,
    /// The base URL of the MCP face.
    pub url: String,
}

impl Endpoint {
    /// Reads what the running node has written.
    ///
    /// # Errors
    /// When there is no such file or it has another form.
    pub fn read(layout: &Layout) -> io::Result<Self> {
        let text = std::fs::read(layout.endpoint())?;
        serde_json::from_slice(&text).map_err(io::Error::from)
    }

    /// Reads it for whoever needs a node that runs.
    ///
    /// # Errors
    /// `unavailable`, with what to do: most often the command was told of no data directory, and looked into the usual
    /// one. `forbidden` for somebody who may not look.
    pub fn of_a_node(layout: &Layout) -> Result<Self, Refusal> {
        Self::read(layout).map_err(|error| unread(layout, &error))
    }

    /// Where people reach the console. Its pages lie at the root of a host, so behind a path they are not to be had,
    /// and this is the node's own address, as a browser of its machine calls it.
    pub fn console(&self) -> String {
        let has_path = Url::parse(&self.url).is_ok_and(|url| url.path() != "/");
        if has_path { format!("http://{}", Self::near(self.http)) } else { self.url.clone() }
    }

    /// Where a program of this machine finds whoever listens there. All addresses are no address to call, and on a
    /// machine without IPv6 those of IPv6 lead nowhere.
    pub fn near(listener: SocketAddr) -> SocketAddr {
        match listener.ip().is_unspecified() {
            true => (Ipv4Addr::LOCALHOST, listener.port()).into(),
            false => listener,
        }
    }

    pub(super) fn write(&self, layout: &Layout) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::from)?;
        layout.write_private(&layout.endpoint(), &text)
    }
}

/// Why it cannot be said where a node listens.
fn unread(layout: &Layout, error: &io::Error) -> Refusal {
    let (root, data) = (layout.root(), layout.root().display());
    if error.kind() == io::ErrorKind::PermissionDenied {
        let Refusal { code, message, .. } = denied("look into", root, error);
        let unknown = format!("whether a node runs with the data directory {data} cannot be known");
        return Refusal::new(code, format!("{unknown}: {message}"));
    }
    let why = match error.kind() {
        io::ErrorKind::NotFound => String::new(),
        _ => format!(" ({error})"),
    };
    // What is there may be a node of a cluster, which another command starts.
    let start = match root.try_exists() {
        Ok(false) => format!("or start one there with `skein up --data {data}`"),
        _ => "or start the node; one that is starting or ending takes no commands".to_owned(),
    };
    let problem = format!(
        "no node runs with the data directory {data}{why}; name that of the node with --data or SKEIN_DATA, {start}"
    );
    Refusal::new(Code::Unavailable, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever runs the tests may look everywhere perhaps.
    #[test]
    fn of_what_a_user_may_not_look_into_nothing_is_said() {
        let refused = |kind: io::ErrorKind| unread(&Layout::new("/of/another"), &kind.into());
        let hidden = refused(io::ErrorKind::PermissionDenied);
        assert_eq!(hidden.code, Code::Forbidden);
        assert!(hidden.message.contains("run as the user who started the node"), "{}", hidden.message);
        assert!(!hidden.message.contains("no node runs"), "{}", hidden.message);
        let missing = refused(io::ErrorKind::NotFound);
        assert!(
            missing.code == Code::Unavailable && missing.message.contains("no node runs"),
            "{}",
            missing.message
        );
    }

    /// It has the folder for itself, so whoever started another would be refused.
    #[test]
    fn where_a_node_may_be_starting_or_ending_that_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let refused = unread(&Layout::new(folder.path()), &io::ErrorKind::NotFound.into());
        assert!(refused.message.contains("one that is starting or ending"), "{}", refused.message);
    }

    #[test]
    fn who_listens_everywhere_is_called_on_its_own_machine() {
        for (listens, called) in [
            ("[::]:7701", "127.0.0.1:7701"),
            ("0.0.0.0:7701", "127.0.0.1:7701"),
            ("[fd00::1]:7701", "[fd00::1]:7701"),
            ("10.0.0.1:7701", "10.0.0.1:7701"),
        ] {
            assert_eq!(Endpoint::near(listens.parse().unwrap()).to_string(), called);
        }
    }

    #[test]
    fn a_console_is_at_the_root_of_a_host() {
        let at = |url: &str| {
            let (http, grpc) = ("127.0.0.1:7700".parse().unwrap(), "127.0.0.1:7701".parse().unwrap());
            Endpoint { http, grpc, ingress: None, node: None, url: url.to_owned() }.console()
        };
        assert_eq!(at("https://skein.example.com"), "https://skein.example.com");
        assert_eq!(at("https://example.com/skein"), "http://127.0.0.1:7700");
    }
}
