//! The gRPC service `Admin`.

use std::num::NonZeroU32;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt, future, stream};
use serde_json::{Value, json};
use skein_proto::v1::{self, admin_server};
use skein_shared::channels::{self, Channels, Post};
use skein_shared::id::{Kind, Name, parse_uuid};
use skein_shared::pool::{Rules, Source, Target, TaskSpec};
use skein_shared::{Code, Refusal};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::line::Cut;
use super::{bearer, events};
use crate::auth::{Principal, Right, policy};
use crate::entity;
use crate::node::Endpoint;
use crate::runners::Sessions;
use crate::service::access::Access;
use crate::service::cluster::if_told;
use crate::service::follow::{Logs, PAGE, Part};
use crate::service::locks::LockWish;
use crate::service::scale::USUAL_GROUP;
use crate::service::tasks::{Action, Wanted};
use crate::service::{Service, lists, views};

type Answer<T> = Result<Response<T>, Status>;
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The swarm that is there from the start.
const USUAL_SWARM: &str = "default";
/// How long whoever follows has to take the rest once the node stops. More would hold up its end.
const REST: Duration = Duration::from_secs(2);

/// Administers all swarms of the node.
pub struct Admin {
    pub service: Service,
    pub sessions: Sessions,
    pub access: Access,
    pub endpoint: Endpoint,
    pub stop: CancellationToken,
}

impl Admin {
    /// An operator who changes something.
    pub(super) async fn changes<T>(&self, request: &Request<T>, swarm: &str) -> Result<Principal, Refusal> {
        let who = self.operator(request, swarm).await?;
        policy::require_writable(&who)?;
        Ok(who)
    }

    /// The same, of a swarm that has to be there.
    pub(super) async fn changes_swarm<T>(
        &self,
        request: &Request<T>,
        swarm: &str,
    ) -> Result<Principal, Refusal> {
        let who = self.of_swarm(request, swarm).await?;
        policy::require_writable(&who)?;
        Ok(who)
    }

    /// An operator as in [`Self::changes_swarm`], or somebody of the swarm itself: which of those may, the service
    /// says.
    pub(super) async fn changes_own_swarm<T>(
        &self,
        request: &Request<T>,
        swarm: &str,
    ) -> Result<Principal, Refusal> {
        let who = bearer::identify(request.metadata(), &self.access).await?.who.clone();
        if policy::allows(who.role, Right::Administer) {
            return self.changes_swarm(request, swarm).await;
        }
        if who.swarm.as_str() != swarm {
            let own = &who.swarm;
            let problem =
                format!("this token is for the swarm `{own}`, and not for `{swarm}`; say --swarm {own}");
            return Err(Refusal::new(Code::Forbidden, problem));
        }
        policy::require_writable(&who)?;
        self.service.require_live(&who).await?;
        Ok(who)
    }

    /// The operator, speaking for `swarm`; an empty name means the default one.
    pub(super) async fn operator<T>(&self, request: &Request<T>, swarm: &str) -> Result<Principal, Refusal> {
        let who = bearer::identify(request.metadata(), &self.access).await?.who.clone();
        policy::require(&who, Right::Administer)?;
        Ok(Principal { swarm: Name::parse(if swarm.is_empty() { USUAL_SWARM } else { swarm })?, ..who })
    }

    /// As [`Self::operator`], for a swarm that has to be there: a mistyped name must not pass for an empty swarm,
    /// nor make a new one.
    pub(super) async fn of_swarm<T>(&self, request: &Request<T>, swarm: &str) -> Result<Principal, Refusal> {
        let who = self.operator(request, swarm).await?;
        if self.service.entities().has_swarm(&who.swarm).await? {
            return Ok(who);
        }
        let name = &who.swarm;
        let problem = format!("there is no swarm `{name}`; make it with `skein swarm create {name}`");
        Err(Refusal::new(Code::NotFound, problem))
    }

