//! What a piece of work cost.

use serde::{Deserialize, Serialize};

use crate::code::{Code, Refusal};

/// Longest name of a model, characters.
const MODEL: usize = 100;
/// Most that one piece of work may cost, US dollars: a slip of the unit shall not hide what all others cost.
pub(crate) const MOST: f64 = 1_000_000.0;

/// As the agent's harness counts it (spec: Agent Swarm 2.2, `costData`). The task shows it under `costData`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    pub total_cost_usd: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_turns: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl Cost {
    /// Millionths of a US dollar, which sums are made of.
    pub fn micros(&self) -> u64 {
        (self.total_cost_usd * 1e6).round() as u64
    }

    /// # Errors
    /// `invalid_argument` for an amount that is negative or too large, no turns, or a model's name that is too long.
    pub fn check(&self) -> Result<(), Refusal> {
        let problem = if !(0.0..=MOST).contains(&self.total_cost_usd) {
            "totalCostUsd is a number from 0 to 1000000"
        } else if self.num_turns == Some(0) {
            "numTurns is at least 1"
        } else if self.model.as_ref().is_some_and(|model| model.chars().count() > MODEL) {
            "model has at most 100 characters"
        } else {
            return Ok(());
        };
        Err(Refusal::new(Code::InvalidArgument, problem))
    }
}
