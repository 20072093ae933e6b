//! The engine before a daemon that does what the test wants.

mod joined;
mod unknown;

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
use crate::container::engines::Engines;
use crate::container::process::ProcessEngine;
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
    /// What the container has printed, and how many milliseconds after the first moment of 2026.
    printed: Mutex<Vec<(u64, &'static str)>>,
    /// Bytes at the end of what it tells of that next, which it does not come to.
    untold: Mutex<usize>,
    /// Whether the container has ended.
    ended: bool,
    /// Whether it was asked to end the container, which has followed.
    killed: Mutex<bool>,
    /// Whether it fails at whatever it is asked.
    fails: bool,
    /// Whether it keeps waiting whoever asks anything.
    hangs: channel::Sender<bool>,
    /// Whether it can pause the container.
    pauses: bool,
    /// The mark of whoever has made what there is; that of the usual runner if none is said.
    runner: Option<&'static str>,
}

/// The first moment of 2026, in seconds.
const BEGIN: u64 = 1_767_225_600;

impl Daemon {
    async fn answer(&self, mut request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let told = request.body_mut().collect().await.unwrap().to_bytes();
        self.hangs.subscribe().wait_for(|hangs| !hangs).await.unwrap();
        // Whose something is says its identity, and the daemon would compare all of the mark.
        assert!(!request.uri().query().unwrap_or_default().contains("skein.runner%3D"), "{}", request.uri());
        let (status, body) = match (&method, path.as_str()) {
            _ if self.fails => (StatusCode::INTERNAL_SERVER_ERROR, json!({"message": "it is not well"})),
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
                let container = json!({"Id": "c1", "Labels": self.labels()});
                (StatusCode::OK, if *lock(&self.made) { json!([container]) } else { json!([]) })
            }
            (_, path) if path.ends_with("/networks") => {
                (StatusCode::OK, json!([{"Id": "n1", "Labels": self.labels()}]))
            }
            (&Method::POST, path) if path.ends_with("/containers/c1/exec") => {
                let mut ran = lock(&self.ran);
                let id = format!("e{}", ran.len());
                ran.push(serde_json::from_slice(&told).unwrap());
                (StatusCode::CREATED, json!({"Id": id}))
            }
            (&Method::POST, path) if path.ends_with("/start") => return attach(request),
            (&Method::POST, path) if self.pauses && path.ends_with("pause") => {
                (StatusCode::NO_CONTENT, json!(null))
            }
            (&Method::POST, path) if path.ends_with("/containers/c1/kill") && !self.ended => {
                *lock(&self.killed) = true;
                (StatusCode::NO_CONTENT, json!(null))
            }
            (_, path) if path.contains("/exec/") => {
                let number: usize =
                    path.trim_end_matches("/json").rsplit_once('e').unwrap().1.parse().unwrap();
                (StatusCode::OK, json!({"ExitCode": self.codes[number]}))
            }
            (_, path) if path.ends_with("/containers/c1/json") => {
                let running = !self.ended && !*lock(&self.killed);
                (StatusCode::OK, json!({"State": {"Running": running, "ExitCode": 0}}))
            }
            (_, path) if path.ends_with("/containers/c1/wait") && self.ended => {
                (StatusCode::OK, json!({"StatusCode": 0}))
            }
            (_, path) if path.ends_with("/containers/c1/logs") => {
                return Response::new(Full::new(self.output(request.uri().query().unwrap())));
            }
            _ => (StatusCode::NOT_FOUND, json!({"message": "there is no such thing"})),
        };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut answer = Response::new(Full::new(Bytes::from(body)));
        *answer.status_mut() = status;
        answer
    }

    fn labels(&self) -> Value {
        json!({"skein.runner": self.runner.unwrap_or("r1"), "skein.instance": "worker-1", "skein.log": "0"})
    }

    /// What was printed from a second on, with the time of it. Each piece is preceded by its stream and its length.
    fn output(&self, query: &str) -> Bytes {
        let since = query.split('&').find_map(|pair| pair.strip_prefix("since=")).unwrap();
        let since = since.parse::<u64>().unwrap().saturating_sub(BEGIN) * 1000;
        assert!(query.contains("timestamps=true"), "{query}");
        let mut output: Vec<u8> = Vec::new();
        for (millis, text) in lock(&self.printed).iter().filter(|(millis, _)| *millis >= since) {
            let (second, part) = (millis / 1000, millis % 1000);
            let piece = format!("2026-01-01T00:00:{second:02}.{part:03}000000Z {text}");
            output.extend([1, 0, 0, 0]);
            output.extend(u32::try_from(piece.len()).unwrap().to_be_bytes());
            output.extend(piece.into_bytes());
        }
        let untold = std::mem::take(&mut *lock(&self.untold));
        output.truncate(output.len() - untold);
        output.into()
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
    engine_of("r1", daemon, folder)
}