    /// Answers with a stream for as long as the token of its request holds; a stream that ends with it says so. It ends
    /// by itself, also when its listener goes away or the node stops; of a listener that does not read then, the
    /// connection is cut.
    async fn stream_while_held<T, M, A>(
        &self,
        request: &Request<T>,
        room: usize,
        answering: impl FnOnce(mpsc::Sender<M>) -> A,
    ) -> Result<Answers<M>, Status>
    where
        M: Send + 'static,
        A: Future<Output = Result<(), Refusal>> + Send + 'static,
    {
        let (listener, answers) = mpsc::channel(room);
        let (tell, told) = oneshot::channel();
        let answering = answering(listener);
        let credential = bearer::identify(request.metadata(), &self.access).await;
        let credential = credential.map_err(|refusal| bearer::status(&refusal))?;
        let (access, stop) = (self.access.clone(), self.stop.clone());
        let cut = request.extensions().get::<Cut>().cloned();
        let taken = CancellationToken::new();
        let until_taken = taken.clone().drop_guard();
        tokio::spawn(async move {
            let ended = tokio::select! {
                ended = answering => ended,
                ended = access.end_of(&credential) => Err(ended),
            };
            // Behind all answers, for which its listener has no room perhaps.
            let _ = tell.send(ended);
            let Some(cut) = cut else { return };
            let too_late = async {
                stop.cancelled().await;
                tokio::time::sleep(REST).await;
            };
            tokio::select! {
                () = taken.cancelled() => {}
                () = too_late => cut.now(),
            }
        });
        let end = async move { told.await.ok()?.err().map(|refusal| Err(bearer::status(&refusal))) };
        let end = stream::once(end).filter_map(future::ready);
        let answers = ReceiverStream::new(answers).map(Ok).chain(end).inspect(move |_| {
            let _until_taken = &until_taken;
        });
        Ok(Box::pin(answers))
    }

    async fn status(&self, request: Request<v1::StatusRequest>) -> Result<Value, Refusal> {
        let who = self.operator(&request, "").await?;
        let entities = self.service.entities();
        // Together, so that a store that tells nothing is waited for once.
        let (node, swarms) = tokio::join!(self.service.node(&who), if_told(entities.swarms()));
        let node = node?;
        Ok(json!({
            "version": node["version"],
            "epoch": entities.epoch(&who.entity(Kind::Pool)),
            "now": self.service.clock().now().iso(),
            "http": self.endpoint.http,
            "grpc": self.endpoint.grpc,
            "ingress": self.endpoint.ingress,
            "swarms": swarms,
            "runners": self.sessions.names(),
            "entities": node["entities"],
            "effectsGivenUp": node["effectsGivenUp"],
            "projectionLag": node["projectionLag"],
            "alarms": node["alarms"],
        }))
    }

    async fn list(&self, request: Request<v1::ListRequest>) -> Result<v1::ListReply, Refusal> {
        let asked = request.get_ref();
        // Runners and swarms stand beside the swarms: the name says nothing there.
        let who = match asked.view.as_str() {
            "swarms" | "runners" => self.operator(&request, &asked.swarm).await?,
            _ => self.of_swarm(&request, &asked.swarm).await?,
        };
        let wanted = views::Wanted {
            view: &asked.view,
            only: (!asked.agent.is_empty()).then_some(("agent", asked.agent.as_str())),
            after: &asked.after,
            limit: usize::try_from(asked.limit).ok().filter(|limit| *limit > 0),
        };
        let found = self.service.rows(&who, wanted).await?;
        let rows = found.rows.iter().map(Value::to_string).collect();
        Ok(v1::ListReply { rows, rebuilding: found.rebuilding, next: found.next })
    }

    /// A swarm is there once anything of it was written; this posts to its general channel.
    async fn create_swarm(&self, request: Request<v1::CreateSwarmRequest>) -> Result<Value, Refusal> {
        let name = Name::parse(&request.get_ref().name)?;
        let who = self.changes(&request, name.as_str()).await?;
        let entities = self.service.entities();
        if entities.has_swarm(&name).await? {
            return Err(Refusal::new(Code::AlreadyExists, format!("there is a swarm `{name}` already")));
        }
        let post = Post {
            author: None,
            channel: None,
            content: format!("The swarm `{name}` was made."),
            reply_to: None,
            mentions: Vec::new(),
            strangers: Vec::new(),
            assignees: Vec::new(),
        };
        let command = channels::Command::Post(Box::new(post));
        let key = who.entity(Kind::Channels);
        entities.ask::<Channels>(&key, entity::Request::read(), command).await?;
        Ok(json!({"name": name}))
    }

