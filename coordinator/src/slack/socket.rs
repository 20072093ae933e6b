//! Socket Mode: Slack sends over a connection that we open, so the node needs no address that Slack can reach.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use http::Uri;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_websockets::{ClientBuilder, Limits, Message, WebSocketStream};
use url::Url;

use super::error::Error;
use super::workspace::Workspace;

const OPEN: &str = "the connection";
/// How long the connection may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// Slack gives signs of life more often than this; after so long without any the connection is dead.
const SILENCE: Duration = Duration::from_secs(60);
/// Largest frame, bytes.
const LARGEST: usize = 4 * 1024 * 1024;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection over which Slack sends.
pub struct Socket(WebSocketStream<Box<dyn Stream>>);

/// What Slack sends over it.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// The connection is in use from now on.
    Hello,
    /// It will be closed; what comes then goes over another one.
    Disconnect,
    /// Something that happened, to be acknowledged by its id.
    Envelope { id: String, kind: String, payload: Value },
    /// A sign of life, and whatever Slack may think of.
    Other,
}

impl Workspace {
    /// Opens a connection.
    ///
    /// # Errors
    /// Without an app token; when Slack cannot be reached, or says no.
    pub async fn socket(&self) -> Result<Socket, Error> {
        let url = self.connection().await?;
        // The connection carries no token. Still, what people say is asked of nobody else.
        if url.host_str() != self.client.http.host() {
            let shown = if url.scheme() == "wss" { "https" } else { "http" };
            self.client.http.own(&url.as_str().replacen(url.scheme(), shown, 1))?;
        }
        let opened = tokio::time::timeout(PATIENCE, self.open(&url)).await;
        opened.unwrap_or_else(|_| Err(unreachable("it takes too long")))
    }

    async fn open(&self, url: &Url) -> Result<Socket, Error> {
        let host = url.host_str().unwrap_or_default().to_owned();
        let port = url.port_or_known_default().unwrap_or(443);
        let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let stream: Box<dyn Stream> = if url.scheme() == "wss" {
            let name = ServerName::try_from(host).map_err(unreachable)?;
            let tls = TlsConnector::from(self.client.http.tls());
            Box::new(tls.connect(name, stream).await.map_err(unreachable)?)
        } else {
            Box::new(stream)
        };
        // The address is the permission, so no error may show it.
        let uri: Uri = url.as_str().parse().map_err(|_| unreachable("its address cannot be read"))?;
        let limits = Limits::default().max_payload_len(Some(LARGEST));
        let client = ClientBuilder::from_uri(uri).limits(limits);
        let (stream, _) = client.connect_on(stream).await.map_err(unreachable)?;
        Ok(Socket(stream))
    }
}

impl Socket {
    /// The next frame; `None` once the connection has ended.
    pub async fn next(&mut self) -> Option<Frame> {
        match tokio::time::timeout(SILENCE, self.0.next()).await {
            Ok(Some(Ok(message))) if message.is_close() => None,
            Ok(Some(Ok(message))) => Some(message.as_text().map_or(Frame::Other, read)),
            _ => None,
        }
    }

    /// Tells Slack that it need not send this again. What gets lost with the connection comes again and is known.
    /// An answer is for whoever has typed the command.
    pub async fn acknowledge(&mut self, envelope: &str, answer: Option<Value>) {
        let mut acknowledgement = json!({"envelope_id": envelope});
        if let Some(answer) = answer {
            acknowledgement["payload"] = answer;
        }
        let _ = self.0.send(Message::text(acknowledgement.to_string())).await;
    }
}

fn read(text: &str) -> Frame {
    let Ok(mut frame) = serde_json::from_str::<Value>(text) else { return Frame::Other };
    let kind = frame["type"].as_str().unwrap_or_default().to_owned();
    match (kind.as_str(), frame["envelope_id"].as_str()) {
        ("hello", _) => Frame::Hello,
        ("disconnect", _) => Frame::Disconnect,
        (_, Some(id)) => Frame::Envelope { id: id.to_owned(), payload: frame["payload"].take(), kind },
        _ => Frame::Other,
    }
}

fn unreachable(problem: impl ToString) -> Error {
    Error::Unreachable { method: OPEN, problem: problem.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_told_apart() {
        assert_eq!(read(r#"{"type":"hello","num_connections":1}"#), Frame::Hello);
        assert_eq!(read(r#"{"type":"disconnect","reason":"refresh_requested"}"#), Frame::Disconnect);
        let envelope = read(r#"{"type":"events_api","envelope_id":"e","payload":{"a":1},"retry_attempt":1}"#);
        let (id, kind) = ("e".to_owned(), "events_api".to_owned());
        assert_eq!(envelope, Frame::Envelope { id, kind, payload: json!({"a": 1}) });
        for other in ["", "null", "[]", r#"{"type":7}"#, r#"{"type":"events_api"}"#, "Ping from applink"] {
            assert_eq!(read(other), Frame::Other, "{other}");
        }
    }
}
