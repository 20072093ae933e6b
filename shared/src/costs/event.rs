//! What happens to costs.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::command::Report;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// What is past the limits is forgotten by it.
    CostReported { id: Uuid, report: Box<Report>, at: Timestamp },
}
