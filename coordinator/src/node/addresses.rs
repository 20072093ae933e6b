//! Where others reach a node, by what it listens on and by what its settings say of it.

use std::net::{IpAddr, SocketAddr};

use url::Url;

use super::endpoint::Endpoint;
use crate::cluster::identity;
use crate::config::Config;

/// The base URL of the MCP face, for agents and people. What the endpoint has for one yet is not looked at.
pub(super) fn public(config: &Config, endpoint: &Endpoint) -> String {
    let said = config.listen.public_url.as_deref();
    said.map_or_else(|| own(config, endpoint), |url| url.trim_end_matches('/').to_owned())
}

/// Where runners reach this node, as they are told when they are connected to another one; none when they may not be on
/// the same machine and it listens on loopback, or when nobody knows.
pub(super) fn for_runners(config: &Config, grpc: SocketAddr) -> Option<String> {
    if let Some(url) = &config.listen.runner_url {
        return Some(url.trim_end_matches('/').to_owned());
    }
    let host = host_among_nodes(config);
    if grpc.ip().is_unspecified() {
        return host.map(|host| format!("http://{}:{}", in_url(host), grpc.port()));
    }
    let others_are_here = host.is_some_and(is_here);
    (others_are_here || !grpc.ip().is_loopback()).then(|| format!("http://{grpc}"))
}

