//! A bare MCP client for the stateless protocol revision: one POST a call, so that tests see what is on the
//! wire and count what was acknowledged.

use anyhow::{Context, Result, bail};
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

const VERSION: &str = "2026-07-28";

#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl Client {
    pub fn new(url: &str, token: &str) -> Self {
        Self { http: reqwest::Client::new(), url: url.to_owned(), token: token.to_owned() }
    }

    /// The same client, who asks another node.
    #[must_use]
    pub fn at(&self, url: &str) -> Self {
        Self { url: url.to_owned(), ..self.clone() }
    }

    /// Calls a tool and gives its result, refusals included.
    ///
    /// # Errors
    /// When there is no answer: then it is unknown whether the call took effect.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<Value> {
        let answer = self.request("tools/call", json!({"name": tool, "arguments": arguments})).await?;
        let result = answer.get("result").with_context(|| format!("{tool} gave {answer}"))?;
        if result["isError"] == json!(true) {
            bail!("{tool}: {}", result["content"]);
        }
        Ok(result["structuredContent"].clone())
    }

    /// Sends one JSON-RPC request and gives the whole answer.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value> {
        let response = self.begin(method, params).await?;
        let status = response.status();
        let text = response.text().await?;
        decode(&text).with_context(|| format!("{method} answered {status}: {text}"))
    }

    /// Sends one JSON-RPC request and gives the answer once that begins: a wait is under way then, and so is a call
    /// whose `_meta` has a `progressToken` and that is not over soon.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn begin(&self, method: &str, params: Value) -> Result<Response> {
        Ok(self.written(method, params).send().await?)
    }

    /// One JSON-RPC request, to be sent.
    pub fn written(&self, method: &str, mut params: Value) -> RequestBuilder {
        let name = params["name"].as_str().map(str::to_owned);
        for (field, value) in [
            ("protocolVersion", json!(VERSION)),
            ("clientCapabilities", json!({})),
            ("clientInfo", json!({"name": "skein-tests", "version": "1"})),
        ] {
            params["_meta"][format!("io.modelcontextprotocol/{field}")] = value;
        }
        let mut request = self
            .http
            .post(&self.url)
            .bearer_auth(&self.token)
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", VERSION)
            .header("mcp-method", method);
        if let Some(name) = name {
            request = request.header("mcp-name", name);
        }
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        request.json(&body)
    }
}

/// The status with which a request for the tools is answered: whether somebody with this token gets in.
pub async fn status_at(url: &str, token: Option<&str>) -> Result<u16> {
    let mut request = reqwest::Client::new().post(url).header("content-type", "application/json");
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
    Ok(request.body(body.to_string()).send().await?.status().as_u16())
}

/// A plain JSON body, or the last message of an event stream.
fn decode(text: &str) -> Result<Value> {
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(value);
    }
    let last =
        text.lines().filter_map(|line| line.strip_prefix("data:")).rfind(|data| !data.trim().is_empty());
    serde_json::from_str(last.context("no message")?.trim()).context("no JSON")
}