    async fn scale_swarm(&self, request: Request<v1::ScaleSwarmRequest>) -> Result<Value, Refusal> {
        let asked = request.get_ref();
        let group = Name::parse(if asked.group.is_empty() { USUAL_GROUP } else { &asked.group })?;
        let who = match asked.scale {
            Some(scale) => {
                let who = self.changes_swarm(&request, &asked.swarm).await?;
                self.service.set_scale(&who, Uuid::now_v7(), &group, NonZeroU32::new(scale)).await?;
                who
            }
            None => self.of_swarm(&request, &asked.swarm).await?,
        };
        self.service.scale(&who, &group).await
    }

    async fn configure_locks(&self, request: Request<v1::ConfigureLocksRequest>) -> Result<Value, Refusal> {
        let asked = request.get_ref();
        let wish = LockWish {
            locks_per_holder: asked.per_instance.map(|most| usize::try_from(most).unwrap_or(usize::MAX)),
            default_ttl_ms: asked.ttl_ms,
            max_ttl_ms: asked.max_ttl_ms,
            normalize_keys: asked.normalize,
        };
        if wish == LockWish::default() {
            let who = self.of_swarm(&request, &asked.swarm).await?;
            return self.service.lock_settings(&who).await;
        }
        let who = self.changes_swarm(&request, &asked.swarm).await?;
        self.service.configure_locks(&who, Uuid::now_v7(), wish).await
    }

    async fn show_task(&self, request: Request<v1::TaskRequest>) -> Result<Value, Refusal> {
        let asked = request.get_ref();
        let who = self.of_swarm(&request, &asked.swarm).await?;
        let task = parse_uuid("task", &asked.task)?;
        let (task, freshness) = self.service.task_with_questions(&who, task).await?;
        lists::whole(task, freshness)
    }

