//! The other end of the facade: tools as the command line and the demo's agents call them.

use std::time::Duration;

use rmcp::model::{CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ServerResult};
use rmcp::service::{PeerRequestOptions, RoleClient, RunningService, ServiceError, ServiceExt};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Map, Value};

/// A call of which nothing was heard for so long is not answered any more: a node says every quarter of a minute that
/// it is at it ([`PROGRESS`](super::server::PROGRESS)).
const SILENCE: Duration = Duration::from_secs(45);

/// A session with the swarm.
pub struct Connection {
    session: RunningService<RoleClient, ()>,
}

/// What came of a call.
#[derive(Clone, Debug)]
pub struct Called {
    /// What a model would read.
    pub text: String,
    /// Null for a tool whose text is all there is.
    pub json: Value,
    pub is_error: bool,
}

/// There is no answer. Whether a call took effect is then unknown.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectionError {
    #[error("no session with the swarm: {0}")]
    Connect(String),
    #[error("{what} was not answered: {problem}")]
    Answer { what: String, problem: String },
}

impl Connection {
    /// Opens a session at the address of a view, with a token.
    ///
    /// # Errors
    /// When nobody answers there or the token is refused.
    pub async fn connect(url: &str, token: &str) -> Result<Self, ConnectionError> {
        let config = StreamableHttpClientTransportConfig::with_uri(url).auth_header(token);
        let transport = StreamableHttpClientTransport::from_config(config);
        let session = ().serve(transport).await.map_err(|error| ConnectionError::Connect(error.to_string()))?;
        Ok(Self { session })
    }

    /// The tools of the view, as they are listed.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn list(&self) -> Result<Vec<Value>, ConnectionError> {
        let unanswered =
            |problem: String| ConnectionError::Answer { what: "the list of tools".to_owned(), problem };
        let tools = self.session.list_all_tools().await.map_err(|error| unanswered(error.to_string()))?;
        tools
            .iter()
            .map(|tool| serde_json::to_value(tool).map_err(|error| unanswered(error.to_string())))
            .collect()
    }

    /// Calls a tool. A refusal is an answer.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn call(&self, tool: &str, arguments: Map<String, Value>) -> Result<Called, ConnectionError> {
        let request = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let result = self.result(request).await.map_err(|error| {
            let problem = match error {
                ServiceError::Timeout { .. } => {
                    "the node gives no sign of life any more, so whether it took effect is not known"
                        .to_owned()
                }
                error => error.to_string(),
            };
            ConnectionError::Answer { what: tool.to_owned(), problem }
        })?;
        let json = result.structured_content.unwrap_or(Value::Null);
        let texts = result.content.iter().filter_map(|block| block.as_text()).map(|text| text.text.as_str());
        // The last may be the JSON again.
        let repeated = json.to_string();
        let texts = texts.enumerate().filter(|(place, text)| *place == 0 || *text != repeated);
        Ok(Called {
            text: texts.map(|(_, text)| text).collect::<Vec<_>>().join("\n"),
            json,
            is_error: result.is_error == Some(true),
        })
    }

    async fn result(&self, request: CallToolRequestParams) -> Result<CallToolResult, ServiceError> {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(request));
        let options = PeerRequestOptions::with_timeout(SILENCE).reset_timeout_on_progress();
        let handle = self.session.send_cancellable_request(request, options).await?;
        match handle.await_response().await? {
            ServerResult::CallToolResult(result) => Ok(result),
            _ => Err(ServiceError::UnexpectedResponse),
        }
    }

    pub async fn close(self) {
        let _ = self.session.cancel().await;
    }
}