fn engine_of(runner: &str, daemon: &Arc<Daemon>, folder: &Path) -> DockerEngine {
    let socket = folder.join("docker.sock");
    Arc::clone(daemon).serve(&socket);
    let docker = Docker::connect_with_unix(socket.to_str().unwrap(), 10, bollard::API_DEFAULT_VERSION);
    DockerEngine::over(docker.unwrap(), runner, &["skein-runner".into()])
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
        joined: None,
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

/// Takes the container over with another process of the runner, and returns when all that it has printed is copied.
async fn copied(daemon: &Arc<Daemon>, log: &Path) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (engine, (handle, _)) = (engine(daemon, folder.path()), tool());
    assert!(engine.adopt(&handle, log).await);
    let mut logged = engine.known(&handle).unwrap().logged.clone();
    logged.wait_for(|logged| *logged).await.unwrap();
    std::fs::read_to_string(log).unwrap()
}

#[tokio::test]
async fn what_a_container_has_printed_is_copied_once_however_often_its_runner_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("worker-1.log");
    let daemon = Arc::new(Daemon { ended: true, ..Daemon::default() });
    let print = |printed: &[(u64, &'static str)]| lock(&daemon.printed).extend_from_slice(printed);
    print(&[(900, "one\n"), (2100, "two\n"), (2000, "of another stream, and late\n"), (2100, "three\n")]);
    let first = "one\ntwo\nof another stream, and late\nthree\n";
    assert_eq!(copied(&daemon, &log).await, first);
    assert_eq!(copied(&daemon, &log).await, first);

    // It has grown too long meanwhile, and what it has said was counted.
    std::fs::write(&log, "").unwrap();
    assert_eq!(copied(&daemon, &log).await, "");
    print(&[(2100, "four\n"), (2999, "five\n"), (3000, "six\n")]);
    assert_eq!(copied(&daemon, &log).await, "four\nfive\nsix\n");

    // The runner has ended before it could write down what it had copied.
    std::fs::write(&log, "four\nfive\nsix\nsev").unwrap();
    print(&[(3000, "seven\n")]);
    assert_eq!(copied(&daemon, &log).await, "four\nfive\nsix\nseven\n");
}

#[tokio::test]
async fn another_container_of_an_instance_prints_behind_the_last_one() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("worker-1.log");
    let daemon = Arc::new(Daemon { ended: true, ..Daemon::default() });
    lock(&daemon.printed).push((900, "one\n"));
    copied(&daemon, &log).await;
    let begin = log::length(&log).unwrap();
    let mut next = Copied::open(&log, &Id { id: "c2".to_owned(), log: begin }).unwrap();
    next.take(&[Bytes::from_static(b"2026-01-01T00:00:00.500000000Z two\n")]).unwrap();
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "one\ntwo\n");
}

#[tokio::test]
async fn what_the_daemon_did_not_come_to_tell_is_asked_for_again() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Arc::new(Daemon { ended: true, untold: Mutex::new(3), ..Daemon::default() });
    lock(&daemon.printed).extend_from_slice(&[(900, "one\n"), (950, "last words\n")]);
    assert_eq!(copied(&daemon, &folder.path().join("worker-1.log")).await, "one\nlast words\n");
    assert_eq!(*lock(&daemon.untold), 0, "all of it was told at once");
}