/// What clients of a URL say as the host that they ask. A port that is its scheme's own they leave out.
pub(super) fn authority(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let host = url.host_str()?;
    Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

/// Where runners reach the MCP face. They speak plain text: what ends TLS stands before others.
pub(super) fn for_instances(config: &Config, endpoint: &Endpoint) -> String {
    match speaks_plainly(config) {
        true => endpoint.url.clone(),
        false => own(config, endpoint),
    }
}

/// This node's own MCP face, whatever stands before it.
fn own(config: &Config, endpoint: &Endpoint) -> String {
    format!("http://{}:{}", plain_host(config, endpoint), endpoint.http.port())
}

/// The host of this node itself, whatever stands before it, as it stands in a URL. Never all addresses at once: whoever
/// calls those calls its own machine.
pub(super) fn plain_host(config: &Config, endpoint: &Endpoint) -> String {
    if !endpoint.http.ip().is_unspecified() {
        return of_ip(endpoint.http.ip());
    }
    let said = config.listen.runner_url.as_deref().and_then(|url| Url::parse(url).ok());
    let said = said.and_then(|url| url.host_str().map(str::to_owned));
    // An address of its own for runners is one that they reach.
    let door = || Some(endpoint.grpc.ip()).filter(|ip| !ip.is_unspecified()).map(of_ip);
    let host = said.or_else(door).or_else(|| host_among_nodes(config).map(in_url));
    host.unwrap_or_else(|| "localhost".to_owned())
}

/// What an operator has to hear of a node to which runners may come from anywhere, and which knows no host that could
/// be named to them.
pub(super) fn problem(config: &Config, endpoint: &Endpoint) -> Option<String> {
    let is_told = speaks_plainly(config) || config.listen.runner_url.is_some();
    let is_open = endpoint.http.ip().is_unspecified() && endpoint.grpc.ip().is_unspecified();
    if is_told || !is_open || host_among_nodes(config).is_some_and(|host| !is_here(host)) {
        return None;
    }
    Some(format!(
        "runners are told that MCP is at {}, which on another machine is that machine itself: this node listens on all of \
         its addresses and knows none that others reach; set `listen.runner_url` to http://HOST:{}, or `listen.public_url` \
         to http://HOST:{} if nothing ends TLS before it, where HOST is what those call this machine",
        for_instances(config, endpoint),
        endpoint.grpc.port(),
        endpoint.http.port(),
    ))
}

/// Whether agents were given an address that runners can use as it is.
fn speaks_plainly(config: &Config) -> bool {
    config.listen.public_url.as_deref().is_some_and(|url| !url.starts_with("https://"))
}

/// By which host the other coordinators reach this one; of this machine alone if there are none.
fn host_among_nodes(config: &Config) -> Option<&str> {
    let addresses = config.cluster.advertise.iter().chain([&config.cluster.node]);
    let mut hosts = addresses.map(|address| identity::host(address));
    hosts.find(|host| !host.parse().is_ok_and(|ip: IpAddr| ip.is_unspecified()))
}

fn is_here(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

fn in_url(host: &str) -> String {
    host.parse::<IpAddr>().map_or_else(|_| host.to_owned(), of_ip)
}

fn of_ip(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(set: impl FnOnce(&mut Config)) -> Config {
        let mut config = Config::default();
        set(&mut config);
        config
    }

    fn endpoint(config: &Config, http: &str, grpc: &str) -> Endpoint {
        let (http, grpc) = (http.parse().unwrap(), grpc.parse().unwrap());
        let endpoint = Endpoint { http, grpc, ingress: None, node: None, url: String::new() };
        Endpoint { url: public(config, &endpoint), ..endpoint }
    }

    fn node(address: &str) -> Config {
        config(|config| config.cluster.node = address.to_owned())
    }

    #[test]
    fn agents_of_other_machines_are_told_a_host_that_they_can_reach() {
        let told = |config: &Config, http: &str, grpc: &str| {
            let endpoint = endpoint(config, http, grpc);
            for_instances(config, &endpoint)
        };
        let all = |config: &Config| told(config, "0.0.0.0:7700", "0.0.0.0:7701");
        assert_eq!(all(&node("10.0.0.1:7703")), "http://10.0.0.1:7700");
        assert_eq!(all(&node("node-1:7703")), "http://node-1:7700");
        assert_eq!(all(&node("[fd00::1]:7703")), "http://[fd00::1]:7700");
        assert_eq!(told(&node("[fd00::1]:7703"), "[::]:7700", "[::]:7701"), "http://[fd00::1]:7700");
        let forwarded = |node: &str| {
            config(|config| {
                config.cluster.node = node.to_owned();
                config.cluster.advertise = Some("10.0.0.9:17703".to_owned());
            })
        };
        assert_eq!(all(&forwarded("10.0.0.1:7703")), "http://10.0.0.9:7700");
        assert_eq!(all(&forwarded("0.0.0.0:7703")), "http://10.0.0.9:7700");
        for nobody in [node("0.0.0.0:7703"), node("[::]:7703")] {
            assert_eq!(all(&nobody), "http://localhost:7700");
        }
        let said = config(|config| {
            config.cluster.node = "10.0.0.1:7703".to_owned();
            config.listen.runner_url = Some("http://box:7701".to_owned());
        });
        assert_eq!(all(&said), "http://box:7700");
        // A node that listens on one address for runners is reached by it.
        assert_eq!(told(&node("10.0.0.1:7703"), "0.0.0.0:7700", "10.1.0.1:7701"), "http://10.1.0.1:7700");
        assert_eq!(told(&node("10.0.0.1:7703"), "10.2.0.1:7700", "0.0.0.0:7701"), "http://10.2.0.1:7700");
        assert_eq!(told(&Config::default(), "[::1]:7700", "[::1]:7701"), "http://[::1]:7700");
    }

    #[test]
    fn people_are_told_an_address_that_can_be_called() {
        let told = |config: &Config, http: &str| endpoint(config, http, "127.0.0.1:7701").url;
        for everywhere in ["0.0.0.0:7700", "[::]:7700"] {
            assert_eq!(told(&Config::default(), everywhere), "http://127.0.0.1:7700");
            let all = endpoint(&node("node-1:7703"), everywhere, "0.0.0.0:7701");
            assert_eq!(
                (all.url.as_str(), all.console().as_str()),
                ("http://node-1:7700", "http://node-1:7700")
            );
            let public =
                config(|config| config.listen.public_url = Some("https://example.com/skein".to_owned()));
            let behind = endpoint(&public, everywhere, "127.0.0.1:7701");
            assert_eq!(behind.url, "https://example.com/skein");
            assert_eq!(behind.console(), "http://127.0.0.1:7700");
        }
        assert_eq!(told(&node("node-1:7703"), "10.2.0.1:7700"), "http://10.2.0.1:7700");
        assert_eq!(told(&Config::default(), "[::1]:7700"), "http://[::1]:7700");
    }

    #[test]
    fn a_host_is_asked_without_the_port_of_its_scheme() {
        for (url, said) in [
            ("https://skein.example.com:443", "skein.example.com"),
            ("http://skein.example.com:80/skein/", "skein.example.com"),
            ("https://skein.example.com:8443/", "skein.example.com:8443"),
            ("http://[fd00::1]:7700", "[fd00::1]:7700"),
        ] {
            assert_eq!(authority(url).as_deref(), Some(said), "{url}");
        }
    }

    #[test]
    fn a_public_address_is_told_as_it_is_unless_it_is_one_of_tls() {
        let public = |url: &str| {
            let config = config(|config| {
                config.cluster.node = "10.0.0.1:7703".to_owned();
                config.listen.public_url = Some(url.to_owned());
            });
            for_instances(&config, &endpoint(&config, "0.0.0.0:7700", "0.0.0.0:7701"))
        };
        assert_eq!(public("http://skein.geese.svc:7700/"), "http://skein.geese.svc:7700");
        assert_eq!(public("https://skein.example.com"), "http://10.0.0.1:7700");
    }

    #[test]
    fn runners_are_told_of_a_node_that_they_can_reach() {
        let told = |config: &Config, grpc: &str| for_runners(config, grpc.parse().unwrap());
        let url = |url: &str| Some(url.to_owned());
        assert_eq!(told(&node("10.0.0.1:7703"), "0.0.0.0:7701"), url("http://10.0.0.1:7701"));
        assert_eq!(told(&node("[fd00::1]:7703"), "[::]:7701"), url("http://[fd00::1]:7701"));
        assert_eq!(told(&node("10.0.0.1:7703"), "10.1.0.1:7701"), url("http://10.1.0.1:7701"));
        assert_eq!(told(&node("10.0.0.1:7703"), "127.0.0.1:7701"), None);
        assert_eq!(told(&node("[::1]:7703"), "127.0.0.1:7701"), url("http://127.0.0.1:7701"));
        assert_eq!(told(&node("0.0.0.0:7703"), "0.0.0.0:7701"), None);
        let forwarded = config(|config| {
            config.cluster.node = "127.0.0.1:7703".to_owned();
            config.cluster.advertise = Some("10.0.0.9:17703".to_owned());
        });
        assert_eq!(told(&forwarded, "0.0.0.0:7701"), url("http://10.0.0.9:7701"));
        assert_eq!(told(&forwarded, "127.0.0.1:7701"), None);
        let said = config(|config| config.listen.runner_url = Some("http://box:17701/".to_owned()));
        assert_eq!(told(&said, "127.0.0.1:7701"), url("http://box:17701"));
    }

    #[test]
    fn a_node_that_knows_no_host_of_its_own_says_what_to_set() {
        let said = |config: &Config, http: &str, grpc: &str| {
            let endpoint = endpoint(config, http, grpc);
            problem(config, &endpoint)
        };
        let open = |config: &Config| said(config, "0.0.0.0:7700", "0.0.0.0:7701");
        let alone = open(&Config::default()).unwrap();
        for word in
            ["http://127.0.0.1:7700", "`listen.runner_url` to http://HOST:7701", "`listen.public_url`"]
        {
            assert!(alone.contains(word), "{alone}");
        }
        assert_eq!(open(&node("10.0.0.1:7703")), None);
        assert!(open(&node("0.0.0.0:7703")).is_some());
        let reached = config(|config| config.listen.runner_url = Some("http://box:7701".to_owned()));
        assert_eq!(open(&reached), None);
        let public = |url: &str| config(|config| config.listen.public_url = Some(url.to_owned()));
        assert_eq!(open(&public("http://box:7700")), None);
        assert!(open(&public("https://skein.example.com")).is_some());
        // Runners are on this machine, or come to an address that is known.
        assert_eq!(said(&Config::default(), "0.0.0.0:7700", "127.0.0.1:7701"), None);
        assert_eq!(said(&Config::default(), "0.0.0.0:7700", "10.0.0.1:7701"), None);
        assert_eq!(said(&Config::default(), "127.0.0.1:7700", "127.0.0.1:7701"), None);
    }
}
