//! What the swarm remembers.

use serde_json::{Value, json};
use skein_shared::denied::Denied;
use skein_shared::id::Kind;
use skein_shared::memory::{self, Command, Memory, Model, NULLABLE, Remember, Reply, Scope, Source, Vector};
use skein_shared::{Code, Refusal, wire};
use tracing::debug;
use uuid::Uuid;

use super::lists::List;
use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};
pub use crate::projection::Hit;
use crate::projection::{Seen, Sought};

/// Which learnings a search looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Visible {
    /// The caller's own and the swarm's.
    #[default]
    All,
    /// The caller's own private ones.
    Agent,
    Swarm,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Recollection {
    /// The best first.
    pub hits: List<Hit>,
    pub ranked: Ranked,
}

/// What decided which is the best.
#[derive(Clone, Debug, PartialEq)]
pub enum Ranked {
    /// No endpoint is configured that would know what texts mean.
    ByWords,
    /// The endpoint did not say in time what the query means, for this reason.
    ByWordsAlone(String),
    ByMeaning,
}

/// What came of teaching something.
#[derive(Clone, Debug, PartialEq)]
pub struct Taught {
    pub memory: Uuid,
    /// It was known before.
    pub again: bool,
}

impl Service {
    /// Learnings that have any of the query's words, or mean something like it, the best first. The lead sees those
    /// of all agents.
    pub async fn search_memory(
        &self,
        who: &Principal,
        query: &str,
        visible: Visible,
        source: Option<Source>,
        limit: usize,
    ) -> Result<Recollection, Refusal> {
        policy::require(who, Right::Read)?;
        let sees_all = self.caller(who).await?.lead;
        let scope = match visible {
            Visible::All => None,
            Visible::Agent => Some(Scope::Agent),
            Visible::Swarm => Some(Scope::Swarm),
        };
        let (meaning, ranked) = self.meaning(query).await;
        let seen = Seen { by: (!sees_all).then_some(who.agent), scope };
        let sought = Sought { text: query.to_owned(), meaning, seen, source, limit };
        let (mut rows, freshness) = self.entities.search(&who.entity(Kind::Memory), sought).await?;
        rows.iter_mut().for_each(|hit| hit.body = shape(hit.body.take()));
        Ok(Recollection { hits: List { rows, freshness, next: None }, ranked })
    }

    /// What a query means, if there is somebody to ask who answers soon.
    async fn meaning(&self, query: &str) -> (Option<(Model, Vector)>, Ranked) {
        let Some(endpoint) = &self.embeddings else { return (None, Ranked::ByWords) };
        match endpoint.query(query).await {
            Ok(vector) => (Some((endpoint.model().clone(), vector)), Ranked::ByMeaning),
            Err(problem) => (None, Ranked::ByWordsAlone(problem.to_string())),
        }
    }

    /// A learning with its content.
    ///
    /// # Errors
    /// `not_found`, also for private learnings of others.
    pub async fn get_memory(&self, who: &Principal, request: Uuid, memory: Uuid) -> Result<Value, Refusal> {
        policy::require(who, Right::Read)?;
        let key = who.entity(Kind::Memory);
        let sees_all = self.caller(who).await?.lead;
        let body = self.visible_memory(who, memory, sees_all).await?;
        // Noting the time of the read is a change, which those who may only look do not make. What was read is read,
        // whether it could be noted or not.
        if policy::may_work(who)
            && let Err(problem) = self.change::<Memory>(&key, request, Command::Touch { memory }).await
        {
            debug!(problem = %problem.message, "when a memory was read is not noted");
        }
        Ok(shape(body))
    }

    /// Forgets a learning for good. An agent does so with its own ones, the lead and operators with any.
    ///
    /// # Errors
    /// `forbidden` for another agent's; `not_found`, also for private learnings of others.
    pub async fn forget_memory(
        &self,
        who: &Principal,
        request: Uuid,
        memory: Uuid,
    ) -> Result<Value, Refusal> {
        policy::require_arranging(who)?;
        let leads = self.caller(who).await?.lead;
        let name = match self.visible_memory(who, memory, leads).await {
            Ok(body) if !leads && body["agentId"] != json!(who.agent) => {
                return Err(Refusal::new(
                    Code::Forbidden,
                    "an agent has its own memories forgotten alone; ask the lead or an operator to have this one forgotten",
                ));
            }
            Ok(body) => Ok(body["name"].as_str().map(str::to_owned)),
            Err(refusal) if refusal.code == Code::NotFound => Err(refusal),
            Err(refusal) => return Err(refusal),
        };
        // What a request has had forgotten its repeat does not find, and is answered all the same.
        let command = match name.clone() {
            Ok(name) => Command::Forget { memory, name },
            Err(refusal) => {
                let forget = Command::Forget { memory, name: None };
                Command::Denied(Denied { command: Box::new(forget), refusal })
            }
        };
        match self.change::<Memory>(&who.entity(Kind::Memory), request, command).await? {
            Reply::Remembered(body) => Ok(json!({ "forgotten": memory, "name": body["name"] })),
            // As an earlier program answers.
            _ => Ok(json!({ "forgotten": memory, "name": name.ok() })),
        }
    }

