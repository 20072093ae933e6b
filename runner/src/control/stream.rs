//! One control stream, made anew whenever it breaks.

use std::sync::Arc;
use std::time::Duration;

use skein_proto::v1::runners_client::RunnersClient;
use skein_proto::v1::{CoordinatorMessage, RunnerMessage};
use skein_shared::limits;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

use super::roster::Node;
use super::session::Session;
use super::{Departure, Runner};
use crate::error::Error;

const CONNECT: Duration = Duration::from_secs(5);
/// By what a coordinator says who it is.
const NODE: &str = "skein-node";
/// What a coordinator calls a runner that the fleet has given up.
pub(super) const GIVEN_UP: &str = "stale_token";
/// What says nothing of the runner: it is tried again, at its first registration too. A name is free again once the
/// other one that has it is gone.
const PASSES: [&str; 7] = [
    "unavailable",
    "overloaded",
    "not_owner",
    "outcome_unknown",
    "internal",
    "rate_limited",
    "already_exists",
];
/// How a message begins about an answer that says nothing in the way of gRPC.
const NO_GRPC: &str = "grpc-status header missing";
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// How long a coordinator may go on to speak on a stream that the runner has given up: until its own probe finds that
/// out.
const DEAF: Duration = Duration::from_secs(40);
const PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Messages that may wait for a coordinator that reads slowly; past them the stream is given up.
const OUTBOX: usize = 1024;
/// Parts of answers that may wait; past them whoever answers waits.
const ANSWERS: usize = 4;

/// The stream to one coordinator.
pub(super) struct Control {
    pub(super) runner: Arc<Runner>,
    pub(super) index: usize,
    pub(super) endpoint: Endpoint,
    /// Which coordinator it is to be; none for an address that was named at the start.
    node: Option<Node>,
}

/// A stream on which nothing has been said yet.
pub(super) struct Opened {
    pub(super) said: mpsc::Sender<RunnerMessage>,
    /// What goes beside all else: large answers must not hold up a heartbeat.
    pub(super) answers: mpsc::Sender<RunnerMessage>,
    pub(super) heard: Streaming<CoordinatorMessage>,
}

/// Why a stream ended.
pub(super) enum Ended {
    /// Asked to.
    HungUp,
    /// Worth another try.
    Broken(String),
    /// Another stream leads to the same coordinator.
    Taken,
    /// The coordinator does not want this runner as it is.
    Refused { code: String, message: String },
}

impl From<Status> for Ended {
    fn from(status: Status) -> Self {
        let message = status.message().to_owned();
        match status.code() {
            Code::Unauthenticated | Code::PermissionDenied | Code::InvalidArgument => {
                let code = if status.code() == Code::InvalidArgument {
                    "invalid_argument"
                } else {
                    "unauthenticated"
                };
                Self::Refused { code: code.to_owned(), message }
            }
            // A coordinator that lacks the method says so itself; this is the door for agents, or another server.
            Code::Unimplemented if message.starts_with(NO_GRPC) => Self::Broken(
                "this address is no coordinator's door for runners; it is the one of `--grpc`, 7701 by default"
                    .to_owned(),
            ),
            code => Self::Broken(format!("{code:?}: {message}")),
        }
    }
}

