//! The feed of events, as they were committed.

use skein_proto::v1::Event;
use skein_shared::id::Name;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::entity::Entities;
use crate::projection;

const PAGE: usize = 500;

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
        let projection = self.entities.shared().projection.clone();
        let mut commits = projection.commits();
        while !self.stop.is_cancelled() && !listener.is_closed() {
            // What is committed from here on wakes the feed.
            commits.mark_unchanged();
            let page = match projection.events(self.swarm.as_ref(), self.after, PAGE).await {
                Ok(page) => page,
                Err(problem) => {
                    let _ = listener.send(Err(Status::unavailable(problem.to_string()))).await;
                    return;
                }
            };
            for event in page.events {
                if listener.send(Ok(wire(event))).await.is_err() {
                    return;
                }
            }
            self.after = page.next;
            match (page.last, self.follow) {
                (false, _) => {}
                (true, false) => return,
                (true, true) => tokio::select! {
                    () = self.stop.cancelled() => {}
                    () = listener.closed() => {}
                    _ = commits.changed() => {}
                },
            }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use skein_shared::id::{EntityKey, InstanceId, Kind};
    use skein_shared::lockspace::{self, Lockspace};
    use uuid::Uuid;

    use super::*;
    use crate::entity::{Clock, Hub, Request};
    use crate::projection::Projection;
    use crate::store::memory::Memory;

    #[tokio::test]
    async fn a_follower_is_sent_what_is_committed() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::start();
        let store = Arc::new(Memory::new(clock.wall()));
        let projection = Projection::open(&folder.path().join("read.db"), store.clone()).unwrap();
        let entities = Entities::new(store, projection, clock, Hub::default());
        let swarm = Name::parse("default").unwrap();
        let take = async |number: u128| {
            let command = lockspace::Command::Acquire {
                holder: InstanceId(format!("holder-{number}")),
                agent: Name::parse("worker").unwrap(),
                key: format!("file:///{number}"),
                ttl_ms: None,
            };
            let key = EntityKey::of(Kind::Lockspace, &swarm);
            entities.ask::<Lockspace>(&key, Request::once(Uuid::from_u128(number)), command).await.unwrap();
        };

        take(1).await;
        let feed = |follow, stop: &CancellationToken| Feed {
            entities: entities.clone(),
            swarm: Some(swarm.clone()),
            after: 0,
            follow,
            stop: stop.clone(),
        };
        let stop = CancellationToken::new();
        let (listener, mut once) = mpsc::channel(8);
        feed(false, &stop).run(listener).await;
        assert!(once.recv().await.is_some(), "what was acknowledged is there at once");

        let (listener, mut events) = mpsc::channel(8);
        let following = tokio::spawn(feed(true, &stop).run(listener));
        let mut last = 0;
        for number in 2..6 {
            let event = tokio::time::timeout(Duration::from_secs(60), events.recv()).await.unwrap();
            let event = event.unwrap().unwrap();
            assert!(event.position > last);
            last = event.position;
            // There is nothing more now, so only the commit can make the next one come.
            take(number).await;
        }
        stop.cancel();
        following.await.unwrap();
    }
}