#[tokio::test]
async fn what_a_container_prints_is_kept_again_once_its_log_can_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    let (daemon, (handle, _)) = (Arc::new(Daemon::default()), tool());
    lock(&daemon.printed).push((900, "one\n"));
    let engine = engine(&daemon, folder.path());
    let (log, id) = (folder.path().join("logs/worker-1.log"), handle.container.unwrap());
    let make = || std::fs::create_dir(folder.path().join("logs")).unwrap();
    make();
    let copied = Copied::open(&log, &id).unwrap();
    std::fs::remove_dir_all(folder.path().join("logs")).unwrap();
    let (ended, ending) = channel::channel(None);
    let mut copying = tokio::spawn(log::copy(engine.docker.clone(), id, log.clone(), copied, ending));
    // Longer than until it is opened again.
    let given_up = tokio::time::timeout(Duration::from_secs(2), &mut copying).await;
    assert!(given_up.is_err(), "nothing is kept of it any more");
    make();
    ended.send_replace(Some(Exit::default()));
    copying.await.unwrap();
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "one\n");
}

#[tokio::test]
async fn a_container_of_which_the_daemon_says_nothing_is_to_stand_still() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Arc::new(Daemon { fails: true, ..Daemon::default() });
    let (engine, (handle, _)) = (engine(&daemon, folder.path()), tool());
    assert!(engine.adopt(&handle, &folder.path().join("worker-1.log")).await);
    assert!(*engine.known(&handle).unwrap().frozen.lock().await, "it would be let go on if it is paused");
}

#[tokio::test]
async fn a_container_that_has_ended_meanwhile_stands_still() {
    let folder = tempfile::tempdir().unwrap();
    for ended in [false, true] {
        // This daemon can pause none.
        let daemon = Arc::new(Daemon { ended, ..Daemon::default() });
        let folder = tempfile::tempdir_in(&folder).unwrap();
        let (engine, (handle, _)) = (engine(&daemon, folder.path()), tool());
        assert!(engine.adopt(&handle, &folder.path().join("worker-1.log")).await);
        assert_eq!(engine.freeze(&handle).await.is_ok(), ended);
        assert_eq!(engine.thaw(&handle).await.is_ok(), ended);
    }
}

/// Its processes look like those of an instance without a container.
#[tokio::test]
async fn a_container_of_which_the_daemon_says_nothing_is_taken_for_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Arc::new(Daemon { fails: true, ..Daemon::default() });
    let docker = engine(&daemon, folder.path());
    let engines = Engines::new(ProcessEngine::with_cgroups("r1", Vec::new(), None), Ok(docker));
    let unknown = engines.find("worker-1", None).await.unwrap_err().to_string();
    assert!(unknown.contains("it is not well"), "{unknown}");
}

#[tokio::test]
async fn what_the_runner_has_left_in_docker_by_an_earlier_name_is_its_own() {
    for (left_by, own) in [("old-0123456789abcd", true), ("new-0123456789abce", false)] {
        let folder = tempfile::tempdir().unwrap();
        let made = Mutex::new(true);
        let daemon = Arc::new(Daemon { made, runner: Some(left_by), ..Daemon::default() });
        let engine = engine_of("new-0123456789abcd", &daemon, folder.path());
        assert_eq!(engine.list().await, if own { vec!["worker-1"] } else { Vec::new() });
        assert_eq!(engine.find("worker-1", None).await.unwrap().is_some(), own);
        engine.sweep("worker-1").await.unwrap();
        assert_eq!(std::mem::take(&mut *lock(&daemon.removed)), own, "the container of {left_by}");
        engine.close().await;
        assert_eq!(*lock(&daemon.removed), own, "the network of {left_by}");
    }
}
