//! The coordinators' MCP face as an endpoint sees it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

/// Where the events of an answer go.
type Answer = mpsc::Sender<Result<Frame<Bytes>, Infallible>>;

/// Every request is answered by a stream of events that the test writes.
#[derive(Clone)]
pub(crate) struct Face {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<watch::Sender<Vec<Seen>>>,
    pub(crate) answers: Arc<watch::Sender<Option<Answer>>>,
}

impl Face {
    pub(crate) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let face = Self { address, seen: Arc::default(), answers: Arc::default() };
        let serving = face.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let face = serving.clone();
                let service = service_fn(move |request| face.clone().serve(request));
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
            }
        });
        face
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub(crate) async fn requests(&self, count: usize) -> Vec<Seen> {
        let mut seen = self.seen.subscribe();
        let waited =
            tokio::time::timeout(super::coordinator::LIMIT, seen.wait_for(|seen| seen.len() >= count));
        waited.await.expect("requests never came").unwrap().clone()
    }

    pub(crate) async fn write(&self, event: &str) {
        let into = self.answers.borrow().clone().unwrap();
        into.send(Ok(Frame::data(Bytes::from(event.to_owned())))).await.unwrap();
    }

    /// Ends the stream of the latest request.
    pub(crate) fn end(&self) {
        self.answers.send_replace(None);
    }

    async fn serve(
        self,
        request: Request<Incoming>,
    ) -> Result<Response<StreamBody<ReceiverStream<Result<Frame<Bytes>, Infallible>>>>, Infallible> {
        let (head, body) = request.into_parts();
        let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        let (into, stream) = mpsc::channel(8);
        self.answers.send_replace(Some(into));
        let seen = Seen { path: head.uri.to_string(), headers: head.headers, body };
        self.seen.send_modify(|all| all.push(seen));
        let response = Response::builder().header("content-type", "text/event-stream");
        Ok(response.body(StreamBody::new(ReceiverStream::new(stream))).unwrap())
    }
}
