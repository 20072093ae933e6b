//! The feed of events, as they were committed.

use skein_proto::v1::Event;
use skein_shared::id::Name;
use skein_shared::{Code, Refusal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::entity::Entities;
use crate::projection::{self, Projection, ProjectionError};

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
    ///
    /// # Errors
    /// Why it ends before that, as when the node stops.
    pub(super) async fn run(mut self, listener: mpsc::Sender<Event>) -> Result<(), Refusal> {
        let projection = self.entities.shared().projection.clone();
        self.require_reached(&projection).await?;
        let mut commits = projection.commits();
        while !listener.is_closed() {
            if self.stop.is_cancelled() {
                return Err(self.stopping());
            }
            // What is committed from here on wakes the feed.
            commits.mark_unchanged();
            let page = projection.events(self.swarm.as_ref(), self.after, PAGE).await;
            let page = page.map_err(|problem| self.unreadable(&problem))?;
            for event in page.events {
                let position = event.position;
                // The listener may not read, and the node does not wait for that.
                match self.stop.run_until_cancelled(listener.send(wire(event))).await {
                    Some(Ok(())) => self.after = position,
                    Some(Err(_)) => return Ok(()),
                    None => return Err(self.stopping()),
                }
            }
            self.after = page.next;
            match (page.last, self.follow) {
                (false, _) => {}
                (true, false) => return Ok(()),
                (true, true) => tokio::select! {
                    () = self.stop.cancelled() => {}
                    () = listener.closed() => {}
                    _ = commits.changed() => {}
                },
            }
        }
        Ok(())
    }

    async fn require_reached(&self, projection: &Projection) -> Result<(), Refusal> {
        let reached = projection.has_reached(self.after).await;
        if reached.map_err(|problem| self.unreadable(&problem))? {
            return Ok(());
        }
        let problem = format!(
            "position {} is ahead of everything that has happened: the store was moved, or an earlier state of it restored; call without --after",
            self.after
        );
        Err(Refusal::new(Code::InvalidArgument, problem))
    }

    fn unreadable(&self, problem: &ProjectionError) -> Refusal {
        let problem = format!("{problem}; call again in a moment, with --after {}", self.after);
        Refusal::new(Code::Unavailable, problem)
    }

    fn stopping(&self) -> Refusal {
        let after = self.after;
        let problem =
            format!("this coordinator is stopping; what comes after this you have with --after {after}");
        Refusal::new(Code::Unavailable, problem)
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
    use std::net::SocketAddr;
    use std::time::Duration;

    use futures::StreamExt;
    use skein_proto::v1::admin_client::AdminClient;
    use skein_proto::v1::{EventsRequest, admin_server};
    use skein_shared::access::Of;
    use skein_shared::id::{EntityKey, InstanceId, Kind};
    use skein_shared::lockspace::{self, Lockspace};
    use tokio::net::TcpListener;
    use tokio_util::task::TaskTracker;
    use tonic::transport::Channel;
    use uuid::Uuid;

    use super::*;
    use crate::api::{Admin, bearer, server};
    use crate::auth::Role;
    use crate::auth::token::{Claims, Keys};
    use crate::entity::Request;
    use crate::entity::tests::{Node, node, swarm};
    use crate::node::Endpoint;
    use crate::runners::{Control, Sessions};
    use crate::service::Service;
    use crate::service::access::Access;

    async fn take(entities: &Entities, number: u128) {
        let command = lockspace::Command::Acquire {
            holder: InstanceId(format!("holder-{number}")),
            agent: Name::parse("worker").unwrap(),
            key: format!("file:///{number}"),
            ttl_ms: None,
        };
        let key = EntityKey::of(Kind::Lockspace, &swarm());
        entities.ask::<Lockspace>(&key, Request::once(Uuid::from_u128(number)), command).await.unwrap();
    }

    fn feed(node: &Node, follow: bool, stop: &CancellationToken) -> Feed {
        let (entities, swarm) = (node.entities.clone(), Some(swarm()));
        Feed { entities, swarm, after: 0, follow, stop: stop.clone() }
    }

    /// The service of a node, and the token of one of its operators.
    fn served(node: &Node, stop: &CancellationToken) -> (Admin, String) {
        let (keys, clock) = (Keys::ephemeral().unwrap(), node.entities.clock().clone());
        let claims = Claims {
            swarm: swarm(),
            agent: Uuid::from_u128(7),
            agent_name: Name::parse("operator").unwrap(),
            role: Role::Operator,
            view: None,
            instance: None,
            lifetime: Duration::from_secs(600),
        };
        let token = keys.issue(claims, clock.wall()).unwrap().text().to_owned();
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
        let admin = Admin {
            service: Service::new(node.entities.clone()),
            sessions: Sessions::new(keys.clone(), clock),
            access: Access::new(keys, node.entities.clone()),
            endpoint: Endpoint {
                http: nowhere,
                grpc: nowhere,
                ingress: None,
                node: None,
                url: String::new(),
            },
            stop: stop.clone(),
        };
        (admin, token)
    }

    fn following(token: &str) -> tonic::Request<EventsRequest> {
        let mut request = tonic::Request::new(EventsRequest { follow: true, ..EventsRequest::default() });
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        request
    }

    #[tokio::test]
    async fn a_follower_is_sent_what_is_committed() {
        let node = node();
        take(&node.entities, 1).await;
        let stop = CancellationToken::new();
        let (listener, mut once) = mpsc::channel(8);
        feed(&node, false, &stop).run(listener).await.unwrap();
        assert!(once.recv().await.is_some(), "what was acknowledged is there at once");

        let (listener, mut events) = mpsc::channel(8);
        let following = tokio::spawn(feed(&node, true, &stop).run(listener));
        let mut last = 0;
        for number in 2..6 {
            let event = tokio::time::timeout(Duration::from_secs(60), events.recv()).await.unwrap();
            let event = event.unwrap();
            assert!(event.position > last);
            last = event.position;
            // There is nothing more now, so only the commit can make the next one come.
            take(&node.entities, number).await;
        }
        stop.cancel();
        // It has not heard all that there is, and knows from where on to ask again.
        let stopped = following.await.unwrap().unwrap_err();
        assert_eq!(stopped.code, Code::Unavailable);
        assert!(stopped.message.contains("--after "), "{stopped}");
    }

    #[tokio::test]
    async fn who_asks_from_ahead_of_the_store_is_told_so() {
        let node = node();
        take(&node.entities, 1).await;
        let newest = node.entities.shared().projection.position().await.unwrap();
        for (after, refused) in [(newest, false), (newest + 1, true)] {
            let (listener, _events) = mpsc::channel(8);
            let (entities, swarm, stop) = (node.entities.clone(), Some(swarm()), CancellationToken::new());
            let told = Feed { entities, swarm, after, follow: false, stop }.run(listener).await.err();
            assert_eq!(told.map(|refusal| refusal.code), refused.then_some(Code::InvalidArgument));
        }
    }

    #[tokio::test]
    async fn a_follower_that_does_not_read_is_told_all_the_same_why_it_ends() {
        let (node, stop) = (node(), CancellationToken::new());
        for number in 1..4 {
            take(&node.entities, number).await;
        }
        let (listener, mut events) = mpsc::channel(1);
        let following = tokio::spawn(feed(&node, true, &stop).run(listener));
        while events.is_empty() {
            tokio::task::yield_now().await;
        }
        stop.cancel();
        let stopped = tokio::time::timeout(Duration::from_secs(60), following).await.unwrap();
        let stopped = stopped.unwrap().unwrap_err();
        let last = events.recv().await.unwrap().position;
        assert!(stopped.message.ends_with(&format!("--after {last}")), "{stopped}");
        assert!(events.recv().await.is_none());
    }

    /// What waits at the other end of the connection until somebody takes it, nobody but the connection can end.
    #[tokio::test]
    async fn a_follower_that_does_not_read_holds_up_no_node_that_stops() {
        let (node, stop) = (node(), CancellationToken::new());
        for number in 1..100 {
            take(&node.entities, number).await;
        }
        let (admin, token) = served(&node, &stop);
        let control = Control {
            entities: node.entities.clone(),
            sessions: admin.sessions.clone(),
            access: admin.access.clone(),
            mcp_url: String::new(),
            stop: stop.clone(),
            tracker: TaskTracker::new(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(server::serve(listener, control, admin, stop.clone()));
        // It has room for a few of the events.
        let channel = Channel::from_shared(address).unwrap().initial_stream_window_size(1024_u32);
        let mut client = AdminClient::new(channel.connect().await.unwrap());
        let mut told = client.events(following(&token)).await.unwrap().into_inner();
        told.next().await.expect("there is an event").unwrap();

        stop.cancel();
        let stopped = tokio::time::timeout(Duration::from_secs(60), serving).await;
        stopped.expect("it waits for somebody who does not read").unwrap().unwrap();
        drop(told);
    }

    #[tokio::test]
    async fn a_follower_whose_token_is_revoked_is_told_so() {
        let node = node();
        take(&node.entities, 1).await;
        let (admin, token) = served(&node, &CancellationToken::new());
        let access = admin.access.clone();
        let mut told = admin_server::Admin::events(&admin, following(&token)).await.unwrap().into_inner();
        told.next().await.expect("there is an event").unwrap();

        let operator = access.identify(&token).await.unwrap();
        access.revoke(&operator, Of::Agent(operator.agent), Duration::from_secs(60)).await.unwrap();
        let ended = loop {
            if let Err(status) = told.next().await.expect("it says why it ends") {
                break bearer::refusal(&status);
            }
        };
        assert_eq!(ended.code, Code::Unauthenticated, "{ended}");
        assert!(told.next().await.is_none());
    }
}
