//! Reading documents as clients see them.

use std::collections::BTreeSet;
use std::slice;

use serde_json::{Value, json};
use skein_shared::denied::Denied;
use skein_shared::id::{EntityKey, Kind};
use skein_shared::{Code, Refusal, wire};
use uuid::Uuid;

use super::Service;
use crate::auth::{Principal, Right, policy};

impl Service {
    /// The body of a document, or `None` if there is no such document.
    pub(super) async fn body(&self, key: &EntityKey, document: &str) -> Result<Option<Value>, Refusal> {
        self.entities.body(key, document).await
    }

    /// A task with all its fields.
    pub(super) async fn task(&self, who: &Principal, id: Uuid) -> Result<Option<Value>, Refusal> {
        let body = self.body(&who.entity(Kind::Pool), &format!("task/{id}")).await?;
        let Some(mut task) = body.map(task_shape) else { return Ok(None) };
        self.leave_out_lost_epics(who, slice::from_mut(&mut task)).await;
        Ok(Some(task))
    }

    /// Tasks outlive their epic, and name none then. One that cannot be looked at just now is not gone for that.
    pub(super) async fn leave_out_lost_epics(&self, who: &Principal, tasks: &mut [Value]) {
        let key = who.entity(Kind::Epics);
        let named: BTreeSet<Uuid> = tasks.iter().filter_map(|task| id_of(task, "epicId")).collect();
        for epic in named {
            // Read and not asked for: the epics may be without an owner for a while, and the tasks are at hand.
            if !matches!(self.body(&key, &format!("epic/{epic}")).await, Ok(None)) {
                continue;
            }
            let of_it = tasks.iter_mut().filter(|task| id_of(task, "epicId") == Some(epic));
            for fields in of_it.filter_map(Value::as_object_mut) {
                fields.retain(|name, _| name != "epicId");
            }
        }
    }

    /// A task that must be there.
    pub(super) async fn known_task(&self, who: &Principal, id: Uuid) -> Result<Value, Refusal> {
        self.task(who, id).await?.ok_or_else(|| {
            Refusal::new(Code::NotFound, format!("there is no task {id} in this swarm; get-tasks lists them"))
        })
    }

    /// A member of the swarm with its profile's texts.
    pub(super) async fn member_with_profile(
        &self,
        who: &Principal,
        id: Uuid,
    ) -> Result<Option<Value>, Refusal> {
        let Some(mut member) = self.member(who, id).await? else { return Ok(None) };
        let texts = self.body(&who.entity(Kind::Pool), &format!("profile/{id}")).await?;
        if let (Some(member), Some(Value::Object(texts))) = (member.as_object_mut(), texts) {
            member.extend(texts);
        }
        Ok(Some(member))
    }

    /// A member of the swarm.
    pub(super) async fn member(&self, who: &Principal, id: Uuid) -> Result<Option<Value>, Refusal> {
        let body = self.body(&who.entity(Kind::Pool), &format!("member/{id}")).await?;
        Ok(body.map(|body| wire::shown(body, &[])))
    }

    /// A command that names an agent, which must be a member of the swarm. A repeat of what was done may name one that
    /// has left since: the command goes to its entity all the same, `denied` if the agent is no member.
    pub(super) async fn naming<C>(
        &self,
        who: &Principal,
        agent: Option<Uuid>,
        command: C,
        denied: impl FnOnce(Denied<C>) -> C,
    ) -> Result<C, Refusal> {
        let Some(agent) = agent else { return Ok(command) };
        if self.member(who, agent).await?.is_some() {
            return Ok(command);
        }
        let problem = format!("there is no agent {agent} in this swarm; get-swarm lists its members");
        let refusal = Refusal::new(Code::NotFound, problem);
        Ok(denied(Denied { command: Box::new(command), refusal }))
    }

    /// An agent must have joined. Those who only look, and operators, are no agents.
    pub(super) async fn require_member(&self, who: &Principal) -> Result<(), Refusal> {
        if policy::allows(who.role, Right::Work) {
            self.own_member(who).await?;
        }
        Ok(())
    }

    /// The caller as a member.
    pub(super) async fn own_member(&self, who: &Principal) -> Result<Value, Refusal> {
        self.member(who, who.agent).await?.ok_or_else(not_joined)
    }
}

/// A task has an assignee or null; all else is left out when it is not set.
pub(super) fn task_shape(body: Value) -> Value {
    wire::shown(body, &["agentId"])
}

/// A message of a channel. What no agent said a person did.
pub(super) fn message_shape(body: Value) -> Value {
    let mut shown = wire::shown(body, &["agentId"]);
    if shown["agentId"].is_null() {
        shown["agentName"] = json!("Human");
    }
    shown
}

/// The id that a document has in a field.
pub(super) fn id_of(document: &Value, field: &str) -> Option<Uuid> {
    document[field].as_str().and_then(|id| Uuid::try_parse(id).ok())
}

pub(super) fn not_joined() -> Refusal {
    Refusal::new(Code::NotJoined, "you are not a member of this swarm yet; call join-swarm first")
}
