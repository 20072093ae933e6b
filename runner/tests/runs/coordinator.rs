//! A coordinator as a runner sees it: it records what it hears and says what the test tells it to.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use skein_proto::convert::command;
use skein_proto::v1::coordinator_message::Message;
use skein_proto::v1::report::What;
use skein_proto::v1::runner_message::Message as Said;
use skein_proto::v1::runners_server::{Runners, RunnersServer};
use skein_proto::v1::{
    Acknowledge, AgentProblem, Answer, CoordinatorMessage, Coordinators, Outranked, Refused, Register,
    Renewed, Report, RunnerMessage, Welcome,
};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

/// What a runner has to show.
pub(crate) const TOKEN: &str = "runner-token";

/// Longest wait for anything in these tests, on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A lease, in milliseconds, that does not end in a test: a runner that waits for a processor renews it in time.
pub(crate) const LEASE: u64 = 10_000;

#[derive(Clone, Default)]
pub(crate) struct State {
    pub(crate) registrations: Vec<Register>,
    /// Streams that were opened with another token than is wanted.
    pub(crate) turned_away: usize,
    /// Those that are to wait for their welcome.
    pub(crate) unanswered: usize,
    pub(crate) reports: Vec<Report>,
    pub(crate) heartbeats: u64,
    pub(crate) answers: Vec<Answer>,
    pub(crate) outranked: Vec<Outranked>,
    /// Each word of leaving, with the number of reports that had come before it.
    pub(crate) leaving: Vec<(bool, usize)>,
}

#[derive(Clone)]
pub(crate) struct Coordinator {
    pub(crate) address: SocketAddr,
    inner: Arc<Inner>,
}

struct Inner {
    state: watch::Sender<State>,
    stream: Mutex<Option<mpsc::Sender<Result<CoordinatorMessage, Status>>>>,
    name: &'static str,
    mcp_url: String,
    lease_ms: u64,
    behaviour: watch::Sender<Behaviour>,
}

/// What the coordinator does by itself.
#[derive(Clone)]
pub(crate) struct Behaviour {
    /// The token that is wanted.
    pub(crate) token: &'static str,
    pub(crate) acknowledge: bool,
    pub(crate) renew: bool,
    pub(crate) lost: Vec<String>,
    /// What it says of the others after each welcome.
    pub(crate) coordinators: Option<Coordinators>,
    /// It keeps whoever registers waiting.
    pub(crate) hesitates: bool,
    /// With what it turns a registration away.
    pub(crate) refuses: Option<Refused>,
    pub(crate) problems: Vec<AgentProblem>,
}

impl Coordinator {
    pub(crate) async fn open(mcp_url: &str, lease_ms: u64) -> Self {
        Self::named("one", mcp_url, lease_ms).await
    }

