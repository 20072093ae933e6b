//! What another face does in the place of a tool: within the tool's limits, and with its line in the log.

use std::future::Future;

use serde_json::Value;
use skein_shared::{Code, Refusal};
use tokio::time::Instant;
use uuid::Uuid;

use super::audit::Audit;
use super::catalogue::Catalogue;
use super::dispatch::Gate;
use super::result::Reply;
use crate::auth::Principal;

/// Does the work as a call of the tool. Who has the right to it the work says itself.
///
/// # Errors
/// `rate_limited`; those of the work.
pub async fn as_tool<T>(
    gate: &Gate,
    catalogue: &Catalogue,
    who: &Principal,
    tool: &str,
    work: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let tool = catalogue.get(tool).ok_or_else(|| {
        Refusal::new(Code::Internal, format!("`{tool}` is done here and is no tool; report this"))
    })?;
    let audit = Audit::begin(Uuid::now_v7(), who.clone(), Some(tool));
    let done = match gate.quota.admit(who, tool, Instant::now()) {
        Ok(_seat) => work.await,
        Err(refusal) => Err(refusal),
    };
    match &done {
        Ok(_) => audit.answered(&Reply::new("", Value::Null)),
        Err(refusal) => audit.answered(&Reply::error(refusal)),
    }
    done
}