    async fn visible_memory(&self, who: &Principal, memory: Uuid, sees_all: bool) -> Result<Value, Refusal> {
        let body = self.body(&who.entity(Kind::Memory), &memory::key(memory)).await?;
        let body = body.filter(|body| body["id"].is_string() && (sees_all || is_visible(who, body)));
        body.ok_or_else(|| {
            Refusal::new(
                Code::NotFound,
                format!("there is no memory {memory} that you may read; memory-search finds them"),
            )
        })
    }

    /// Writes a learning down for an agent, unless it is written down already. Only the lead does.
    ///
    /// # Errors
    /// `forbidden`; `not_found` for an unknown agent.
    pub async fn remember(
        &self,
        who: &Principal,
        request: Uuid,
        remember: Remember,
    ) -> Result<Taught, Refusal> {
        self.require_lead(who).await?;
        let (agent, command) = (remember.agent, Command::Remember(Box::new(remember)));
        let command = self.naming(who, agent, command, Command::Denied).await?;
        self.learn(who, request, command).await
    }

    /// Writes a text down in pieces, all or none, each unless it is written down already. An agent does so for itself,
    /// and the lead for any; the pieces of a file replace those that it left behind before.
    ///
    /// # Errors
    /// `forbidden` for another agent; `not_found` for an unknown one; `no_capacity`; `too_large`.
    pub async fn index(&self, who: &Principal, request: Uuid, text: Remember) -> Result<Vec<Uuid>, Refusal> {
        let caller = self.caller(who).await?;
        policy::require(who, if caller.agent.is_some() { Right::Work } else { Right::Lead })?;
        if !caller.lead && text.agent != caller.agent {
            return Err(Refusal::new(
                Code::Forbidden,
                "agentId is another agent's: an agent remembers for itself, and the lead for others",
            ));
        }
        let (agent, command) = (text.agent, Command::Index(Box::new(text)));
        let command = self.naming(who, agent, command, Command::Denied).await?;
        match self.change::<Memory>(&who.entity(Kind::Memory), request, command).await? {
            Reply::Indexed(memories) => Ok(memories),
            _ => Err(unexpected("the memory")),
        }
    }

    async fn learn(&self, who: &Principal, request: Uuid, command: Command) -> Result<Taught, Refusal> {
        match self.change::<Memory>(&who.entity(Kind::Memory), request, command).await? {
            Reply::Remembered(body) => {
                let memory = body["id"].as_str().and_then(|id| Uuid::try_parse(id).ok());
                Ok(Taught { memory: memory.ok_or_else(|| unexpected("the memory"))?, again: false })
            }
            Reply::Known(memory) => Ok(Taught { memory, again: true }),
            Reply::Indexed(_) | Reply::Learnings(_) | Reply::Done => Err(unexpected("the memory")),
        }
    }
}

/// The caller's own, whatever their scope, and the swarm's.
fn is_visible(who: &Principal, body: &Value) -> bool {
    body["agentId"] == json!(who.agent) || body["scope"] == json!(Scope::Swarm)
}

fn shape(body: Value) -> Value {
    wire::shown(body, &NULLABLE)
}

#[cfg(test)]
mod tests {
    use skein_shared::pool::{self, Pool};

    use super::*;
    use crate::auth::Role;
    use crate::entity::tests::node;
    use crate::service::swarm::Introduction;
    use crate::store::memory::Fault;

    fn learning(agent: Uuid, scope: Scope, content: &str) -> Remember {
        Remember {
            id: None,
            agent: Some(agent),
            scope,
            name: "bridges".to_owned(),
            content: content.to_owned(),
            summary: None,
            source: Source::Manual,
            source_task: None,
            source_path: None,
            tags: Vec::new(),
            chunk_index: 0,
            total_chunks: 1,
        }
    }

    #[tokio::test]
    async fn an_agent_has_its_own_learnings_forgotten_and_the_lead_and_operators_any() {
        let node = node();
        let service = Service::new(node.entities.clone());
        let lead = Principal::named("lead", Role::Lead);
        let introduction = Introduction { name: "lead".to_owned(), lead: true, ..Introduction::default() };
        service.join(&lead, Uuid::now_v7(), introduction).await.unwrap();
        let [ann, bob] = ["ann", "bob"].map(|name| Principal::named(name, Role::Worker));
        let (eve, boss) = (Principal::named("eve", Role::Lead), Principal::named("boss", Role::Operator));
        let observer = Principal::named("ann", Role::Observer);
        let mut memories = Vec::new();
        for (scope, content) in [(Scope::Agent, "mine"), (Scope::Swarm, "ours"), (Scope::Agent, "a secret")] {
            let taught = learning(ann.agent, scope, content);
            let taught = Command::Remember(Box::new(taught));
            memories.push(service.learn(&ann, Uuid::now_v7(), taught).await.unwrap().memory);
        }
        let [own, shared, secret] = memories[..] else { panic!("{memories:?}") };
        for (who, memory, refused) in [
            (&bob, own, Some(Code::NotFound)),
            (&bob, shared, Some(Code::Forbidden)),
            // A lead's token alone makes no lead.
            (&eve, shared, Some(Code::Forbidden)),
            (&observer, own, Some(Code::Forbidden)),
            (&ann, own, None),
            (&ann, own, Some(Code::NotFound)),
            (&lead, shared, None),
            (&boss, secret, None),
            (&boss, secret, Some(Code::NotFound)),
        ] {
            let forgotten = service.forget_memory(who, Uuid::now_v7(), memory).await;
            let code = forgotten.err().map(|refusal| refusal.code);
            assert_eq!(code, refused, "{}, {:?}", who.agent_name, who.role);
        }
    }