    async fn create_task(&self, request: Request<v1::CreateTaskRequest>) -> Result<Value, Refusal> {
        let asked = request.get_ref();
        let who = self.changes_swarm(&request, &asked.swarm).await?;
        let priority = u8::try_from(asked.priority).ok().filter(|priority| *priority <= 100);
        let mut spec = TaskSpec::new(asked.text.clone());
        spec.priority = priority
            .ok_or_else(|| Refusal::new(Code::InvalidArgument, "priority: write a number from 0 to 100"))?;
        spec.tags = asked.tags.clone();
        let depends_on = asked.depends_on.iter().map(|id| parse_uuid("depends_on", id));
        spec.depends_on = depends_on.collect::<Result<_, _>>()?;
        spec.source = Source::Api;
        let request = match asked.idempotency_key.as_str() {
            "" => Uuid::now_v7(),
            key => Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("task {} {key}", who.swarm).as_bytes()),
        };
        let wanted = Wanted { spec, target: Target::Pool, rules: Rules::Plain };
        let made = self.service.send_task(&who, request, wanted).await?;
        let mut task = made.task;
        if !made.warnings.is_empty() {
            task["warnings"] = json!(made.warnings);
        }
        Ok(task)
    }

    async fn cancel_task(&self, request: Request<v1::CancelTaskRequest>) -> Result<Value, Refusal> {
        let asked = request.get_ref();
        let who = self.changes_swarm(&request, &asked.swarm).await?;
        let reason = (!asked.reason.is_empty()).then(|| asked.reason.clone());
        let task = parse_uuid("task", &asked.task)?;
        let cancelled = self.service.act(&who, Uuid::now_v7(), task, Action::Cancel { reason }).await?;
        Ok(cancelled.task)
    }

    async fn events(&self, request: &Request<v1::EventsRequest>) -> Result<events::Feed, Refusal> {
        let asked = request.get_ref();
        let who = self.of_swarm(request, &asked.swarm).await?;
        Ok(events::Feed {
            entities: self.service.entities().clone(),
            swarm: (!asked.swarm.is_empty()).then_some(who.swarm),
            after: asked.after,
            follow: asked.follow,
            stop: self.stop.clone(),
        })
    }

    async fn logs(&self, request: &Request<v1::AgentLogsRequest>) -> Result<Logs, Refusal> {
        let asked = request.get_ref();
        let who = self.of_swarm(request, &asked.swarm).await?;
        let since = (asked.since_ms > 0).then(|| Duration::from_millis(asked.since_ms));
        Ok(Logs {
            runs: self.service.runs(&who, &asked.of, since).await?,
            service: self.service.clone(),
            who,
            lines: asked.lines.clamp(1, PAGE),
            grep: (!asked.grep.is_empty()).then(|| asked.grep.clone()),
            follow: asked.follow,
            stop: self.stop.clone(),
        })
    }

    async fn cluster(&self, request: Request<v1::ClusterRequest>) -> Result<Value, Refusal> {
        let who = self.operator(&request, "").await?;
        Box::pin(self.service.cluster(&who)).await
    }

    async fn drain(&self, request: Request<v1::DrainRequest>) -> Result<Value, Refusal> {
        let who = self.changes(&request, "").await?;
        let node = &request.get_ref().node;
        self.service.drain(&who, node).await?;
        Ok(json!({"draining": node}))
    }

    async fn backup(&self, request: Request<v1::BackupRequest>) -> Result<Value, Refusal> {
        self.changes(&request, "").await?;
        let path = Path::new(&request.get_ref().path);
        if !path.is_absolute() {
            return Err(Refusal::new(
                Code::InvalidArgument,
                "path: name it from the root, such as /backup/skein.db",
            ));
        }
        if path.exists() {
            let problem = format!("{} is there already; choose a new name", path.display());
            return Err(Refusal::new(Code::AlreadyExists, problem));
        }
        self.service.entities().backup(path).await?;
        Ok(json!({"path": path}))
    }
}

fn log_lines(Part { instance, lines, note }: Part) -> v1::LogLines {
    v1::LogLines { instance: instance.0, lines, note }
}

fn document(outcome: Result<Value, Refusal>) -> Answer<v1::Document> {
    match outcome {
        Ok(value) => Ok(Response::new(v1::Document { json: value.to_string() })),
        Err(refusal) => Err(bearer::status(&refusal)),
    }
}

#[tonic::async_trait]
impl admin_server::Admin for Admin {
    async fn status(&self, request: Request<v1::StatusRequest>) -> Answer<v1::StatusReply> {
        match Admin::status(self, request).await {
            Ok(value) => Ok(Response::new(v1::StatusReply { json: value.to_string() })),
            Err(refusal) => Err(bearer::status(&refusal)),
        }
    }

    async fn list(&self, request: Request<v1::ListRequest>) -> Answer<v1::ListReply> {
        Admin::list(self, request).await.map(Response::new).map_err(|refusal| bearer::status(&refusal))
    }

    async fn create_swarm(&self, request: Request<v1::CreateSwarmRequest>) -> Answer<v1::Document> {
        document(Admin::create_swarm(self, request).await)
    }

    async fn scale_swarm(&self, request: Request<v1::ScaleSwarmRequest>) -> Answer<v1::Document> {
        document(Admin::scale_swarm(self, request).await)
    }

    async fn configure_locks(&self, request: Request<v1::ConfigureLocksRequest>) -> Answer<v1::Document> {
        document(Admin::configure_locks(self, request).await)
    }

    async fn remove_member(&self, request: Request<v1::RemoveMemberRequest>) -> Answer<v1::Document> {
        document(Admin::remove_member(self, request).await)
    }

    async fn forget_memory(&self, request: Request<v1::ForgetMemoryRequest>) -> Answer<v1::Document> {
        document(Admin::forget_memory(self, request).await)
    }

