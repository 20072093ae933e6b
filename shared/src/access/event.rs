//! What happens to a swarm's access.

use serde::{Deserialize, Serialize};

use super::state::{Client, Of, Revocation};
use crate::id::Name;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    ClientAdded {
        client: Box<Client>,
    },
    ClientRemoved {
        name: Name,
    },
    TokensRevoked {
        revocation: Revocation,
    },
    /// The last token that they could concern has ended.
    RevocationsForgotten {
        of: Vec<Of>,
    },
}
