//! A runner whose agents sleep: it takes their starts in, says that they run, and keeps them alive, all on one
//! control stream. There are no processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use skein_coordinator::api::client;
use skein_coordinator::auth::Role;
use skein_coordinator::node::datadir::Layout;
use skein_proto::v1::coordinator_message::Message as Command;
use skein_proto::v1::report::What;
use skein_proto::v1::runner_message::Message;
use skein_proto::v1::runners_client::RunnersClient;
use skein_proto::v1::{
    AgentDefinition, Heartbeat, Register, Report, RunAgentRequest, RunnerMessage, Start, Started,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::transport::Endpoint;
use tonic::{Request, Streaming};

use super::embedded::refused;
use super::fleet::Node;

const RUNNER: &str = "sleeper";
const SWARM: &str = "default";
const DAY_MS: u64 = 86_400_000;
/// As a runner does.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Runs that are asked for at a time.
const ASKING: usize = 64;
const PATIENCE: Duration = Duration::from_secs(60);

/// A connected runner. Its stream ends when this is dropped.
pub(crate) struct Sleepers {
    agents: u32,
    asked: AtomicUsize,
    running: Arc<AtomicUsize>,
    _stream: JoinSet<Result<()>>,
}

impl Sleepers {
    /// Connects a runner with so many agents, each of which may run `instances` times.
    ///
    /// # Errors
    /// When it is not let in.
    pub(crate) async fn connect(node: &Node, agents: u32, instances: u32) -> Result<Self> {
        let (_, token) = node.token(Role::Runner, RUNNER)?;
        // As a runner's ledger, it takes in every report: one that waited for the coordinator to read would not
        // hear what the coordinator has to say first.
        let (say, said) = mpsc::unbounded_channel();
        say.send(register(agents, instances))?;
        let said = stream::unfold(said, |mut said| async { said.recv().await.map(|next| (next, said)) });
        let mut request = Request::new(said);
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse()?);
        let channel = Endpoint::from_shared(format!("http://{}", node.endpoint.grpc))?.connect().await?;
        let mut commands = RunnersClient::new(channel).control(request).await?.into_inner();
        let welcome = commands.message().await?.and_then(|message| message.message);
        let Some(Command::Welcome(_)) = welcome else { bail!("the runner was turned away: {welcome:?}") };
        let running = Arc::new(AtomicUsize::new(0));
        let mut stream = JoinSet::new();
        stream.spawn(serve(commands, say, Arc::clone(&running)));
        Ok(Self { agents, asked: AtomicUsize::new(0), running, _stream: stream })
    }

    /// Runs each agent so often, beside the runs before, and returns when all have begun.
    ///
    /// # Errors
    /// When the node refuses, or not all begin.
    pub(crate) async fn run(&self, node: &Node, instances: u32) -> Result<()> {
        let admin = client::connect(&Layout::new(node.data())).await.map_err(refused)?;
        let agents = self.agents;
        let runs = (0..agents * instances).map(|run| {
            let mut admin = admin.clone();
            async move {
                let request = RunAgentRequest {
                    swarm: SWARM.to_owned(),
                    agent: name(run % agents),
                    prompt: "sleep".to_owned(),
                };
                admin.run_agent(request).await
            }
        });
        let asked = stream::iter(runs).buffer_unordered(ASKING).try_for_each(|_| async { Ok(()) });
        tokio::time::timeout(PATIENCE, asked).await.context("not all runs were taken in")??;
        let more = (agents * instances) as usize;
        let all = self.asked.fetch_add(more, Ordering::Relaxed) + more;
        let begun = async {
            while self.running.load(Ordering::Relaxed) < all {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, begun).await.context("not all runs have begun")
    }
}

/// Answers starts, and gives signs of life for all that were started.
async fn serve(
    mut commands: Streaming<skein_proto::v1::CoordinatorMessage>,
    say: mpsc::UnboundedSender<RunnerMessage>,
    running: Arc<AtomicUsize>,
) -> Result<()> {
    let (mut instances, mut sequence, mut number) = (Vec::new(), 0, 0);
    let mut beat = tokio::time::interval(HEARTBEAT);
    loop {
        tokio::select! {
            command = commands.message() => match command?.and_then(|command| command.message) {
                Some(Command::Start(start)) => {
                    instances.push(start.instance.clone());
                    running.store(instances.len(), Ordering::Relaxed);
                    sequence += 1;
                    say.send(started(start, sequence))?;
                }
                Some(_) => {}
                None => bail!("the node has ended the stream"),
            },
            _ = beat.tick() => {
                number += 1;
                let heartbeat = Heartbeat { instances: instances.clone(), number };
                say.send(message(Message::Heartbeat(heartbeat)))?;
            }
        }
    }
}

fn register(agents: u32, instances: u32) -> RunnerMessage {
    let definition = |number| AgentDefinition {
        name: name(number),
        swarm: SWARM.to_owned(),
        instances,
        timeout_ms: DAY_MS,
        work_queue: instances,
        max_waiting: instances,
        max_call_depth: 3,
        wait_timeout_ms: DAY_MS,
        grace_ms: 1000,
        role: "worker".to_owned(),
        ..AgentDefinition::default()
    };
    message(Message::Register(Register {
        name: RUNNER.to_owned(),
        group: SWARM.to_owned(),
        slots: agents * instances,
        engines: vec!["process".to_owned()],
        swarms: vec![SWARM.to_owned()],
        agents: (0..agents).map(definition).collect(),
        incarnation: 1,
        ..Register::default()
    }))
}

fn started(start: Start, sequence: u64) -> RunnerMessage {
    let Start { instance, swarm, agent, token, .. } = start;
    let what = Some(What::Started(Started { pid: 1 }));
    message(Message::Report(Report { sequence, instance, swarm, agent, token, what }))
}

fn message(message: Message) -> RunnerMessage {
    RunnerMessage { message: Some(message) }
}

fn name(number: u32) -> String {
    format!("sleeper-{number}")
}
