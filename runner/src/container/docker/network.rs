//! The runner's own networks: its instances reach the runner's endpoint and not each other.
//!
//! The endpoint listens at the network's gateway, which is an address of this machine. Any process that reaches that
//! address may connect, so the endpoint demands the instance's secret as it does on the loopback.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use bollard::Docker;
use bollard::models::{NetworkCreateRequest, NetworkInspect};
use bollard::query_parameters::ListNetworksOptionsBuilder;
use tokio::time::timeout;
use uuid::Uuid;

use super::create::{RUNNER, is_of};
use super::settings::Network;
use super::{ASK, failed, is_missing};
use crate::container::Failure;

pub(super) fn name(runner: &str, network: Network) -> String {
    match network {
        Network::Open => format!("skein-{runner}"),
        Network::Internal => format!("skein-{runner}-internal"),
    }
}

/// Makes the network if it is missing, and gives its gateway. Two at a time would make two of one name.
///
/// # Errors
/// When the daemon cannot make it.
pub(super) async fn ensure(docker: &Docker, runner: &str, network: Network) -> Result<Ipv4Addr, Failure> {
    let name = name(runner, network);
    let found = match docker.inspect_network(&name, None).await {
        Err(error) if is_missing(&error) => {
            let made = docker.create_network(request(runner, &name, network)).await;
            made.map_err(|error| failed(&format!("make the network {name}"), &error))?;
            docker.inspect_network(&name, None).await
        }
        found => found,
    };
    let found = found.map_err(|error| failed(&format!("look at the network {name}"), &error))?;
    gateway(&found)
        .ok_or_else(|| Failure(format!("the network {name} has no gateway; run `docker network rm {name}`")))
}

fn request(runner: &str, name: &str, network: Network) -> NetworkCreateRequest {
    // Known by its beginning, for rules of a firewall; the kernel allows 15 bytes.
    let mark = Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).simple().to_string();
    let bridge = format!("skein-{}", &mark[..8]);
    let options = HashMap::from([
        ("com.docker.network.bridge.enable_icc".to_owned(), "false".to_owned()),
        ("com.docker.network.bridge.name".to_owned(), bridge),
    ]);
    NetworkCreateRequest {
        name: name.to_owned(),
        driver: Some("bridge".to_owned()),
        internal: Some(network == Network::Internal),
        options: Some(options),
        labels: Some(HashMap::from([(RUNNER.to_owned(), runner.to_owned())])),
        ..NetworkCreateRequest::default()
    }
}

fn gateway(found: &NetworkInspect) -> Option<Ipv4Addr> {
    let configs = found.ipam.as_ref()?.config.as_ref()?;
    let gateways = configs.iter().filter_map(|config| config.gateway.as_deref());
    // Some versions of the daemon write the length of the subnet behind it.
    gateways.filter_map(|text| text.split('/').next()?.parse().ok()).next()
}

/// Removes the runner's networks, with those that it made while it had another name. One that an instance is in stays.
/// A daemon that does not answer keeps them all, and no runner from its end.
pub(super) async fn remove_all(docker: &Docker, runner: &str) {
    if timeout(ASK, remove_each(docker, runner)).await.is_err() {
        tracing::warn!("the Docker daemon has not answered in {ASK:?}; the runner's networks stay");
    }
}

async fn remove_each(docker: &Docker, runner: &str) {
    let filters = HashMap::from([("label".to_owned(), vec![RUNNER.to_owned()])]);
    let options = ListNetworksOptionsBuilder::new().filters(&filters).build();
    let mut found = docker.list_networks(Some(options)).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "the Docker daemon does not say which networks there are; the runner's stay");
        Vec::new()
    });
    found.retain(|one| is_of(runner, one.labels.as_ref()));
    for id in found.into_iter().filter_map(|one| one.id) {
        // In use.
        let _ = docker.remove_network(&id).await;
    }
}
