//! A runner that has no file descriptor left does not take what it cannot look at for gone.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "runs/spec.rs"]
mod spec;

use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use skein_runner::container::process::ProcessEngine;
use skein_runner::container::tree::Process;
use skein_runner::container::{Engine, Handle};
use spec::spec;

const LIMIT: Duration = Duration::from_secs(60);

fn engine() -> ProcessEngine {
    let launcher = vec![env!("CARGO_BIN_EXE_skein-runner").into(), "exec-agent".into()];
    ProcessEngine::with_cgroups(&format!("descriptors-{}", std::process::id()), launcher, None)
}

async fn begun(folder: &Path) -> Handle {
    let spec = spec(folder, &format!("worker-{}", std::process::id()), "exec sleep 1000");
    engine().start(&spec).await.unwrap()
}

fn may_open(files: Option<u64>) {
    setrlimit(Resource::Nofile, Rlimit { current: files, ..getrlimit(Resource::Nofile) }).unwrap();
}

/// The only test of this process: the limit is that of all its threads.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_looked_at_is_not_taken_for_gone() {
    let folder = tempfile::tempdir().unwrap();
    let handle = begun(folder.path()).await;
    let engine = engine();
    assert!(engine.adopt(&handle, Path::new("")).await);

    let before = getrlimit(Resource::Nofile).current;
    may_open(Some(0));
    let read = Process::read(handle.pid);
    let asked = engine.ask(&handle).await;
    let (frozen, killed, swept) =
        tokio::join!(engine.freeze(&handle), engine.kill(&handle), engine.sweep(&handle.instance));
    // That took seconds, and adopted processes are looked for every tenth of one.
    let ended = futures::poll!(std::pin::pin!(engine.wait(&handle)));
    may_open(before);
    assert!(read.is_err() && asked.is_err() && frozen.is_err() && killed.is_err() && swept.is_err());
    assert!(ended.is_pending(), "{ended:?}");

    engine.freeze(&handle).await.unwrap();
    assert!(Process::read(handle.pid).unwrap().is_some_and(|process| process.is_stopped()));
    engine.kill(&handle).await.unwrap();
    tokio::time::timeout(LIMIT, engine.wait(&handle)).await.unwrap();
    assert!(Process::read(handle.pid).unwrap().is_none_or(|process| process.is_over()));
}
