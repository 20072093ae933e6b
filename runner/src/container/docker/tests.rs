//! The engine before a daemon that does what the test wants.

use std::convert::Infallible;
use std::path::Path;

use bytes::Bytes;
use futures::FutureExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::UnixListener;
use tokio::sync::Notify;

use super::*;

/// A daemon that makes one container, and takes its time for that.
#[derive(Default)]
struct Daemon {
    asked: Notify,
    go: Notify,
    made: Mutex<bool>,
    removed: Mutex<bool>,
}

impl Daemon {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (status, body) = match (request.method(), request.uri().path()) {
            (&Method::POST, path) if path.ends_with("/containers/create") => {
                self.asked.notify_one();
                self.go.notified().await;
                *lock(&self.made) = true;
                (StatusCode::CREATED, json!({"Id": "c1", "Warnings": []}))
            }
            (&Method::DELETE, _) => {
                *lock(&self.removed) = true;
                (StatusCode::NO_CONTENT, json!(null))
            }
            (_, path) if path.ends_with("/containers/json") => {
                let made = *lock(&self.made);
                (StatusCode::OK, if made { json!([{"Id": "c1"}]) } else { json!([]) })
            }
            _ => (StatusCode::NOT_FOUND, json!({"message": "there is no such thing"})),
        };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut answer = Response::new(Full::new(Bytes::from(body)));
        *answer.status_mut() = status;
        answer
    }

    /// What is asked of it is done to the end, whoever has gone meanwhile.
    fn serve(self: Arc<Self>, socket: &Path) {
        let listener = UnixListener::bind(socket).unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let daemon = Arc::clone(&self);
                let service = service_fn(move |request| {
                    let daemon = Arc::clone(&daemon);
                    let answer = tokio::spawn(async move { daemon.answer(request).await });
                    async move { Ok::<_, Infallible>(answer.await.unwrap()) }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        });
    }
}

#[tokio::test]
async fn a_start_that_is_given_up_while_its_container_is_made_leaves_none() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("docker.sock");
    let daemon = Arc::new(Daemon::default());
    Arc::clone(&daemon).serve(&socket);
    let docker = Docker::connect_with_unix(socket.to_str().unwrap(), 10, bollard::API_DEFAULT_VERSION);
    let engine = Arc::new(DockerEngine::over(docker.unwrap(), "r1", &["skein-runner".into()]));

    let start = {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            engine.make("worker-1", "skein-r1-worker-1", ContainerCreateBody::default()).await
        })
    };
    daemon.asked.notified().await;
    start.abort();
    assert!(start.await.unwrap_err().is_cancelled());
    assert!(engine.sweep("worker-1").now_or_never().is_none(), "it has waited for nothing");
    let mut sweep = engine.sweep("worker-1");
    assert!((&mut sweep).now_or_never().is_none(), "one that was given up counts as done");
    daemon.go.notify_one();
    sweep.await.unwrap();
    assert!(*lock(&daemon.removed), "it was made behind the back of the sweep");
    assert!(lock(&engine.making).is_empty());
}
