//! Talking to whoever works on a task. What is said is written down at once, and goes with the next answer that the
//! task's agent gets.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use skein_shared::Refusal;
use skein_shared::id::{InstanceId, Kind, Name};
use skein_shared::pool::{Command, Pool, Reply, steering};
use uuid::Uuid;

use super::{Service, unexpected};
use crate::auth::{Principal, Right, Role, policy};
use crate::entity::hub::Bell;

/// Callers that are remembered. When there are more, all are forgotten, and each costs one more question.
const CALLERS: usize = 10_000;

/// Whom the pool has to be asked about: who has called here before is told of by a bell.
#[derive(Clone, Debug, Default)]
pub(super) struct Steered {
    bells: Arc<Mutex<HashMap<Who, Arc<Bell>>>>,
}

/// An instance of an agent of a swarm.
type Who = (Name, Uuid, InstanceId);

impl Service {
    /// Says something to the agent that works on a task, now or as soon as it begins. Gives the message's id, and the
    /// task.
    ///
    /// # Errors
    /// `forbidden` but for the lead and the task's creator; `wrong_state`, `not_found`; `queue_full` while the agent has
    /// not had what was said before.
    pub async fn steer_task(
        &self,
        who: &Principal,
        request: Uuid,
        task: Uuid,
        text: String,
    ) -> Result<(Uuid, Value), Refusal> {
        let administers = who.role == Role::Operator;
        policy::require(who, if administers { Right::Lead } else { Right::Work })?;
        let by = (!administers).then_some(who.agent);
        let command = Command::Steer { task, by, text };
        match self.change_shown::<Pool>(&who.entity(Kind::Pool), request, command).await? {
            (Reply::Steered { message, task }, body) => Ok((message, self.shown(who, &task, body).await?)),
            _ => Err(unexpected("the pool")),
        }
    }

    /// What was said to the caller about its tasks and has not reached it: `{taskId, from?, content, createdAt}`. It is
    /// given once.
    pub async fn take_steering(&self, who: &Principal) -> Vec<Value> {
        if !matches!(who.role, Role::Lead | Role::Worker) {
            return Vec::new();
        }
        let bell = self.steered.bell(self, who);
        if !bell.has_rung() {
            return Vec::new();
        }
        let command = Command::TakeSteering { agent: who.agent, instance: who.instance.clone() };
        let taken = self.change::<Pool>(&who.entity(Kind::Pool), Uuid::now_v7(), command).await;
        match taken {
            Ok(Reply::Steering(messages)) => self.words(who, messages).await,
            _ => {
                bell.ring();
                Vec::new()
            }
        }
    }

    async fn words(&self, who: &Principal, messages: Vec<Uuid>) -> Vec<Value> {
        let mut words = Vec::with_capacity(messages.len());
        for message in messages {
            let body = self.body(&who.entity(Kind::Pool), &format!("steering/{message}")).await;
            let Ok(Some(body)) = body else { continue };
            let mut word = json!({ "taskId": body["taskId"], "content": body["content"], "createdAt": body["createdAt"] });
            let from = body["fromAgentId"].as_str().and_then(|id| Uuid::try_parse(id).ok());
            if let Some(from) = from
                && let Ok(Some(member)) = self.member(who, from).await
            {
                word["from"] = member["name"].clone();
            }
            words.push(word);
        }
        words
    }
}

impl Steered {
    fn bell(&self, service: &Service, who: &Principal) -> Arc<Bell> {
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        let caller = (who.swarm.clone(), who.agent, who.instance.clone());
        if let Some(bell) = bells.get(&caller) {
            return Arc::clone(bell);
        }
        if bells.len() >= CALLERS {
            bells.clear();
        }
        let bell = Arc::new(service.entities.hub().bell(steering(who.agent)));
        bells.insert(caller, Arc::clone(&bell));
        bell
    }
}
