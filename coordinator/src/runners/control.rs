//! Takes control streams in.

use std::pin::Pin;

use futures::Stream;
use skein_proto::v1::runners_server::Runners;
use skein_proto::v1::{CoordinatorMessage, RunnerMessage};
use skein_shared::{Code, Refusal};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status, Streaming};
use tracing::info;

use super::Sessions;
use super::session::Session;
use crate::api::bearer;
use crate::auth::{Right, policy};
use crate::entity::Entities;
use crate::service::access::Access;

/// Says which coordinator it is, before the runner registers: it may have a stream to it by another address.
const NODE: &str = "skein-node";
/// Messages that may wait for a slow runner before commands go back to the outbox.
const WAITING: usize = 256;

/// The gRPC service `Runners`.
pub struct Control {
    pub entities: Entities,
    pub sessions: Sessions,
    pub access: Access,
    /// The base URL of the MCP face, as runners reach it.
    pub mcp_url: String,
    pub stop: CancellationToken,
    pub tracker: TaskTracker,
}

#[tonic::async_trait]
impl Runners for Control {
    type ControlStream = Pin<Box<dyn Stream<Item = Result<CoordinatorMessage, Status>> + Send>>;

    async fn control(
        &self,
        request: Request<Streaming<RunnerMessage>>,
    ) -> Result<Response<Self::ControlStream>, Status> {
        let credential = bearer::identify(request.metadata(), &self.access)
            .await
            .and_then(|known| policy::require(&known.who, Right::Run).map(|()| known))
            .map_err(|refusal| bearer::status(&refusal))?;
        let who = credential.who.clone();
        let (outgoing, answers) = mpsc::channel(WAITING);
        let (last, runner) = (outgoing.clone(), who.agent_name.clone());
        let session = Session {
            entities: self.entities.clone(),
            sessions: self.sessions.clone(),
            mcp_url: self.mcp_url.clone(),
            outgoing,
            named: who.agent_name,
        };
        let (stop, access) = (self.stop.clone(), self.access.clone());
        let messages = request.into_inner();
        self.tracker.spawn(async move {
            let ended = tokio::select! {
                () = stop.cancelled() => {
                    Refusal::new(Code::Unavailable, "this coordinator stops; connect anew in a moment")
                }
                _ = access.end_of(&credential) => {
                    let problem = "the runner's token was revoked or has ended; give it a new one (`skein token issue --role runner`)";
                    Refusal::new(Code::Unauthenticated, problem)
                }
                () = session.serve(messages) => return,
            };
            info!(%runner, reason = %ended.message, "a runner's stream was ended");
            // Behind what waits already. On a stream that is full nothing more is said, and it ends all the same.
            let _ = last.try_send(Err(bearer::status(&ended)));
        });
        let mut response: Response<Self::ControlStream> =
            Response::new(Box::pin(ReceiverStream::new(answers)));
        let node = self.entities.cluster().and_then(|cluster| cluster.me().id.parse().ok());
        if let Some(node) = node {
            response.metadata_mut().insert(NODE, node);
        }
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use skein_proto::v1::coordinator_message::Message as Heard;
    use skein_proto::v1::runner_message::Message as Said;
    use skein_proto::v1::runners_client::RunnersClient;
    use skein_proto::v1::runners_server::RunnersServer;
    use skein_proto::v1::{AgentDefinition, Heartbeat, Register};
    use skein_shared::access::Of;
    use skein_shared::ask::{Ask, What};
    use skein_shared::entity::{Reign, RunnerCommand};
    use skein_shared::fence::{Epoch, Token};
    use skein_shared::id::{InstanceId, Name};
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;
    use tonic::Code as Ended;
    use tonic::transport::Server;
    use tonic::transport::server::TcpIncoming;
    use uuid::Uuid;

    use super::*;
    use crate::auth::Role;
    use crate::auth::token::{Claims, Keys, LEEWAY};
    use crate::entity::ownership::Streams;
    use crate::entity::tests::{Node, node};
    use crate::outbox::{Delivery, Runners as _};
    use crate::store::memory::{Fault, Gate};

    /// Longer than anything here may take, and shorter than a node waits for what is in flight.
    const SOON: Duration = Duration::from_secs(15);
    /// Of a token that ends in no test.
    const LIFETIME: Duration = Duration::from_secs(600);

    struct Bed {
        node: Node,
        keys: Keys,
        access: Access,
        sessions: Sessions,
        url: String,
        stop: CancellationToken,
        served: JoinHandle<Result<(), tonic::transport::Error>>,
        /// The runner's side of its stream.
        said: mpsc::Sender<RunnerMessage>,
        heard: Streaming<CoordinatorMessage>,
    }

    impl Bed {
        /// A coordinator, and a runner `r1` that has registered.
        async fn new() -> Self {
            Self::with_token_for(LIFETIME).await
        }

        /// The same, of a runner whose token holds for so long.
        async fn with_token_for(lifetime: Duration) -> Self {
            let (node, keys) = (node(), Keys::ephemeral().unwrap());
            let access = Access::new(keys.clone(), node.entities.clone());
            let sessions = Sessions::new(keys.clone(), node.entities.clock().clone());
            let stop = CancellationToken::new();
            let control = Control {
                entities: node.entities.clone(),
                sessions: sessions.clone(),
                access: access.clone(),
                mcp_url: "http://127.0.0.1:1/mcp".to_owned(),
                stop: stop.clone(),
                tracker: TaskTracker::new(),
            };
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let (incoming, stopped) = (TcpIncoming::from(listener), stop.clone().cancelled_owned());
            let server = Server::builder().add_service(RunnersServer::new(control));
            let served = tokio::spawn(server.serve_with_incoming_shutdown(incoming, stopped));

            let token = token(&node, &keys, "r1", Role::Runner, lifetime);
            let (said, mut heard) = connect(&url, &token, registration()).await;
            let welcome = heard.message().await.unwrap().unwrap().message;
            assert!(matches!(welcome, Some(Heard::Welcome(_))), "{welcome:?}");
            assert_eq!(sessions.names(), ["r1"]);
            Self { node, keys, access, sessions, url, stop, served, said, heard }
        }

        /// The next of the messages that are waited for.
        async fn next(&mut self, is_waited_for: fn(&Heard) -> bool) -> Heard {
            let next = async {
                loop {
                    let heard =
                        self.heard.message().await.unwrap().expect("the stream goes on").message.unwrap();
                    if is_waited_for(&heard) {
                        return heard;
                    }
                }
            };
            tokio::time::timeout(SOON, next).await.expect("it is said")
        }

        /// How the stream ended. What is said before is left out.
        async fn end(&mut self) -> Ended {
            let end = async {
                loop {
                    match self.heard.message().await {
                        Ok(Some(_)) => {}
                        Ok(None) => return Ended::Ok,
                        Err(status) => return status.code(),
                    }
                }
            };
            tokio::time::timeout(SOON, end).await.expect("the stream ends")
        }

        async fn revoke(&self) {
            let operator = token(&self.node, &self.keys, "operator", Role::Operator, LIFETIME);
            let operator = self.access.identify(&operator).await.unwrap();
            self.access.revoke(&operator, Of::Agent(agent("r1")), SOON).await.unwrap();
        }
    }

    fn registration() -> Register {
        let (name, group, identity) = ("r1".to_owned(), "default".to_owned(), "one".to_owned());
        Register { name, group, identity, slots: 1, ..Default::default() }
    }

    /// A runner's side of a stream on which it has said what it is.
    async fn connect(
        url: &str,
        token: &str,
        register: Register,
    ) -> (mpsc::Sender<RunnerMessage>, Streaming<CoordinatorMessage>) {
        let (said, messages) = mpsc::channel(4);
        said.send(RunnerMessage { message: Some(Said::Register(register)) }).await.unwrap();
        let mut request = Request::new(ReceiverStream::new(messages));
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        let mut client = RunnersClient::connect(url.to_owned()).await.unwrap();
        (said, client.control(request).await.unwrap().into_inner())
    }

    fn agent(name: &str) -> Uuid {
        Uuid::new_v5(&Uuid::nil(), name.as_bytes())
    }

    /// One that holds for so long from now on, or up to a second less: tokens end with whole seconds.
    fn token(node: &Node, keys: &Keys, name: &str, role: Role, lifetime: Duration) -> String {
        let claims = Claims {
            swarm: Name::parse("default").unwrap(),
            agent: agent(name),
            agent_name: Name::parse(name).unwrap(),
            role,
            view: None,
            instance: None,
            lifetime,
        };
        // After its end it is still taken for as long as clocks may be apart.
        keys.issue(claims, node.entities.clock().wall() - LEEWAY).unwrap().text().to_owned()
    }

    fn question() -> Ask {
        let what = What::Tool { name: "bash".into(), arguments: serde_json::json!({"command": "true"}) };
        Ask { id: Uuid::now_v7(), instance: InstanceId("worker-1".into()), timeout_ms: 60_000, what }
    }

    #[tokio::test]
    async fn a_runner_whose_token_is_revoked_is_told_and_gets_nothing_more() {
        let mut bed = Bed::new().await;
        let sessions = bed.sessions.clone();
        let asked = tokio::spawn(async move { sessions.ask("r1", &question()).await });
        let ask = bed.heard.message().await.unwrap().unwrap().message;
        assert!(matches!(ask, Some(Heard::Ask(_))), "{ask:?}");

        bed.revoke().await;
        assert_eq!(bed.end().await, Ended::Unauthenticated);
        assert!(bed.sessions.names().is_empty());
        let broke = asked.await.unwrap().unwrap().unwrap_err();
        assert_eq!(broke.code, Code::Unknown, "{broke}");
        assert_eq!(bed.sessions.ask("r1", &question()).await, None);
        let (instance, token) = ("worker-1".to_owned(), Token { epoch: Epoch(1), number: 1 });
        let freeze = RunnerCommand::Freeze { instance, token };
        let reign = Reign { source: "agent/default/worker".parse().unwrap(), epoch: Epoch(1) };
        assert_eq!(bed.sessions.deliver("r1", &freeze, &reign).await, Delivery::NotConnected);
    }

    /// Tokens go by the clock on the wall, which no test moves. This one holds while the runner comes in, and not when
    /// its stream is first looked at.
    #[tokio::test]
    async fn a_runner_whose_token_has_ended_is_told_and_gets_nothing_more() {
        let mut bed = Bed::with_token_for(Duration::from_secs(5)).await;
        assert_eq!(bed.end().await, Ended::Unauthenticated);
        assert!(bed.sessions.names().is_empty());
        assert_eq!(bed.sessions.ask("r1", &question()).await, None);
    }

    /// The owner of an agent that is new does not answer.
    #[tokio::test]
    async fn a_heartbeat_is_answered_while_what_the_runner_says_anew_is_taken_in() {
        let (mut bed, gate) = (Bed::new().await, Gate::default());
        bed.node.store.contents().faults().push(Fault::Slow(gate.clone()));
        let slow = AgentDefinition {
            name: "slow".to_owned(),
            swarm: "default".to_owned(),
            instances: 1,
            timeout_ms: 60_000,
            wait_timeout_ms: 60_000,
            role: "worker".to_owned(),
            zone: "UTC".to_owned(),
            ..Default::default()
        };
        let anew = Register { agents: vec![slow], ..registration() };
        let beat = Heartbeat { number: 1, ..Default::default() };
        for message in [Said::Register(anew), Said::Heartbeat(beat)] {
            bed.said.send(RunnerMessage { message: Some(message) }).await.unwrap();
        }
        let answer = bed.next(|heard| matches!(heard, Heard::Welcome(_) | Heard::Renewed(_))).await;
        assert!(matches!(answer, Heard::Renewed(_)), "{answer:?}");
        gate.open();
        let Heard::Welcome(welcome) = bed.next(|heard| matches!(heard, Heard::Welcome(_))).await else {
            unreachable!("that was waited for")
        };
        assert_eq!(welcome.problems, []);
    }

    #[tokio::test]
    async fn a_second_runner_of_a_name_takes_no_stream_in_another_group_either() {
        let mut bed = Bed::new().await;
        let token = token(&bed.node, &bed.keys, "r1", Role::Runner, LIFETIME);
        let elsewhere = Register { group: "other".to_owned(), ..registration() };
        let second = Register { identity: "two".to_owned(), ..elsewhere.clone() };
        let (_said, mut heard) = connect(&bed.url, &token, second).await;
        let answer = heard.message().await.unwrap().unwrap().message;
        let Some(Heard::Refused(refused)) = &answer else { panic!("{answer:?}") };
        assert_eq!(refused.code, "already_exists", "{refused:?}");

        let beat = Heartbeat { number: 1, ..Default::default() };
        bed.said.send(RunnerMessage { message: Some(Said::Heartbeat(beat)) }).await.unwrap();
        let answer = bed.next(|heard| matches!(heard, Heard::Refused(_) | Heard::Renewed(_))).await;
        assert!(matches!(answer, Heard::Renewed(_)), "{answer:?}");

        let (_said, mut heard) = connect(&bed.url, &token, elsewhere).await;
        let answer = heard.message().await.unwrap().unwrap().message;
        assert!(matches!(answer, Some(Heard::Welcome(_))), "one that has moved itself: {answer:?}");
    }

    #[tokio::test]
    async fn a_coordinator_that_stops_does_not_wait_for_its_runners() {
        let mut bed = Bed::new().await;
        bed.stop.cancel();
        assert_eq!(bed.end().await, Ended::Unavailable);
        assert!(bed.sessions.names().is_empty());
        // The runner has not hung up.
        tokio::time::timeout(SOON, bed.served).await.expect("the listener ends").unwrap().unwrap();
        drop(bed.said);
    }
}
