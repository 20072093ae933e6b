//! What happens to services.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::state::{Health, Service};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    ServiceRegistered {
        service: Box<Service>,
    },
    /// Registered once more, with other settings.
    ServiceChanged {
        service: Box<Service>,
    },
    ServiceUnregistered {
        service: Uuid,
    },
    ServiceHealth {
        service: Uuid,
        health: Health,
        at: Timestamp,
    },
}
