//! Takes in what Slack sends over connections that the node opens: written down first, acknowledged then.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use skein_shared::{Code, Refusal};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::gate::{Gate, Source};
use super::provider::{Answer, Reading, from_socket};
use super::receive::{Outcome, count, set_aside, take_in};
use crate::slack::{Frame, Socket, Workspace};

/// Pause before the next try to connect; it doubles, and begins anew after a connection that has lasted.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Slack keeps a connection for hours. One that ends sooner than this may be followed by many that do.
const LASTING: Duration = Duration::from_secs(10);

/// How fast one connection follows another.
struct Pace(Duration);

impl Pace {
    fn new() -> Self {
        Self(FIRST_PAUSE)
    }

    /// The pause after a connection that has lasted so long. The next one is wanted at once where Slack only moves it.
    fn after(&mut self, lasted: Duration, is_retiring: bool) -> Duration {
        if lasted >= LASTING {
            self.0 = FIRST_PAUSE;
            if is_retiring {
                return Duration::ZERO;
            }
        }
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST_PAUSE);
        pause
    }
}

/// Listens to the workspaces that have an app token, until `stop`.
pub async fn listen(gate: Arc<Gate>, stop: CancellationToken) {
    let workspaces = gate.slack.iter().filter(|workspace| workspace.has_socket_mode());
    let listening = workspaces.map(|workspace| keep_listening(&gate, workspace));
    let _ = stop.run_until_cancelled(join_all(listening)).await;
    stop.cancelled().await;
}

/// A connection that retires is read to its end while the next one is opened, so that little has to come again.
async fn keep_listening(gate: &Arc<Gate>, workspace: &Workspace) {
    let source = Source::connected(workspace.swarm().clone());
    let mut connections = JoinSet::new();
    let mut pace = Pace::new();
    loop {
        while connections.try_join_next().is_some() {}
        let pause = match workspace.socket().await {
            Ok(socket) => {
                let opened = Instant::now();
                let (retire, retiring) = oneshot::channel();
                connections.spawn(serve(Arc::clone(gate), source.clone(), socket, retire));
                let is_retiring = retiring.await.is_ok();
                let pause = pace.after(opened.elapsed(), is_retiring);
                if !is_retiring {
                    info!(swarm = %source.swarm, "the connection to Slack has ended; the next one in {pause:?}");
                }
                pause
            }
            Err(problem) => {
                let pause = pace.after(Duration::ZERO, false);
                warn!(swarm = %source.swarm, %problem, "no connection to Slack; trying again in {pause:?}");
                pause
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Reads a connection to its end. Says so by `retire` when Slack will close it soon.
async fn serve(gate: Arc<Gate>, source: Source, mut socket: Socket, retire: oneshot::Sender<()>) {
    let mut retire = Some(retire);
    while let Some(frame) = socket.next().await {
        match frame {
            Frame::Hello => info!(swarm = %source.swarm, "listening to Slack"),
            Frame::Disconnect => {
                let _ = retire.take().map(|retire| retire.send(()));
            }
            Frame::Envelope { id, kind, payload } => {
                if let Settled::Done(answer) = settle(&gate, &source, &kind, payload).await {
                    socket.acknowledge(&id, answer).await;
                }
            }
            Frame::Other => {}
        }
    }
}

/// What Slack is to do about what it has sent.
enum Settled {
    /// It need not send it again: it is written down, or no repeat would make it better. Whoever asked is shown this.
    Done(Option<Value>),
    Again,
}

async fn settle(gate: &Gate, source: &Source, kind: &str, payload: Value) -> Settled {
    let outcome = receive(gate, source, kind, payload).await;
    count(source.name.as_str(), &outcome);
    match outcome {
        Ok(Outcome::Answered(answer)) => Settled::Done(Some(answer)),
        Ok(_) => Settled::Done(None),
        Err(refusal) => {
            warn!(swarm = %source.swarm, %refusal, "what Slack sent was not taken in");
            if refusal.code == Code::InvalidArgument { Settled::Done(None) } else { Settled::Again }
        }
    }
}

async fn receive(gate: &Gate, source: &Source, kind: &str, payload: Value) -> Result<Outcome, Refusal> {
    let _turn = gate.turn(Gate::patience()).await?;
    let body = payload.to_string();
    match from_socket(kind, payload) {
        Ok(Reading::Event(notice)) => take_in(gate, source, *notice).await,
        Ok(Reading::Ignored(reason)) => Ok(Outcome::Ignored(reason, Answer::Nothing)),
        Ok(Reading::Challenge(answer)) => Ok(Outcome::Challenge(answer)),
        Err(refusal) => {
            set_aside(gate, source, body.as_bytes(), &refusal).await;
            Err(refusal)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slack_that_sends_us_away_at_once_is_asked_ever_more_seldom() {
        let mut pace = Pace::new();
        let seconds = |pause: Duration| pause.as_secs();
        let pauses: Vec<u64> = (0..8).map(|_| seconds(pace.after(Duration::ZERO, true))).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        let hours = Duration::from_secs(7200);
        assert_eq!(seconds(pace.after(hours, true)), 0, "a connection is moved");
        assert_eq!(seconds(pace.after(hours, false)), 1, "one broke off");
        assert_eq!(seconds(pace.after(Duration::ZERO, false)), 2, "none was to be had");
    }
}
