//! Follows the signing keys, which an operator may change while the node runs.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::datadir::Layout;
use super::start::write_operator_token;
use crate::auth::token::Keys;
use crate::entity::Clock;

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(2);

/// Takes the keys over as they are changed, until the node stops.
pub(super) async fn follow(layout: Layout, keys: Keys, clock: Clock, stop: CancellationToken) {
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
                if let Err(error) = write_operator_token(&layout, &keys, &clock) {
                    warn!(%error, "the operator's token cannot be written");
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
