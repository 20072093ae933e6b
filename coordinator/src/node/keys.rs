//! Follows the signing keys, which an operator may change while the node runs.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::datadir::Layout;
use super::start::{operator_token, write_operator_token};
use crate::auth::token::Keys;
use crate::cluster::Cluster;
use crate::entity::{Clock, Entities};

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(2);

/// Takes the keys over as they are changed, until the node stops.
pub(super) async fn follow(layout: Layout, keys: Keys, entities: Entities, stop: CancellationToken) {
    let clock = entities.clock();
    let mut said = String::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        match keys.reload(layout.root()) {
            Ok(false) => said.clear(),
            Ok(true) => {
                info!("the signing keys have changed");
                // The command line's own token may have ended with a key that was taken out.
                if let Err(error) = write_operator_token(&layout, &keys, clock) {
                    warn!(%error, "the operator's token cannot be written");
                }
                if let Some(cluster) = entities.cluster() {
                    prove_anew(cluster, &keys, clock);
                }
            }
            Err(error) if error.to_string() != said => {
                said = error.to_string();
                warn!(%error, "the signing keys cannot be read; those that were there hold");
            }
            Err(_) => {}
        }
    }
}

/// The others may have taken out the key by which this node has proved until now that it belongs to them.
fn prove_anew(cluster: &Cluster, keys: &Keys, clock: &Clock) {
    match operator_token(keys, clock) {
        Ok(token) if cluster.proves_by(&token) => {}
        _ => warn!("the signing keys make no token; the other nodes are shown the last one"),
    }
}
