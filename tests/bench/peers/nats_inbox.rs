//! NATS JetStream as 1,000 inboxes: a message is published to one, pulled from it, and acknowledged with an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use async_trait::async_trait;
use futures::FutureExt;

use super::Peer;
use super::nats::{Nats, Push, Sync};
use crate::harness::contender::{Card, Contender, Plan, Work};
use crate::harness::load::{self, Operation};
use crate::options::Options;
use crate::skein::inboxes::INBOXES;

/// Every message is flushed before it is acknowledged.
pub(crate) const ALWAYS: Peer =
    Peer { name: "NATS always", start: |options| start(options, Sync::Always).boxed() };

/// As NATS comes: messages are flushed every two minutes.
pub(crate) const LAZY: Peer = Peer { name: "NATS lazy", start: |options| start(options, Sync::Lazy).boxed() };

struct Inboxes {
    nats: Nats,
    sync: Sync,
    push: Push,
    next: Arc<AtomicUsize>,
}

async fn start(options: Options, sync: Sync) -> Result<Box<dyn Contender>> {
    let nats = Nats::start(&options, sync).await?;
    let push = Push::open(&nats, INBOXES).await?;
    Ok(Box::new(Inboxes { nats, sync, push, next: Arc::default() }))
}

#[async_trait]
impl Contender for Inboxes {
    fn card(&self) -> Card {
        self.nats.card(self.sync)
    }

    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        let (push, next) = (self.push.clone(), Arc::clone(&self.next));
        let operation: Operation = Arc::new(move |_| {
            let (push, inbox) = (push.clone(), next.fetch_add(1, Ordering::Relaxed) % INBOXES);
            Box::pin(async move { push.dispatch(inbox).await.map(drop) })
        });
        load::run(plan, operation).await
    }

    async fn stop(self: Box<Self>) -> Result<()> {
        self.nats.stop().await
    }
}
