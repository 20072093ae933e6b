//! An engine that cannot freeze at first, as one whose instance waits for the disk.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use serde_json::json;
use skein_runner::container::{Container, Exec, Executed, Exit, Failure};
use skein_runner::credentials::Credentials;
use skein_runner::definition;
use skein_runner::endpoint::Upstreams;
use skein_runner::instance::folders::Folders;
use skein_runner::instance::ledger::{Ledger, What};
use skein_runner::instance::{Instances, Shared};
use skein_shared::entity::{Reign, RunnerCommand};
use skein_shared::fence::{Epoch, Token};
use tokio::sync::watch;

use super::*;

/// Refuses so many freezes.
struct Stubborn(ProcessEngine, AtomicU32);

#[async_trait]
impl Engine for Stubborn {
    async fn freeze(&self, handle: &Handle) -> Result<(), Failure> {
        let left = self.1.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        match left {
            Ok(_) => Err(Failure("it waits for the disk".into())),
            Err(_) => self.0.freeze(handle).await,
        }
    }

    fn names(&self) -> Vec<&'static str> {
        self.0.names()
    }

    async fn door(&self, container: Option<&Container>) -> Result<IpAddr, Failure> {
        self.0.door(container).await
    }

    async fn start(&self, spec: &Spec) -> Result<Handle, Failure> {
        self.0.start(spec).await
    }

    async fn adopt(&self, handle: &Handle, log: &Path) -> bool {
        self.0.adopt(handle, log).await
    }

    async fn thaw(&self, handle: &Handle) -> Result<(), Failure> {
        self.0.thaw(handle).await
    }

    async fn ask(&self, handle: &Handle) -> Result<(), Failure> {
        self.0.ask(handle).await
    }

    async fn kill(&self, handle: &Handle) -> Result<(), Failure> {
        self.0.kill(handle).await
    }

    async fn exec(&self, handle: &Handle, exec: &Exec) -> Result<Executed, Failure> {
        self.0.exec(handle, exec).await
    }

    async fn wait(&self, handle: &Handle) -> Exit {
        self.0.wait(handle).await
    }

    fn let_go(&self, handle: &Handle) {
        self.0.let_go(handle);
    }

    async fn list(&self) -> Vec<String> {
        self.0.list().await
    }

    async fn sweep(&self, instance: &str) -> Result<(), Failure> {
        self.0.sweep(instance).await
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

fn nth(number: u64) -> Token {
    Token { epoch: Epoch(1), number }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_freeze_that_fails_is_tried_again() {
    let bed = Bed::new("exec sleep 1000");
    let (folders, _lock) = Folders::open(&bed.data(), None, skein_runner::isolation()).unwrap();
    let ledger = Ledger::open(&folders.ledger()).unwrap();
    let agents = definition::load(&bed.folder.path().join("agents"), &[]).unwrap();
    let engine = Arc::new(Stubborn(ProcessEngine::new("stubborn", launcher()), AtomicU32::new(1)));
    let instances = Instances::new(Shared {
        mark: "stubborn".to_owned(),
        engine,
        isolation: skein_runner::isolation(),
        ledger: ledger.clone(),
        folders,
        closed: Vec::new(),
        credentials: Credentials::new(bed.folder.path().join("credentials")),
        helper: None,
        definitions: watch::Sender::new(agents.definitions).subscribe(),
        upstreams: Upstreams::default(),
        reported: watch::Sender::new(0),
    });
    let reign = Reign { source: "agent/default/worker".parse().unwrap(), epoch: Epoch(1) };
    let start = RunnerCommand::Start {
        instance: id(1).to_owned(),
        agent: "worker".to_owned(),
        swarm: "default".to_owned(),
        token: nth(1),
        input: json!({}),
    };
    instances.command(start, ACCESS, &reign).await.unwrap();
    let mut reported = instances.reported();
    let mut told = async |what: fn(&What) -> bool| {
        while !ledger.reports(0, 10).await.unwrap().iter().any(|(_, report)| what(&report.what)) {
            tokio::time::timeout(LIMIT, reported.changed()).await.expect("a report").unwrap();
        }
    };
    told(|what| matches!(what, What::Started { .. })).await;
    let freeze = RunnerCommand::Freeze { instance: id(1).to_owned(), token: nth(2) };
    instances.command(freeze, "", &reign).await.unwrap();
    told(|what| matches!(what, What::Frozen)).await;
    assert!(tree::marked(id(1)).iter().all(stands_still));
    instances.leave().await;
}
