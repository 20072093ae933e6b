//! NATS JetStream: a work queue that is published to, pulled from, and acknowledged with an answer.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::{self, stream};
use async_nats::{Client, Message};
use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{Peer, install};
use crate::harness::contender::{Card, Contender, Durability, Plan, Work};
use crate::harness::load::{self, Operation};
use crate::harness::process::{Server, free_port};
use crate::options::Options;
use crate::probes::sqlite::PAYLOAD;

const SUBJECT: &str = "tasks";

/// Every message is flushed before it is acknowledged.
pub(crate) const ALWAYS: Peer =
    Peer { name: "NATS always", start: |options| cycle(options, Sync::Always).boxed() };

/// As NATS comes: messages are flushed every two minutes.
pub(crate) const LAZY: Peer = Peer { name: "NATS lazy", start: |options| cycle(options, Sync::Lazy).boxed() };

/// When messages are flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    Always,
    Lazy,
}

/// A server with a connection to it.
pub(crate) struct Nats {
    server: Server,
    client: Client,
}

impl Nats {
    /// # Errors
    /// When the server cannot be had or does not start.
    pub(crate) async fn start(options: &Options, sync: Sync) -> Result<Self> {
        let programs = install::python("nats", include_str!("nats/requirements.txt")).await?;
        let folder = options.folder_for("nats")?;
        let port = free_port()?;
        let interval = match sync {
            Sync::Always => "sync_interval: always",
            Sync::Lazy => "",
        };
        let store = folder.join("store");
        let text = format!(
            "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}\"\n{interval} }}\n",
            store.display()
        );
        let config = folder.join("server.conf");
        std::fs::write(&config, text)?;
        let mut command = Command::new(programs.join("nats-server"));
        command.arg("--config").arg(config);
        let mut server = Server::start("nats-server", command, &folder.join("log"))?;
        server.listening(port).await?;
        let client = async_nats::connect(format!("127.0.0.1:{port}")).await?;
        Ok(Self { server, client })
    }

    /// Both contenders go by the same names: no bench has both.
    pub(crate) fn card(&self, sync: Sync) -> Card {
        let (peer, durability) = match sync {
            Sync::Always => (ALWAYS, Durability::PowerCut),
            Sync::Lazy => (LAZY, Durability::Lazy),
        };
        let version = format!("nats-server {}", self.client.server_info().version);
        Card::peer(peer.name, durability, version, self.server.metered())
    }

    /// A stream from which what is acknowledged is gone.
    async fn work_queue(&self, name: &str, subjects: &str) -> Result<(jetstream::Context, stream::Stream)> {
        let context = jetstream::new(self.client.clone());
        let config = stream::Config {
            name: name.to_owned(),
            subjects: vec![subjects.to_owned()],
            retention: stream::RetentionPolicy::WorkQueue,
            storage: stream::StorageType::File,
            ..stream::Config::default()
        };
        let stream = context.create_stream(config).await?;
        Ok((context, stream))
    }

    /// # Errors
    /// When it cannot be asked to end.
    pub(crate) async fn stop(self) -> Result<()> {
        self.server.stop().await
    }
}

/// Those who pull, in turns; messages come ahead of them, as in a busy worker.
type Messages = Arc<Mutex<pull::Stream>>;

async fn messages(stream: &stream::Stream, filter: &str) -> Result<Messages> {
    let config = pull::Config {
        durable_name: Some(format!("worker-{}", filter.replace('.', "-"))),
        filter_subject: filter.to_owned(),
        ..pull::Config::default()
    };
    let consumer = stream.create_consumer(config).await?;
    Ok(Arc::new(Mutex::new(consumer.messages().await?)))
}

async fn next(messages: &Messages) -> Result<jetstream::Message> {
    messages.lock().await.next().await.context("the stream of messages ended")?.map_err(Into::into)
}

/// Acknowledges, and waits until the server has it.
async fn done(client: &Client, message: Message) -> Result<()> {
    let reply = message.reply.context("a message of no stream")?;
    client.request(reply, "+ACK".into()).await?;
    Ok(())
}

/// The task cycle: publish, pull, acknowledge.
struct Cycle {
    nats: Nats,
    sync: Sync,
    context: jetstream::Context,
    messages: Messages,
}

async fn cycle(options: Options, sync: Sync) -> Result<Box<dyn Contender>> {
    let nats = Nats::start(&options, sync).await?;
    let (context, stream) = nats.work_queue("tasks", SUBJECT).await?;
    let messages = messages(&stream, SUBJECT).await?;
    Ok(Box::new(Cycle { nats, sync, context, messages }))
}

#[async_trait]
impl Contender for Cycle {
    fn card(&self) -> Card {
        self.nats.card(self.sync)
    }

    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        let (client, context) = (self.nats.client.clone(), self.context.clone());
        let messages = Arc::clone(&self.messages);
        let operation: Operation = Arc::new(move |_| {
            let (client, context, messages) = (client.clone(), context.clone(), Arc::clone(&messages));
            Box::pin(async move {
                context.publish(SUBJECT, PAYLOAD.into()).await?.await?;
                let message = next(&messages).await?;
                done(&client, message.message).await
            })
        });
        load::run(plan, operation).await
    }

    async fn stop(self: Box<Self>) -> Result<()> {
        self.nats.stop().await
    }
}

/// Workers that each wait for messages of their own, in one stream.
#[derive(Clone)]
pub(crate) struct Push {
    client: Client,
    context: jetstream::Context,
    workers: Arc<Vec<Messages>>,
}

impl Push {
    /// # Errors
    /// When the server refuses.
    pub(crate) async fn open(nats: &Nats, workers: usize) -> Result<Self> {
        let (context, stream) = nats.work_queue("push", "push.*").await?;
        let mut waiting = Vec::with_capacity(workers);
        for worker in 0..workers {
            waiting.push(messages(&stream, &format!("push.{worker}")).await?);
        }
        Ok(Self { client: nats.client.clone(), context, workers: Arc::new(waiting) })
    }

    /// Publishes a message to a worker, which already waits for it. Gives the time from the beginning of the
    /// publication until the worker has it; the acknowledgement comes after.
    ///
    /// # Errors
    /// When the server fails, or there is no such worker.
    pub(crate) async fn dispatch(&self, worker: usize) -> Result<Duration> {
        let messages = self.workers.get(worker).ok_or_else(|| anyhow!("there is no worker {worker}"))?;
        let began = Instant::now();
        let publish = async {
            anyhow::Ok(self.context.publish(format!("push.{worker}"), PAYLOAD.into()).await?.await?)
        };
        let receive = async { next(messages).await.map(|message| (message, began.elapsed())) };
        let (_, (message, took)) = futures::try_join!(publish, receive)?;
        done(&self.client, message.message).await?;
        Ok(took)
    }
}
