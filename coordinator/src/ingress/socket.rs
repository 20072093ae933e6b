//! Takes in what Slack sends over connections that the node opens: written down first, acknowledged then.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use skein_shared::{Code, Refusal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::gate::{Gate, Source};
use super::provider::{Reading, from_socket};
use super::receive::{Outcome, count, set_aside, take_in};
use crate::slack::{Frame, Socket, Workspace};

/// Pause before the next try to connect; it doubles, and begins anew once Slack has greeted us.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What a connection tells of itself while it lasts.
enum Sign {
    Greeted,
    /// Slack will close it soon.
    Retiring,
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
    let mut pause = FIRST_PAUSE;
    loop {
        while connections.try_join_next().is_some() {}
        match workspace.socket().await {
            Ok(socket) => {
                let (tell, mut signs) = mpsc::channel(2);
                connections.spawn(serve(Arc::clone(gate), source.clone(), socket, tell));
                let mut retiring = false;
                while let (false, Some(sign)) = (retiring, signs.recv().await) {
                    match sign {
                        Sign::Greeted => pause = FIRST_PAUSE,
                        Sign::Retiring => retiring = true,
                    }
                }
                if retiring {
                    continue;
                }
            }
            Err(problem) => {
                warn!(swarm = %source.swarm, %problem, "no connection to Slack; trying again in {pause:?}");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn serve(gate: Arc<Gate>, source: Source, mut socket: Socket, tell: mpsc::Sender<Sign>) {
    while let Some(frame) = socket.next().await {
        match frame {
            Frame::Hello => {
                info!(swarm = %source.swarm, "listening to Slack");
                let _ = tell.try_send(Sign::Greeted);
            }
            Frame::Disconnect => {
                let _ = tell.try_send(Sign::Retiring);
            }
            Frame::Envelope { id, kind, payload } => {
                if is_settled(&gate, &source, &kind, payload).await {
                    socket.acknowledge(&id).await;
                }
            }
            Frame::Other => {}
        }
    }
}

/// Whether Slack need not send it again: it is written down, or no repeat would make it better.
async fn is_settled(gate: &Gate, source: &Source, kind: &str, payload: Value) -> bool {
    let outcome = receive(gate, source, kind, payload).await;
    count(source.name.as_str(), &outcome);
    match outcome {
        Ok(_) => true,
        Err(refusal) => {
            warn!(swarm = %source.swarm, %refusal, "what Slack sent was not taken in");
            refusal.code == Code::InvalidArgument
        }
    }
}

async fn receive(gate: &Gate, source: &Source, kind: &str, payload: Value) -> Result<Outcome, Refusal> {
    let _turn = gate.turn().await?;
    let body = payload.to_string();
    match from_socket(kind, payload) {
        Ok(Reading::Event(notice)) => take_in(gate, source, *notice).await,
        Ok(Reading::Ignored(reason)) => Ok(Outcome::Ignored(reason)),
        Ok(Reading::Challenge(answer)) => Ok(Outcome::Challenge(answer)),
        Err(refusal) => {
            set_aside(gate, source, body.as_bytes(), &refusal).await;
            Err(refusal)
        }
    }
}