    pub(crate) async fn named(name: &'static str, mcp_url: &str, lease_ms: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let behaviour = Behaviour {
            token: TOKEN,
            acknowledge: true,
            renew: true,
            lost: Vec::new(),
            coordinators: None,
            hesitates: false,
            refuses: None,
            problems: Vec::new(),
        };
        let inner = Arc::new(Inner {
            state: watch::Sender::default(),
            stream: Mutex::default(),
            name,
            mcp_url: mcp_url.to_owned(),
            lease_ms,
            behaviour: watch::Sender::new(behaviour),
        });
        let coordinator = Self { address, inner };
        let server = tonic::transport::Server::builder().add_service(RunnersServer::new(coordinator.clone()));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        coordinator
    }

    pub(crate) fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        self.inner.behaviour.send_modify(change);
    }

    pub(crate) async fn say(&self, message: Message) {
        self.say_under(1, message).await;
    }

    /// Commands as the owner of the agent under an epoch.
    pub(crate) async fn say_under(&self, epoch: u64, message: Message) {
        let stream = self.inner.stream.lock().unwrap().clone().unwrap();
        let source = "agent/default/worker".to_owned();
        stream
            .send(Ok(CoordinatorMessage { message: Some(message), source, epoch, ..Default::default() }))
            .await
            .unwrap();
    }

    /// Breaks the stream.
    pub(crate) async fn hang_up(&self) {
        let stream = self.inner.stream.lock().unwrap().take().unwrap();
        let _ = stream.send(Err(Status::unavailable("going away"))).await;
    }

    pub(crate) async fn until(&self, what: &str, reached: impl FnMut(&State) -> bool) -> State {
        let mut state = self.inner.state.subscribe();
        let waited = tokio::time::timeout(LIMIT, state.wait_for(reached)).await;
        waited.unwrap_or_else(|_| panic!("never came: {what}")).unwrap().clone()
    }

    pub(crate) async fn reported(&self, instance: &str, kind: fn(&What) -> bool) -> Report {
        let here = |report: &&Report| report.instance == instance && report.what.as_ref().is_some_and(kind);
        let state = self.until(instance, |state| state.reports.iter().any(|report| here(&report))).await;
        state.reports.iter().find(here).unwrap().clone()
    }

    async fn hear(&self, message: Said, answers: &mpsc::Sender<Result<CoordinatorMessage, Status>>) {
        let mut behaviour = self.inner.behaviour.subscribe();
        if matches!(message, Said::Register(_)) && behaviour.borrow().hesitates {
            self.inner.state.send_modify(|state| state.unanswered += 1);
            behaviour.wait_for(|behaviour| !behaviour.hesitates).await.unwrap();
        }
        let behaviour = behaviour.borrow().clone();
        let (mut others, mut registered) = (None, None);
        let answer = match message {
            Said::Register(register) => {
                registered = Some(register);
                others = behaviour.coordinators.map(Message::Coordinators);
                let (lease_ms, mcp_url) = (self.inner.lease_ms, self.inner.mcp_url.clone());
                let Behaviour { lost, problems, .. } = behaviour;
                let welcome = Welcome { epoch: 1, lease_ms, mcp_url, lost, problems };
                Some(behaviour.refuses.map_or(Message::Welcome(welcome), Message::Refused))
            }
            Said::Heartbeat(heartbeat) => {
                self.inner.state.send_modify(|state| state.heartbeats += 1);
                behaviour.renew.then_some(Message::Renewed(Renewed { heartbeat: heartbeat.number }))
            }
            Said::Answer(answer) => {
                self.inner.state.send_modify(|state| state.answers.push(answer));
                None
            }
            Said::Outranked(outranked) => {
                self.inner.state.send_modify(|state| state.outranked.push(outranked));
                None
            }
            Said::Leaving(leaving) => {
                self.inner.state.send_modify(|state| state.leaving.push((leaving.done, state.reports.len())));
                None
            }
            Said::Report(report) => {
                let sequence = report.sequence;
                self.inner.state.send_modify(|state| state.reports.push(report));
                behaviour.acknowledge.then_some(Message::Acknowledge(Acknowledge { sequence }))
            }
        };
        for answer in answer.into_iter().chain(others) {
            let _ = answers.send(Ok(command::plain(answer))).await;
        }
        // Behind the welcome, which comes before every command.
        self.inner.state.send_modify(|state| state.registrations.extend(registered));
    }
}

#[tonic::async_trait]
impl Runners for Coordinator {
    type ControlStream = ReceiverStream<Result<CoordinatorMessage, Status>>;

    async fn control(
        &self,
        request: Request<Streaming<RunnerMessage>>,
    ) -> Result<Response<Self::ControlStream>, Status> {
        let shown = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        if shown != Some(&format!("Bearer {}", self.inner.behaviour.borrow().token)) {
            self.inner.state.send_modify(|state| state.turned_away += 1);
            return Err(Status::unauthenticated("show the runner's token"));
        }
        let (answers, stream) = mpsc::channel(64);
        *self.inner.stream.lock().unwrap() = Some(answers.clone());
        let coordinator = self.clone();
        let mut heard = request.into_inner();
        tokio::spawn(async move {
            while let Ok(Some(message)) = heard.message().await {
                let message = message.message.unwrap();
                let done = matches!(&message, Said::Leaving(leaving) if leaving.done);
                coordinator.hear(message, &answers).await;
                if done {
                    // Its stream ends when nobody holds it any more.
                    *coordinator.inner.stream.lock().unwrap() = None;
                    return;
                }
            }
        });
        let mut response = Response::new(ReceiverStream::new(stream));
        response.metadata_mut().insert("skein-node", self.inner.name.parse().unwrap());
        Ok(response)
    }
}
