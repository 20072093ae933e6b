//! A swarm as an agent sees it: tools to call over MCP.

use rmcp::model::CallToolRequestParams;
use rmcp::service::{RoleClient, RunningService, ServiceExt};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};

/// A session with the swarm.
pub(super) struct Swarm {
    session: RunningService<RoleClient, ()>,
}

/// A tool could not be called, or it refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum ToolError {
    #[error("the environment lacks {0}: this program is started by a runner")]
    Environment(&'static str),
    #[error("no session with the swarm: {0}")]
    Connect(String),
    #[error("{tool} could not be called: {problem}")]
    Call { tool: String, problem: String },
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
        let config = StreamableHttpClientTransportConfig::with_uri(url).auth_header(token);
        let transport = StreamableHttpClientTransport::from_config(config);
        let session = ().serve(transport).await.map_err(|error| ToolError::Connect(error.to_string()))?;
        Ok(Self { session })
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
        let request = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let result = self
            .session
            .call_tool(request)
            .await
            .map_err(|error| ToolError::Call { tool: tool.to_owned(), problem: error.to_string() })?;
        if result.is_error == Some(true) {
            let message = serde_json::to_string(&result.content).unwrap_or_default();
            return Err(ToolError::Refused { tool: tool.to_owned(), message });
        }
        Ok(result.structured_content.unwrap_or(Value::Null))
    }

    /// Calls a tool that is not among the core ones, the way an agent with a small context does.
    pub(super) async fn call_deferred(&self, tool: &str, arguments: Value) -> Result<Value, ToolError> {
        self.call("tools_call", json!({"name": tool, "arguments": arguments})).await
    }

    pub(super) async fn close(self) {
        let _ = self.session.cancel().await;
    }
}
