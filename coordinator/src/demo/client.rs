//! A swarm as one of the demo's agents sees it: tools to call over MCP.

use serde_json::{Value, json};

use crate::mcp::connection::{Connection, ConnectionError};

/// A session with the swarm.
pub(super) struct Swarm {
    session: Connection,
}

/// A tool could not be called, or it refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum ToolError {
    #[error("the environment lacks {0}: this program is started by a runner")]
    Environment(&'static str),
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error("{tool} was refused: {message}")]
    Refused { tool: String, message: String },
    #[error("{0}")]
    Work(String),
}

impl Swarm {
    /// Opens a session with what the runner put into the environment.
    pub(super) async fn from_environment() -> Result<Self, ToolError> {
        let url = std::env::var("SKEIN_URL").map_err(|_| ToolError::Environment("SKEIN_URL"))?;
        let token = std::env::var("SKEIN_TOKEN").map_err(|_| ToolError::Environment("SKEIN_TOKEN"))?;
        Ok(Self { session: Connection::connect(&url, &token).await? })
    }

    /// Calls a tool and gives its structured result. A refusal, in whichever of the two forms, is an error.
    pub(super) async fn call(&self, tool: &str, arguments: Value) -> Result<Value, ToolError> {
        let result = self.try_call(tool, arguments).await?;
        if result["success"] == json!(false) || result["ok"] == json!(false) {
            let said = result["message"].as_str().or(result["reason"].as_str());
            let message = said.unwrap_or("no reason was given").to_owned();
            return Err(ToolError::Refused { tool: tool.to_owned(), message });
        }
        Ok(result)
    }

    /// Like [`Swarm::call`], but a result with `success: false` is an answer.
    pub(super) async fn try_call(&self, tool: &str, arguments: Value) -> Result<Value, ToolError> {
        let Value::Object(arguments) = arguments else {
            return Err(ToolError::Work(format!("the arguments of {tool} are no object")));
        };
        let called = self.session.call(tool, arguments).await?;
        if called.is_error {
            return Err(ToolError::Refused { tool: tool.to_owned(), message: called.text });
        }
        Ok(called.json)
    }

    /// Calls a tool that is not among the core ones, the way an agent with a small context does.
    pub(super) async fn call_deferred(&self, tool: &str, arguments: Value) -> Result<Value, ToolError> {
        self.call("tools_call", json!({"name": tool, "arguments": arguments})).await
    }

    pub(super) async fn close(self) {
        self.session.close().await;
    }
}
