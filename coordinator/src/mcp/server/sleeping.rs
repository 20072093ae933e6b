//! Sessions of the older revisions that are not in rmcp's memory.

use std::sync::Arc;

use rmcp::transport::streamable_http_server::session::store::{
    SessionState, SessionStore, SessionStoreError,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::mcp::sessions::Sessions;

/// Wakes a session that rmcp closed when it was idle, or that began before the node was started anew.
pub(super) struct Sleeping {
    pub(super) sessions: Arc<Sessions>,
    /// Whether a session that was never described here is served all the same.
    pub(super) adopts: bool,
}

#[async_trait::async_trait]
impl SessionStore for Sleeping {
    async fn load(&self, id: &str) -> Result<Option<SessionState>, SessionStoreError> {
        // All that a session holds is how its client described itself; without that it is served as any other.
        let unknown = || (self.adopts && Uuid::try_parse(id).is_ok()).then(undescribed);
        self.sessions.load(id).or_else(unknown).map(serde_json::from_value).transpose().map_err(Into::into)
    }

    async fn store(&self, id: &str, state: &SessionState) -> Result<(), SessionStoreError> {
        self.sessions.store(id, serde_json::to_value(state)?);
        Ok(())
    }

    async fn delete(&self, id: &str) -> Result<(), SessionStoreError> {
        self.sessions.delete(id);
        Ok(())
    }
}

/// A client of the older revision that began its session on another node.
fn undescribed() -> Value {
    json!({
        "initialize_params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "unknown", "version": "0" },
        },
    })
}
