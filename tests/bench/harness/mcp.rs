//! A lean MCP client of the stateless revision: one kept-alive connection, one request at a time. All contenders
//! that speak HTTP are asked by it, so that its cost is the same for all.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use memchr::memmem;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::contender::{Plan, Work};
use super::load::{self, Operation};

const VERSION: &str = "2026-07-28";
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Who is asked.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub address: SocketAddr,
    pub path: &'static str,
}

/// One client with its connection.
pub(crate) struct Client {
    connection: SendRequest<Full<Bytes>>,
    path: &'static str,
    headers: HeaderMap,
    requests: u64,
}

impl Client {
    /// # Errors
    /// When nobody listens.
    pub(crate) async fn connect(target: &Target, token: Option<&str>) -> Result<Self> {
        let stream = TcpStream::connect(target.address).await?;
        stream.set_nodelay(true)?;
        let (connection, driver) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(driver);
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::try_from(target.address.to_string())?);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert("mcp-protocol-version", HeaderValue::from_static(VERSION));
        headers.insert("mcp-method", HeaderValue::from_static("tools/call"));
        if let Some(token) = token {
            headers.insert(header::AUTHORIZATION, HeaderValue::try_from(format!("Bearer {token}"))?);
        }
        Ok(Self { connection, path: target.path, headers, requests: 0 })
    }

    /// Calls a tool with arguments in JSON, and gives the whole answer.
    ///
    /// # Errors
    /// When the connection breaks or the answer is no success.
    pub(crate) async fn call(&mut self, tool: &'static str, arguments: &str) -> Result<Bytes> {
        self.requests += 1;
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},"_meta":{{"io.modelcontextprotocol/protocolVersion":"{VERSION}","io.modelcontextprotocol/clientCapabilities":{{}},"io.modelcontextprotocol/clientInfo":{{"name":"skein-bench","version":"1"}}}}}}}}"#,
            self.requests
        );
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path.parse()?;
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert(NAME, HeaderValue::from_static(tool));
        self.connection.ready().await?;
        let response = self.connection.send_request(request).await?;
        let status = response.status();
        let answer = response.into_body().collect().await?.to_bytes();
        let good = status == StatusCode::OK && !contains(&answer, br#""isError":true"#);
        ensure!(good, "{tool} answered {status}: {}", String::from_utf8_lossy(&answer));
        Ok(answer)
    }

    /// Calls a tool that answers with `success`.
    ///
    /// # Errors
    /// As [`Client::call`], and when it had no success.
    pub(crate) async fn succeed(&mut self, tool: &'static str, arguments: &str) -> Result<Bytes> {
        let answer = self.call(tool, arguments).await?;
        let good = contains(&answer, br#""success":true"#);
        ensure!(good, "{tool} answered {}", String::from_utf8_lossy(&answer));
        Ok(answer)
    }
}

pub(crate) fn contains(text: &[u8], part: &[u8]) -> bool {
    // A search byte by byte would cost the client as much as the server has for a long answer.
    memmem::find(text, part).is_some()
}

/// What one client does again and again.
pub(crate) type Script = for<'a> fn(&'a mut Client) -> BoxFuture<'a, Result<()>>;

/// Clients that all do the same.
#[derive(Clone, Default)]
pub(crate) struct Clients {
    all: Vec<Arc<Mutex<Client>>>,
}

impl Clients {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn add(&mut self, client: Client) {
        self.all.push(Arc::new(Mutex::new(client)));
    }

    /// # Errors
    /// When there is none.
    pub(crate) fn first(&self) -> Result<Arc<Mutex<Client>>> {
        self.all.first().cloned().context("there is no client yet")
    }

    /// # Errors
    /// The first failure.
    pub(crate) async fn work(&self, plan: &Plan, script: Script) -> Result<Work> {
        let clients = self.all.clone();
        let operation: Operation = Arc::new(move |client| {
            let client = Arc::clone(&clients[client]);
            Box::pin(async move { script(&mut *client.lock().await).await })
        });
        load::run(plan, operation).await
    }
}
