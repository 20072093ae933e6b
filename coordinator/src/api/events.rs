//! The feed of events, as they were committed.

use std::time::Duration;

use skein_proto::v1::Event;
use skein_shared::id::Name;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::entity::Entities;
use crate::projection;

const PAGE: usize = 500;
/// How soon a follower sees what was committed, at most.
const LOOK: Duration = Duration::from_millis(100);

pub(super) struct Feed {
    pub(super) entities: Entities,
    /// Of all swarms if `None`.
    pub(super) swarm: Option<Name>,
    pub(super) after: u64,
    pub(super) follow: bool,
    pub(super) stop: CancellationToken,
}

impl Feed {
    /// Sends until the end of the events, or with `follow` until the listener goes away.
    pub(super) async fn run(mut self, listener: mpsc::Sender<Result<Event, Status>>) {
        while !self.stop.is_cancelled() && !listener.is_closed() {
            let projection = &self.entities.shared().projection;
            let events = match projection.events(self.swarm.as_ref(), self.after, PAGE).await {
                Ok(events) => events,
                Err(problem) => {
                    let _ = listener.send(Err(Status::unavailable(problem.to_string()))).await;
                    return;
                }
            };
            let last = events.len() < PAGE;
            for event in events {
                self.after = event.position;
                if listener.send(Ok(wire(event))).await.is_err() {
                    return;
                }
            }
            match (last, self.follow) {
                (false, _) => {}
                (true, false) => return,
                (true, true) => self.pause(&listener).await,
            }
        }
    }

    async fn pause(&self, listener: &mpsc::Sender<Result<Event, Status>>) {
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = listener.closed() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

fn wire(event: projection::Event) -> Event {
    Event {
        position: event.position,
        entity: event.key.to_string(),
        version: event.version.0,
        at: event.at.iso(),
        subject: event.subject.unwrap_or_default(),
        json: serde_json::json!({"event": event.kind, "body": event.body}).to_string(),
    }
}
