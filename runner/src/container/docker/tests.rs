//! The engine before a daemon that does what the test wants.

use std::convert::Infallible;
use std::path::Path;

use bytes::Bytes;
use futures::FutureExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::Notify;

use super::*;
use crate::container::{Limits, exec::Scope};
use crate::transport::{END, SUBCOMMAND};

/// A daemon that makes one container, and takes its time for that.
#[derive(Default)]
struct Daemon {
    asked: Notify,
    go: Notify,
    made: Mutex<bool>,
    removed: Mutex<bool>,
    /// What it was asked to run in the container.
    ran: Mutex<Vec<Value>>,
    /// How each of these has ended, at once.
    codes: Vec<i32>,
}

impl Daemon {
    async fn answer(&self, mut request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let told = request.body_mut().collect().await.unwrap().to_bytes();
        let (status, body) = match (&method, path.as_str()) {
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
            (&Method::POST, path) if path.ends_with("/containers/c1/exec") => {
                let mut ran = lock(&self.ran);
                let id = format!("e{}", ran.len());
                ran.push(serde_json::from_slice(&told).unwrap());
                (StatusCode::CREATED, json!({"Id": id}))
            }
            (&Method::POST, path) if path.ends_with("/start") => return attach(request),
            (_, path) if path.contains("/exec/") => {
                let number: usize =
                    path.trim_end_matches("/json").rsplit_once('e').unwrap().1.parse().unwrap();
                (StatusCode::OK, json!({"ExitCode": self.codes[number]}))
            }
            (_, path) if path.ends_with("/containers/c1/json") => {
                (StatusCode::OK, json!({"State": {"Running": true}}))
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
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service).with_upgrades());
            }
        });
    }
}

/// Attaches whoever asks to a process that says nothing, and ends with its input.
fn attach(request: Request<Incoming>) -> Response<Full<Bytes>> {
    tokio::spawn(async move {
        let mut attached = TokioIo::new(hyper::upgrade::on(request).await.unwrap());
        tokio::io::copy(&mut attached, &mut tokio::io::sink()).await.unwrap();
    });
    let attached = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    attached.header("connection", "Upgrade").header("upgrade", "tcp").body(Full::default()).unwrap()
}

fn engine(daemon: &Arc<Daemon>, folder: &Path) -> DockerEngine {
    let socket = folder.join("docker.sock");
    Arc::clone(daemon).serve(&socket);
    let docker = Docker::connect_with_unix(socket.to_str().unwrap(), 10, bollard::API_DEFAULT_VERSION);
    DockerEngine::over(docker.unwrap(), "r1", &["skein-runner".into()])
}

#[tokio::test]
async fn a_start_that_is_given_up_while_its_container_is_made_leaves_none() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Arc::new(Daemon::default());
    let engine = Arc::new(engine(&daemon, folder.path()));

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

/// What a tool is run by in the container `c1`, of which nobody outside can see a process.
fn tool() -> (Handle, Exec) {
    let handle = Handle {
        instance: "worker-1".to_owned(),
        runner: "r1".to_owned(),
        pid: 0,
        born: 0,
        boot: String::new(),
        cgroup: None,
        user: None,
        container: Some(Id { id: "c1".to_owned(), log: 0 }),
    };
    let spec = Spec {
        instance: handle.instance.clone(),
        command: Vec::new(),
        env: [("PATH".to_owned(), "/bin".to_owned())].into(),
        workdir: "/".into(),
        log: "/log".into(),
        unbegun: "/unbegun".into(),
        user: None,
        closed: Vec::new(),
        open: Vec::new(),
        readable: Vec::new(),
        definition: "/definition".into(),
        credentials: None,
        input: None,
        limits: Limits::default(),
        agent_commands: None,
        kept: None,
        container: None,
    };
    let arguments = vec![SUBCOMMAND.to_owned()];
    (handle, Exec { spec, arguments, input: b"{}".to_vec(), limit: END_OF_TIME, most: 100 })
}

/// Longer than any test may take.
const END_OF_TIME: Duration = Duration::from_secs(600);

fn last<'a>(ran: &'a Value, key: &str) -> &'a str {
    ran[key].as_array().and_then(|all| all.last()).and_then(Value::as_str).unwrap_or_default()
}

#[tokio::test]
async fn what_a_tool_has_left_is_ended_inside_by_who_cannot_reach_it_from_outside() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Arc::new(Daemon { codes: vec![124, 0, 0], ..Daemon::default() });
    let engine = engine(&daemon, folder.path());
    let (handle, exec) = tool();
    let executed = engine.exec(&handle, &exec).await.unwrap();
    assert_eq!((executed.exit.code, &executed.left), (Some(124), &None));
    let ran = lock(&daemon.ran).clone();
    let mark = last(&ran[0], "Env");
    assert!(mark.starts_with(Scope::MARK), "{mark}");
    assert_eq!(ran[1]["Env"], json!([format!("{END}={mark}")]));
    assert_eq!(last(&ran[1], "Cmd"), SUBCOMMAND);

    let executed = engine.exec(&handle, &exec).await.unwrap();
    assert_eq!((executed.exit.code, lock(&daemon.ran).len()), (Some(0), 3), "what it leaves may go on");
}

#[tokio::test]
async fn what_a_tool_has_left_and_cannot_be_ended_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Arc::new(Daemon { codes: vec![124, 1], ..Daemon::default() });
    let engine = engine(&daemon, folder.path());
    let (handle, exec) = tool();
    let executed = engine.exec(&handle, &exec).await.unwrap();
    assert_eq!(executed.exit.code, Some(124));
    assert!(executed.left.is_some_and(|why| why.contains("Some(1)")));
}