    #[tokio::test]
    async fn what_was_forgotten_is_told_again_to_the_same_request_alone() {
        let node = node();
        let service = Service::new(node.entities.clone());
        let ann = Principal::named("ann", Role::Worker);
        let taught = Command::Remember(Box::new(learning(ann.agent, Scope::Agent, "mine")));
        let memory = service.learn(&ann, Uuid::now_v7(), taught).await.unwrap().memory;
        let request = Uuid::now_v7();
        let first = service.forget_memory(&ann, request, memory).await.unwrap();
        assert_eq!(first, json!({ "forgotten": memory, "name": "bridges" }));
        assert_eq!(service.forget_memory(&ann, request, memory).await, Ok(first));
        let later = service.forget_memory(&ann, Uuid::now_v7(), memory).await.unwrap_err();
        assert_eq!(later.code, Code::NotFound, "{later}");
        let another = service.forget_memory(&ann, request, Uuid::now_v7()).await.unwrap_err();
        assert_eq!(another.code, Code::KeyReused, "{another}");
    }

    #[tokio::test]
    async fn a_text_that_is_sent_again_is_known_though_the_agent_that_it_was_for_has_left() {
        let node = node();
        let service = Service::new(node.entities.clone());
        let (lead, ann) = (Principal::named("lead", Role::Lead), Principal::named("ann", Role::Worker));
        for (who, lead) in [(&lead, true), (&ann, false)] {
            let introduction =
                Introduction { name: who.agent_name.to_string(), lead, ..Introduction::default() };
            service.join(who, Uuid::now_v7(), introduction).await.unwrap();
        }
        let (request, text) = (Uuid::now_v7(), learning(ann.agent, Scope::Agent, "they swing"));
        let first = service.index(&lead, request, text.clone()).await.unwrap();
        let (key, leave) = (lead.entity(Kind::Pool), pool::Command::Leave { agent: ann.agent });
        service.change::<Pool>(&key, Uuid::now_v7(), leave).await.unwrap();
        assert_eq!(service.index(&lead, request, text.clone()).await, Ok(first));
        let refused = service.index(&lead, Uuid::now_v7(), text).await.unwrap_err();
        assert_eq!(refused.code, Code::NotFound, "{refused}");
    }

    #[tokio::test]
    async fn of_two_edits_of_a_file_at_once_one_is_remembered_and_that_is_whole() {
        let node = node();
        let (service, who) = (Service::new(node.entities.clone()), Principal::named("lead", Role::Lead));
        let introduction = Introduction { name: "lead".to_owned(), lead: true, ..Introduction::default() };
        service.join(&who, Uuid::now_v7(), introduction).await.unwrap();
        let edit = |word: &str| {
            let section = |number| format!("# Part {number}\n{}\n", word.repeat(300));
            let content: String = (0..5).map(section).collect();
            let source_path = Some("notes.md".to_owned());
            Remember { source: Source::FileIndex, source_path, ..learning(who.agent, Scope::Agent, &content) }
        };
        let [one, other] =
            ["zebra ", "gnus "].map(edit).map(|text| service.index(&who, Uuid::now_v7(), text));
        let (one, other) = tokio::join!(one, other);
        let mut left = Vec::new();
        for memories in [one.unwrap(), other.unwrap()] {
            let looking = memories.iter().map(|memory| service.get_memory(&who, Uuid::now_v7(), *memory));
            let found = futures::future::join_all(looking).await;
            left.push(found.iter().filter(|memory| memory.is_ok()).count());
        }
        left.sort_unstable();
        assert_eq!(left, [0, 5]);
    }

    #[tokio::test]
    async fn a_memory_is_read_though_that_cannot_be_noted() {
        let node = node();
        let (service, who) = (Service::new(node.entities.clone()), Principal::named("worker", Role::Worker));
        let taught = Command::Remember(Box::new(learning(who.agent, Scope::Agent, "they swing")));
        let memory = service.learn(&who, Uuid::now_v7(), taught).await.unwrap().memory;
        node.store.contents().faults().push(Fault::Refused);
        let read = service.get_memory(&who, Uuid::now_v7(), memory).await.unwrap();
        assert_eq!(read["content"], "they swing", "{read}");
        let touch = Command::Touch { memory };
        let noted = service.change::<Memory>(&who.entity(Kind::Memory), Uuid::now_v7(), touch).await;
        assert!(noted.is_ok(), "the note of the read was to fail: {noted:?}");
    }
}