    async fn show_task(&self, request: Request<v1::TaskRequest>) -> Answer<v1::Document> {
        document(Admin::show_task(self, request).await)
    }

    async fn create_task(&self, request: Request<v1::CreateTaskRequest>) -> Answer<v1::Document> {
        document(Admin::create_task(self, request).await)
    }

    async fn cancel_task(&self, request: Request<v1::CancelTaskRequest>) -> Answer<v1::Document> {
        document(Admin::cancel_task(self, request).await)
    }

    async fn answer_question(&self, request: Request<v1::AnswerQuestionRequest>) -> Answer<v1::Document> {
        document(Admin::answer_question(self, request).await)
    }

    async fn run_agent(&self, request: Request<v1::RunAgentRequest>) -> Answer<v1::Document> {
        document(Admin::run_agent(self, request).await)
    }

    async fn kill_instance(&self, request: Request<v1::KillInstanceRequest>) -> Answer<v1::Document> {
        document(Admin::kill_instance(self, request).await)
    }

    async fn show_agents(&self, request: Request<v1::AgentRequest>) -> Answer<v1::Document> {
        document(Admin::show_agents(self, request).await)
    }

    async fn steer_agent(&self, request: Request<v1::SteerAgentRequest>) -> Answer<v1::Document> {
        document(Admin::steer_agent(self, request).await)
    }

    async fn show_dead_letter(&self, request: Request<v1::DeadLetterRequest>) -> Answer<v1::Document> {
        document(Admin::show_dead_letter(self, request).await)
    }

    async fn replay_dead_letter(&self, request: Request<v1::DeadLetterRequest>) -> Answer<v1::Document> {
        document(Admin::replay_dead_letter(self, request).await)
    }

    async fn show_webhook(&self, request: Request<v1::WebhookRequest>) -> Answer<v1::Document> {
        document(Admin::show_webhook(self, request).await)
    }

    async fn replay_webhook(&self, request: Request<v1::WebhookRequest>) -> Answer<v1::Document> {
        document(Admin::replay_webhook(self, request).await)
    }

    async fn add_client(&self, request: Request<v1::AddClientRequest>) -> Answer<v1::Document> {
        document(Admin::add_client(self, request).await)
    }

    async fn remove_client(&self, request: Request<v1::RemoveClientRequest>) -> Answer<v1::Document> {
        document(Admin::remove_client(self, request).await)
    }

    async fn revoke(&self, request: Request<v1::RevokeRequest>) -> Answer<v1::Document> {
        document(Admin::revoke(self, request).await)
    }

    type EventsStream = Answers<v1::Event>;

    async fn events(&self, request: Request<v1::EventsRequest>) -> Answer<Self::EventsStream> {
        let feed = Admin::events(self, &request).await.map_err(|refusal| bearer::status(&refusal))?;
        self.stream_while_held(&request, 64, |listener| feed.run(listener)).await.map(Response::new)
    }

    type AgentLogsStream = Answers<v1::LogLines>;

    async fn agent_logs(&self, request: Request<v1::AgentLogsRequest>) -> Answer<Self::AgentLogsStream> {
        let logs = self.logs(&request).await.map_err(|refusal| bearer::status(&refusal))?;
        let parts = self.stream_while_held(&request, 8, |listener| Box::pin(logs.run(listener))).await?;
        Ok(Response::new(Box::pin(parts.map(|part| part.map(log_lines)))))
    }

    async fn cluster(&self, request: Request<v1::ClusterRequest>) -> Answer<v1::Document> {
        document(Admin::cluster(self, request).await)
    }

    async fn secret_keys(&self, request: Request<v1::SecretKeysRequest>) -> Answer<v1::Document> {
        document(Admin::secret_keys(self, request).await)
    }

    async fn drain(&self, request: Request<v1::DrainRequest>) -> Answer<v1::Document> {
        document(Admin::drain(self, request).await)
    }

    async fn backup(&self, request: Request<v1::BackupRequest>) -> Answer<v1::Document> {
        document(Admin::backup(self, request).await)
    }
}