/// What an error says, and what its causes say that it does not: of a connection it says no more than that it failed.
fn causes(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !told.contains(&words) {
            told = format!("{told}: {words}");
        }
        cause = error.source();
    }
    told
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl Control {
    pub(super) fn new(
        runner: Arc<Runner>,
        index: usize,
        url: &str,
        node: Option<Node>,
    ) -> Result<Self, Error> {
        let wrong = |problem: &dyn std::fmt::Display| {
            Error::config(format!("`{url}` is no coordinator's address ({problem}); write http://HOST:PORT"))
        };
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| wrong(&error))?;
        if !matches!(endpoint.uri().scheme_str(), Some("http" | "https")) {
            return Err(wrong(&"it has no scheme"));
        }
        let endpoint = endpoint
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true);
        Ok(Self { runner, index, endpoint, node })
    }

    /// Keeps the stream until told to hang up.
    ///
    /// # Errors
    /// When the coordinator refuses the runner that no coordinator has welcomed yet.
    pub(super) async fn keep(self, hang_up: CancellationToken) -> Result<(), Error> {
        let mut pause = PAUSE;
        // When the last stream ended that the coordinator had welcomed the runner on.
        let mut lost: Option<Instant> = None;
        loop {
            tokio::select! {
                () = self.is_free() => {}
                () = hang_up.cancelled() => return Ok(()),
                () = self.runner.is_done() => return Ok(()),
            }
            let began = Instant::now();
            let session = Box::pin(self.session());
            let ended = match hang_up.run_until_cancelled(session).await {
                Some(ended) => ended,
                None => Ended::HungUp,
            };
            if self.runner.speakers.leave(self.index) {
                lost = Some(Instant::now());
                self.runner.speakers.note_lost();
            } else if lost.is_some_and(|lost| lost.elapsed() >= DEAF) {
                lost = None;
                self.runner.speakers.note_lost();
            }
            self.runner.roster.leave(self.index);
            self.runner.instances.upstreams().disconnected(self.index);
            if *self.runner.departure.borrow() == Departure::Done {
                return Ok(());
            }
            match ended {
                Ended::HungUp => return Ok(()),
                Ended::Taken => pause = LONGEST_PAUSE,
                Ended::Broken(problem) => {
                    tracing::warn!(coordinator = %self.endpoint.uri(), problem, "the control stream broke");
                }
                Ended::Refused { code, message } => {
                    tracing::error!(coordinator = %self.endpoint.uri(), code, message, "refused");
                    let stays = PASSES.contains(&code.as_str()) || self.runner.lease.was_given();
                    if !stays && self.runner.instances.live().is_empty() {
                        return Err(Error::Refused { code, message });
                    }
                }
            }
            if began.elapsed() > LONGEST_PAUSE {
                pause = PAUSE;
            }
            let wait = tokio::time::sleep(jitter(pause));
            tokio::select! {
                () = wait => {}
                () = hang_up.cancelled() => return Ok(()),
                () = self.runner.is_done() => return Ok(()),
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits while another stream leads to the coordinator that this one is for.
    async fn is_free(&self) {
        if let Some(node) = &self.node {
            self.runner.roster.is_free(self.index, node).await;
        }
    }

    async fn session(&self) -> Ended {
        let connected = tokio::select! {
            connected = self.connect() => connected,
            () = self.runner.is_done() => return Ended::HungUp,
        };
        match connected {
            Ok(opened) => Session::new(self, opened).run().await,
            Err(ended) => ended,
        }
    }

    /// Opens a stream, on which nothing is said before it is known to lead to a coordinator that has no other.
    async fn connect(&self) -> Result<Opened, Ended> {
        let channel: Channel =
            self.endpoint.connect().await.map_err(|error| Ended::Broken(causes(&error)))?;
        let (said, messages) = mpsc::channel(OUTBOX);
        let (answers, waiting) = mpsc::channel(ANSWERS);
        let mut request = Request::new(ReceiverStream::new(messages).merge(ReceiverStream::new(waiting)));
        request.metadata_mut().insert("authorization", self.runner.bearer.now());
        let mut client = RunnersClient::new(channel).max_decoding_message_size(limits::RUNNER_MESSAGE);
        let answer = tokio::time::timeout(CONNECT, client.control(request)).await;
        let answer = answer.map_err(|_| Ended::Broken("no answer in time".into()))??;
        if let Some(node) = answer.metadata().get(NODE).and_then(|node| node.to_str().ok()) {
            if self.node.as_ref().is_some_and(|wanted| wanted != node) {
                return Err(Ended::Broken("another coordinator answers at its address".into()));
            }
            if !self.runner.roster.take(self.index, node) {
                return Err(Ended::Taken);
            }
        }
        Ok(Opened { said, answers, heard: answer.into_inner() })
    }
}

/// Between half and the whole of a pause, so that runners do not come back all at once.
fn jitter(pause: Duration) -> Duration {
    let share = getrandom::u32().map_or(0, |random| random % 500);
    pause * (500 + share) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coordinator_that_lacks_the_method_is_at_its_door_for_runners_all_the_same() {
        let told = |message: &str| match Ended::from(Status::unimplemented(message)) {
            Ended::Broken(problem) => problem,
            _ => panic!("it is not tried again"),
        };
        let elsewhere = told("grpc-status header missing, mapped from HTTP status code 404");
        assert!(elsewhere.contains("no coordinator's door for runners"), "{elsewhere}");
        assert_eq!(told("unknown service"), "Unimplemented: unknown service");
    }
}
